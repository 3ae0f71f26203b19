"""The role hissrv of a station: wired to the board, the settings and the sink they name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import servers
from tests.history.history_room import LEASES, QUICK, until
from tradewind.clock import now_ms
from tradewind.history.influx import InfluxSink
from tradewind.history.sqlite import SqliteSink
from tradewind.points.board import Batch
from tradewind.settings import Settings
from tradewind.station import Station, open_station
from tradewind.station_history import sink_of


@asynccontextmanager
async def running(redis: servers.Server, prefix: str, folder: Path, **groups: Any) -> AsyncIterator[Station]:
    document = {"key_prefix": prefix, "data_dir": str(folder), "redis": {"url": redis.url}, "scheduler": LEASES}
    async with open_station(Settings.model_validate({**document, **groups}), frozenset({"hissrv"})) as station:
        await station.history.store.put_policy(QUICK)
        stop = asyncio.Event()
        task = asyncio.create_task(station.run(stop))
        try:
            yield station
        finally:
            stop.set()
            await asyncio.wait_for(task, 30)


async def test_the_role_records_what_the_board_takes(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> None:
    series, ts = "comsrv:1001:m:1", now_ms() - 1000
    async with running(redis_7, key_prefix, tmp_path) as station:
        await station.points.board.write([Batch.of_channel("1001", "m", {"1": 4.25}, ts)])
        async with station.history.sink() as sink:

            async def is_there() -> bool:
                return (await sink.latest([series]))[series] == (ts, 4.25, 0)

            await until(is_there)
            assert await station.history.query(sink).expand(["comsrv:*"]) == [series]

            async def is_healthy() -> bool:
                part = (await station.health())["parts"]["hissrv"]
                return bool(part["status"] == "ok" and "sink ok" in part["detail"])

            await until(is_healthy)


async def test_history_can_be_off(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> None:
    """And then nobody waits for it: the feed is trimmed as if it had never been on."""
    async with running(redis_7, key_prefix, tmp_path) as station:
        plane = station.points.plane

        async def is_followed() -> bool:
            return bool(await plane.redis.hexists(plane.keys.feed_cursors(), "history"))

        await until(is_followed)
    async with running(redis_7, key_prefix, tmp_path, history={"enabled": False}) as station:
        plane = station.points.plane
        await until(lambda: _is_gone(is_followed))
        assert (await station.history.look())["hissrv"].status == "off"


async def _is_gone(is_followed: Callable[[], Awaitable[bool]]) -> bool:
    return not await is_followed()


def test_the_settings_choose_the_sink(tmp_path: Path) -> None:
    document = {"data_dir": str(tmp_path)}
    assert isinstance(sink_of(Settings.model_validate(document)), SqliteSink)
    with_influx = {**document, "influx": {"url": "http://127.0.0.1:8086"}}
    assert isinstance(sink_of(Settings.model_validate(with_influx)), InfluxSink)
