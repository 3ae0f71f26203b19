"""Cycles, their nodes and their record over HTTP, on a whole station."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.conftest import Eventually, SmallStation, ask
from tests.api.flow_station import ASK, BROKEN, DOUBLE, DOUBLING, LATER, PRICE, Flows, edge, flow
from tradewind.api import create_app
from tradewind.station import Station

NODE = {"status", "error_message", "started_at", "finished_at", "worker_id"}
STATISTICS = {
    "total_nodes", "running_nodes", "completed_nodes", "failed_nodes", "error_nodes", "skipped_nodes",
}  # fmt: skip
AFTER = {"id": "after", "type": "log", "config": {"message": "got {value}"}}
WAITING = flow("f1", PRICE, LATER, AFTER, ASK, edges=[edge("price", "later", "value"), edge("later", "after", "value")])


async def test_a_run_to_its_end_and_its_status(flows: Flows) -> None:
    await flows.post("/flows", DOUBLING, 201)
    before = await flows.get("/flows/f1/status")
    assert (before["cycle"], before["flow_status"], before["nodes"]) == (-1, "registered", {})
    assert before["statistics"].keys() >= STATISTICS
    assert await flows.post("/flows/f1/cycles?wait=20", None, 201) == {
        "flow_id": "f1",
        "cycle": 0,
        "status": "completed",
    }
    found = await flows.get("/flows/f1/status")
    assert (found["flow_id"], found["cycle"], found["flow_status"]) == ("f1", 0, "registered")
    assert found["nodes"].keys() == {"price", "double"}
    for node in found["nodes"].values():
        assert node.keys() >= NODE and node["status"] == "completed" and node["worker_id"] == "w-1"
        assert node["error_message"] is None and node["started_at"] <= node["finished_at"]
    numbers = found["statistics"]
    assert numbers.keys() >= STATISTICS
    assert (numbers["total_nodes"], numbers["completed_nodes"], numbers["running_nodes"]) == (2, 2, 0)
    assert await flows.get("/flows/f1/status", cycle=0) == found
    cycle = await flows.get("/flows/f1/cycles/0")
    assert (cycle["status"], cycle["node_count"], cycle["trigger"]) == ("completed", 2, "manual")
    assert cycle["start_time"] <= cycle["end_time"] and cycle["counts"]["completed"] == 2
    assert await flows.post("/flows/f1/cycles", {}, 201) == {"flow_id": "f1", "cycle": 1}


async def test_a_failure_is_named_and_counted(flows: Flows) -> None:
    edges = [edge("price", "double", "price"), edge("double", "after", "value", "result")]
    await flows.post("/flows", flow("f1", PRICE, BROKEN, AFTER, edges=edges), 201)
    cycle = await flows.run("f1", status="failed")
    found = await flows.get("/flows/f1/status")
    assert (found["cycle"], found["cycle_status"]) == (cycle, "failed")
    assert found["nodes"]["double"]["status"] == "failed" and "zero" in found["nodes"]["double"]["error_message"]
    assert found["nodes"]["after"]["status"] == "skipped"
    numbers = found["statistics"]
    assert [numbers[f"{name}_nodes"] for name in ("failed", "error", "skipped", "completed")] == [1, 1, 1, 1]
    assert [item["cycle"] for item in (await flows.get("/flows/f1/cycles", status="failed"))["items"]] == [cycle]
    assert (await flows.get("/flows/f1/cycles", status="completed"))["items"] == []
    why = await flows.get(f"/flows/f1/cycles/{cycle}/nodes/after/why")
    assert why["status"] == "skipped" and "ended" in why["reason"]


async def test_a_part_runs_with_given_or_stored_signals_and_a_cycle_runs_again(
    flows: Flows, eventually: Eventually
) -> None:
    await flows.post("/flows", DOUBLING, 201)

    async def result(cycle: int) -> Any:
        found: list[Any] = []

        async def is_recorded() -> bool:
            items = (await flows.get(f"/flows/f1/cycles/{cycle}/signals", node="double"))["items"]
            found[:] = [item["payload"] for item in items if item["source_node"] == "double"]
            return bool(found)

        await eventually(is_recorded)
        return found[0]

    given = await flows.run("f1", {"node": "double", "signals": {"double.price": 21}})
    assert (await flows.get(f"/flows/f1/cycles/{given}"))["nodes"]["price"]["status"] == "skipped"
    assert await result(given) == 42
    whole = await flows.run("f1")
    stored = await flows.run("f1", {"node": "double", "mode": "downstream", "from_cycle": whole})
    assert await result(stored) == 84
    again = await flows.run("f1", {"again": given})
    assert await result(again) == 42
    same = [await flows.post("/flows/f1/cycles", {"run_id": "mine"}, 201) for _ in range(2)]
    assert same[0] == same[1] and same[0]["cycle"] == again + 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ([], 422, "not_an_object"),
        ({"colour": 1}, 422, "unknown_field"),
        ({"signals": []}, 422, "invalid_run"),
        ({"signals": {"nobody.x": 1}}, 422, "invalid"),
        ({"mode": "single"}, 422, "invalid_run"),
        ({"node": "double", "mode": "sideways"}, 422, "invalid_run"),
        ({"node": 5}, 422, "invalid_run"),
        ({"node": "nobody"}, 404, "node_not_found"),
        ({"from_cycle": -1}, 422, "invalid_run"),
        ({"from_cycle": True}, 422, "invalid_run"),
        ({"again": "0"}, 422, "invalid_run"),
        ({"again": 0, "node": "double"}, 422, "invalid_run"),
        ({"again": 7}, 404, "cycle_not_found"),
        ({"run_id": "a b"}, 422, "invalid_run"),
    ],
)
async def test_a_bad_run_starts_nothing(station: SmallStation, body: Any, status: int, code: str) -> None:
    async with ask(create_app(station)) as client:
        flows = Flows(client)
        nodes = [{"id": "price", "type": "echo"}, {"id": "double", "type": "echo"}]
        await station.plane.link.client.sadd(station.plane.keys.worker_types(), "remote")
        for node in nodes:
            node["type"] = "remote"
        await flows.post("/flows", flow("f1", *nodes, edges=[edge("price", "double", "x")]), 201)
        assert await flows.error("POST", "/flows/f1/cycles", status, json=body) == code
        assert (await flows.get("/flows/f1/cycles"))["items"] == []
        assert await flows.error("POST", "/flows/nobody/cycles", 404, json={}) == "flow_not_found"
        assert await flows.error("POST", "/flows/f1/cycles?wait=61", 422, json={}) == "invalid"


async def test_a_cycle_is_watched_explained_and_stopped(flows: Flows) -> None:
    await flows.post("/flows", WAITING, 201)
    cycle = (await flows.post("/flows/f1/cycles", status=201))["cycle"]
    at = f"/flows/f1/cycles/{cycle}"
    shown = await flows.get(at, wait=0.2)  # a wait that ends before the cycle
    assert shown["status"] == "running" and shown["end_time"] is None
    why = await flows.get(f"{at}/nodes/after/why")
    assert why["status"] == "pending" and why["missing"][0]["from"] == "later:value" and "later" in why["reason"]
    assert (await flows.get("/flows"))["items"][0]["running_cycles"] == 1
    ended = asyncio.create_task(flows.get(at, wait=20))
    await asyncio.sleep(0.05)
    stopped = await flows.post(f"{at}/stop", {"reason": "the market is closed"})
    assert (stopped["flow_id"], stopped["cycle"]) == ("f1", cycle)
    found = await ended
    assert found["status"] == "stopped" and found["reason"] == "the market is closed"
    assert found["nodes"]["price"]["status"] == "completed" and found["nodes"]["after"]["status"] == "terminated"
    for path in ("stop", "components/0/stop", "nodes/after/terminate"):
        assert await flows.error("POST", f"{at}/{path}", 409) in ("cycle_ended", "node_ended")
    assert await flows.error("POST", f"{at}/nodes/ask/input", 409, json={"value": True}) == "cycle_ended"


async def test_a_component_is_stopped_a_node_terminated_and_an_approval_given(flows: Flows) -> None:
    await flows.post("/flows", WAITING, 201)
    structure = (await flows.get("/flows/f1"))["structure"]["components"]
    number = next(name for name, component in structure.items() if "later" in component["nodes"])
    cycle = (await flows.post("/flows/f1/cycles", status=201))["cycle"]
    at = f"/flows/f1/cycles/{cycle}"
    await flows.post(f"{at}/components/{number}/stop")
    nodes = (await flows.get(at))["nodes"]
    assert nodes["after"]["status"] == "skipped" and nodes["ask"]["status"] in ("awaiting_input", "running", "pending")
    assert await flows.error("POST", f"{at}/nodes/ask/input", 422, json={}) == "invalid_input"
    assert await flows.error("POST", f"{at}/nodes/ask/input", 422, json={"handle": "x", "value": 1}) == "invalid"
    wrong = {"value": {"approved": "yes", "by": "ada"}}
    assert await flows.error("POST", f"{at}/nodes/ask/input", 422, json=wrong) == "bad_decision"
    given = await flows.post(f"{at}/nodes/ask/input", {"value": {"approved": True, "by": "ada"}})
    assert given == {"flow_id": "f1", "cycle": cycle, "node_id": "ask", "accepted": True}
    ended = await flows.get(at, wait=20)
    assert ended["status"] == "completed" and ended["nodes"]["ask"]["status"] == "completed"
    cycle = (await flows.post("/flows/f1/cycles", status=201))["cycle"]
    at = f"/flows/f1/cycles/{cycle}"
    for node in ("later", "ask"):
        found = await flows.post(f"{at}/nodes/{node}/terminate", {"reason": "enough"})
        assert (found["cycle"], found["node_id"]) == (cycle, node)
    ended = await flows.get(at, wait=20)
    assert ended["nodes"]["later"]["status"] == "terminated" and ended["nodes"]["later"]["error_message"] == "enough"


async def test_what_does_not_exist_is_404_and_what_cannot_be_is_422(flows: Flows) -> None:
    await flows.post("/flows", DOUBLING, 201)
    await flows.run("f1")
    for method, path, code in (
        ("GET", "/flows/f1/cycles/5", "cycle_not_found"),
        ("GET", "/flows/f1/status?cycle=5", "cycle_not_found"),
        ("GET", "/flows/f1/cycles/5/signals", "cycle_not_found"),
        ("POST", "/flows/f1/cycles/5/stop", "cycle_not_found"),
        ("POST", "/flows/f1/cycles/0/components/9/stop", "component_not_found"),
        ("POST", "/flows/f1/cycles/0/nodes/nobody/terminate", "node_not_found"),
        ("GET", "/flows/f1/cycles/0/nodes/nobody/why", "node_not_found"),
        ("GET", "/flows/nobody/cycles", "flow_not_found"),
        ("GET", "/flows/nobody/status", "flow_not_found"),
        ("GET", "/flows/nobody/logs", "flow_not_found"),
        ("GET", "/flows/nobody/logs/live", "flow_not_found"),
    ):
        assert await flows.error(method, path, 404) == code, path
    for method, path in (
        ("GET", "/flows/f1/cycles/-1"),
        ("GET", "/flows/f1/cycles/one"),
        ("GET", "/flows/f1/cycles/9999999999999999"),
        ("GET", "/flows/f1/status?cycle=x"),
        ("GET", "/flows/f1/cycles?status=asleep"),
        ("GET", "/flows/f1/cycles?before=x"),
        ("GET", "/flows/f1/cycles?limit=501"),
        ("GET", "/flows/f1/logs?level=LOUD"),
        ("GET", "/flows/f1/logs?cursor=x"),
        ("GET", "/flows/f1/logs?order=random"),
        ("GET", "/flows/f1/logs?search=" + "x" * 201),
        ("GET", "/flows/f1/cycles/0/signals?cursor=x"),
        ("POST", "/flows/f1/cycles/0/components/all/stop"),
        ("POST", "/flows/f1/cycles/0/nodes/:plan/terminate"),
    ):
        await flows.error(method, path, 422)


async def test_cycles_are_listed_page_by_page_also_those_that_only_the_record_has(
    flows: Flows, flow_station: Station, eventually: Eventually
) -> None:
    await flows.post("/flows", flow("f1", PRICE), 201)
    for _ in range(25):  # Redis keeps 20
        await flows.run("f1")

    async def is_recorded() -> bool:
        return len((await flows.get("/flows/f1/cycles"))["items"]) == 25

    await eventually(is_recorded)
    found, params = [], {"limit": 10}
    while True:
        page = await flows.get("/flows/f1/cycles", **params)
        found += [item["cycle"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        params["before"] = page["next_cursor"]
    assert found == list(range(24, -1, -1))
    keys = flow_station.plane.keys
    assert not await flow_station.link.client.exists(keys.cycle("f1", 0))
    old = await flows.get("/flows/f1/cycles/0")
    assert old["status"] == "completed" and old["nodes"]["price"]["status"] == "completed"
    assert await flows.error("POST", "/flows/f1/cycles/0/stop", 409) == "cycle_ended"
    assert "completed" in (await flows.get("/flows/f1/cycles/0/nodes/price/why"))["reason"]


async def test_logs_are_read_filtered_searched_and_followed(flows: Flows, eventually: Eventually) -> None:
    await flows.post("/flows", flow("f1", PRICE, AFTER, edges=[edge("price", "after", "value")]), 201)
    await flows.run("f1")

    async def messages(**params: Any) -> list[str]:
        return [item["message"] for item in (await flows.get("/flows/f1/logs", **params))["items"]]

    async def has_ended() -> bool:
        return "Cycle 0 completed" in await messages()

    await eventually(has_ended)
    page = await flows.get("/flows/f1/logs", limit=1)
    (line,) = page["items"]
    assert line.keys() == {
        "seq", "flow_id", "cycle", "node_id", "log_level", "log_source", "message", "log_metadata", "created_at",
    }  # fmt: skip
    assert line["message"] == "Starting cycle 0" and page["next_cursor"]
    assert "got 42" in await messages(cursor=page["next_cursor"])
    assert await messages(node="after", source="node") == ["got 42"]
    assert await messages(search="GOT 4", level="info", cycle=0) == ["got 42"]
    assert await messages(level="ERROR") == [] and await messages(cycle=1) == []
    assert (await messages(order="newest")) == (await messages())[::-1]
    newest = (await flows.get("/flows/f1/logs", order="newest", limit=1))["items"][0]["seq"]
    assert await messages(cursor=newest) == []
    await flows.run("f1")

    async def has_more() -> bool:
        return "Starting cycle 1" in await messages(cursor=newest)

    await eventually(has_more)
    signals = await flows.get("/flows/f1/cycles/0/signals", limit=1)
    (signal,) = signals["items"]
    assert signal["source_node"] == "after" and signal["payload"] == 42 and signals["next_cursor"]
    rest = await flows.get("/flows/f1/cycles/0/signals", cursor=signals["next_cursor"])
    (signal,) = rest["items"]
    edge_of = [signal[name] for name in ("source_node", "source_handle", "target_node", "target_handle")]
    assert edge_of == ["price", "value", "after", "value"] and rest["next_cursor"] is None


async def test_without_a_record_logs_are_503(station: SmallStation) -> None:
    async with ask(create_app(station)) as client:
        flows = Flows(client)
        await station.plane.link.client.sadd(station.plane.keys.worker_types(), "remote")
        await flows.post("/flows", flow("f1", {**DOUBLE, "type": "remote"}), 201)
        assert await flows.error("GET", "/flows/f1/logs", 503) == "no_record"
