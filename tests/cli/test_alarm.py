"""The commands of `tradewind alarm` and `tradewind notify` against a real station."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, StationProcess, clean_env


@pytest.fixture
def source(station: StationProcess) -> str:
    """Of alarms that no other test has."""
    return f"pump{random.randrange(10**9, 10**12)}"


def raised(cli: Cli, source: str, *flags: str) -> str:
    found = cli("alarm", "raise", source, "it leaks", *flags, "--json")
    assert found.code == 0, found.out
    alarm: str = found.json["id"]
    return alarm


def test_an_alarm_is_raised_listed_acknowledged_shelved_resolved_and_closed(cli: Cli, source: str) -> None:
    alarm = raised(cli, source, "--level", "high", "--category", "water")
    assert raised(cli, source) == alarm
    (item,) = cli("alarm", "list", "--source", source, "--json").json["items"]
    assert (item["level"], item["count"], item["status"]) == ("High", 2, "New")
    listed = cli("alarm", "list", "--level", "High", "--category", "water", "--source", f"{source}*")
    assert alarm in listed.out and "it leaks" in listed.out
    acked = cli("alarm", "ack", alarm, "--note", "on my way", "--who", "ada")
    assert (acked.code, acked.out) == (0, f"{alarm} Acknowledged\n")
    assert cli("alarm", "close", alarm).code == 5
    assert "allowed now:" in cli("alarm", "close", alarm).err
    assert cli("alarm", "shelve", alarm, "--for", "10m").out == f"{alarm} Suppressed\n"
    assert cli("alarm", "shelve", alarm, "--for", "soon").code == 2
    assert cli("alarm", "shelve", alarm, "--for", "300d").code == 2
    assert cli("alarm", "unshelve", alarm).out == f"{alarm} New\n"
    assert cli("alarm", "suppress", alarm).out == f"{alarm} Suppressed\n"
    assert cli("alarm", "unshelve", alarm).code == 0
    assert cli("alarm", "escalate", alarm).out == f"{alarm} Escalated\n"
    assert cli("alarm", "resolve", alarm, "--note", "mended").code == 0
    assert cli("alarm", "list", "--source", source, "--json").json["items"] == []
    assert len(cli("alarm", "list", "--source", source, "--status", "all", "--json").json["items"]) == 1
    shown = cli("alarm", "show", alarm)
    for word in ("on my way", "mended", "ada", "Resolved", "can be"):
        assert word in shown.out
    assert cli("alarm", "close", alarm).out == f"{alarm} Closed\n"
    assert cli("alarm", "show", "alarm_none").code == 4


def test_many_are_acted_on_and_the_exit_code_is_that_of_the_first_refusal(cli: Cli, source: str) -> None:
    first, second = raised(cli, f"{source}a"), raised(cli, f"{source}b")
    cli("alarm", "resolve", first)
    cli("alarm", "close", first)
    ran = cli("alarm", "ack", first, second)
    assert (ran.code, ran.out) == (5, f"{second} Acknowledged\n")
    assert f"alarm {first!r} is Closed" in ran.err
    told = cli("alarm", "ack", second, "alarm_none", "--json")
    assert told.code == 4
    assert [item["changed"] for item in told.json["items"]] == [False]
    assert [error["error"]["code"] for error in told.json["errors"]] == ["alarm_not_found"]


def test_wrong_words_are_told(cli: Cli, source: str) -> None:
    assert cli("alarm", "list", "--level", "loud").code == 2
    assert "Critical" in cli("alarm", "list", "--level", "loud").err
    assert cli("alarm", "raise", "a b", "x").code == 2
    assert cli("alarm", "list", "--from", "yesterday").code == 2


def test_those_that_left_redis_are_asked_for(cli: Cli, source: str) -> None:
    alarm = raised(cli, source)
    cli("alarm", "resolve", alarm)
    assert cli("alarm", "list", "--source", source, "--json").json["items"] == []
    found = cli("alarm", "list", "--source", source, "--archived", "--json")
    assert [item["id"] for item in found.json["items"]] == [alarm], "all, also those that have ended"
    text = cli("alarm", "export", "--source", source, "--archived")
    assert [row["id"] for row in csv.DictReader(text.out.splitlines())] == [alarm]
    found = cli("alarm", "export", "--source", source, "--archived", "--json")
    assert [item["id"] for item in found.json["items"]] == [alarm]


def test_an_empty_filter_is_refused(cli: Cli, source: str) -> None:
    for flag in ("--source", "--rule", "--category", "--status", "--level"):
        assert cli("alarm", "list", flag, "").code == 2, flag


def test_a_list_says_that_there_are_more(cli: Cli, source: str) -> None:
    for n in range(3):
        raised(cli, f"{source}{n}")
    ran = cli("alarm", "list", "--source", f"{source}*", "--limit", "2")
    assert len(ran.out.splitlines()) == 3 and "there are more" in ran.err
    assert "more" not in cli("alarm", "list", "--source", f"{source}*", "--limit", "3").err


def test_figures_and_the_export(cli: Cli, source: str, tmp_path: Path) -> None:
    alarm = raised(cli, source)
    shown = cli("alarm", "stats")
    assert shown.code == 0 and "raises most" in shown.out
    assert cli("alarm", "stats", "--json").json["raised"] >= 1
    assert "transitions" in shown.out and "dropped" not in shown.out
    period = cli("alarm", "stats", "--from", "24h", "--json").json
    assert period["to_ms"] - period["from_ms"] == pytest.approx(86_400_000, abs=5000)
    shown = cli("alarm", "stats", "--from", "-7d", "--to", "now")
    assert shown.code == 0 and "raised" in shown.out and "flood" not in shown.out
    assert cli("alarm", "stats", "--from", "1h", "--to", "2h").code == 2
    text = cli("alarm", "export", "--source", source)
    (row,) = csv.DictReader(text.out.splitlines())
    assert (row["id"], row["title"]) == (alarm, "it leaks")
    file = tmp_path / "alarms.csv"
    assert cli("alarm", "export", "--source", source, "-o", str(file)).out == f"wrote {file}\n"
    assert list(csv.DictReader(file.read_text().splitlines())) == [row]
    assert cli("alarm", "export", "--source", source, "--json").json["items"][0]["id"] == alarm
    assert cli("alarm", "export", "-o", str(tmp_path / "none" / "x")).code == 6
    assert cli("alarm", "export", "--level", "loud").code == 2


def test_watch_shows_each_transition(cli: Cli, source: str, station: StationProcess) -> None:
    command = [
        sys.executable,
        "-m",
        "tradewind.cli",
        "alarm",
        "watch",
        "--source",
        f"{source}*",
        "--count",
        "2",
        "--json",
    ]
    watching = subprocess.Popen(
        [*command, "--seconds", "60"], env=clean_env(TRADEWIND_URL=station.url), stdout=subprocess.PIPE, text=True
    )
    try:
        number = 0
        while watching.poll() is None and number < 200:  # until it has begun to listen
            raised(cli, f"{source}{number}")
            number += 1
        assert watching.stdout is not None
        events = [json.loads(line) for line in watching.stdout]
    finally:
        watching.kill()
        watching.wait()
    assert [event["event"] for event in events] == ["raised", "raised"]
    assert all(event["alarm"]["source_point"].startswith(source) for event in events)
    assert cli("alarm", "watch", "--source", source, "--seconds", "0.2").code == 0


def test_the_notification_policy_is_set_shown_and_its_targets_tested(
    cli: Cli, station: StationProcess, tmp_path: Path
) -> None:
    file = tmp_path / "notify.yaml"
    file.write_text(
        "targets:\n  hook: {url: 'https://hooks.invalid/secret-word'}\n"
        "routes:\n  - {targets: [hook], min_level: Critical}\n"
    )
    ran = cli("notify", "set", str(file))
    assert ran.code == 0 and "1 targets" in ran.out, ran.err
    shown = cli("notify", "show")
    assert "hook" in shown.out and "secret-word" not in shown.out and "Critical" in shown.out
    tested = cli("notify", "test", "hook")  # .invalid has no address
    assert tested.code == 1 and tested.out.startswith("hook ")
    assert cli("notify", "test", "none").code == 4
    assert cli("notify", "log").code == 0
    assert cli("notify", "log", "--status", "lost").code == 2
    assert cli("notify", "log", "--json").json["items"] == []
    file.write_text("targets: {}\nroutes:\n  - {targets: [nobody]}\n")
    refused = cli("notify", "set", str(file))
    assert refused.code == 2 and "notify.yaml:3:" in refused.err
    file.write_text("targets: {}\n")
    assert cli("notify", "set", str(file)).code == 0
