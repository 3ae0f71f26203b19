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
    assert made["config"] == NET and made["problems"] == []
    assert [(value["value"], value["state"]) for value in made["values"]] == [(None, "no_value")]
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
    await station.points.look()
    assert (await station.points.board.read_one(address)).unit == "kW", "whoever reads the board sees the unit"


async def test_many_models_are_put_and_removed_at_once_or_not_at_all(api: Flows) -> None:
    needs = {**NET, "name": "aa_needs", "inputs": [
        {"name": "pv", "source": "modsrv:power_calc:measurement:total_power"},
        {"name": "load", "source": "modsrv:m7:measurement:double"},
    ]}  # fmt: skip
    instance = {"name": "m7", "template": "meter", "properties": {"channel": 7}}
    change = {"models": [needs, instance, NET], "templates": [METER]}
    assert await api.post("/models/validate", change) == {"valid": True, "problems": []}
    assert (await api.get("/models"))["items"] == []
    made = await api.ask("PUT", "/models", 200, json=change)
    assert made == {
        "models": ["aa_needs", "m7", "power_calc"], "templates": ["meter"], "removed": [], "removed_templates": [],
    }  # fmt: skip
    page = await api.get("/models", config="true")
    assert {item["name"]: item["config"] for item in page["items"]} == {
        "aa_needs": needs, "m7": instance, "power_calc": NET,
    }  # fmt: skip
    assert "config" not in (await api.get("/models"))["items"][0]
    for bad in ({"remove": ["m7"]}, {"remove_templates": ["meter"]}, {"models": [NET, {**NET, "name": "x y"}]}):
        error = (await api.ask("PUT", "/models", 422, json=bad))["error"]
        told = (await api.post("/models/validate", bad))["problems"]
        assert error["code"] == "bad_model" and error["problems"] == told and told
    gone = {"remove": ["aa_needs", "m7"], "remove_templates": ["meter"], "models": [{**NET, "enabled": False}]}
    assert (await api.ask("PUT", "/models", 200, json=gone))["removed"] == ["aa_needs", "m7"]
    assert [(m["name"], m["enabled"]) for m in (await api.get("/models"))["items"]] == [("power_calc", False)]
    assert await api.ask("PUT", "/models", 200, json=[NET, {**NET, "name": "two"}])
    yaml = {"Content-Type": "application/yaml"}
    assert await api.ask("PUT", "/models", 200, content="remove: [two]", headers=yaml)


async def test_a_change_of_many_models_that_makes_no_sense_is_refused_with_its_reason(api: Flows) -> None:
    await api.post("/models", NET, 201)
    for body, path in (
        ([], "models"), ({"models": {}}, "models"), ({"modles": []}, "modles"), ({"remove": ["nobody"]}, "remove[0]"),
        ({"remove": [3]}, "remove[0]"), ({"remove": ["power_calc"], "models": [NET]}, "remove[0]"),
        ("text", "models"), ([NET, NET], "models[1].name"), ([3, NET], "models[0].document"),
    ):  # fmt: skip
        error = (await api.ask("PUT", "/models", 422, json=body))["error"]
        assert error["hint"] and [p["path"] for p in error["problems"]] == [path], (body, error)
    assert await api.error("GET", "/models?config=yes", 422) == "unknown_config"
