from __future__ import annotations

import socket

import pytest

from tests.cli.conftest import run_process
from tradewind.cli import demo_alarm, demo_grid
from tradewind.cli.demo import judge, mix
from tradewind.cli.demo_station import free_port


def test_a_busy_port_leads_to_the_next_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) > port


def test_the_mix_has_a_little_of_everything() -> None:
    tasks = mix(0)
    assert {task["type"] for task in tasks} == {"echo", "sleep", "total", "call_supplier", "report", "fail"}
    assert any(task.get("priority") == "high" for task in tasks)
    assert any(task.get("delay_s") for task in tasks)


ALARM = {"ok": True, "id": "alarm_1", "title": "cut off", "events": ["raised", "acknowledged"], "wrong": []}
GRID = {"ok": True, "points": 3, "cycles": {"completed": 1}, "wrong": [], "values": []}


def test_what_was_not_meant_is_named() -> None:
    good = {"id": "a", "type": "echo", "status": "SUCCESS"}
    meant = {"id": "b", "type": "fail", "status": "DEAD"}
    assert judge([good, meant], {"completed": 3, "running": 1}, GRID, ALARM)["ok"] is True
    tasks = [good, {**meant, "status": "SUCCESS"}, {"id": "c", "type": "echo", "status": "PROCESSING"}]
    verdict = judge(tasks, {"completed": 1}, GRID, ALARM)
    assert (verdict["ok"], verdict["wrong"]) == (False, ["b", "c"])
    assert judge([], {"completed": 1}, GRID, ALARM)["ok"] is False
    assert judge([good, meant], {"completed": 3, "failed": 1}, GRID, ALARM)["ok"] is False
    assert judge([good, meant], {}, GRID, ALARM)["ok"] is False
    assert judge([good, meant], {"completed": 3}, {**GRID, "ok": False}, ALARM)["ok"] is False
    assert judge([good, meant], {"completed": 3}, GRID, {**ALARM, "ok": False})["ok"] is False


def test_the_micro_grid_is_judged_by_points_model_and_cycles() -> None:
    good = {"address": "comsrv:1001:m:1", "value": 1.0, "quality": "good"}
    model = {"outputs": ["x"], "values": [{"address": "modsrv:power_balance:measurement:x", "value": 2.0}]}
    assert demo_grid.judge([good], model, {"completed": 2}, [])["ok"] is True
    stale = demo_grid.judge([good, {**good, "quality": "uncertain"}], model, {"completed": 2}, [])
    assert (stale["ok"], stale["wrong"]) == (False, ["comsrv:1001:m:1"])
    assert demo_grid.judge([], model, {"completed": 2}, [])["ok"] is False
    absent = demo_grid.judge([good], {**model, "outputs": ["x", "y"]}, {"completed": 2}, [])
    assert absent["wrong"] == ["modsrv:power_balance:measurement:y"]
    assert demo_grid.judge([good], model, {"completed": 2, "failed": 1}, [])["wrong"] == ["1 cycles of dispatch failed"]
    assert demo_grid.judge([good], model, {}, [])["ok"] is False


def test_the_alarm_must_have_been_raised_acknowledged_and_ended() -> None:
    journal = [{"event": "raised"}, {"event": "acknowledged"}, {"event": "cleared"}]
    alarm = {"id": "alarm_1", "title": "cut off", "status": "Resolved", "journal": journal}
    assert demo_alarm.judge(alarm)["ok"] is True
    assert demo_alarm.judge({**alarm, "status": "Acknowledged", "journal": journal[:2]})["ok"] is False
    unseen = demo_alarm.judge({**alarm, "journal": [journal[0], journal[2]]})
    assert unseen["wrong"] == ["alarm_1 Resolved: raised, cleared"]
    assert demo_alarm.judge(None)["wrong"] == ["no alarm of breaker_open"]


@pytest.mark.slow
def test_it_shows_a_station_at_work_and_ends_by_itself() -> None:
    ran = run_process("demo", "--json", timeout=100, DEMO_SECONDS="4")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["ok"] is True
    assert ran.json["types"]["fail"] == {"DEAD": 1}
    assert ran.json["types"]["call_supplier"]["SUCCESS"] >= 1
    assert ran.json["grid"]["cycles"]["completed"] >= 1
    assert {point["name"] for point in ran.json["grid"]["values"]} >= {"solar", "battery", "load", "grid"}
    assert ran.json["alarm"]["events"] == ["raised", "acknowledged", "cleared"]
