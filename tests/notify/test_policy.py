"""Policies: every problem at once, quiet hours over midnight and over changes of the clock, routes."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tradewind.errors import Invalid
from tradewind.http_guard import Guard
from tradewind.notify.guard import guard_of
from tradewind.notify.message import Message
from tradewind.notify.policy import Match, Policy, QuietHours
from tradewind.notify.policy_check import read_policy
from tradewind.settings import NotifySettings

GUARD = guard_of(NotifySettings())
WHOLE: dict[str, Any] = {
    "targets": {
        "ops": {"url": "https://example.com/hook", "headers": {"X-Token": "s3cret"}, "group_wait_s": 0},
        "boss": {"url": "mailto://user:pw@example.com", "events": ["raised"], "enabled": False},
    },
    "routes": [
        {"match": {"level": ["critical", "Major"], "category": "power"}, "targets": ["ops"], "min_level": "warning"},
        {"match": {"source": ["comsrv:1001:*", "modsrv:*"]}, "targets": ["ops", "boss"], "quiet_hours": None},
    ],
    "quiet_hours": {"from": "22:00", "to": "06:00", "timezone": "Europe/Berlin", "except_level": "high"},
    "escalation": [{"after_s": 60, "targets": ["ops"]}, {"after_s": 600, "targets": ["boss"], "min_level": "High"}],
    "group_wait_s": 2.5,
    "group_interval_s": 60,
}


def read(document: Any, guard: Guard = GUARD) -> Policy:
    return read_policy(document, Policy(), guard)


def problems(document: Any, guard: Guard = GUARD) -> set[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        read(document, guard)
    return {(problem.code, problem.path) for problem in caught.value.problems}


def test_a_whole_policy_is_read_and_levels_get_their_names() -> None:
    policy = read(WHOLE)
    assert policy.routes[0].match.level == ("Critical", "High")
    assert policy.routes[0].match.category == ("power",)
    assert policy.routes[0].min_level == "Low"
    assert policy.routes[1].quiet_hours is None
    assert policy.quiet_hours is not None and policy.quiet_hours.except_level == "High"
    assert policy.escalation[1].min_level == "High"
    assert (policy.group_wait_s, policy.group_interval_s) == (2.5, 60)


def test_nothing_is_a_policy_too() -> None:
    assert read({}) == Policy()


def test_every_problem_is_found_at_once() -> None:
    found = problems(
        {
            "targets": {
                "bad name": {"url": "https://example.com"},
                "a": {"url": "no address", "event": []},
                "b": {"events": ["everything"], "headers": {"Host": "x", "X": "a\nb"}},
                "c": {"url": "mailto://x@example.com", "headers": {"X-A": "1"}, "group_wait_s": -1},
                "d": {"url": "http://127.0.0.1/x"},
                "e": {"url": "https://user:***@example.com/***"},
                "f": {"url": "http:///nohost"},
                "g": 5,
            },
            "routes": [
                {"targets": ["aa"], "match": {"level": ["awful"], "sauce": "x"}},
                {"targets": [], "min_level": "worst"},
                {"quiet_hours": {"from": "25:00", "to": "06:00", "timezone": "Mars/Base"}},
                "all",
            ],
            "quiet_hours": {"from": "06:00", "to": "06:00"},
            "escalation": [{"after_s": 60, "targets": ["a"]}, {"after_s": 60, "targets": ["a"]}, {"after_s": 0}],
            "rules": [],
        }
    )
    assert found == {
        ("bad_name", "targets.bad name"),
        ("bad_url", "targets.a.url"),
        ("unknown_field", "targets.a.event"),
        ("missing_field", "targets.b.url"),
        ("bad_value", "targets.b.events[0]"),
        ("no_headers", "targets.b.headers"),
        ("bad_header", "targets.b.headers.Host"),
        ("bad_header", "targets.b.headers.X"),
        ("no_headers", "targets.c.headers"),
        ("bad_value", "targets.c.group_wait_s"),
        ("refused_address", "targets.d.url"),
        ("masked_secret", "targets.e.url"),
        ("bad_url", "targets.f.url"),
        ("wrong_type", "targets.g"),
        ("unknown_target", "routes[0].targets[0]"),
        ("unknown_level", "routes[0].match.level[0]"),
        ("unknown_field", "routes[0].match.sauce"),
        ("no_target", "routes[1].targets"),
        ("unknown_level", "routes[1].min_level"),
        ("missing_field", "routes[2].targets"),
        ("bad_time", "routes[2].quiet_hours.from"),
        ("unknown_timezone", "routes[2].quiet_hours.timezone"),
        ("wrong_type", "routes[3]"),
        ("bad_time", "quiet_hours.to"),
        ("not_later", "escalation[1].after_s"),
        ("bad_value", "escalation[2].after_s"),
        ("missing_field", "escalation[2].targets"),
        ("unknown_field", "rules"),
    }


@pytest.mark.parametrize("rubbish", [None, 1, "x", [], {"targets": []}, {"routes": {}}, {"escalation": 1}])
def test_rubbish_is_refused_without_another_exception(rubbish: Any) -> None:
    assert problems(rubbish)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:10.0.0.1]"])
def test_a_literal_address_that_is_private_is_refused_unless_allowed(host: str) -> None:
    document = {"targets": {"a": {"url": f"http://{host}/x"}}}
    assert problems(document) == {("refused_address", "targets.a.url")}
    read(document, guard_of(NotifySettings(allow_private=True)))
    read(document, guard_of(NotifySettings(allow_hosts=[host])))


def test_where_clouds_keep_credentials_is_refused_unless_named() -> None:
    document = {"targets": {"a": {"url": "http://169.254.169.254/x"}}}
    with pytest.raises(Invalid, match="clouds keep credentials"):
        read(document, guard_of(NotifySettings(allow_private=True)))
    read(document, guard_of(NotifySettings(allow_hosts=["169.254.169.254"])))


def ms(text: str, zone: str = "Europe/Berlin", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


NIGHT = QuietHours("22:00", "06:00", "Europe/Berlin")
NOON = QuietHours("12:00", "13:30", "Asia/Shanghai")


@pytest.mark.parametrize(
    ("quiet", "now", "until"),
    [
        (NIGHT, ms("2024-01-10 21:59"), 0),
        (NIGHT, ms("2024-01-10 22:00"), ms("2024-01-11 06:00")),
        (NIGHT, ms("2024-01-11 05:59"), ms("2024-01-11 06:00")),
        (NIGHT, ms("2024-01-11 06:00"), 0),
        (NIGHT, ms("2024-03-30 23:00"), ms("2024-03-31 06:00")),  # clocks go forward: seven hours are six
        (NOON, ms("2024-01-10 12:00", "Asia/Shanghai"), ms("2024-01-10 13:30", "Asia/Shanghai")),
        (NOON, ms("2024-01-10 13:30", "Asia/Shanghai"), 0),
        (NOON, ms("2024-01-10 12:00"), 0),
    ],
)
def test_quiet_hours_are_local(quiet: QuietHours, now: int, until: int) -> None:
    assert quiet.until_ms("High", now) == until


def test_an_hour_that_comes_twice_ends_after_now() -> None:
    quiet = QuietHours("00:00", "02:30", "Europe/Berlin")
    second = ms("2024-10-27 02:10", fold=1)
    assert quiet.until_ms("Low", second) == ms("2024-10-27 02:30", fold=1)


@pytest.mark.parametrize("end", ["02:00", "02:30", "02:59"])
def test_quiet_hours_whose_end_is_skipped_end_when_the_clocks_go_forward(end: str) -> None:
    quiet = QuietHours("22:00", end, "Europe/Berlin")
    forward = ms("2024-03-31 03:00")
    assert quiet.until_ms("Low", ms("2024-03-31 01:59")) == forward
    assert quiet.until_ms("Low", forward) == 0


def test_critical_passes_quiet_hours_unless_the_policy_says_otherwise() -> None:
    at = ms("2024-01-11 01:00")
    assert NIGHT.until_ms("Critical", at) == 0
    assert NIGHT.until_ms("High", at) > 0
    assert QuietHours("22:00", "06:00", "Europe/Berlin", "Medium").until_ms("Medium", at) == 0
    assert QuietHours("22:00", "06:00", "Europe/Berlin", None).until_ms("Critical", at) > 0


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        (Match(), True),
        (Match(level=("High", "Critical")), True),
        (Match(level=("Low",)), False),
        (Match(category=("power",), rule_id=("r1", "r2")), True),
        (Match(category=("power",), rule_id=("r2",)), False),
        (Match(source=("comsrv:1001:*",)), True),
        (Match(source=("comsrv:1002:*", "comsrv:????:m:1")), True),
        (Match(source=("comsrv:1001",)), False),
    ],
)
def test_each_part_of_a_match_must_fit(match: Match, fits: bool) -> None:
    message = Message(level="High", category="power", rule_id="r1", source="comsrv:1001:m:1")
    assert match.fits(message) is fits


def test_a_nasty_pattern_costs_little() -> None:
    assert not Match(source=("*a" * 90 + "b",)).fits(Message(source="a" * 190))
