from __future__ import annotations

from typing import Any

import pytest

from tradewind.cli.flow_progress import CycleProgress
from tradewind.cli.flow_view import moment, status_view, when
from tradewind.cli.output import Output
from tradewind.flows.status import statistics


def status(**states: str) -> dict[str, Any]:
    nodes = {name: {"status": state, "attempt": 1} for name, state in states.items()}
    is_open = any(state in ("pending", "running") for state in states.values())
    return {
        "flow_id": "f",
        "cycle": 3,
        "flow_status": "running",
        "cycle_status": "running" if is_open else "completed",
        "nodes": nodes,
        "statistics": statistics(list(states.values())),
    }


def test_elsewhere_each_change_of_a_node_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with CycleProgress(Output()) as progress:
        progress.update(status(a="pending", b="pending"))
        progress.update(status(a="running", b="pending"))
        progress.update(status(a="running", b="pending"))
        failed = status(a="failed", b="skipped")
        failed["nodes"]["a"] |= {"error_message": "no [bold]way", "attempt": 2}
        progress.update(failed)
    assert capsys.readouterr().err.splitlines() == ["a running", "a failed attempt 2 no [bold]way", "b skipped"]


def test_a_large_flow_is_told_by_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"n{i}" for i in range(300)]
    with CycleProgress(Output()) as progress:
        progress.update(status(**dict.fromkeys(names, "running")))
        progress.update(status(**dict.fromkeys(names, "running")))
        progress.update(status(**dict.fromkeys(names, "completed")))
    assert capsys.readouterr().err.splitlines() == [
        "cycle 3 running: 300 nodes: 300 running",
        "cycle 3 completed: 300 nodes: 300 completed",
    ]


def test_programs_are_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with CycleProgress(Output(is_json=True)) as progress:
        progress.update(status(a="running"))
        progress.say("a line")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_a_table_that_is_too_long_keeps_the_most_telling_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    found = status(**dict.fromkeys([f"done{i}" for i in range(50)], "completed"), late="running", bad="failed")
    Output().show({}, lambda: status_view(found, 3))
    shown = capsys.readouterr().out
    assert "bad" in shown
    assert "late" in shown
    assert "… and 49 more" in shown


@pytest.mark.parametrize(
    ("flow", "text"),
    [
        ({"interval": 0}, "once"),
        ({"interval": 90}, "every 1m 30s"),
        ({"interval": "5m"}, "every 5m"),
        ({"interval": "*/5 * * * *"}, "cron */5 * * * *"),
        ({"schedule": {"cron": "0 8 * * 1"}}, "cron 0 8 * * 1"),
        ({"schedule": {"interval": "1h"}}, "every 1h"),
        ({"interval": None, "schedule": {"manual": True}}, "manual"),
    ],
)
def test_when_a_flow_runs(flow: dict[str, Any], text: str) -> None:
    assert when(flow) == text


def test_moments() -> None:
    assert moment(0) is None
    assert moment(1.5) == "1970-01-01T00:00:01.500Z"
    assert moment("2026-11-16T08:00:00Z") == "2026-11-16T08:00:00Z"
