"""The embedded sink over time: the tail, retention, packing."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from tests.history.sink_contract import DAY, DAY0, HOUR, MINUTE, SECOND, A, B
from tradewind.history import sqlite_tail, sqlite_upkeep
from tradewind.history.aggregate import line_of
from tradewind.history.sample import Row
from tradewind.history.sqlite import SqliteSink
from tradewind.history.sqlite_columns import Damaged, decode_part, encode_part, is_packed, pack_part
from tradewind.history.sqlite_files import Files, partition_at
from tradewind.history.sqlite_tail import TailCache

LATER = 2 * DAY0


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_upkeep, "BUDGET_S", 60.0)  # one call is enough, however busy the machine is


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.db"))


def test_each_time_has_its_file(tmp_path: Path) -> None:
    assert partition_at("raw", DAY0 + DAY - 1)[1:] == (DAY0, DAY0 + DAY, "raw-20260922.db")
    december = DAY0 + 90 * DAY
    assert partition_at("minute", december).name == "minute-202612.db"
    assert partition_at("minute", december).end_ms == partition_at("hour", december).end_ms
    assert partition_at("hour", december).name == "hour-2026.db"
    for kind, ts in (("raw", 0), ("minute", december), ("hour", december)):
        (tmp_path / partition_at(kind, ts).name).touch()
        assert Files(tmp_path).partitions(kind) == [partition_at(kind, ts)]


@pytest.mark.parametrize("encode", [encode_part, pack_part])
@pytest.mark.parametrize("quality", [0, 1])
def test_a_part_comes_back_as_it_was_and_damage_is_seen(encode: type, quality: int) -> None:
    chance = random.Random(quality)
    rows = [(DAY0 + n * 977, chance.choice([chance.random(), 0.0, -5e-324, 1e308, 3.0]), quality) for n in range(777)]
    data = encode(line_of(rows), DAY0)
    assert decode_part(data, 777, DAY0).rows() == rows
    assert is_packed(data) is (encode is pack_part)
    for bad in (data[:-1], data[:3], b"", data[:100] + bytes([data[100] ^ 4]) + data[101:]):
        with pytest.raises(Damaged):
            decode_part(bad, 777, DAY0)
    with pytest.raises(Damaged):
        decode_part(data, 778, DAY0)


async def test_small_runs_are_joined_and_the_last_row_still_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A big run among small ones: a joined run must not overtake it."""
    monkeypatch.setattr(sqlite_tail, "MANY_RUNS", 8)
    monkeypatch.setattr(sqlite_tail, "BIG_RUN", 50)
    chance = random.Random(3)
    known: dict[int, float] = {}
    async with SqliteSink(tmp_path) as sink:
        for number in range(200):
            size = 60 if chance.random() < 0.1 else 3
            rows = [Row(A, DAY0 + chance.randrange(100), float(number), 0) for _ in range(size)]
            await sink.write(rows)
            known.update({row.ts_ms: row.value for row in rows})
            got = (await sink.read([A], 0, LATER, 1000))[A]
            assert got == [(ts, known[ts], 0) for ts in sorted(known)]
        db = Files(tmp_path).connect("main.db")
        assert db is not None
        runs = len(TailCache().load(db)._runs)
        db.close()
        assert runs < 120


async def test_the_tail_is_moved_by_itself_and_main_stays_small(tmp_path: Path) -> None:
    async with SqliteSink(tmp_path, tail_rows=10_000) as sink:
        for start in range(0, 200_000, 1000):
            await sink.write([Row(A, DAY0 + n * 100, float(n), 0) for n in range(start, start + 1000)])
        assert (await sink.series())[0].count == 200_000
    assert (tmp_path / "main.db").stat().st_size < 2_000_000
    assert "raw-20260922.db" in names(tmp_path)


async def test_what_retention_drops_lives_on_in_rollups(tmp_path: Path) -> None:
    async with SqliteSink(tmp_path, (2, 40, 0), now=lambda: LATER) as sink:
        rows = [Row(A, DAY0 + n * MINUTE, float(n % 7), n % 2) for n in range(5 * 1440)]
        late = [row for row in rows if row.ts_ms % (7 * MINUTE) == 0]
        await sink.write([row for row in rows if row.ts_ms % (7 * MINUTE)])
        await sink.keep_up()
        await sink.write(late)
        aggs = ["mean", "min", "max", "first", "last", "count", "sum", "stddev", "good", "integral"]
        asked = [([A], DAY0, DAY0 + 5 * DAY, width, aggs, 10**6, HOUR) for width in (MINUTE, 5 * MINUTE, HOUR, DAY)]
        before = [await sink.buckets(*question) for question in asked]
        kept = await sink.retain(DAY0 + 5 * DAY)
        assert kept.names == ("raw-20260922.db", "raw-20260923.db", "raw-20260924.db")
        assert kept.rows == 3 * 1440 and kept.bytes > 0
        assert not any(name in names(tmp_path) for name in kept.names)
        stats = await sink.stats()
        assert (stats.raw_from_ms, stats.minute_from_ms, stats.oldest_ms) == (DAY0 + 3 * DAY, None, DAY0 + 3 * DAY)
        assert (await sink.read([A], 0, DAY0 + 3 * DAY, 10))[A] == []
        for question, wanted in zip(asked, before, strict=True):
            got = await sink.buckets(*question)
            assert [row[0] for row in got[A]] == [row[0] for row in wanted[A]]
            for mine, theirs in zip(got[A], wanted[A], strict=True):
                assert mine == pytest.approx(theirs, rel=1e-9)
        # Minutes end some time later, hours never.
        kept = await sink.retain(DAY0 + 80 * DAY)
        assert "minute-202609.db" in kept.names and names(tmp_path) == ["hour-2026.db", "main.db"]
        assert (await sink.stats()).minute_from_ms == partition_at("minute", DAY0).end_ms
        assert await sink.buckets(*asked[0]) == {A: []}
        days = await sink.buckets(*asked[3])
        assert [row[6] for row in days[A]] == [1440] * 5
        assert (await sink.stats()).rows == 0
        assert [(info.address, info.count, info.first_ms) for info in await sink.series()] == [(A, 0, None)]


async def test_what_is_older_than_raw_samples_are_kept_is_refused(tmp_path: Path) -> None:
    """Its day is gone but for the rollups: taking it would overwrite them with less."""
    async with SqliteSink(tmp_path, (2, 0, 0), now=lambda: LATER) as sink:
        await sink.write([Row(A, DAY0 + n * HOUR, 1.0, 0) for n in range(120)])
        await sink.retain(DAY0 + 5 * DAY)
        old = Row(A, DAY0 + HOUR, 5.0, 0)
        written = await sink.write([old, Row(B, DAY0 + 5 * DAY, 1.0, 0)])
        assert (written.stored, written.refused) == (1, [(old, "too_old")])
        await sink.keep_up()
        await sink.retain(DAY0 + 5 * DAY)
        assert (await sink.buckets([A], DAY0, DAY0 + DAY, DAY, ["sum"], 9))[A] == [(DAY0, 24.0)]
    async with SqliteSink(tmp_path, (2, 0, 0)) as sink:  # also after a restart
        assert (await sink.write([old])).refused == [(old, "too_old")]


async def test_days_that_are_over_are_packed_a_little_at_a_time(tmp_path: Path) -> None:
    rows = [
        Row(f"comsrv:1:m:{s}", DAY0 + n * 10 * SECOND, 20 + math.sin(n / 500), 0)
        for n in range(8640)
        for s in range(20)
    ]
    rows.sort(key=lambda row: row.ts_ms)
    async with SqliteSink(tmp_path, tail_rows=5000, now=lambda: LATER) as sink:
        for start in range(0, len(rows), 5000):
            await sink.write(rows[start : start + 5000])
            await sink.keep_up()
        series = [f"comsrv:1:m:{s}" for s in range(20)]
        before = await sink.read(series, 0, LATER, 10**6)
        await sink.retain(DAY0 + DAY + HOUR)  # not over for long enough
        assert await sink.read(series, 0, LATER, 10**6) == before
    path = tmp_path / "raw-20260922.db"
    size = path.stat().st_size
    async with SqliteSink(tmp_path, now=lambda: LATER) as sink:
        for _ in range(30):
            await sink.retain(DAY0 + 2 * DAY)
        assert await sink.read(series, 0, LATER, 10**6) == before
        late = [Row(series[0], DAY0 + 5, 1.0, 0), Row(series[0], DAY0, 2.0, 0)]
        await sink.write(late)
        await sink.keep_up()
        first = (await sink.read(series[:1], 0, LATER, 10**6))[series[0]]
        assert first[:2] == [(DAY0, 2.0, 0), (DAY0 + 5, 1.0, 0)] and len(first) == 8641
    assert path.stat().st_size < size * 0.9


async def test_packing_gives_room_back_though_a_reader_has_the_file_open(tmp_path: Path) -> None:
    async with SqliteSink(tmp_path, now=lambda: LATER) as sink, SqliteSink(tmp_path) as other:
        for n in range(0, 86_400, 7200):
            await sink.write([Row(A, DAY0 + k * SECOND, float(k % 9), 0) for k in range(n, n + 7200)])
            await sink.keep_up()
            assert len((await other.read([A], DAY0, LATER, 10**6))[A]) == n + 7200
        before = Files(tmp_path).size_of("raw-20260922.db")
        for _ in range(3):
            await sink.retain(DAY0 + 2 * DAY)
        assert Files(tmp_path).size_of("raw-20260922.db") < before / 2
        assert len((await other.read([A], DAY0, LATER, 10**6))[A]) == 86_400
