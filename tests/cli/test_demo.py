from __future__ import annotations

import socket

import pytest

from tests.cli.conftest import run_process
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


def test_what_was_not_meant_is_named() -> None:
    good = {"id": "a", "type": "echo", "status": "SUCCESS"}
    meant = {"id": "b", "type": "fail", "status": "DEAD"}
    assert judge([good, meant], {"completed": 3, "running": 1})["ok"] is True
    verdict = judge(
        [good, {**meant, "status": "SUCCESS"}, {"id": "c", "type": "echo", "status": "PROCESSING"}], {"completed": 1}
    )
    assert (verdict["ok"], verdict["wrong"]) == (False, ["b", "c"])
    assert judge([], {"completed": 1})["ok"] is False
    assert judge([good, meant], {"completed": 3, "failed": 1})["ok"] is False
    assert judge([good, meant], {})["ok"] is False


@pytest.mark.slow
def test_it_shows_a_station_at_work_and_ends_by_itself() -> None:
    ran = run_process("demo", "--json", timeout=100, DEMO_SECONDS="4")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["ok"] is True
    assert ran.json["types"]["fail"] == {"DEAD": 1}
    assert ran.json["types"]["call_supplier"]["SUCCESS"] >= 1
