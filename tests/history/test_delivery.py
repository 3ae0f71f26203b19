"""Rows on their way to the sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.history_room import HistoryRoom
from tests.history.memory_sink import MemorySink
from tradewind.history.delivery import Delivery
from tradewind.history.sample import Row
from tradewind.history.spools import Spools
from tradewind.history.status import Faults, Figures
from tradewind.redis.connection import Link


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_the_newest_sample_stays_the_newest(link: Link, key_prefix: str, tmp_path: Path) -> None:
    """Retention goes by it: an older one, or none, must not set it back."""
    room, figures = HistoryRoom(link, key_prefix, tmp_path), Figures(recorder="me", since_ms=0)
    sink, spool = MemorySink(), Spools(tmp_path / "spool", 1_000_000, 60)
    delivery = Delivery(sink, spool, room.store, figures, Faults(room.plane))
    seen = [delivery.newest_ms()]
    for times in ((5, 9, 7), (6, 8), (), (10,)):
        await delivery.take([Row("comsrv:1:m:1", ts, 1.0) for ts in times])
        seen.append(delivery.newest_ms())
    assert seen == [0, 9, 9, 9, 10]
    assert (figures.written, figures.batches, figures.sink) == (6, 3, "ok")
    await room.plane.close()
