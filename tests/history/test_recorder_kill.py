"""Nothing lost, nothing doubled: outages of the sink, kills of the recorder and of Redis, on both sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.history.soak import Found, Plan, soak

#: An outage is longer than a write may last before its rows go to the disk (SLOW_S). The full size, a million samples
#: and outages of a minute, is bench/history/soak.py.
PLAN = Plan(points=100, steps=1000, outage_s=8.0, write_s=30.0)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_nothing_is_lost_or_doubled_in_files_of_our_own(tmp_path: Path) -> None:
    _check(await soak(PLAN, tmp_path, None))


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_nothing_is_lost_or_doubled_in_influxdb(tmp_path: Path) -> None:
    with servers.influx_server() as influx:
        _check(await soak(PLAN, tmp_path, influx))


def _check(found: Found) -> None:
    assert found.wrong == []
    assert found.count == PLAN.points * PLAN.steps
    assert found.total == PLAN.points * PLAN.steps * (PLAN.steps - 1) / 2
    assert int(found.status["spooled"]) > 0  # the sink was away, and it mattered
    assert [found.status[name] for name in ("dropped", "missed", "refused", "not_finite")] == ["0"] * 4
