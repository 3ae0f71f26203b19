"""The recorder with another sink than before: what waits on disk goes to the one that is set now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.history.history_room import QUICK, HistoryRoom, until
from tests.history.memory_sink import MemorySink
from tests.history.query_sinks import influx_for_module
from tradewind.clock import now_ms
from tradewind.history.influx import InfluxSink
from tradewind.redis.connection import open_link
from tradewind.settings import InfluxSettings, RedisSettings


@pytest.fixture(scope="module")
def influx() -> Iterator[servers.Server]:
    yield from influx_for_module()


async def test_a_spool_that_is_full_goes_to_the_sink_that_is_set_now(
    redis_7: servers.Server, key_prefix: str, tmp_path: Path, influx: servers.Server
) -> None:
    """From files of our own to InfluxDB; the oldest had to be dropped already."""
    link = await open_link(RedisSettings(url=redis_7.url))
    room = HistoryRoom(link, key_prefix, tmp_path, spool_max_bytes=20_000)
    await room.store.put_policy({"batch_config": {"size": 10, "timeout_ms": 20}})
    files, start, count = MemorySink(), now_ms() - 100_000, 150
    files.is_away = True
    async with room.recorder(files) as recorder:
        for at in range(count):
            await room.write(start + at, {str(n): at + n / 7 for n in range(30)})
            await until(lambda at=at: recorder.figures.spooled == (at + 1) * 30)  # type: ignore[misc]
        await until(lambda: recorder.figures.dropped > 0)
        waiting, dropped = recorder._spool.rows, recorder._spool.dropped.bytes
    assert waiting + dropped == count * 30
    await room.store.put_policy(QUICK)
    name = "comsrv:1001:m:7"
    async with InfluxSink(InfluxSettings(url=influx.url, database="changed")) as reader:
        async with room.recorder(InfluxSink(InfluxSettings(url=influx.url, database="changed"))) as recorder:
            await room.write(start + count, {"7": -1.0})
            await until(lambda: recorder.is_leading and recorder._spool.is_empty)
            await until(lambda: recorder.figures.written == waiting + 1)
        got = (await reader.read([name], start, start + 1000, 1000))[name]
        assert got[-1] == (start + count, -1.0, 0)
        assert [ts for ts, _, _ in got[:-1]] == [start + at for at in range(dropped // 30, count)]
        assert (await reader.stats()).rows == waiting + 1
    await room.plane.close()
    await link.close()
