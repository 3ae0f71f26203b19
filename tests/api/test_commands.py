"""Commands over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Eventually, SmallStation
from tests.api.flow_station import Flows
from tradewind.clock import now_ms
from tradewind.points.command_record import CommandStatus, Outcome, Result
from tradewind.points.owed import owed_text

BATTERY: dict[str, Any] = {
    "id": 1001,
    "protocol": "virtual",
    "poll_interval_ms": 50,
    "points": [
        {"kind": "m", "id": 1, "mapping": {"expression": "a40001 * 2"}},
        {"kind": "c", "id": 30001, "select_first": True, "mapping": {"initial_value": 0}},
        {"kind": "c", "id": 30002, "interlock": "m1 < 0", "mapping": {"initial_value": 0}},
        {"kind": "a", "id": 40001, "min": 0, "max": 100, "unit": "kW", "mapping": {"initial_value": 1}},
    ],
}
SEND = {"address": "comsrv:1001:a:40001", "value": 55.5, "reason": "peak", "who": "ada", "idempotency_key": "k1"}
MODEL = {
    "name": "bat",
    "inputs": [{"name": "p", "source": "comsrv:1001:m:1"}],
    "calculations": [{"id": "half", "expression": "p / 2"}],
    "outputs": [{"field": "half", "source": "half"}],
    "controls": {"limit": {"address": "comsrv:1001:a:40001", "max": 50}},
}


async def test_a_command_waits_is_found_and_cancelled(api: Flows) -> None:
    await api.post("/channels", BATTERY, 201)
    sent = await api.post("/commands", SEND, 202)
    assert sent == {"id": sent["id"], "status": "pending"}
    assert await api.post("/commands", SEND, 200) == sent
    assert await api.error("POST", "/commands", 409, json={**SEND, "value": 1}) == "idempotency_mismatch"
    command = await api.get(f"/commands/{sent['id']}", wait=0.05)
    assert (command["status"], command["value"], command["address"]) == ("pending", 55.5, SEND["address"])
    assert (command["model_name"], command["field_name"]) == ("channel_1001", "a_40001")
    assert (command["who"], command["reason"], command["source"]) == ("ada", "peak", "api_request")
    assert command["created_at"].endswith("Z") and command["expires_at"] > command["created_at"]
    assert "offline" in command["message"] and command["idempotency_key"] == "k1"
    assert [item["id"] for item in (await api.get("/commands"))["items"]] == [sent["id"]]
    assert (await api.get("/commands", model="channel_1001", limit=5))["items"] == [command]
    assert (await api.get("/commands", model="other"))["items"] == []
    ended = await api.post(f"/commands/{sent['id']}/cancel", {"who": "bob", "reason": "no"})
    assert (ended["status"], ended["result"], ended["message"]) == ("cancelled", "cancelled", "cancelled by bob: no")
    assert await api.post(f"/commands/{sent['id']}/cancel") == ended


async def test_a_bad_command_is_refused_with_every_problem(api: Flows) -> None:
    await api.post("/channels", BATTERY, 201)
    for body, codes in (
        ({}, ["missing_field"]),
        ({"value": "x", "reason": 5}, ["not_a_number", "not_a_text"]),
        ({"value": 1}, ["no_target"]),
        ({**SEND, "value": 500}, ["above_max"]),
        ({**SEND, "address": "comsrv:1001:m:1"}, ["not_writable"]),
        ({**SEND, "address": "comsrv:1001:a:7"}, ["unknown_point"]),
        ({**SEND, "address": "comsrv:9:a:7"}, ["unknown_channel"]),
        ({**SEND, "timeout_s": 0, "address": "x"}, ["bad_address", "out_of_range"]),
    ):
        error = (await api.ask("POST", "/commands", 422, json=body))["error"]
        found = [problem["code"] for problem in error["problems"]]
        assert error["code"] == "bad_command" and found == codes, (body, found)
    assert await api.error("POST", "/commands", 422, json={**SEND, "colour": 1}) == "unknown_field"
    for name in ("open", "journal", "cmd_nothing", "effects"):
        assert await api.error("GET", f"/commands/{name}", 404) == "command_not_found"
        assert await api.error("POST", f"/commands/{name}/cancel", 404) == "command_not_found"
    assert await api.error("GET", "/commands/a%20b", 422) == "bad_id"
    assert (await api.get("/commands"))["items"] == []


@pytest.mark.usefixtures("comsrv")
async def test_commands_reach_the_device(station: SmallStation, api: Flows, eventually: Eventually) -> None:
    await api.post("/channels", BATTERY, 201)

    async def shows(value: float) -> bool:
        (point,) = (await api.get("/points", address="comsrv:1001:m:1"))["items"]
        return bool(point["value"] == value)

    await eventually(lambda: shows(2))
    sent = await api.post("/commands", SEND, 202)
    command = await api.get(f"/commands/{sent['id']}", wait=10)
    assert (command["status"], command["result"]) == ("success", "done")
    assert await api.error("POST", f"/commands/{sent['id']}/cancel", 409) == "command_state"
    await eventually(lambda: shows(111))
    assert await api.post("/commands", SEND, 200) == {"id": sent["id"], "status": "success"}
    point = {"address": "comsrv:1001:c:30001", "value": 1, "who": "ada"}
    assert await api.error("POST", "/commands", 409, json=point) == "not_selected"
    selected = await api.post("/commands/select", {**point, "lasts_s": 20})
    assert (selected["address"], selected["who"]) == (point["address"], "ada") and selected["until"].endswith("Z")
    assert await api.error("POST", "/commands/select", 409, json={**point, "who": "bob"}) == "selected_by_other"
    release = {"address": point["address"], "who": "ada"}
    assert await api.error("POST", "/commands/release", 409, json={**release, "who": "bob"}) == "selected_by_other"
    assert await api.post("/commands/release", release) == {"released": True}
    assert await api.post("/commands/release", release) == {"released": False}
    await api.post("/commands/select", point)
    done = await api.get(f"/commands/{(await api.post('/commands', point, 202))['id']}", wait=10)
    assert done["status"] == "success"
    assert await api.error("POST", "/commands/select", 422, json={**point, "lasts_s": 0})
    locked = {"address": "comsrv:1001:c:30002", "value": True}
    assert await api.error("POST", "/commands", 409, json=locked) == "interlocked"


@pytest.mark.usefixtures("comsrv")
async def test_a_control_of_a_model_is_commanded_by_its_name(api: Flows, eventually: Eventually) -> None:
    await api.post("/channels", BATTERY, 201)
    await api.post("/models", MODEL, 201)
    target = {"model": "bat", "field": "limit", "value": 40}
    sent = await api.post("/commands", target, 202)
    command = await api.get(f"/commands/{sent['id']}", wait=10)
    assert (command["status"], command["model_name"], command["field_name"]) == ("success", "bat", "limit")
    shown = await api.get("/models/bat")
    assert float(shown["control_values"]["limit"]["value"]) == 40
    assert await api.error("POST", "/commands", 422, json={**target, "value": 60}) == "bad_command"
    assert await api.error("POST", "/commands", 422, json={**target, "model": "none"}) == "bad_command"


async def test_how_the_last_command_ended_is_seen_at_the_point(api: Flows, station: SmallStation) -> None:
    await api.post("/channels", BATTERY, 201)
    sent = await api.post("/commands", SEND, 202)
    store = station.points.commands.store
    command = await store.take("1001", "a process")
    assert command is not None
    await store.finish(command, Outcome(CommandStatus.TIMEOUT, Result.UNKNOWN, "no answer"))
    found = (await api.get("/points", address=[SEND["address"], "comsrv:1001:m:1"]))["items"]
    assert "command" not in found[1], "only what can be commanded has one"
    last = found[0]["command"]
    assert (last["id"], last["status"], last["result"], last["message"]) == (
        sent["id"], "timeout", "unknown", "no answer",
    )  # fmt: skip
    assert (last["value"], last["who"], last["unsure"]) == (55.5, "ada", True) and last["at"].endswith("Z")
    listed = {point["address"]: point for point in (await api.get("/channels/1001/points"))["items"]}
    assert listed[SEND["address"]]["command"] == last
    assert listed["comsrv:1001:c:30001"]["command"] is None


async def test_what_is_owed_is_listed_and_dismissed(api: Flows, station: SmallStation) -> None:
    pulse = {"kind": "c", "id": 30003, "control_type": "pulse", "pulse_ms": 60_000, "mapping": {"initial_value": 0}}
    await api.post("/channels", {**BATTERY, "points": [*BATTERY["points"], pulse]}, 201)
    address = "comsrv:1001:c:30003"
    sent = await api.post("/commands", {"address": address, "value": 1}, 202)
    store, channel = station.points.commands.store, await station.points.channels.get("1001")
    command = await store.take("1001", "a process")
    assert command is not None
    await store.owe(command, owed_text(channel, channel.points[-1], 0.0, 0.0, now_ms()), 1000)
    (owed,) = (await api.get("/commands/owed"))["items"]
    assert (owed["address"], owed["command_id"], owed["value"], owed["is_told"]) == (address, sent["id"], 0, False)
    assert await api.error("POST", "/commands/owed/dismiss", 422, json={"address": address}) == "bad_command"
    body = {"address": address, "who": "ada", "reason": "it is off"}
    assert await api.post("/commands/owed/dismiss", body) == {"dismissed": True}
    assert await api.post("/commands/owed/dismiss", body) == {"dismissed": False}
    assert await api.get("/commands/owed") == {"items": []}


async def test_a_command_of_another_program_that_cannot_be_read_is_a_conflict(
    api: Flows, station: SmallStation
) -> None:
    plane = station.points.plane
    await plane.redis.hset(plane.keys.command("cmd_foreign"), mapping={"status": "pending", "value": "1"})
    await plane.redis.set(plane.keys.command("cmd_text"), "x")
    for name in ("cmd_foreign", "cmd_text"):
        assert await api.error("GET", f"/commands/{name}", 409) == "broken_command"
        assert await api.error("POST", f"/commands/{name}/cancel", 409) == "broken_command"
    assert (await api.get("/commands"))["items"] == []
