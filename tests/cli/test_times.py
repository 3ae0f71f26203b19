from __future__ import annotations

import pytest

from tradewind.cli.times import between, relative, span

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.34, "340ms"),
        (4.21, "4.2s"),
        (42, "42s"),
        (59.9, "59s"),
        (120, "2m"),
        (185, "3m 5s"),
        (7800, "2h 10m"),
        (435_600, "5d 1h"),
        (-3, "0ms"),
    ],
)
def test_a_span_is_short(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_times_are_relative_to_now() -> None:
    assert relative("2023-11-14T22:13:10.000Z", NOW_MS) == "10s ago"
    assert relative("2023-11-14T22:13:25.000Z", NOW_MS) == "in 5.0s"
    assert relative(None, NOW_MS) is None
    assert relative("soon", NOW_MS) == "soon"


def test_a_running_task_has_lasted_until_now() -> None:
    assert between("2023-11-14T22:13:10.000Z", None, NOW_MS) == "10s"
    assert between("2023-11-14T22:13:10.000Z", "2023-11-14T22:13:12.500Z", NOW_MS) == "2.5s"
    assert between(None, None, NOW_MS) is None
