"""The rules of examples/microgrid: each fires when its comment says so, and all of it works on a real station."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, StationProcess, station_process
from tradewind.cli import demo_alarm
from tradewind.cli.apply_plan import read_wanted
from tradewind.cli.http import Http
from tradewind.rules.document import read_rule
from tradewind.rules.program import RuleProgram, Sample
from tradewind.rules.verdict import STALE

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "microgrid"
RULES = {"battery_low", "battery_empty", "battery_hot", "grid_over_import", "breaker_open", "pv_silent"}
START = 1_700_000_000_000
#: Seconds after the start, value, quality.
Story = list[tuple[float, float, int]]


def edges(rule_id: str, story: Story, until_s: float = 0) -> list[tuple[str, float]]:
    """When the rule rises and falls, in seconds; the first level is that of a plant in order."""
    rule, problems = read_rule(read_wanted(EXAMPLE).documents["rules"][rule_id])
    assert rule is not None, problems
    program = RuleProgram(rule)
    (address,) = program.addresses
    state, found = program.fresh(), []
    for at, value, quality in story:
        ms = START + round(at * 1000)
        found += program.run(state, {address: Sample(value, ms, quality)}, ms)
    if until_s:
        found += program.run(state, {}, START + round(until_s * 1000))
    return [(verdict.edge, (verdict.at_ms - START) / 1000) for verdict in found if verdict.edge]


def test_the_folder_is_whole() -> None:
    wanted = read_wanted(EXAMPLE)
    assert (wanted.problems, wanted.warnings) == ([], [])
    assert set(wanted.documents["rules"]) == RULES
    assert set(wanted.documents["groups"]) == {"storage", "grid"}
    targets = wanted.documents["notifications"]["policy"]["targets"]
    assert targets and not any(target["enabled"] for target in targets.values()), "an example tells nobody"


@pytest.mark.parametrize(
    ("rule_id", "story", "until_s", "wanted"),
    [
        ("battery_low", [(0, 50, 0), (1, 19.9, 0), (2, 24, 0), (3, 25.1, 0)], 0, [("rise", 1), ("fall", 3)]),
        ("battery_empty", [(0, 50, 0), (1, 6, 0), (2, 9.9, 0), (3, 10.1, 0)], 0, [("rise", 1), ("fall", 3)]),
        ("battery_hot", [(0, 30, 0), (1, 46, 0), (2, 44, 0), (3.5, 46, 0)], 5, [("rise", 4)]),
        ("battery_hot", [(0, 30, 0), (1, 46, 0), (2, 39, 0), (3.5, 46, 0)], 5, []),
        ("grid_over_import", [(0, 10, 0), (1, 41, 0), (5, 36, 0)], 12, [("rise", 11)]),
        ("grid_over_import", [(0, 10, 0), (1, 41, 0), (9, 34, 0), (10, 41, 0)], 19, []),
        ("grid_over_import", [(0, 10, 0), (1, 41, 0), (12, 34, 0)], 30, [("rise", 11), ("fall", 17)]),
        ("breaker_open", [(0, 1, 0), (1, 0, 0), (2, 1, 0)], 0, [("rise", 1), ("fall", 2)]),
        ("pv_silent", [(0, 0, 0), (1, 60, 0), (2, 60, STALE)], 8, [("rise", 7)]),
        ("pv_silent", [(0, 0, 0), (2, 60, STALE), (6, 61, 0)], 20, []),
        ("pv_silent", [(0, 0, 0), (2, 500, 0)], 8, [("rise", 7)]),
    ],
)
def test_a_rule_fires_when_its_comment_says_so(
    rule_id: str, story: Story, until_s: float, wanted: list[tuple[str, float]]
) -> None:
    assert edges(rule_id, story, until_s) == wanted


@pytest.fixture
def station(tmp_path: Path) -> Any:
    with station_process(tmp_path) as station:
        yield station


def wait_for(http: Http, path: str, is_there: Any) -> Any:
    end = time.monotonic() + 20
    while not is_there(found := http.get(path)):
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found


def test_an_alarm_is_raised_acknowledged_and_resolved(
    station: StationProcess, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_URL", station.url)
    applied = cli("apply", "-f", str(EXAMPLE))
    assert applied.code == 0, applied.err
    assert "+ rule breaker_open" in applied.out and "+ notification policy" in applied.out
    again = cli("apply", "-f", str(EXAMPLE), "--dry-run", "--json")
    assert again.json["changed"] is False, again.out
    http = Http(station.url)
    rules = wait_for(
        http, "/rules", lambda found: all(rule["state"] in ("active", "inactive") for rule in found["items"])
    )
    assert {rule["id"] for rule in rules["items"]} == RULES
    alarm = demo_alarm.start(http)
    assert alarm is not None
    assert (alarm["level"], alarm["status"], alarm["source_point"]) == (
        "Critical",
        "Acknowledged",
        "comsrv:1004:s:20001",
    )
    assert (alarm["acknowledged_by"], alarm["category"]) == (demo_alarm.WHO, "grid")
    verdict = demo_alarm.stop(http, alarm)
    assert verdict["ok"] is True and verdict["events"] == ["raised", "acknowledged", "cleared"], verdict
    done = wait_for(http, "/rules/breaker_open/history", lambda found: len(found["items"]) == 2)["items"]
    assert [each["actions_executed"] for each in done] == [["log_event"], ["create_alarm", "log_event"]]
    assert http.get("/notifications/log")["items"] == [], "an example tells nobody"
    http.close()
