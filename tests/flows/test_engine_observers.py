"""Who watches the exchange, inside the process or on the broker, sees the seed's routing keys and bodies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.flows.engine import Engine
from tests.flows.engine_nodes import stage
from tradewind.signals.exchange import Delivery

BODY = {"id", "type", "payload", "timestamp", "source_node", "source_handle", "flow_id", "cycle"}


class Watch:
    """A queue of an observer, bound with the seed's wildcards."""

    def __init__(self, station: Engine) -> None:
        self.exchange = station.station.exchange
        self.got: asyncio.Queue[Delivery] = asyncio.Queue()
        self.name = ""

    async def bind(self, name: str, *bindings: str) -> None:
        self.name = name
        await self.exchange.declare_queue(name, list(bindings))
        await self.exchange.consume(name, self._take, prefetch=100)

    async def _take(self, delivery: Delivery) -> None:
        self.got.put_nowait(delivery)

    async def next(self, many: int) -> dict[str, Any]:
        async with asyncio.timeout(10):
            found = [await self.got.get() for _ in range(many)]
        return {d.routing_key: json.loads(d.body) for d in found}


async def test_an_observer_sees_keys_and_bodies_of_the_seed(station: Engine) -> None:
    price = ("e_send", {"values": {"a": {"close": 5}}, "signal": "PRICE_DATA"})
    nodes: dict[str, Any] = {"price": price, "ai": "e_note", "buy": "e_two"}
    flow_id = await station.register(nodes, "price.a>ai.x", "ai.a>buy.x", "price.a>buy.y")
    watch = Watch(station)
    await watch.bind(f"watch-{flow_id}", f"flow.{flow_id}.component.*.cycle.*.from.*.handle.*.to.*.handle.*")
    cycle = await station.run(flow_id)
    await station.end(flow_id, cycle)
    head = f"flow.{flow_id}.component.0.cycle.{cycle}.from"
    seen = await watch.next(3)
    assert set(seen) == {
        f"{head}.price.handle.a.to.ai.handle.x",
        f"{head}.price.handle.a.to.buy.handle.y",
        f"{head}.ai.handle.a.to.buy.handle.x",
    }
    body = seen[f"{head}.price.handle.a.to.ai.handle.x"]
    assert set(body) == BODY
    assert (body["type"], body["payload"], body["source_node"]) == ("PRICE_DATA", {"close": 5}, "price")
    assert (body["source_handle"], body["flow_id"], body["cycle"]) == ("a", flow_id, cycle)
    await station.station.exchange.delete_queues([watch.name])


@pytest.mark.parametrize("scope", ["component", "flow"])
async def test_an_observer_sees_the_stop(station: Engine, scope: str) -> None:
    flow_id = await station.register({"stop": ("e_stop", {"scope": scope}), "d": "e_note"}, "stop.a>d.x")
    watch = Watch(station)
    await watch.bind(f"watch-{flow_id}", f"flow.{flow_id}.signal.STOP_EXECUTION.cycle.*")
    cycle = await station.run(flow_id)
    ended = await station.end(flow_id, cycle)
    assert ended.view["stopped_by"] == "stop"
    ((key, body),) = (await watch.next(1)).items()
    assert key == f"flow.{flow_id}.signal.STOP_EXECUTION.cycle.{cycle}"
    assert (body["type"], body["source_node"]) == ("STOP_EXECUTION", "stop")
    assert body["payload"] == {"reason": "enough", "source_node": "stop", "component_id": 0, "scope": scope}
    await station.station.exchange.delete_queues([watch.name])


async def test_an_observer_that_does_not_read_disturbs_nothing(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send", "t": "e_note"}, "s.a>t.x", interval=3600)
    name = f"watch-{flow_id}"
    await station.station.exchange.declare_queue(name, [f"flow.{flow_id}.#"])
    for _ in range(5):
        assert (await station.end(flow_id, await station.run(flow_id))).status == "completed"
    await station.station.exchange.delete_queues([name])
    assert stage.ran(flow_id).count("t") == 5
