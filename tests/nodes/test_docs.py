"""docs/builtin-nodes.md says what the node types say of themselves, and its examples are true."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.host import Cycle, Host, new_call, payloads, problems, to_end
from tests.nodes.web import serve
from tests.points.command_bench import CHANNEL
from tests.servers import Server
from tradewind.flows.call import Arrived
from tradewind.flows.node_registry import node_types
from tradewind.flows.spec import Handle, NodeType
from tradewind.nodes import http_request, python_node
from tradewind.nodes.points import use_points
from tradewind.points.board import Batch
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.signals.signal import new_signal
from tradewind.station_points import PointRoom

PAGE = Path(__file__).resolve().parents[2] / "docs" / "builtin-nodes.md"
OF_POINTS = ("point_read", "model_read", "command")
EXAMPLE_HOST = "https://api.example.com"


def _is_ours(name: str) -> bool:
    found = node_types.get(name)
    return found is not None and found.__module__.startswith("tradewind.nodes.")


TYPES = {name: kind for name, kind in node_types.describe().items() if _is_ours(name)}
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", TEXT, re.M | re.S)]
WITHOUT_POINTS = [example for example in EXAMPLES if example["type"] not in OF_POINTS]
WITH_POINTS = [example for example in EXAMPLES if example["type"] in OF_POINTS]


def handles(declared: tuple[Handle, ...], is_open: bool) -> str:
    return ", ".join([f"`{handle.name}`" for handle in declared] + (["any"] if is_open else [])) or "–"


def overview(types: dict[str, NodeType]) -> list[str]:
    rows = ["| type | category | inputs | outputs | what it does |", "|---|---|---|---|---|"]
    for name, kind in types.items():
        ins, outs = handles(kind.inputs, kind.open_inputs), handles(kind.outputs, kind.open_outputs)
        rows.append(f"| [`{name}`](#{name}) | {kind.category} | {ins} | {outs} | {kind.description} |")
    return rows


def kind_of(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(kind_of(part) for part in schema["anyOf"])
    return {"array": "list", "object": "mapping", "string": "text"}.get(
        schema.get("type", ""), schema.get("type", "any")
    )


def config_rows(kind: NodeType) -> list[str]:
    rows = ["| config | kind | default | |", "|---|---|---|---|"]
    needed = kind.config_schema.get("required", ())
    for name, schema in kind.config_schema["properties"].items():
        default = "required" if name in needed else f"`{json.dumps(schema.get('default'))}`"
        rows.append(f"| `{name}` | {kind_of(schema)} | {default} | {schema['description']} |")
    return rows


def test_every_node_type_is_on_the_page_as_it_describes_itself() -> None:
    missing = [row for row in overview(TYPES) if row not in TEXT.splitlines()]
    for name, kind in TYPES.items():
        section = TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        missing += [row for row in config_rows(kind) if row not in section.splitlines()]
    assert not missing, "\n".join(["docs/builtin-nodes.md lacks these rows:", *missing])
    assert re.findall(r"^## (\w+)$", TEXT, re.M) == list(TYPES)


def test_the_types_of_the_issue_are_there() -> None:
    wanted = "constant expression condition switch delay http_request log python aggregate map subflow approval"
    assert set(TYPES) == {*wanted.split(), *OF_POINTS}
    for kind in TYPES.values():
        assert kind.category in ("source", "math", "control", "io", "code", "human", "flow")
        assert kind.description
        assert all(handle.description for handle in (*kind.inputs, *kind.outputs)), kind.type
        assert all(schema.get("description") for schema in kind.config_schema["properties"].values()), kind.type


def test_every_node_has_an_example() -> None:
    assert {example["type"] for example in EXAMPLES} == set(TYPES)


def double(signals: dict[str, Any]) -> Cycle:
    return "completed", {"twice": {"result": signals["take.value"] * 2}}


def arrivals(example: dict[str, Any]) -> list[Arrived]:
    found = []
    for handle, value in example.get("inputs", {}).items():
        parts = value.items() if example["type"] == "aggregate" else [("out", value)]
        for source_handle, payload in parts:
            signal = new_signal(payload, source_node="source", source_handle=source_handle)
            found.append(Arrived(f"source_{source_handle}", source_handle, handle, signal))
    return found


@pytest.mark.parametrize("example", WITHOUT_POINTS, ids=[f"{i}-{e['type']}" for i, e in enumerate(WITHOUT_POINTS)])
async def test_an_example_is_true(example: dict[str, Any]) -> None:
    before = python_node.is_allowed()
    python_node.allow(True)
    host = Host({"double": double})
    try:
        http_request.allow(["127.0.0.1"])
        with serve() as web:
            web.json("/prices/BTC%2FUSD", {"close": 1.5})
            config = json.loads(json.dumps(example["config"]).replace(EXAMPLE_HOST, web.address))
            assert not problems(example["type"], config, list(example.get("inputs", {})))
            result = await to_end(new_call(example["type"], config, arrivals(example)), host)
    finally:
        python_node.allow(before)
        http_request.allow([])
    sent = payloads(result)
    if example["type"] == "http_request":
        del sent["response"]["headers"]
    assert sent == example["outputs"]
    if "stop" in example:
        assert result.stop is not None and result.stop.reason == example["stop"]
    if "log" in example:
        assert [message for _, message, _ in host.logs] == [example["log"]]


@pytest.mark.parametrize("example", WITH_POINTS, ids=[f"{i}-{e['type']}" for i, e in enumerate(WITH_POINTS)])
async def test_an_example_with_points_is_true(example: dict[str, Any], redis_7: Server, key_prefix: str) -> None:
    link = await open_link(RedisSettings(url=redis_7.url))
    room = PointRoom(link, Settings(key_prefix=key_prefix))
    await room.channels.put([CHANNEL])
    await room.plane.at(CHANNEL.id).redis.hset(room.plane.keys.channel_status(CHANNEL.id), "online", "1")
    for address, value in example.get("points", {}).items():
        key, _, field = address.rpartition(":")
        await room.board.write([Batch(key, {field: value})])
    use_points(room)
    try:
        assert not problems(example["type"], example["config"], list(example.get("inputs", {})))
        sent = payloads(await to_end(new_call(example["type"], example["config"], arrivals(example))))
    finally:
        use_points(None)
        await room.close()
        await link.close()
    if "command" in sent:
        assert sent["command"].pop("id").startswith("cmd_")
    assert sent == example["outputs"]
