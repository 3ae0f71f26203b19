"""The embedded sink when things break: killed writers, a full disk, damaged files, several processes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.history.sink_contract import DAY, DAY0, HOUR, MINUTE, SECOND, A, B
from tests.history.sqlite_process import BATCH, NAMES, batch_of
from tradewind.history import sqlite_move
from tradewind.history.sample import Row
from tradewind.history.sink import SinkAway
from tradewind.history.sqlite import SqliteSink
from tradewind.history.sqlite_files import MAIN, partition_at
from tradewind.history.sqlite_upkeep import Upkeep
from tradewind.history.sqlite_writer import Writer

LATER = 2 * DAY0


@contextlib.contextmanager
def process(what: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "tests.history.sqlite_process", what, str(folder)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def next_count(child: subprocess.Popen[str]) -> int:
    assert child.stdout is not None and child.stderr is not None
    line = child.stdout.readline()
    assert line, child.stderr.read()
    return int(line)


def is_sound(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return bool(db.execute("PRAGMA integrity_check").fetchone() == ("ok",))


async def test_a_killed_writer_leaves_every_batch_it_was_answered_for(tmp_path: Path) -> None:
    """It is killed at moments that wander through batches and moves of the tail."""
    stored = 0
    for round_ in range(6):
        with process("write", tmp_path) as child:
            until = stored + 3 + 2 * round_
            while stored < until:
                stored = next_count(child)
            time.sleep(0.003 * round_)
            child.kill()
            assert child.stdout is not None
            rest = child.stdout.read().split()  # not communicate(): that leaves out what readline() has read ahead
            stored = int(rest[-1]) if rest else stored
        assert all(is_sound(path) for path in tmp_path.glob("*.db"))
        async with SqliteSink(tmp_path) as sink:
            got = await sink.read(NAMES, 0, LATER, 10**9)
            for name in NAMES:
                assert [value for _, value, _ in got[name]] == [float(n) for n in range(len(got[name]))]
                # The batch under way may have been stored, whole.
                assert len(got[name]) in (stored * BATCH, (stored + 1) * BATCH)
            stored = len(got[NAMES[0]]) // BATCH
            n = stored * BATCH
            sums = await sink.buckets(NAMES, 0, LATER, HOUR, ["sum", "count"], 10**9)
            for name in NAMES:
                assert sum(row[2] or 0 for row in sums[name]) == n
                assert sum(row[1] or 0 for row in sums[name]) == n * (n - 1) / 2


async def test_a_move_that_breaks_off_halfway_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One day is committed, the next is not, and the tail still has both."""
    rows = [Row(A, DAY0 + n * MINUTE, float(n), 0) for n in range(2 * 1440)]
    writer = Writer(tmp_path)
    upkeep = Upkeep(writer, now=lambda: LATER)
    writer.write(rows)
    added, real = [], sqlite_move.add_block

    def add(db: sqlite3.Connection, start_ms: int, *rest: Any) -> None:
        if added and added[0] != start_ms:
            raise OSError(5, "Input/output error")
        added.append(start_ms)
        real(db, start_ms, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_move, "add_block", add)
        with pytest.raises(SinkAway):
            for _ in upkeep.moves():
                pass
    writer.close()
    async with SqliteSink(tmp_path, now=lambda: LATER) as sink:
        for _ in range(2):
            assert len((await sink.read([A], 0, LATER, 10**6))[A]) == len(rows)
            assert (await sink.series())[0].count == len(rows)
            sums = (await sink.buckets([A], 0, LATER, DAY, ["count", "sum"], 9))[A]
            assert sum(row[2] or 0 for row in sums) == len(rows) * (len(rows) - 1) / 2
            await sink.keep_up()


def test_a_commit_is_on_the_disk(tmp_path: Path) -> None:
    """A power cut cannot be played here; that every commit is synchronised can be asked for."""
    writer = Writer(tmp_path)
    writer.write([Row(A, DAY0, 1.0, 0)])
    full = 2
    with writer.held("look") as main:
        assert main.execute("PRAGMA synchronous").fetchone() == (full,)
        with writer.changing(partition_at("raw", DAY0)) as file:
            assert file.db.execute("PRAGMA synchronous").fetchone() == (full,)
    writer.close()


async def test_readers_in_other_processes_see_whole_answers_while_one_writes(tmp_path: Path) -> None:
    with process("write", tmp_path) as writer, process("read", tmp_path) as one, process("read", tmp_path) as two:
        for _ in range(10):
            for _ in range(3):
                written = next_count(writer)
            seen = [next_count(one), next_count(two)]
        writer.kill()
        while min(seen) < BATCH * written:
            seen = [next_count(one), next_count(two)]


async def test_two_processes_write_in_turn(tmp_path: Path) -> None:
    """Into the same stretch of time, so that neither knows what is newest without a look at what the other did."""
    async with SqliteSink(tmp_path, tail_rows=3000) as one, SqliteSink(tmp_path, tail_rows=3000) as two:
        for start in range(0, 60_000, 2000):
            for odd, sink in ((0, one), (1, two)):
                rows = [Row(A, DAY0 + n * SECOND, float(n), 0) for n in range(start + odd, start + 2000, 2)]
                await sink.write([*rows, Row(B, DAY0, float(start + odd), 0), Row(f"comsrv:2:m:{start + odd}", 5, 1.0)])
        await one.keep_up()
        for sink in (one, two):
            got = await sink.read([A, B], 0, LATER, 100_000)
            assert [value for _, value, _ in got[A]] == [float(n) for n in range(60_000)]
            assert got[B] == [(DAY0, 58_001.0, 0)]
            minutes = (await sink.buckets([A], DAY0, DAY0 + 60_000 * SECOND, MINUTE, ["count", "first", "last"], 1000))[
                A
            ]
            assert minutes == [(DAY0 + n * MINUTE, 60, n * 60.0, n * 60.0 + 59) for n in range(1000)]
            assert [info.count for info in await sink.series()] == [60_000, 1, *[1] * 60]


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("tail_rows", [5_000, 10**9])
async def test_a_full_disk_takes_nothing_breaks_nothing_and_is_left_behind(tmp_path: Path, tail_rows: int) -> None:
    with small_disk(tmp_path / "disk", "6m") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(2_000_000))
        async with SqliteSink(disk / "history", tail_rows=tail_rows) as sink:
            number = 0
            with pytest.raises(SinkAway, match=r"full|I/O") as full:
                while True:
                    await sink.write(batch_of(number))
                    number += 1
            assert "space" in full.value.hint
            assert number > 2
            for _ in range(3):  # and stays so
                with pytest.raises(SinkAway):
                    await sink.write(batch_of(number))
            got = await sink.read(NAMES, 0, LATER, 10**9)
            assert all(
                [value for _, value, _ in got[name]] == [float(n) for n in range(number * BATCH)] for name in NAMES
            )
            ballast.unlink()
            for more in range(number, number + 5):
                await sink.write(batch_of(more))
            number += 5
        async with SqliteSink(disk / "history", tail_rows=tail_rows) as sink:  # also after a restart
            sums = await sink.buckets(NAMES, 0, LATER, HOUR, ["count", "sum"], 10**9)
            n = number * BATCH
            for name in NAMES:
                assert sum(row[1] or 0 for row in sums[name]) == n
                assert sum(row[2] or 0 for row in sums[name]) == n * (n - 1) / 2
            assert (await sink.stats()).problems == ()
        assert all(is_sound(path) for path in (disk / "history").glob("*.db"))


def scribble(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(os.urandom(size))


async def three_days(folder: Path) -> None:
    async with SqliteSink(folder, now=lambda: LATER) as sink:
        await sink.write([Row(name, DAY0 + n * 60 * SECOND, 1.0, 0) for n in range(3 * 1440) for name in (A, B)])
        await sink.keep_up()


@pytest.mark.parametrize("at", [0, 4096 * 3])
async def test_a_damaged_day_is_named_and_set_aside_and_the_rest_works(tmp_path: Path, at: int) -> None:
    await three_days(tmp_path)
    (_, damaged, _) = sorted(tmp_path.glob("raw-*.db"))
    scribble(damaged, at, 20_000)
    async with SqliteSink(tmp_path) as sink:
        got = await sink.read([A, B], 0, LATER, 10**9)
        for name in (A, B):
            days = {ts // DAY * DAY for ts, _, _ in got[name]}
            assert {DAY0, DAY0 + 2 * DAY} <= days
            # Rollups lie in other files.
            sums = (await sink.buckets([name], DAY0, DAY0 + 2 * DAY, DAY, ["sum"], 9))[name]
            assert sums == [(DAY0, 1440.0), (DAY0 + DAY, 1440.0)]
        await sink.keep_up()  # behind the look that the writer took
        problems = (await sink.stats()).problems
        assert len(problems) == 1 and problems[0].startswith(f"{damaged.name}.damaged-")
        assert not damaged.exists() and len(list(tmp_path.glob(f"{damaged.name}.damaged-*"))) >= 1
        late = Row(A, DAY0 + DAY + 5, 7.0, 0)
        await sink.write([late])
        await sink.keep_up()
        assert (await sink.read([A], DAY0 + DAY, DAY0 + 2 * DAY, 9))[A] == [(late.ts_ms, 7.0, 0)]
        assert len((await sink.read([A], 0, LATER, 10**9))[A]) == 2 * 1440 + 1


async def test_the_writer_itself_meets_a_damaged_day(tmp_path: Path) -> None:
    await three_days(tmp_path)
    (_, _, damaged) = sorted(tmp_path.glob("raw-*.db"))
    scribble(damaged, 0, 20_000)
    async with SqliteSink(tmp_path) as sink:
        row = Row(A, DAY0 + 3 * DAY - 1, 5.0, 0)
        assert (await sink.write([row])).stored == 1
        await sink.keep_up()
        assert (await sink.latest([A]))[A] == (row.ts_ms, 5.0, 0)
        assert (await sink.stats()).problems[0].startswith(damaged.name)
        assert len((await sink.read([A], 0, LATER, 10**9))[A]) == 2 * 1440 + 1


async def test_a_part_that_is_not_what_was_written_is_left_out_and_named(tmp_path: Path) -> None:
    """SQLite does not see that the bytes of a blob have changed; our checksum does."""
    await three_days(tmp_path)
    (first, _, _) = sorted(tmp_path.glob("raw-*.db"))
    with contextlib.closing(sqlite3.connect(first)) as db:
        key, data = db.execute("SELECT key, data FROM part ORDER BY key LIMIT 1").fetchone()
        db.execute("UPDATE part SET data = ? WHERE key = ?", (data[:50] + bytes([data[50] ^ 1]) + data[51:], key))
        db.commit()
    async with SqliteSink(tmp_path) as sink:
        got = await sink.read([A, B], 0, LATER, 10**9)
        assert [len(got[A]), len(got[B])] == [2 * 1440, 3 * 1440]
        (problem,) = (await sink.stats()).problems
        assert first.name in problem and "1440 samples" in problem
        assert first.exists()


@pytest.mark.parametrize("how", ["head", "middle", "gone"])
async def test_without_its_main_file_the_days_still_know_their_series(tmp_path: Path, how: str) -> None:
    await three_days(tmp_path)
    async with SqliteSink(tmp_path) as sink:
        await sink.write([Row(A, DAY0 + 3 * DAY + n, 1.0, 0) for n in range(20_000)])
    if how == "gone":
        (tmp_path / MAIN).unlink()
    else:
        scribble(tmp_path / MAIN, 0 if how == "head" else 4096 * 20, 60_000)
    async with SqliteSink(tmp_path) as sink:
        if how != "gone":
            with pytest.raises(SinkAway):
                await sink.read([A], 0, LATER, 10)
            await sink.forget([])  # behind the look that the writer took
            assert (await sink.stats()).problems[0].startswith(f"{MAIN}.damaged-")
        assert (await sink.write([Row(B, DAY0 + 5, 9.0, 0)])).stored == 1
        got = await sink.read([A, B], 0, LATER, 10**9)
        assert [len(got[A]), len(got[B])] == [3 * 1440, 3 * 1440 + 1]
        assert [info.address for info in await sink.series()] == [A, B]


async def test_a_half_made_file_is_finished_and_a_file_of_the_future_is_left_alone(tmp_path: Path) -> None:
    async with SqliteSink(tmp_path) as sink:
        (tmp_path / MAIN).touch()
        assert await sink.read([A], 0, LATER, 10) == {A: []}
        await sink.write([Row(A, DAY0, 1.0, 0)])
        assert (await sink.latest([A]))[A] == (DAY0, 1.0, 0)
    with contextlib.closing(sqlite3.connect(tmp_path / MAIN)) as db:
        db.execute("PRAGMA user_version=99")
    async with SqliteSink(tmp_path) as sink:
        with pytest.raises(SinkAway, match="format 99"):
            await sink.write([Row(A, DAY0, 2.0, 0)])
        assert (tmp_path / MAIN).exists()


async def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with SqliteSink(tmp_path / "file") as sink:
        with pytest.raises(SinkAway, match="cannot write"):
            await sink.write([Row(A, DAY0, 1.0, 0)])


async def test_a_disk_that_is_full_while_rollups_are_made_costs_nothing(tmp_path: Path) -> None:
    """Step by step with less and less room, so that every kind of step meets the full disk."""
    rows = [Row(f"comsrv:5:m:{n}", DAY0 + at * MINUTE, float(at % 50)) for n in range(40) for at in range(360)]
    names = sorted({row.series for row in rows})
    with small_disk(tmp_path / "disk", "8m") as disk:
        async with SqliteSink(disk / "history", now=lambda: LATER) as sink:
            await sink.write(rows)
            ballast, failed = disk / "ballast", 0
            for room in (0, 20_000, 60_000, 150_000, 400_000, 10**7):
                _fill(ballast, room)
                try:
                    await sink.keep_up()
                except SinkAway as error:
                    failed += 1
                    assert "space" in error.hint
                ballast.unlink()
                hours = await sink.buckets(names, DAY0, DAY0 + DAY, HOUR, ["count", "sum"], 99)
                for name in names:
                    assert [count for _, count, _ in hours[name]] == [60] * 6
                    assert sum(total or 0 for _, _, total in hours[name]) == sum(at % 50 for at in range(360))
            assert failed >= 2
            assert (await sink.stats()).rows == len(rows) and (await sink.stats()).problems == ()
        assert all(is_sound(path) for path in (disk / "history").glob("*.db"))


def _fill(ballast: Path, room: int) -> None:
    """All of a disk but some room."""
    with ballast.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(65_536)):
                pass
        with contextlib.suppress(OSError):
            while file.write(bytes(512)):
                pass
        os.ftruncate(file.fileno(), max(file.tell() - room, 0))
