"""Definitions and states of flows over HTTP, on a whole station."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import Eventually, SmallStation, ask
from tests.api.flow_station import ASK, DOUBLE, DOUBLING, LATER, PRICE, Flows, edge, flow
from tradewind.api import create_app
from tradewind.station import Station

YAML = """
# doubles a price
id: f1
interval: 0
nodes:
  - {id: price, type: constant, config: {value: 42}}
  - {id: double, type: expression, config: {expression: price * 2}}
edges:
  - {source: price, source_handle: value, target: double, target_handle: price}
"""
WRONG = flow("f1", PRICE, {"id": "double", "type": "nothing"}, {"id": "price", "type": "constant"}, edges=[
    edge("price", "nobody", "x"),
])  # fmt: skip


async def test_a_flow_is_registered_shown_replaced_listed_and_deleted(flows: Flows) -> None:
    made = await flows.post("/flows", DOUBLING, 201)
    assert (made["id"], made["status"], made["last_cycle"]) == ("f1", "registered", -1)
    assert made["structure"]["component_count"] == 1 and made["structure"]["entry_nodes"] == ["price"]
    cycle = await flows.run("f1")
    again = await flows.post("/flows", {**DOUBLING, "description": "new"}, 200)
    assert (again["last_cycle"], again["created_at"]) == (cycle, made["created_at"])
    shown = await flows.get("/flows/f1")
    assert shown["config"]["description"] == "new" and shown["config"]["nodes"][0]["id"] == "price"
    assert shown["current_cycle_status"]["status"] == "completed"
    assert shown["current_cycle_status"]["nodes"]["double"]["status"] == "completed"
    without_id = {key: value for key, value in DOUBLING.items() if key != "id"}
    assert (await flows.ask("PUT", "/flows/f2", 201, json=without_id))["id"] == "f2"
    assert (await flows.ask("PUT", "/flows/f2", 200, json=without_id))["id"] == "f2"
    assert await flows.error("PUT", "/flows/f2", 422, json=DOUBLING) == "id_mismatch"
    items = (await flows.get("/flows"))["items"]
    assert [(item["id"], item["node_count"], item["running_cycles"]) for item in items] == [("f1", 2, 0), ("f2", 2, 0)]
    await flows.ask("DELETE", "/flows/f1", 204)
    assert await flows.error("GET", "/flows/f1", 404) == "flow_not_found"
    assert await flows.error("DELETE", "/flows/f1", 404) == "flow_not_found"


async def test_yaml_is_a_body_too(flows: Flows) -> None:
    for kind in ("application/yaml", "text/yaml; charset=utf-8", "application/x-yaml"):
        made = await flows.ask("PUT", "/flows/f1", 201, content=YAML, headers={"Content-Type": kind})
        assert made["config"]["nodes"][1]["config"] == {"expression": "price * 2"}
        await flows.ask("DELETE", "/flows/f1", 204)
    yaml = {"Content-Type": "application/yaml"}
    assert await flows.error("POST", "/flows", 400, content="nodes: [", headers=yaml) == "bad_yaml"
    assert await flows.error("POST", "/flows", 400, content="a: 1\na: 2", headers=yaml) == "doubled_key"
    assert await flows.error("POST", "/flows", 422, content="- a", headers=yaml) == "not_an_object"
    assert await flows.error("POST", "/flows", 422, content="", headers=yaml) == "not_an_object"
    assert await flows.error("POST", "/flows", 413, content="a" * 2_100_000, headers=yaml) == "body_too_large"
    assert await flows.error("POST", "/flows", 415, content="a: 1", headers={"Content-Type": "text/plain"})
    assert await flows.error("POST", "/flows", 400, content="{", headers={"Content-Type": "application/json"})
    assert (await flows.get("/flows"))["items"] == []


async def test_a_bad_flow_is_422_with_every_problem_and_validate_never_is(flows: Flows) -> None:
    answer = await flows.ask("POST", "/flows", 422, json=WRONG)
    problems = answer["error"]["problems"]
    assert {"unknown_type", "duplicate_id"} <= {problem["code"] for problem in problems} and len(problems) >= 3
    assert "nodes[1].type" in {problem["path"] for problem in problems}
    assert await flows.post("/flows/validate", WRONG) == {"valid": False, "problems": problems}
    documents: list[dict[str, Any]] = [{}, {"nodes": 5}, {"id": "a b"}, {"x": [[[]]]}]
    for document in documents:
        found = await flows.post("/flows/validate", document)
        assert not found["valid"] and found["problems"]
    assert await flows.post("/flows/validate", DOUBLING) == {"valid": True, "problems": []}
    nameless = {key: value for key, value in DOUBLING.items() if key != "id"}
    assert (await flows.post("/flows/validate", nameless))["problems"][0]["code"] == "missing_id"
    assert (await flows.post("/flows/validate?id=f9", nameless))["valid"]
    for path in ("/flows", "/flows/validate"):
        assert await flows.error("POST", path, 422, json=[DOUBLING]) == "not_an_object"
    assert (await flows.get("/flows"))["items"] == []


async def test_flows_are_listed_page_by_page_and_by_state(flows: Flows) -> None:
    names = [f"f{number:02}" for number in range(7)]
    for name in names:
        await flows.ask("PUT", f"/flows/{name}", 201, json={**DOUBLING, "id": name})
    for name in names[::3]:
        await flows.post(f"/flows/{name}/start")
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        page = await flows.get("/flows", limit=3, **({"cursor": cursor} if cursor else {}))
        found += [item["id"] for item in page["items"]]
        cursor, pages = page["next_cursor"], pages + 1
    assert found == names and pages == 3
    running = await flows.get("/flows", status="running", limit=2)
    assert [item["id"] for item in running["items"]] == ["f00", "f03"] and running["next_cursor"] == "f03"
    rest = await flows.get("/flows", status="Running", limit=2, cursor="f03")
    assert [item["id"] for item in rest["items"]] == ["f06"] and rest["next_cursor"] is None


@pytest.mark.parametrize(
    "query", ["status=awake", "limit=0", "limit=1001", "colour=red", "cursor=a%20b", "limit=1&limit=2"]
)
async def test_a_bad_list_query_is_422(station: SmallStation, query: str) -> None:
    async with ask(create_app(station)) as client:
        answer = await client.get(f"/api/v1/flows?{query}")
    assert answer.status_code == 422 and answer.json()["error"]["problems"]


async def test_a_flow_moves_between_its_states(flows: Flows) -> None:
    await flows.post("/flows", DOUBLING, 201)
    for verb, status in (
        ("start", "running"), ("start", "running"), ("pause", "paused"), ("resume", "running"), ("drain", "stopped"),
        ("start", "running"), ("stop", "stopped"),
    ):  # fmt: skip
        assert await flows.post(f"/flows/f1/{verb}") == {"flow_id": "f1", "status": status}, verb
    for verb in ("pause", "resume"):
        assert await flows.error("POST", f"/flows/f1/{verb}", 409) == "flow_state"
    for verb in ("start", "stop", "pause", "resume", "drain"):
        assert await flows.error("POST", f"/flows/nobody/{verb}", 404) == "flow_not_found"
        assert await flows.error("POST", f"/flows/a.b/{verb}", 422) == "bad_id"


async def test_deleting_a_flow_ends_its_cycles_and_leaves_nothing(flows: Flows, flow_station: Station) -> None:
    await flows.post("/flows", flow("f1", PRICE, ASK, edges=[edge("price", "ask", "request")]), 201)
    await flows.run("f1", {"signals": {"ask.decision": True}})
    await flows.post("/flows/f1/cycles", status=201)
    await flows.ask("DELETE", "/flows/f1", 204)
    keys = flow_station.plane.keys
    left = [key async for key in flow_station.link.client.scan_iter(match=f"{keys.p}flow:f1*", count=1000)]
    assert left == [] and (await flows.get("/flows"))["items"] == []


async def test_a_webhook_starts_a_cycle_with_its_payload(flows: Flows, eventually: Eventually) -> None:
    await flows.post("/flows", DOUBLING, 201)
    assert await flows.error("POST", "/flows/f1/webhook", 409, json=1) == "no_webhook"
    hooked = flow("f2", {**DOUBLE, "external": ["price"]}, webhook=True)
    await flows.post("/flows", hooked, 201)
    found = await flows.post("/flows/f2/webhook", 21, 201)
    assert found == {"flow_id": "f2", "cycle": 0}
    assert (await flows.get("/flows/f2/cycles/0", wait=20))["trigger"] == "webhook"

    async def is_recorded() -> bool:
        items = (await flows.get("/flows/f2/cycles/0/signals"))["items"]
        return any(item["source_node"] == "double" and item["payload"] == 42 for item in items)

    await eventually(is_recorded)
    assert (await flows.post("/flows/f2/webhook", status=201))["cycle"] == 1  # no body
    assert await flows.error(
        "POST", "/flows/f2/webhook", 400, content="{", headers={"Content-Type": "application/json"}
    )
    assert await flows.error("POST", "/flows/nobody/webhook", 404, json=1) == "flow_not_found"


async def test_node_types_tell_all_about_their_handles(flows: Flows) -> None:
    items: list[dict[str, Any]] = (await flows.get("/node-types"))["items"]
    types = {item["type"]: item for item in items}
    assert {"constant", "expression", "condition", "delay", "approval", "aggregate"} <= types.keys()
    assert [item["type"] for item in items] == sorted(types)
    for item in items:
        assert {"type", "description", "category", "inputs", "outputs", "config_schema"} <= item.keys()
        for handle in item["inputs"] + item["outputs"]:
            assert {"name", "type", "required", "aggregate", "unit"} <= handle.keys()
    assert types["constant"]["outputs"][0]["name"] == "value"
    assert "value" in str(types["constant"]["config_schema"])
    assert any(handle["external"] for handle in types["approval"]["inputs"])


async def test_figures_tell_of_flows(flows: Flows) -> None:
    await flows.post("/flows", DOUBLING, 201)
    await flows.post("/flows", {**flow("f2", LATER), "schedule": {"interval": "1h"}}, 201)
    await flows.post("/flows/f2/start")
    await flows.post("/flows/f2/cycles", status=201)
    text = (await flows.client.get("/metrics")).text
    found = {(s.name, s.labels.get("status")): s.value for f in text_string_to_metric_families(text) for s in f.samples}
    assert found["tradewind_flows", "registered"] == 1 and found["tradewind_flows", "running"] == 1
    assert found["tradewind_flows", "failed"] == 0
    assert found["tradewind_flow_cycles_running", None] >= 1
    assert 0 <= found["tradewind_flow_lag_seconds", None] < 5
    assert "tradewind_flow_outbox_waiting" in text


async def test_every_route_of_flows_is_described(station: SmallStation) -> None:
    app = create_app(station)
    async with ask(app) as client:
        found = (await client.get("/openapi.json")).json()
    operations = {
        (method.upper(), path): operation
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
        if "/flows" in path or path.endswith("node-types")
    }
    one = "/api/v1/flows/{id}"
    wanted = {
        ("POST", "/api/v1/flows"), ("GET", "/api/v1/flows"), ("POST", "/api/v1/flows/validate"), ("GET", one),
        ("PUT", one), ("DELETE", one), *(("POST", f"{one}/{verb}") for verb in
        ("start", "stop", "pause", "resume", "drain", "webhook", "cycles", "cycles/{n}/stop",
         "cycles/{n}/components/{c}/stop", "cycles/{n}/nodes/{node}/terminate", "cycles/{n}/nodes/{node}/input")),
        *(("GET", f"{one}/{path}") for path in ("cycles", "cycles/{n}", "status", "logs", "logs/live",
          "cycles/{n}/signals", "cycles/{n}/nodes/{node}/why")), ("GET", "/api/v1/node-types"),
    }  # fmt: skip
    assert operations.keys() == wanted
    ids = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))
    schemas = found["components"]["schemas"]
    for operation in operations.values():
        assert operation["summary"] and operation["responses"]
    for name in set(_refs(found)):
        assert name in schemas, name
    assert "application/yaml" in operations["POST", "/api/v1/flows"]["requestBody"]["content"]
    assert operations["POST", f"{one}/cycles"]["requestBody"]["required"] is False
    assert schemas["FlowDefinition"]["example"]["nodes"]


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if isinstance(value.get("$ref"), str) else []
        return own + [name for inner in value.values() for name in _refs(inner)]
    return [name for inner in value for name in _refs(inner)] if isinstance(value, list) else []
