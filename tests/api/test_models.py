"""Models and templates over HTTP; the engine runs where values matter."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.api.conftest import Eventually, SmallStation
from tests.api.flow_station import Flows

NET: dict[str, Any] = {
    "name": "power_calc",
    "title": "balance",
    "inputs": [{"name": "pv", "source": "comsrv:1:m:1"}, {"name": "load", "source": "comsrv:1:m:2"}],
    "calculations": [{"id": "net", "expression": "load - pv"}],
    "outputs": [{"field": "total_power", "source": "net", "unit": "kW"}],
}
METER: dict[str, Any] = {
    "name": "meter",
    "properties": {"channel": {"type": "integer"}},
    "inputs": [{"name": "p", "source": "comsrv:{channel}:m:1"}],
    "calculations": [{"id": "double", "expression": "p * 2"}],
    "outputs": [{"field": "double", "source": "double"}],
}
YAML = """
name: power_calc
inputs: [{name: a, source: "comsrv:1:m:1"}]   # one
calculations: [{id: b, expression: a + 1}]
outputs: [{field: c, source: b}]
"""


async def test_a_model_is_defined_shown_replaced_listed_and_removed(api: Flows) -> None:
    made = await api.post("/models", NET, 201)
    assert (made["name"], made["title"], made["inputs"], made["outputs"]) == (
        "power_calc", "balance", 2, ["total_power"],
    )  # fmt: skip
    assert made["config"] == NET and made["values"] == [] and made["problems"] == []
    assert made["spec"]["calculations"][0]["expression"] == "load - pv"
    assert await api.error("POST", "/models", 409, json=NET) == "model_exists"
    nameless = {key: value for key, value in NET.items() if key != "name"}
    assert (await api.ask("PUT", "/models/other", 201, json=nameless))["name"] == "other"
    changed = await api.ask("PUT", "/models/other", 200, json={**nameless, "enabled": False})
    assert changed["enabled"] is False
    assert await api.error("PUT", "/models/other", 422, json=NET) == "id_mismatch"
    page = await api.get("/models", limit=1)
    assert [item["name"] for item in page["items"]] == ["other"] and page["next_cursor"] == "other"
    assert [item["name"] for item in (await api.get("/models", cursor="other"))["items"]] == ["power_calc"]
    await api.ask("DELETE", "/models/other", 204)
    assert await api.error("DELETE", "/models/other", 404) == "unknown_model"
    assert await api.error("GET", "/models/other", 404) == "unknown_model"
    yaml = {"Content-Type": "application/yaml"}
    assert (await api.ask("PUT", "/models/power_calc", 200, content=YAML, headers=yaml))["outputs"] == ["c"]


async def test_a_bad_model_is_422_with_every_problem(api: Flows) -> None:
    bad = {**NET, "calculations": [{"id": "net", "expression": "load - pw"}, {"id": "x", "function": "summ"}]}
    error = (await api.ask("POST", "/models", 422, json=bad))["error"]
    paths = {problem["path"] for problem in error["problems"]}
    assert {"calculations[0].expression", "calculations[1].function"} <= paths
    assert await api.post("/models/validate", bad) == {"valid": False, "problems": error["problems"]}
    assert await api.post("/models/validate", NET) == {"valid": True, "problems": []}
    assert (await api.post("/models/validate", []))["valid"] is False
    await api.post("/models", NET, 201)
    needs = {**NET, "name": "needs", "inputs": [
        {"name": "pv", "source": "modsrv:power_calc:measurement:total_power"},
        {"name": "load", "source": "comsrv:1:m:1"},
    ]}  # fmt: skip
    await api.post("/models", needs, 201)
    assert await api.error("DELETE", "/models/power_calc", 422) == "bad_model"


async def test_templates_have_instances(api: Flows) -> None:
    assert await api.post("/model-templates", METER, 201) == METER
    assert await api.error("POST", "/model-templates", 409, json=METER) == "template_exists"
    assert (await api.get("/model-templates"))["items"] == [METER]
    assert await api.get("/model-templates/meter") == METER
    made = await api.post("/models", {"name": "m1", "template": "meter", "properties": {"channel": 7}}, 201)
    assert made["template"] == "meter" and made["spec"]["inputs"][0]["address"] == "comsrv:7:m:1"
    assert await api.error("DELETE", "/model-templates/meter", 422) == "bad_model"
    broken = {**METER, "properties": {"line": {"type": "text"}}}
    assert await api.error("PUT", "/model-templates/meter", 422, json=broken) == "bad_model"
    assert await api.error("PUT", "/model-templates/other", 422, json=METER) == "id_mismatch"
    nameless = {key: value for key, value in METER.items() if key != "name"}
    assert (await api.ask("PUT", "/model-templates/second", 201, json=nameless))["name"] == "second"
    await api.ask("DELETE", "/models/m1", 204)
    await api.ask("DELETE", "/model-templates/meter", 204)
    assert await api.error("GET", "/model-templates/meter", 404) == "unknown_template"
    assert await api.error("DELETE", "/model-templates/meter", 404) == "unknown_template"


async def test_a_model_shows_what_it_computes(station: SmallStation, api: Flows, eventually: Eventually) -> None:
    await api.post("/models", NET, 201)
    stop = asyncio.Event()
    running = asyncio.create_task(station.points.engine().run(stop))
    try:
        await api.post("/points", {"channels": {"1": {"m": {"1": 20, "2": 50}}}})

        async def is_computed() -> bool:
            values = (await api.get("/models/power_calc"))["values"]
            return [(value["value"], value["quality"]) for value in values] == [(30, "good")]

        await eventually(is_computed)
    finally:
        stop.set()
        await asyncio.wait_for(running, 20)
    address = "modsrv:power_calc:measurement:total_power"
    (value,) = (await api.get("/models/power_calc"))["values"]
    assert (value["address"], value["unit"]) == (address, "kW")
    for query in ({"address": address}, {"model": "power_calc"}):
        (same,) = (await api.get("/points", **query))["items"]
        assert {**same, "age_ms": 0} == {**value, "age_ms": 0}
