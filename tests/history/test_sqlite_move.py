"""The tail on its way into files: writes in between, questions in between, kills in between, and two that move."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.history.sink_contract import DAY, DAY0, HOUR, SECOND
from tests.history.test_sqlite_faults import is_sound, scribble
from tradewind.history import sqlite_move, sqlite_tail
from tradewind.history.sample import Row
from tradewind.history.sqlite import SqliteSink
from tradewind.history.sqlite_files import MAIN, Files, meta_of
from tradewind.history.sqlite_tail import TailCache
from tradewind.history.sqlite_upkeep import Upkeep
from tradewind.history.sqlite_writer import Writer

NAMES = [f"comsrv:7:m:{n}" for n in range(1, 6)]
LATER = 2 * DAY0
Known = dict[str, dict[int, float]]


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_move, "SLICE", 1)
    monkeypatch.setattr(sqlite_move, "PORTION_S", -1.0)


def rows_of(number: int) -> list[Row]:
    """Of two days, half of them the same as of the batch before."""
    return [Row(name, DAY0 + DAY - 3 * HOUR + (number + n) * HOUR, float(number)) for n in range(6) for name in NAMES]


def write(writer: Writer, numbers: range, known: Known) -> None:
    for number in numbers:
        writer.write(rows_of(number))
        for row in rows_of(number):
            known.setdefault(row.series, {})[row.ts_ms] = row.value


async def assert_whole(sink: SqliteSink, known: Known) -> None:
    """Every kind of question, none missing and none twice."""
    got = await sink.read(NAMES, 0, LATER, 10**6)
    assert got == {name: [(ts, value, 0) for ts, value in sorted(each.items())] for name, each in known.items()}
    latest = await sink.latest(NAMES)
    assert latest == {name: got[name][-1] for name in NAMES}
    assert {info.address: info.count for info in await sink.series()} == {name: len(got[name]) for name in NAMES}
    for width in (DAY, HOUR):
        sums = await sink.buckets(NAMES, 0, LATER, width, ["count", "sum"], 10**6)
        for name in NAMES:
            assert sum(row[1] or 0 for row in sums[name]) == len(known[name])
            assert sum(row[2] or 0 for row in sums[name]) == sum(known[name].values())


def portions(folder: Path) -> Upkeep:
    return Upkeep(Writer(folder), now=lambda: LATER)


async def test_a_write_is_served_between_portions(tmp_path: Path, small_portions: None) -> None:
    async with SqliteSink(tmp_path, tail_rows=1000) as sink:
        await sink.write([Row(f"comsrv:1:m:{n}", DAY0 + at, 1.0) for n in range(500) for at in range(40)])
        await asyncio.sleep(0)  # upkeep begins
        for n in range(5):
            assert (await sink.write([Row(NAMES[0], DAY0 + n, float(n))])).stored == 1
            with contextlib.closing(sqlite3.connect(tmp_path / MAIN)) as db:
                assert meta_of(db, "move_run") == 1  # the first run is still on its way
        await sink.keep_up()
        assert (await sink.stats()).rows == 20_005


async def test_questions_while_the_tail_is_moved_miss_nothing_and_count_nothing_twice(
    tmp_path: Path, small_portions: None
) -> None:
    """Newer rows come in between, for the same times among others: they are the ones that count."""
    upkeep, known = portions(tmp_path), Known()
    write(upkeep._writer, range(3), known)
    async with SqliteSink(tmp_path, now=lambda: LATER) as sink:
        await assert_whole(sink, known)
        steps, number = 0, 3
        while upkeep.move_some():
            await assert_whole(sink, known)
            steps += 1
            if steps % 5 == 0 and number < 6:
                write(upkeep._writer, range(number, number + 1), known)
                await assert_whole(sink, known)
                number += 1
        assert steps > 2 * len(NAMES) and number == 6
        with upkeep._writer.held("look"):
            assert len(upkeep._writer.runs) == 3  # what came meanwhile is for the next move
        for _ in upkeep.moves():
            await assert_whole(sink, known)
        assert (await sink.stats()).rows == sum(map(len, known.values()))
    upkeep._writer.close()


async def test_the_count_of_all_samples_is_exact_in_the_middle_of_a_move(tmp_path: Path, small_portions: None) -> None:
    upkeep = portions(tmp_path)
    for n in range(3):
        upkeep._writer.write([Row(name, DAY0 + DAY - 10 + n * 5 + at, 1.0) for name in NAMES for at in range(5)])
    async with SqliteSink(tmp_path, now=lambda: LATER) as sink:
        while upkeep.move_some():
            stats = await sink.stats()
            assert (stats.rows, [each.rows for each in stats.classes]) == (75, [75])
    upkeep._writer.close()


def test_a_kill_between_any_two_commits_leaves_a_whole_store_and_the_move_goes_on(tmp_path: Path) -> None:
    """Also with rows that were written after the kill."""
    first, known = tmp_path / "0", Known()
    writer = Writer(first)
    write(writer, range(3), known)
    writer.close()
    argv = [sys.executable, "-m", "tests.history.sqlite_process", "move", str(first)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    copies = int(done.stdout)
    assert copies > 4 * len(NAMES)  # two days, a commit in each of the two files
    for number in range(1, copies + 1):
        asyncio.run(_after_a_kill(tmp_path / str(number), {name: dict(each) for name, each in known.items()}))


async def _after_a_kill(folder: Path, known: Known) -> None:
    assert all(is_sound(path) for path in folder.glob("*.db"))
    async with SqliteSink(folder, now=lambda: LATER) as sink:
        await assert_whole(sink, known)
        stats = await sink.stats()
        writer = Writer(folder)
        write(writer, range(3, 5), known)
        writer.close()
        await assert_whole(sink, known)
        await sink.keep_up()
        await assert_whole(sink, known)
        assert 40 <= stats.rows <= 90 and (await sink.stats()).rows == sum(map(len, known.values()))


async def test_two_processes_go_on_with_the_same_move(tmp_path: Path, small_portions: None) -> None:
    one, two, known = portions(tmp_path), portions(tmp_path), Known()
    write(one._writer, range(2), known)
    async with SqliteSink(tmp_path, now=lambda: LATER) as sink:
        for number in range(2, 6):
            one.move_some()
            one.move_some()
            two.move_some()
            write(two._writer, range(number, number + 1), known)
            await assert_whole(sink, known)
        while one.move_some() or two.move_some():
            await assert_whole(sink, known)
        await sink.keep_up()
        await assert_whole(sink, known)
    one._writer.close()
    two._writer.close()


async def test_a_day_that_is_damaged_in_the_middle_of_its_move_is_filled_anew(
    tmp_path: Path, small_portions: None
) -> None:
    """What the move had put there is still in the tail."""
    upkeep, known = portions(tmp_path), Known()
    write(upkeep._writer, range(3), known)
    day = tmp_path / "raw-20260922.db"
    while not (day.exists() and _marks(day) >= 3):
        upkeep.move_some()
    upkeep._writer.close()
    scribble(day, 0, 20_000)
    async with SqliteSink(tmp_path, now=lambda: LATER) as sink:
        await assert_whole(sink, known)
        await sink.keep_up()
        await assert_whole(sink, known)
        assert len((await sink.stats()).problems) == 1


def _marks(day: Path) -> int:
    with contextlib.closing(sqlite3.connect(day)) as db:
        return meta_of(db, "move_series")


async def test_runs_of_a_new_main_file_do_not_look_like_moved_ones(tmp_path: Path) -> None:
    async with SqliteSink(tmp_path) as sink:
        for n in range(5):
            await sink.write([Row(NAMES[0], DAY0 + n, 1.0)])
        await sink.keep_up()
    for path in tmp_path.glob(f"{MAIN}*"):
        path.unlink()
    async with SqliteSink(tmp_path) as sink:
        await sink.write([Row(NAMES[0], DAY0 + 5, 1.0)])
        assert (await sink.stats()).rows == 6


async def test_retention_waits_for_what_the_tail_has_of_a_day(tmp_path: Path, small_portions: None) -> None:
    """A late row comes while the tail is moved for it: nothing makes the dropped file anew."""
    async with SqliteSink(tmp_path, (2, 0, 0), now=lambda: LATER) as sink:
        await sink.write([Row(name, DAY0 + n * HOUR, 1.0) for name in NAMES for n in range(120)])
        retaining = asyncio.create_task(sink.retain(DAY0 + 5 * DAY))
        late = 0
        while not retaining.done():
            late += (await sink.write([Row(NAMES[0], DAY0 + SECOND + late, 1.0)])).stored
            await asyncio.sleep(0)
        await sink.keep_up()
        assert late > 0 and not (tmp_path / "raw-20260922.db").exists()
        assert (await sink.buckets(NAMES[:1], DAY0, DAY0 + DAY, DAY, ["count"], 9))[NAMES[0]] == [(DAY0, 24 + late)]


async def test_a_write_joins_few_rows_and_no_run_overtakes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tail, "MANY_RUNS", 10)
    monkeypatch.setattr(sqlite_tail, "JOINED_ROWS", 20)
    writer = Writer(tmp_path)
    sizes = []
    for n in range(40):
        writer.write([Row(NAMES[0], DAY0 + at, float(n)) for at in range(5)])
        sizes.append(writer.runs[-1][1])
    assert len(writer.runs) < 35 and max(sizes) <= 20
    writer.close()
    db = Files(tmp_path).connect(MAIN)
    assert db is not None
    with contextlib.closing(db):
        (lines,) = TailCache().load(db).lines([1], 0, LATER).values()
    assert lines[-1].value[-1] == 39.0
    async with SqliteSink(tmp_path) as sink:
        assert (await sink.read(NAMES[:1], 0, LATER, 9))[NAMES[0]] == [(DAY0 + at, 39.0, 0) for at in range(5)]
    shutil.rmtree(tmp_path)


async def test_one_that_tidies_up_does_not_keep_another_from_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives its lock to whoever asks at the right moment: without a word between them the one of many steps, one
    right behind the other, gets it nearly always."""
    async with SqliteSink(tmp_path) as tidy, SqliteSink(tmp_path) as other:
        await tidy.write([Row(NAMES[0], DAY0, 1.0)])
        steps = 0

        def step() -> bool:
            nonlocal steps
            with tidy._writer.held("tidy up"):
                time.sleep(0.05)  # the work
            steps += 1
            return True

        monkeypatch.setattr(tidy._upkeep, "step", step)
        tidying = asyncio.create_task(tidy.keep_up())
        began = time.monotonic()
        try:
            for n in range(10):
                assert (await other.write([Row(NAMES[0], DAY0 + n, float(n))])).stored == 1
                await asyncio.sleep(0.1)
            assert time.monotonic() - began < 6
            assert steps > 3 and not tidying.done()  # it comes to its turn, too
        finally:
            tidying.cancel()
