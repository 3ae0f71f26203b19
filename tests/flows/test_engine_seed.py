"""The worked examples of seed 003, with its names, on both transports: what runs, and what is seen on the exchange."""

from __future__ import annotations

from typing import Any

from tests.flows.engine import Engine
from tests.flows.engine_nodes import stage
from tests.flows.test_engine_observers import BODY, Watch
from tradewind.flows.node import Input, Node, Output, node

PRICE = {"symbol": "BTCUSDT", "close_price": 50000, "volume": 1000000}
DECISION = {"action": "buy", "confidence": 0.85, "amount": 0.1}


@node("seed_price")
class BinancePriceNode(Node):
    kline_data: Output[dict[str, Any]] = Output(signal_type="PRICE_DATA")

    async def execute(self) -> bool:
        await self.send_signal("kline_data", PRICE, signal_type="PRICE_DATA")
        return True


@node("seed_model")
class AIModelNode(Node):
    price_input: Input[dict[str, Any]]
    ai_response: Output[dict[str, Any]] = Output(signal_type="AI_RESPONSE")

    async def execute(self) -> bool:
        stage.note(self, self.price_input.value)
        await stage.gate(self.flow_id).wait()
        await self.ai_response.send(DECISION)
        return True


@node("seed_buy")
class BuyNode(Node):
    decision_input: Input[dict[str, Any]]

    async def execute(self) -> bool:
        stage.note(self, self.decision_input.value)
        return True


@node("seed_source")
class SourceNode(Node):
    """Sends `payload` on the handle that `handle` names."""

    handle: str
    payload: dict[str, Any] = {}  # noqa: RUF012 - config, copied for each node
    price_data: Output[dict[str, Any]] = Output(signal_type="PRICE_DATA")
    news_data: Output[dict[str, Any]] = Output(signal_type="DATASET")
    social_data: Output[dict[str, Any]] = Output(signal_type="DATASET")

    async def execute(self) -> dict[str, Any]:
        return {self.handle: self.payload}


@node("seed_analysis")
class AnalysisNode(Node):
    market_data: Input[dict[str, Any]] = Input(aggregate=True, auto_update_attr="aggregated")
    aggregated: Any = None

    async def execute(self) -> bool:
        stage.note(self, self.aggregated)
        return True


async def test_price_to_model_to_buy(station: Engine) -> None:
    nodes = {"binance_price": "seed_price", "ai_model": "seed_model", "buy_node": "seed_buy"}
    edges = ("binance_price.kline_data>ai_model.price_input", "ai_model.ai_response>buy_node.decision_input")
    flow_id = await station.register(nodes, *edges)
    watch = Watch(station)
    await watch.bind(f"watch-{flow_id}", f"flow.{flow_id}.component.0.cycle.0.from.*.handle.*.to.*.handle.*")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "ai_model")
    if station.is_amqp:
        names = [f"queue.flow.{flow_id}.cycle.0.node.{name}" for name in nodes]
        assert await station.queues(flow_id, 0, list(nodes)) == names
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert (ended.status, ended.got("ai_model"), ended.got("buy_node")) == ("completed", PRICE, DECISION)
    seen = await watch.next(2)
    head = f"flow.{flow_id}.component.0.cycle.0.from"
    price = seen[f"{head}.binance_price.handle.kline_data.to.ai_model.handle.price_input"]
    answer = seen[f"{head}.ai_model.handle.ai_response.to.buy_node.handle.decision_input"]
    assert set(price) == set(answer) == BODY
    assert (price["type"], price["payload"]) == ("PRICE_DATA", PRICE)
    assert (answer["type"], answer["payload"]) == ("AI_RESPONSE", DECISION)
    await station.no_queues(flow_id, 0, list(nodes))
    await station.station.exchange.delete_queues([watch.name])


async def test_three_sources_into_one_aggregate_handle(station: Engine) -> None:
    payloads = {
        "price_data": {"price": 50000, "change": 2.5},
        "news_data": {"sentiment": "positive", "score": 0.8},
        "social_data": {"mentions": 1000, "sentiment": 0.7},
    }
    nodes: dict[str, Any] = {
        handle.replace("_data", "_node"): ("seed_source", {"handle": handle, "payload": payload})
        for handle, payload in payloads.items()
    }
    edges = [f"{handle.replace('_data', '_node')}.{handle}>analysis.market_data" for handle in payloads]
    flow_id = await station.register({**nodes, "analysis": "seed_analysis"}, *edges)
    watch = Watch(station)
    await watch.bind(f"watch-{flow_id}", f"flow.{flow_id}.component.*.cycle.*.from.*.handle.*.to.analysis.handle.*")
    ended = await station.end(flow_id, await station.run(flow_id))
    assert (ended.status, ended.got("analysis")) == ("completed", payloads)
    seen = await watch.next(3)
    head = f"flow.{flow_id}.component.0.cycle.0.from"
    for handle, payload in payloads.items():
        body = seen[f"{head}.{handle.replace('_data', '_node')}.handle.{handle}.to.analysis.handle.market_data"]
        assert body["payload"] == payload
        assert body["type"] == ("PRICE_DATA" if handle == "price_data" else "DATASET")
    await station.station.exchange.delete_queues([watch.name])


async def test_a_condition_that_is_not_met_stops_the_cycle(station: Engine) -> None:
    nodes: dict[str, Any] = {
        "price": ("constant", {"value": 90}),
        "check": ("condition", {"expression": "price >= 100", "stop": "on_false"}),
        "buy": "e_note",
        "report": "e_note",
    }
    edges = ("price.value>check.price", "check.true>buy.x", "buy.a>report.x")
    flow_id = await station.register(nodes, *edges)
    watch = Watch(station)
    await watch.bind(f"watch-{flow_id}", f"flow.{flow_id}.signal.STOP_EXECUTION.cycle.0")
    ended = await station.end(flow_id, await station.run(flow_id))
    assert ended.states == {"price": "completed", "check": "completed", "buy": "terminated", "report": "terminated"}
    assert (ended.status, ended.view["stopped_by"]) == ("completed", "check")
    ((key, body),) = (await watch.next(1)).items()
    assert key == f"flow.{flow_id}.signal.STOP_EXECUTION.cycle.0"
    assert body["payload"]["reason"] == "Condition not met: price >= 100"
    assert stage.ran(flow_id) == []
    await station.station.exchange.delete_queues([watch.name])
