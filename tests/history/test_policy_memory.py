"""A Redis that has lost the policy changes neither what is kept nor what is recorded, and that is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import servers
from tests.history.history_room import HistoryRoom, until
from tests.history.memory_sink import MemorySink
from tradewind import codec
from tradewind.clock import now_ms
from tradewind.history.influx import InfluxSink
from tradewind.history.policy import read_policy
from tradewind.history.policy_memory import FILE, PolicyMemory
from tradewind.history.sample import Row
from tradewind.history.sqlite import SqliteSink
from tradewind.history.store import PolicyKeeping
from tradewind.redis.connection import open_link
from tradewind.settings import InfluxSettings, RedisSettings

DAY = 86_400_000
ARCHIVE = {"policies": [{"match": "modsrv:*", "class": "archive"}], "classes": {"archive": {"raw_days": 0}}}
TOTAL = "modsrv:energy:measurement:total"


@pytest.fixture
async def room(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[HistoryRoom]:
    link = await open_link(RedisSettings(url=redis_7.url))
    room = HistoryRoom(link, key_prefix, tmp_path)
    yield room
    await room.plane.close()
    await link.close()


def test_it_is_remembered_over_processes_and_damage_is_no_policy(tmp_path: Path) -> None:
    path, text = tmp_path / "new" / FILE, codec.encode(read_policy(ARCHIVE))
    memory = PolicyMemory(path)
    assert memory.last() == b""
    memory.keep(text)
    memory.keep(b"")
    assert memory.last() == PolicyMemory(path).last() == text
    assert [file.name for file in path.parent.iterdir()] == [FILE]
    path.write_bytes(text[:-5])
    assert PolicyMemory(path).last() == b""


def test_a_disk_that_takes_nothing_costs_only_the_memory_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory, text = PolicyMemory(tmp_path / "file" / FILE), codec.encode(read_policy(ARCHIVE))
    memory.keep(text)
    assert memory.last() == text


@pytest.mark.parametrize("kind", ["files", "influxdb"])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_redis_that_comes_back_empty_costs_no_archive(
    room: HistoryRoom, tmp_path: Path, kind: str, is_restarted: bool
) -> None:
    await room.store.put_policy(ARCHIVE)

    def keeping() -> PolicyKeeping:
        return PolicyKeeping(room.store, (30, 365, 0), PolicyMemory(tmp_path / FILE))

    before, now = keeping(), now_ms()
    rows = [Row(TOTAL, now - days * DAY, 1.0) for days in range(0, 200, 10)]
    with servers.influx_server() as influx:
        settings = InfluxSettings(url=influx.url)
        files, other = SqliteSink(tmp_path, keeping=before), InfluxSink(settings, keeping=before)
        async with files if kind == "files" else other as sink:
            await sink.write(rows)
            await sink.retain(now)
        await room.plane.redis.delete(room.keys.history_policy())  # as in a Redis without its data
        after = keeping() if is_restarted else before
        files, other = SqliteSink(tmp_path, keeping=after), InfluxSink(settings, keeping=after)
        async with files if kind == "files" else other as sink:
            for _ in range(8):
                await sink.retain(now)
            assert len((await sink.read([TOTAL], 0, now + 1, 100))[TOTAL]) == 20


async def test_the_recorder_goes_on_by_the_last_policy_and_tells_it(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    document = {"batch_config": {"size": 1000, "timeout_ms": 50}, "policies": [{"match": "*:m:2", "record": False}]}

    async def is_told(state: str, word: str) -> bool:
        states = [state for source, _, state in await room.faults() if source == "history:policy"]
        return states[-1:] == [state] and word in (await room.store.status()).get("policy_error", "")

    await room.store.put_policy(document)
    async with room.recorder(sink):
        await room.write(start, {"1": 1, "2": 1})
        await until(lambda: sink.rows() == 1)
        await room.plane.redis.delete(room.keys.history_policy())
        await until(lambda: is_told("raise", "lost"))
        await room.write(start + 1, {"1": 2, "2": 2})
        await until(lambda: sink.rows() == 2)
    async with room.recorder(sink):
        await room.write(start + 2, {"1": 3, "2": 3})
        await until(lambda: sink.rows() == 3)
        await until(lambda: is_told("raise", "lost"))
        await room.store.put_policy(document)
        await until(lambda: is_told("clear", ""))
    assert set(sink.found) == {"comsrv:1001:m:1"}
