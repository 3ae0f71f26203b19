"""Channels over HTTP: definitions, states, points; with a process that polls them where that matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import servers
from tests.api.conftest import Eventually, SmallStation, ask, small_station
from tests.api.flow_station import Flows, flow
from tradewind.alarms.faults import FaultReader
from tradewind.api import create_app
from tradewind.redis.faults import report

PV: dict[str, Any] = {
    "id": 1001,
    "name": "PV",
    "protocol": "virtual",
    "poll_interval_ms": 50,
    "points": [
        {"kind": "m", "id": 10001, "name": "power", "unit": "kW", "mapping": {"expression": "20 + 5"}},
        {"kind": "s", "id": 20001, "name": "closed", "mapping": {"expression": "1"}},
        {"kind": "a", "id": 40001, "name": "limit", "min": 0, "max": 100},
    ],
}
YAML = """
# by hand
id: 1001
protocol: virtual
points:
  m:
    - {id: 10001, name: power, mapping: {expression: "1"}}
"""


async def test_a_channel_is_declared_shown_replaced_listed_and_removed(api: Flows) -> None:
    made = await api.post("/channels", PV, 201)
    assert (made["id"], made["name"], made["state"]) == ("1001", "PV", "unattended")
    assert made["counts"] == {"m": 1, "s": 1, "c": 0, "a": 1}
    assert made["config"]["points"][0]["unit"] == "kW"
    assert await api.post("/channels", PV, 200) == made, "a repetition does no harm"
    assert await api.error("POST", "/channels", 409, json={**PV, "name": "x"}) == "version_conflict"
    again = await api.ask("PUT", "/channels/1001", 200, json={**made["config"], "name": "roof"})
    assert again["name"] == "roof" and again["version"] != made["version"]
    shown = await api.get("/channels/1001")
    assert shown["version"] == again["version"] and shown["config"] == again["config"]
    nameless = {key: value for key, value in PV.items() if key != "id"}
    assert (await api.ask("PUT", "/channels/1002", 201, json=nameless))["id"] == "1002"
    assert await api.error("PUT", "/channels/1002", 422, json=PV) == "id_mismatch"
    stale = {"params": {"version": made["version"]}}
    assert await api.error("PUT", "/channels/1001", 409, json=PV, **stale) == "version_conflict"
    assert await api.error("DELETE", "/channels/1001", 409, **stale) == "version_conflict"
    page = await api.get("/channels", limit=1)
    assert [item["id"] for item in page["items"]] == ["1001"] and page["next_cursor"] == "1001"
    assert "config" not in page["items"][0]
    rest = await api.get("/channels", cursor="1001")
    assert [item["id"] for item in rest["items"]] == ["1002"] and rest["next_cursor"] is None
    await api.ask("DELETE", "/channels/1001", 204)
    for method, path in (
        ("GET", "/channels/1001"),
        ("DELETE", "/channels/1001"),
        ("POST", "/channels/1001/reload"),
        ("GET", "/channels/1001/points"),
    ):
        assert await api.error(method, path, 404) == "unknown_channel"


async def test_yaml_is_a_body_too_and_everything_wrong_is_named(api: Flows) -> None:
    yaml = {"Content-Type": "application/yaml"}
    made = await api.ask("POST", "/channels", 201, content=YAML, headers=yaml)
    assert made["config"]["points"] == [{"kind": "m", "id": "10001", "name": "power", "mapping": {"expression": "1"}}]
    bad = {
        "id": "x", "protocol": "virtual", "colour": 1,
        "points": [{"kind": "q", "id": 1}, {"kind": "m", "id": 1, "scale": 0}, {"kind": "m"}],
    }  # fmt: skip
    error = (await api.ask("POST", "/channels", 422, json=bad))["error"]
    paths = [problem["path"] for problem in error["problems"]]
    assert paths == ["colour", "id", "points[0].kind", "points[1].scale", "points[2].id"]
    assert await api.post("/channels/validate", bad) == {"valid": False, "problems": error["problems"]}
    assert await api.post("/channels/validate", PV) == {"valid": True, "problems": []}
    locked = {**PV, "id": 5, "points": [{"kind": "c", "id": 1, "interlock": "colour == 1"}]}
    error = (await api.ask("POST", "/channels", 422, json=locked))["error"]
    assert error["problems"][0]["code"] == "bad_interlock"
    unknown = (await api.ask("POST", "/channels", 422, json={**PV, "protocol": "modbus_tpc"}))["error"]["problems"]
    assert unknown[0]["path"] == "protocol" and "modbus_tcp" in unknown[0]["hint"]
    assert await api.error("POST", "/channels", 422, json=[]) == "bad_channel"
    assert await api.error("GET", "/channels/abc", 422) == "bad_id"
    assert await api.error("GET", "/channels?state=sleepy", 422) == "unknown_state"
    assert [item["id"] for item in (await api.get("/channels"))["items"]] == ["1001"]


async def test_points_of_a_channel_are_declared_or_pushed(api: Flows) -> None:
    await api.post("/channels", {**PV, "protocol": "http"}, 201)
    await api.post("/points", {"channels": {"1001": {"m": {"10001": 5, "9": 6}}, "8": {"s": {"1": 1}}}})
    items = (await api.get("/channels/1001/points"))["items"]
    assert [(item["address"], item["value"], item["name"], item["pushed"]) for item in items] == [
        ("comsrv:1001:m:9", 6, "", True),
        ("comsrv:1001:m:10001", 5, "power", False),
        ("comsrv:1001:s:20001", None, "closed", False),
        ("comsrv:1001:a:40001", None, "limit", False),
    ]
    assert items[1]["unit"] == "kW" and items[2]["quality"] == "bad"
    page = await api.get("/channels/1001/points", limit=3)
    assert page["next_cursor"] == "s:20001"
    rest = await api.get("/channels/1001/points", cursor=page["next_cursor"])
    assert [item["address"] for item in rest["items"]] == ["comsrv:1001:a:40001"] and rest["next_cursor"] is None
    assert len((await api.get("/channels/1001/points", kind="m"))["items"]) == 2
    assert await api.error("GET", "/channels/1001/points?cursor=x", 422) == "bad_cursor"
    pushed = await api.get("/channels/8")
    assert (pushed["state"], pushed["config"], pushed["version"]) == ("pushed", None, None)
    assert [item["id"] for item in (await api.get("/channels", state="pushed"))["items"]] == ["8"]
    await api.ask("DELETE", "/channels/8", 204)
    assert await api.error("GET", "/channels/8", 404) == "unknown_channel"


@pytest.mark.usefixtures("comsrv")
async def test_a_polled_channel_is_online_reloaded_and_leaves_nothing(
    station: SmallStation, api: Flows, eventually: Eventually
) -> None:
    await api.post("/channels", PV, 201)

    async def is_online() -> bool:
        return bool((await api.get("/channels/1001"))["state"] == "online")

    await eventually(is_online)
    (point,) = (await api.get("/points", address="comsrv:1001:m:10001"))["items"]
    assert (point["value"], point["quality"]) == (25, "good")

    async def since() -> int | None:
        found: int | None = (await api.get("/channels/1001"))["status"]["since_ms"]
        return found

    before = await since()
    assert await api.post("/channels/1001/reload", status=202) == {"id": "1001", "status": "reloading"}

    async def is_anew() -> bool:
        return await since() != before and await is_online()

    await eventually(is_anew)
    metrics = (await api.client.get("/metrics")).text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    }
    assert found["tradewind_channel_online", "1001"] == 1 and found["tradewind_channels", "online"] == 1
    assert found["tradewind_channel_polls_total", "1001"] > 0 and found["tradewind_commands_open",] == 0
    await api.ask("PUT", "/channels/1001", 200, json={**PV, "enabled": False})
    assert (await api.get("/channels/1001"))["state"] == "disabled"
    await api.ask("PUT", "/channels/1001", 200, json=PV)
    await eventually(is_online)
    await api.ask("DELETE", "/channels/1001", 204)
    prefix = station.plane.keys.p.encode()
    assert not [key for key in await station.stored_keys() if key.startswith(prefix + b"comsrv:")]
    assert (await api.get("/channels"))["items"] == []


async def test_one_unreadable_channel_does_not_hide_the_others(station: SmallStation, api: Flows) -> None:
    await api.post("/channels", PV, 201)
    keys, redis = station.points.plane.keys, station.points.plane.redis
    await redis.hset(keys.channels(), "7", b"{")
    await redis.hset(keys.channel_versions(), "7", "x")
    assert [(item["id"], item["state"]) for item in (await api.get("/channels"))["items"]] == [
        ("7", "pushed"),
        ("1001", "unattended"),
    ]
    assert await api.error("GET", "/channels/7", 422) == "bad_definition"


async def test_channels_and_points_in_a_cluster(cluster3: servers.Cluster, key_prefix: str, tmp_path: Path) -> None:
    async with (
        small_station(cluster3.url, key_prefix, tmp_path) as station,
        ask(create_app(station)) as client,
    ):
        api = Flows(client)
        try:
            await api.post("/channels", {**PV, "protocol": "http"}, 201)
            values = {str(name): {"m": {"1": name}} for name in (1001, 1002, 1003)}
            assert await api.post("/points", {"channels": values}) == {"accepted": 3}
            states = [(item["id"], item["state"]) for item in (await api.get("/channels"))["items"]]
            assert states == [("1001", "unattended"), ("1002", "pushed"), ("1003", "pushed")]
            found = await api.ask("GET", "/points?channel=1003&address=comsrv:1001:m:1&address=comsrv:1002:m:1")
            assert [item["value"] for item in found["items"]] == [1001, 1002, 1003]
            assert len((await api.get("/channels/1001/points"))["items"]) == 4
            for name in ("1001", "1002"):
                await api.ask("DELETE", f"/channels/{name}", 204)
            assert [item["id"] for item in (await api.get("/channels"))["items"]] == ["1003"]
        finally:
            await station.points.close()


async def test_without_redis_every_route_says_so(key_prefix: str, tmp_path: Path) -> None:
    with servers.redis_server() as server:
        async with small_station(server.url, key_prefix, tmp_path) as station, ask(create_app(station)) as client:
            api = Flows(client)
            server.kill()
            for method, path, body in (
                ("GET", "/channels", None), ("POST", "/channels", PV), ("GET", "/channels/1001", None),
                ("GET", "/points?address=comsrv:1:m:1", None), ("GET", "/models", None), ("GET", "/commands", None),
                ("POST", "/points", {"channels": {"1": {"m": {"1": 1}}}}),
                ("POST", "/commands", {"address": "comsrv:1:a:1", "value": 1}),
            ):  # fmt: skip
                options = {} if body is None else {"json": body}
                assert (await api.ask(method, path, 503, **options))["error"]["message"]


MQTT: dict[str, Any] = {
    "id": 3,
    "protocol": "mqtt",
    "enabled": False,
    "parameters": {"host": "broker", "username": "ada", "password": "hunter-2"},
    "points": [{"kind": "m", "id": 1, "mapping": {"topic": "a"}}],
}


async def test_a_secret_is_shown_as_stars_and_stars_keep_it(station: SmallStation, api: Flows) -> None:
    async def stored() -> Any:
        return (await station.points.channels.get("3")).parameters

    made = await api.post("/channels", MQTT, 201)
    assert made["config"]["parameters"] == {**MQTT["parameters"], "password": "***"}
    assert (await stored())["password"] == "hunter-2"
    shown = await api.get("/channels/3")
    assert "hunter" not in str(shown) and shown["config"] == made["config"]
    again = await api.ask("PUT", "/channels/3", 200, json=shown["config"])
    assert again["version"] == made["version"], "nothing has changed"
    assert await api.post("/channels", shown["config"], 200) == again
    moved = {**shown["config"], "parameters": {**shown["config"]["parameters"], "host": "elsewhere"}}
    assert (await api.ask("PUT", "/channels/3", 200, json=moved))["version"] != made["version"]
    assert await stored() == {**MQTT["parameters"], "host": "elsewhere"}
    assert (await api.ask("PUT", "/channels", 200, json=[shown["config"]]))["changed"] == ["3"]
    assert await stored() == MQTT["parameters"]
    yaml = {"Content-Type": "application/yaml"}
    text = 'protocol: mqtt\nparameters: {host: b, password: "***"}\npoints: {m: [{id: 1, mapping: {topic: a}}]}'
    await api.ask("PUT", "/channels/3", 200, content=text, headers=yaml)
    assert await stored() == {"host": "b", "password": "hunter-2"}
    lost = {**shown["config"], "id": 4}
    error = (await api.ask("POST", "/channels", 422, json=lost))["error"]
    assert [(p["code"], p["path"]) for p in error["problems"]] == [("no_secret", "parameters.password")]
    assert (await api.post("/channels/validate", lost))["problems"] == error["problems"]
    assert (await api.post("/channels/validate", shown["config"]))["valid"] is True


async def test_many_channels_are_declared_and_removed_at_once(api: Flows, comsrv: None, eventually: Eventually) -> None:
    many = [{**PV, "id": number} for number in range(1, 61)]
    assert await api.post("/channels/validate", {"channels": many}) == {"valid": True, "problems": []}
    made = await api.ask("PUT", "/channels", 200, json={"channels": many})
    assert made == {
        "channels": [str(n) for n in range(1, 61)],
        "changed": [str(n) for n in range(1, 61)],
        "removed": [],
        "warnings": [],
    }
    assert (await api.ask("PUT", "/channels", 200, json=many))["changed"] == []

    async def is_online() -> bool:
        return len((await api.get("/channels", state="online"))["items"]) == 60

    await eventually(is_online)
    await api.post("/points", {"channels": {"99": {"m": {"1": 1}}}})
    gone = {"remove": [*range(2, 61), 99], "channels": [{**PV, "id": 1, "name": "left"}]}
    assert (await api.ask("PUT", "/channels", 200, json=gone))["changed"] == ["1"]
    assert [(c["id"], c["name"]) for c in (await api.get("/channels"))["items"]] == [("1", "left")]
    assert (await api.get("/points", address="comsrv:60:m:10001"))["items"][0]["value"] is None


async def test_a_change_of_many_channels_is_checked_before_anything_is_stored(api: Flows) -> None:
    bad = {**PV, "id": 2, "protocol": "virtuel"}
    for body, paths in (
        ([PV, bad, 5], ["channels[1].protocol", "channels[2].$"]), ([PV, PV], ["channels[1].id"]), ([], ["channels"]),
        ({"channels": [PV], "remove": ["7"]}, ["remove[0]"]), ({"channels": PV}, ["channels"]), (7, ["channels"]),
        ({"chanels": [PV]}, ["chanels"]), ({"channels": [PV], "remove": 7}, ["remove"]),
    ):  # fmt: skip
        error = (await api.ask("PUT", "/channels", 422, json=body))["error"]
        assert [p["path"] for p in error["problems"]] == paths and error["hint"], (body, error)
    assert (await api.get("/channels"))["items"] == []
    await api.post("/channels", PV, 201)
    error = (await api.ask("PUT", "/channels", 422, json={"channels": [PV], "remove": [1001]}))["error"]
    assert [(p["code"], p["path"]) for p in error["problems"]] == [("given_twice", "remove[0]")]


async def test_removing_a_channel_in_use_names_its_users_and_resolves_its_alarm(
    api: Flows, station: SmallStation
) -> None:
    for name in ("1001", "1002", "1003"):
        await api.post("/channels", {**PV, "id": name}, 201)
    await api.ask(
        "PUT",
        "/models/plant",
        201,
        json={
            "inputs": [{"name": "p", "source": "comsrv:1001:m:10001"}, {"name": "q", "source": "comsrv:1001:s:20001"}],
            "calculations": [{"id": "d", "expression": "p + q"}],
            "outputs": [{"field": "d", "source": "d"}],
        },
    )
    condition = {"operator": ">", "value": 5, "source": "comsrv:1001:m:10001", "field": "t"}
    rule = {"id": "hot", "conditions": [condition], "actions": [{"type": "log_event", "parameters": {"message": "x"}}]}
    await api.post("/rules", rule, 201)
    read = {"id": "r", "type": "point_read", "config": {"addresses": ["comsrv:1001:m:10001"]}}
    await api.post("/flows", flow("reader", read), 201)
    await api.ask("PUT", "/history/policy", 200, json={"policies": [{"match": "comsrv:1001:*", "deadband": 1}]})
    plane = station.rules.plane
    faults = FaultReader(plane)
    await report(plane.link, plane.keys, "channel_offline", "comsrv:1001", "channel 1001 is offline")
    await faults.step()
    (alarm,) = (await api.get("/alarms"))["items"]
    assert alarm["status"] == "New"

    await api.ask("DELETE", "/channels/1002", 204)
    gone = await api.ask("DELETE", "/channels/1001", 200)
    assert gone["removed"] == "1001"
    assert {warning["path"]: warning["hint"] for warning in gone["warnings"]} == {
        "models.plant": "model plant uses comsrv:1001:m:10001 and 1 more: its outputs become uncertain",
        "rules.hot": "rule hot uses comsrv:1001:m:10001: it judges the point as unknown",
        "flows.reader": "flow reader uses comsrv:1001:m:10001: it finds no value, and its trigger never fires",
        "history.policy": "history policy uses comsrv:1001: it records nothing of it any more",
    }
    await faults.step()
    shown = await api.get(f"/alarms/{alarm['id']}")
    assert shown["status"] == "Resolved"
    assert shown["journal"][-1]["note"] == "the channel was removed"
    many = await api.ask("PUT", "/channels", 200, json={"remove": ["1003"]})
    assert (many["removed"], many["warnings"]) == (["1003"], [])


@pytest.mark.parametrize("spoilt", ["rules", "flow", "models", "policy"])
async def test_users_of_a_channel_that_cannot_be_asked_are_told_as_unknown_and_hold_nothing_up(
    api: Flows, station: SmallStation, spoilt: str
) -> None:
    """Never as none: it is removed as a whole, and what is known is still named."""
    condition = {"operator": ">", "value": 5, "source": "comsrv:1001:m:10001", "field": "t"}
    rule = {"id": "hot", "conditions": [condition], "actions": [{"type": "log_event", "parameters": {"message": "x"}}]}
    read = {"id": "r", "type": "point_read", "config": {"addresses": ["comsrv:1001:m:10001"]}}
    for name in ("1001", "1002"):
        await api.post("/channels", {**PV, "id": name}, 201)
    await api.post("/rules", rule, 201)
    await api.post("/flows", flow("reader", read), 201)
    await api.post("/flows", flow("second", read), 201)
    keys, redis = station.plane.keys, station.plane.redis
    key = {
        "rules": keys.rules(), "flow": keys.flow("second"), "models": keys.models(), "policy": keys.history_policy(),
    }[spoilt]  # fmt: skip
    await redis.delete(key)
    await redis.lpush(key, "by hand")
    await redis.incr(keys.models_version())
    await redis.incr(keys.rules_version())
    unknown = {"rules": "rules", "flow": "flows.second", "models": "models", "policy": "history.policy"}[spoilt]
    gone = await api.ask("DELETE", "/channels/1001", 200)
    assert [w["path"] for w in gone["warnings"] if w["code"] == "users_not_known"] == [unknown]
    assert "flows.reader" in [warning["path"] for warning in gone["warnings"] if warning["code"] == "in_use"]
    assert [channel["id"] for channel in (await api.get("/channels"))["items"]] == ["1002"]
    many = await api.ask("PUT", "/channels", 200, json={"remove": ["1002"]})
    assert [w["path"] for w in many["warnings"]] == [unknown]


async def test_the_alarm_of_a_channel_that_is_disabled_is_resolved_with_a_reason(
    api: Flows, station: SmallStation
) -> None:
    """Also when no process attends it."""
    plane = station.rules.plane
    faults = FaultReader(plane)
    await api.post("/channels", PV, 201)
    await report(plane.link, plane.keys, "channel_offline", "comsrv:1001", "channel 1001 is offline")
    await faults.step()
    (alarm,) = (await api.get("/alarms"))["items"]
    await api.ask("PUT", "/channels/1001", 200, json={**PV, "enabled": False})
    await faults.step()
    shown = await api.get(f"/alarms/{alarm['id']}")
    assert (shown["status"], shown["journal"][-1]["note"]) == ("Resolved", "the channel was disabled")


async def test_every_declared_point_is_listed_and_an_undeclared_one_is_called_so(api: Flows) -> None:
    await api.post("/points", {"channels": {"1001": {"m": {"10001": 25.1}}, "7": {"m": {"1": 1}}}})
    old = {"channels": {"1001": {"s": {"20001": 1}}}, "ts": 1_700_000_000_000}
    await api.post("/points", old)
    await api.post("/channels", PV, 201)

    def states(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
        return {point["address"]: (point["state"], point["quality"]) for point in answer["items"]}

    whole = {
        "comsrv:1001:m:10001": ("ok", "good"),
        "comsrv:1001:s:20001": ("stale", "uncertain"),
        "comsrv:1001:a:40001": ("no_value", "bad"),
    }
    found = states(await api.get("/points", channel="1001"))
    assert found == whole and list(found) == list(whole)
    assert states(await api.get("/points", channel="1001", kind="a")) == {"comsrv:1001:a:40001": ("no_value", "bad")}
    named = ["comsrv:7:m:1", "comsrv:7:m:2", "comsrv:1001:m:9", "comsrv:1001:a:40001"]
    assert states(await api.get("/points", address=named)) == {
        "comsrv:7:m:1": ("pushed", "good"),
        "comsrv:7:m:2": ("undeclared", "bad"),
        "comsrv:1001:m:9": ("undeclared", "bad"),
        "comsrv:1001:a:40001": ("no_value", "bad"),
    }


async def test_a_status_that_another_program_spoilt_is_unknown_and_hides_no_other(
    redis_7: servers.Server, key_prefix: str, tmp_path: Path
) -> None:
    async with small_station(redis_7.url, key_prefix, tmp_path) as station, ask(create_app(station)) as client:
        for number in (1001, 1002):
            assert (await client.post("/api/v1/channels", json={**PV, "id": number})).status_code == 201
        plane = station.points.plane
        await plane.redis.set(plane.keys.channel_status("1001"), "mine")
        answer = await client.get("/api/v1/channels")
        assert answer.status_code == 200
        spoilt, whole = answer.json()["items"]
        assert "comsrv:1001:status" in spoilt["status"]["error"], spoilt
        assert (whole["id"], whole["status"]["error"]) == ("1002", "")


async def test_points_have_the_unit_of_their_definition_at_once(api: Flows) -> None:
    await api.get("/points", channel="1001")  # the look at definitions is fresh now
    for unit in ("kW", "MW"):
        point = {"kind": "m", "id": 10001, "name": "power", "unit": unit}
        await api.ask("PUT", "/channels", 200, json=[{**PV, "points": [point]}])
        found = (await api.get("/channels/1001/points"))["items"]
        assert [(each["name"], each["unit"]) for each in found] == [("power", unit)]
