"""The embedded sink with classes: what goes out of files that others still need, and what is left of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.history.class_contract import Kept, retain_all
from tests.history.sink_contract import DAY, DAY0, HOUR, MINUTE, SECOND, A, B, assert_buckets
from tradewind.history import sqlite_files, sqlite_trim, sqlite_upkeep
from tradewind.history.columns import Columns
from tradewind.history.keeping import Keeping, always
from tradewind.history.policy import read_policy
from tradewind.history.sample import Row
from tradewind.history.sink import SinkAway
from tradewind.history.sqlite import SqliteSink
from tradewind.history.sqlite_files import Files, partition_at
from tradewind.history.sqlite_marks import RawMarks, raise_marks, read_marks

LATER = 2 * DAY0
AGGS = ["mean", "min", "max", "first", "last", "count", "sum", "stddev", "good", "integral"]


def brief(*series: str, raw: int = 2, minute: int = 0, hour: int = 0) -> Keeping:
    """These are brief; all else is kept for ever."""
    days = {"raw_days": raw, "minute_days": minute, "hour_days": hour}
    policies = [{"match": name, "class": "brief"} for name in series]
    return Keeping((0, 0, 0), read_policy({"classes": {"brief": days}, "policies": policies}))


def sink_in(folder: Path, keeping: Keeping, **more: Any) -> SqliteSink:
    return SqliteSink(folder, keeping=always(keeping), now=lambda: LATER, **more)


async def test_rollups_tell_the_same_when_the_samples_of_a_class_are_gone(tmp_path: Path) -> None:
    rows = [Row(name, DAY0 + n * 10 * MINUTE, n * 0.25, n % 3) for name in (A, B) for n in range(144 * 5)]
    late = [Row(name, DAY0 + n * HOUR + 7, -float(n), 0) for name in (A, B) for n in range(40)]
    async with sink_in(tmp_path, brief(A)) as sink:
        await sink.write(rows)
        await sink.keep_up()
        await sink.write(late)  # some wait in the tail while their day is trimmed
        asked = [([A, B], DAY0, DAY0 + 5 * DAY, width, AGGS, 10**6, HOUR) for width in (MINUTE, HOUR, DAY)]
        before = [await sink.buckets(*question) for question in asked]
        assert await retain_all(sink, DAY0 + 5 * DAY) == 144 * 3 + 40
        assert (await sink.read([A], 0, DAY0 + 3 * DAY, 10))[A] == []
        assert len((await sink.read([B], 0, LATER, 10**6))[B]) == 144 * 5 + 40
        for question, wanted in zip(asked, before, strict=True):
            got = await sink.buckets(*question)
            for name in (A, B):
                assert_buckets(got[name], wanted[name], AGGS)
        # What comes later still is refused for the one, and makes the rollups of the other anew.
        again = [Row(name, DAY0 + HOUR + 9, 1000.0, 0) for name in (A, B)]
        written = await sink.write(again)
        assert written.refused == [(again[0], "too_old")]
        await sink.keep_up()
        await retain_all(sink, DAY0 + 5 * DAY)
        hours = await sink.buckets([A, B], DAY0 + HOUR, DAY0 + 2 * HOUR, HOUR, ["count", "max"], 9)
        assert [hours[A][0][1], hours[B][0][1:]] == [7, (8, 1000.0)]
    async with sink_in(tmp_path, brief(A)) as sink:  # also after a restart
        assert (await sink.write(again)).refused == [(again[0], "too_old")]


async def test_what_waits_in_the_tail_is_rolled_up_before_its_day_goes(tmp_path: Path) -> None:
    now, kept = DAY0 + 5 * DAY, Kept({}, {}, raw_days=0)
    async with SqliteSink(tmp_path, keeping=kept, now=lambda: LATER) as sink:
        await sink.write([Row(name, DAY0 + n * HOUR, 1.0, 0) for name in (A, B) for n in range(120)])
        await retain_all(sink, now)  # has moved the tail, and will not do so again for an hour
        await sink.keep_up()
        await sink.write([Row(name, DAY0 + n * HOUR + 7, 5.0, 0) for name in (A, B) for n in range(48)])
        kept.use({"brief": 2}, {A: "brief"})
        assert await retain_all(sink, now) == 72 + 48
        got = await sink.read([A, B], 0, DAY0 + 3 * DAY, 1000)
        assert [len(got[A]), len(got[B])] == [0, 72 + 48]
        hours = await sink.buckets([A, B], DAY0, now, HOUR, ["count", "sum"], 1000)
        assert hours[A] == hours[B] and [row[1:] for row in hours[A]] == [(2, 6.0)] * 48 + [(1, 1.0)] * 72


async def test_rollups_of_a_class_end_on_their_day_too(tmp_path: Path) -> None:
    async with sink_in(tmp_path, brief(A, raw=1, minute=3, hour=6)) as sink:
        await sink.write([Row(name, DAY0 + n * HOUR, 1.0, 0) for name in (A, B) for n in range(240)])
        await sink.keep_up()
        now = DAY0 + 10 * DAY
        await retain_all(sink, now)
        minutes = await sink.buckets([A, B], 0, now, MINUTE, ["count"], 10**6)
        assert [len(minutes[A]), len(minutes[B])] == [72, 240] and minutes[A][0][0] == now - 3 * DAY
        hours = await sink.buckets([A, B], 0, now, HOUR, ["count"], 10**6)
        assert [len(hours[A]), len(hours[B])] == [144, 240] and hours[A][0][0] == now - 6 * DAY
        marks = await sink.kept_from([A, B])
        assert marks[A] == (now - DAY, now - 3 * DAY, now - 6 * DAY) and marks[B] == (None, None, None)
        await retain_all(sink, now + DAY)
        assert (await sink.kept_from([A]))[A] == (now, now - 2 * DAY, now - 5 * DAY)
        assert len((await sink.buckets([A], 0, now, HOUR, ["count"], 10**6))[A]) == 120


async def test_a_file_goes_when_it_is_past_the_longest_class(tmp_path: Path) -> None:
    kept = Kept({"brief": 1}, {A: "brief"}, raw_days=3)
    async with SqliteSink(tmp_path, keeping=kept, now=lambda: LATER) as sink:
        await sink.write([Row(name, DAY0 + n * HOUR, 1.0, 0) for name in (A, B) for n in range(24 * 5)])
        await retain_all(sink, DAY0 + 5 * DAY)
        assert [p.start_ms for p in Files(tmp_path).partitions("raw")] == [DAY0 + n * DAY for n in (2, 3, 4)]
        assert (await sink.stats()).raw_from_ms == DAY0 + 2 * DAY
        marks = await sink.kept_from([A, B])
        assert [marks[A].raw_ms, marks[B].raw_ms] == [DAY0 + 4 * DAY, DAY0 + 2 * DAY]


async def test_room_is_given_back(tmp_path: Path) -> None:
    names = [f"comsrv:1:m:{n}" for n in range(20)]
    async with sink_in(tmp_path, brief("comsrv:1:m:?")) as sink:  # half of them
        for n in range(0, 8640, 720):
            rows = [
                Row(name, DAY0 + k * 10 * SECOND, (k * 7919 % 104729) / 7, 0)
                for k in range(n, n + 720)
                for name in names
            ]
            await sink.write(rows)
        await retain_all(sink, DAY0 + 2 * DAY)  # packed, nothing is old yet
        name = partition_at("raw", DAY0).name
        before = Files(tmp_path).size_of(name)
        assert await retain_all(sink, DAY0 + 3 * DAY) == 10 * 8640
        assert Files(tmp_path).size_of(name) < before * 0.6
        assert len((await sink.read([names[15]], 0, LATER, 10**6))[names[15]]) == 8640


async def test_a_call_does_a_little_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_trim, "SLICE", 5)
    monkeypatch.setattr(sqlite_upkeep, "BUDGET_S", -1.0)
    names = [f"comsrv:1:m:{n}" for n in range(23)]
    async with sink_in(tmp_path, brief("*")) as sink:
        await sink.write([Row(name, DAY0 + n * HOUR, 1.0, 0) for name in names for n in range(24)])
        await sink.keep_up()
        await sink.write([Row(names[0], DAY0 + 5 * DAY, 1.0, 0)])
        removed = []
        while sum(removed) < 23 * 24:
            removed.append((await sink.retain(DAY0 + 5 * DAY)).rows or 0)
            assert len(removed) < 100
        assert max(removed) == 5 * 24


async def test_a_file_is_looked_into_once_and_again_when_something_was_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    concerned = sqlite_trim.Trimmer._concerned

    def noted(self: Any, partition: Any, *more: Any) -> Any:
        looked.append(partition.name)
        return concerned(self, partition, *more)

    monkeypatch.setattr(sqlite_trim.Trimmer, "_concerned", noted)
    kept = Kept({"brief": 2, "briefer": 1}, {A: "brief"}, raw_days=0)
    async with SqliteSink(tmp_path, keeping=kept, now=lambda: LATER) as sink:
        await sink.write([Row(name, DAY0 + n * DAY, 1.0, 0) for name in (A, B) for n in range(4)])
        await sink.keep_up()
        await retain_all(sink, DAY0 + 4 * DAY)
        assert looked == ["raw-20260922.db", "raw-20260923.db"]
        await retain_all(sink, DAY0 + 5 * DAY)
        assert looked[2:] == ["raw-20260924.db"]  # only what the class has come to since
        await sink.write([Row(B, DAY0 + 5, 1.0, 0)])
        await sink.keep_up()
        await retain_all(sink, DAY0 + 5 * DAY)
        assert looked[3:] == ["raw-20260922.db"]
        kept.use({"brief": 2, "briefer": 1}, {A: "briefer"})
        await retain_all(sink, DAY0 + 5 * DAY)
        assert looked[4:] == [f"raw-2026092{n}.db" for n in range(2, 6)]


async def test_a_crash_between_the_mark_and_the_removal_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*args: object) -> int:
        raise sqlite3.OperationalError("disk I/O error")

    async with sink_in(tmp_path, brief(A)) as sink:
        await sink.write([Row(A, DAY0 + n * HOUR, 1.0, 0) for n in range(24)])
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_trim, "forget_series", crash)
            with pytest.raises(SinkAway):
                await sink.retain(DAY0 + 5 * DAY)
        assert (await sink.kept_from([A]))[A].raw_ms == DAY0 + DAY
        assert len((await sink.read([A], 0, LATER, 100))[A]) == 24
        late = Row(A, DAY0 + MINUTE, 9.0, 0)
        assert (await sink.write([late])).refused == [(late, "too_old")]
        assert await retain_all(sink, DAY0 + 5 * DAY) == 24
        assert (await sink.buckets([A], DAY0, DAY0 + DAY, DAY, ["sum"], 9))[A] == [(DAY0, 24.0)]


def test_a_mark_never_moves_back() -> None:
    with closing(sqlite3.connect(":memory:")) as main:
        for statement in sqlite_files._SCHEMAS["main"]:
            main.execute(statement)
        main.execute("INSERT INTO series (id, address) VALUES (1, ?)", (A,))
        marks = RawMarks()
        for from_ms, wanted in ((DAY, DAY), (HOUR, DAY), (2 * DAY, 2 * DAY)):
            marks.raise_some(main, [(1, from_ms)])
            raise_marks(main, "minute", [(1, from_ms)])
            assert read_marks(main, [A, B]) == {A: (wanted, wanted, None), B: (None, None, None)}
            taken, late = marks.part(Columns([Row(A, wanted - 1, 1.0, 0), Row(A, wanted, 1.0, 0)]), {A: 1})
            assert [row.ts_ms for row in taken] == [wanted] and [row.ts_ms for row, _ in late] == [wanted - 1]


async def test_a_folder_of_an_older_version_gets_its_marks(tmp_path: Path) -> None:
    async with sink_in(tmp_path, brief()) as sink:
        await sink.write([Row(A, DAY0, 1.0, 0)])
    with sqlite3.connect(tmp_path / "main.db") as db:
        db.execute("DROP TABLE kept")
    async with sink_in(tmp_path, brief(A)) as sink:
        assert (await sink.kept_from([A]))[A] == (None, None, None)
        assert await retain_all(sink, DAY0 + 5 * DAY) == 1
        assert (await sink.kept_from([A]))[A].raw_ms == DAY0 + DAY
        await sink.forget([A])
        assert (await sink.write([Row(A, DAY0, 2.0, 0)])).stored == 1  # forgotten with all that was known of it
        assert (await sink.kept_from([A]))[A].raw_ms is None


async def test_classes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sink_in(tmp_path, brief(A, raw=5)) as sink:
        await sink.write([Row(A, DAY0 + n, 1.0, 0) for n in range(10)])
        await sink.keep_up()
        await sink.write([Row(B, DAY0 + n, 1.0, 0) for n in range(7)])
        classes = (await sink.stats()).classes
        assert [(each.name, each.days, each.series, each.rows) for each in classes] == [
            ("default", (0, 0, 0), 1, 7),
            ("brief", (5, 0, 0), 1, 10),
        ]
        monkeypatch.setattr("tradewind.history.sqlite_listing.MAX_COUNTED", 1)
        assert [each.rows for each in (await sink.stats()).classes] == [None, None]
