"""The task `flow_start`: a cycle for whoever may submit tasks, one per run id."""

from __future__ import annotations

from tests.flows.engine import Engine
from tests.flows.engine_nodes import stage
from tradewind.tasks.client import Client
from tradewind.tasks.gate import RedisGate


async def test_a_task_starts_one_cycle_per_run_id(station: Engine) -> None:
    flow_id = await station.register(
        {"n": ("e_note", {}, {"external": ["x"]})}, interval=None, schedule={"manual": True}
    )
    gate = RedisGate(station.station.settings, station.station.plane)
    await gate.open()
    client = Client(gate)
    call = {"flow_id": flow_id, "payload": {"value": 7.0}, "run_id": "exec_1-0"}
    first = await (await client.submit("flow_start", **call)).result(20)
    again = await (await client.submit("flow_start", **call)).result(20)
    assert first == again == 0
    ended = await station.end(flow_id, 0)
    assert ended.view["trigger"] == "rule"
    assert stage.got(flow_id, "n") == [{"value": 7.0}]
    await gate.close()
