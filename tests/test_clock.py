"""Times as text."""

from __future__ import annotations

import pytest

from tradewind.clock import from_iso, iso

MS = 1_794_787_200_000


@pytest.mark.parametrize("text", ["2026-11-16T00:00:00", "2026-11-16T00:00:00Z", "2026-11-16T01:00:00+01:00"])
def test_a_time_without_a_zone_is_utc_and_a_zone_counts(text: str) -> None:
    assert from_iso(text) == MS


def test_there_and_back() -> None:
    assert iso(MS) == "2026-11-16T00:00:00.000Z"
    assert from_iso(iso(MS + 7)) == MS + 7
