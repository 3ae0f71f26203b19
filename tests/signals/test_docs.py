"""What docs/signals.md shows is so."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import servers
from tests.signals.conftest import Inbox
from tradewind.signals import decode, node_binding, queue_name, read_delivery, signal_key, stop_key
from tradewind.signals.amqp import AmqpExchange

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "signals.md").read_text(encoding="utf-8")
QUEUE = queue_name("trading_flow", 0, "buy_node")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


async def run(program: str, url: str = "") -> str:
    env = {**os.environ, "AMQP_URL": url} if url else {k: v for k, v in os.environ.items() if k != "AMQP_URL"}
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=env, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == 0, err.decode()
    return out.decode()


@asynccontextmanager
async def buy_node(broker: servers.Server) -> AsyncIterator[Inbox]:
    async with AmqpExchange(broker.url) as exchange:
        await exchange.declare_queue(
            QUEUE, [node_binding("trading_flow", 0, 0, "buy_node"), stop_key("trading_flow", 0)]
        )
        inbox = Inbox()
        await exchange.consume(QUEUE, inbox)
        yield inbox
        await exchange.delete_queues([QUEUE])


async def test_the_foreign_program_listens_and_speaks(rabbitmq: servers.Server) -> None:
    async with buy_node(rabbitmq) as inbox:
        out = await run(blocks("python")[0], rabbitmq.url)
        _, signal = read_delivery(await inbox.next())
    assert out.split(" ", 1)[1] == "{'action': 'buy'}\n"
    assert (signal.type, signal.payload, signal.source_node) == ("AI_RESPONSE", {"action": "buy"}, "ai_model")


@pytest.mark.parametrize("transport", ["memory", "amqp"])
async def test_the_python_example_runs_on_both(transport: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    assert await run(blocks("python")[1], url) == "ai_model {'action': 'buy'}\n"


def test_the_bodies_are_read() -> None:
    ours, seed = blocks("json")
    signal = decode(ours)
    assert list(json.loads(ours)) == list(signal.__struct_fields__)
    assert (signal.id, signal.type, signal.source_node, signal.timestamp) == (
        "s1",
        "PRICE_DATA",
        "binance_price",
        1759744800.0,
    )
    assert (decode(seed).type, decode(seed).timestamp) == ("AI_RESPONSE", 1759744805.0)


def test_the_forms_are_those_that_are_made() -> None:
    forms = dict(re.findall(r"^\| (signal|stop|a node's binding|a node's queue) \| `([^`]+)`", PAGE, re.M))
    words = {"flow": "F", "component": 1, "cycle": 2, "node": "N", "output": "O", "input": "I"}
    said = {name: form.format(**words) for name, form in forms.items()}
    assert said == {
        "signal": signal_key("F", 1, 2, "N", "O", "N", "I"),
        "stop": stop_key("F", 2),
        "a node's binding": node_binding("F", 1, 2, "N"),
        "a node's queue": queue_name("F", 2, "N"),
    }
