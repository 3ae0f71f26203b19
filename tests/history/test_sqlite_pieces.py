"""Dense series in the embedded sink: a question holds a piece at a time, stops when it has enough, and keeps no other
waiting."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.history.query_sinks import DAY, DAY0, MINUTE, NOW, A, B, query_of
from tests.history.test_outside_query import HOUR, batch, questions, steps, test_files_answer_like_plain_arithmetic
from tests.soak import repeats
from tradewind.history import sqlite, sqlite_parts, sqlite_reader, sqlite_upkeep
from tradewind.history.aggregate import Line, cells_of
from tradewind.history.export import Export
from tradewind.history.keeping import Keeping
from tradewind.history.question import Limits, Words, read_question
from tradewind.history.sample import Row
from tradewind.history.sqlite import SqliteSink
from tradewind.history.sqlite_columns import is_packed
from tradewind.history.sqlite_files import meta_of
from tradewind.history.sqlite_pieces import first_cells, joined_parts
from tradewind.history.sqlite_reader import Reader

#: One every 20 ms.
COUNT = 120_000
PARTS = 30
arithmetic = test_files_answer_like_plain_arithmetic.hypothesis.inner_test  # type: ignore[attr-defined]
del test_files_answer_like_plain_arithmetic  # or it would run here, too


def line(begin: int, end: int) -> Line:
    ts = np.arange(begin, end)
    return Line(ts, ts.astype(np.float64), np.zeros(len(ts), np.uint8))


@pytest.fixture
async def dense(tmp_path: Path) -> AsyncIterator[SqliteSink]:
    async with SqliteSink(tmp_path / "history", now=lambda: NOW) as sink:
        await sink.write([Row(A, DAY0 + 20 * n, float(n)) for n in range(COUNT)])
        await sink.write([Row(B, DAY0 + n, float(n)) for n in range(10)])
        await sink.keep_up()
        yield sink


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the parts that are decoded."""
    sizes: list[int] = []
    decode = sqlite_parts.decode_part

    def counted(data: bytes, n: int, start_ms: int) -> Line:
        sizes.append(n)
        return decode(data, n, start_ms)

    monkeypatch.setattr(sqlite_parts, "decode_part", counted)
    return sizes


def test_no_more_parts_are_taken_than_are_asked_for() -> None:
    taken = []

    def parts() -> Iterator[Line]:
        for at in range(0, 100, 10):
            taken.append(at)
            yield line(at, at + 10)
            yield line(at, at)

    pieces = joined_parts(parts(), 25)
    assert next(pieces).ts.tolist() == list(range(30))
    assert taken == [0, 10, 20]
    assert [len(piece.ts) for piece in pieces] == [30, 30, 10]


def test_cells_end_where_the_last_bucket_is_known_to_be_whole() -> None:
    pieces = iter([cells_of(line(at, at + 5), 10) for at in range(0, 100, 5)])
    cells = first_cells(pieces, 10, 2, 1000)
    assert cells["first_ms"].tolist() == [0, 5, 10, 15, 20]
    assert next(pieces)["first_ms"].tolist() == [25]


async def test_a_limit_bounds_what_is_decoded(dense: SqliteSink, decoded: list[int]) -> None:
    found = await dense.read([A], DAY0 + 20_000, DAY0 + DAY, 10)
    assert found[A] == [(DAY0 + 20 * n, float(n), 0) for n in range(1000, 1010)]
    assert len(decoded) == 1
    decoded.clear()
    whole = await dense.read([A], DAY0, DAY0 + DAY, COUNT + 1)
    assert [value for _, value, _ in whole[A]] == list(range(COUNT))
    assert len(decoded) == PARTS


async def test_a_limit_bounds_buckets_too(
    dense: SqliteSink, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_reader, "PIECE", 5000)
    every = await dense.buckets([A], DAY0, DAY0 + DAY, 7000, ("count", "mean", "integral"), 10_000, 1000)
    assert len(decoded) == PARTS
    decoded.clear()
    some = await dense.buckets([A], DAY0, DAY0 + DAY, 7000, ("count", "mean", "integral"), 20, 1000)
    assert some[A] == every[A][:20]
    assert len(decoded) == 2  # 20 buckets of 350 samples


async def test_an_export_goes_on_where_it_stood(dense: SqliteSink, decoded: list[int]) -> None:
    question = read_question(Words([A], DAY0, DAY0 + DAY, "raw"), Limits(), NOW, is_bounded=False)
    blocks = [rows async for rows in Export(dense, question, "long").blocks()]
    assert [row[2] for rows in blocks for row in rows] == list(range(COUNT))
    assert len(decoded) < PARTS + 2 * len(blocks)


async def test_late_samples_of_the_tail_come_in_their_place(dense: SqliteSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_reader, "PIECE", 5000)
    known = {DAY0 + 20 * n: float(n) for n in range(COUNT)}
    late = {DAY0 + 200 * n + n % 2: -float(n) for n in range(0, 13_000, 7)}  # between, in place of, and behind others
    await dense.write([Row(A, ts, value) for ts, value in late.items()])
    expected = sorted((known | late).items())
    found = await dense.read([A], DAY0, DAY0 + DAY, 10**6)
    assert [(ts, value) for ts, value, _ in found[A]] == expected
    (info,) = await dense.series(A)
    assert info.count == len(expected)


async def test_long_questions_keep_no_short_one_waiting(dense: SqliteSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "SHORT", 50_000)
    go, begun, buckets = threading.Event(), threading.Event(), Reader.buckets

    def held_up(self: Reader, *arguments: Any) -> Any:
        if self._room is None:
            begun.set()
            assert go.wait(60)
        return buckets(self, *arguments)

    monkeypatch.setattr(Reader, "buckets", held_up)
    query = query_of(dense)
    words = Words([A], DAY0, DAY0 + DAY, "7s", ["count"])
    async with asyncio.TaskGroup() as group:
        try:
            long = [group.create_task(query.ask(words)) for _ in range(12)]
            assert await asyncio.to_thread(begun.wait, 60)
            async with asyncio.timeout(30):
                _, (short,) = await query.ask(Words([B], DAY0, DAY0 + DAY, "raw", [], 3))
            assert len(short.samples) == 3
            assert not any(task.done() for task in long)
        finally:
            go.set()
    for task in long:
        _, (answer,) = task.result()
        assert sum(row[1] for row in answer.samples) == COUNT


@settings(max_examples=repeats(5), deadline=None, suppress_health_check=list(HealthCheck))
@given(first=batch, steps=steps, asked=questions)
def test_small_pieces_answer_like_plain_arithmetic(first: Any, steps: Any, asked: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_reader, "PIECE", 3)
        patch.setattr(sqlite_reader, "ROLLED_MS", 3 * HOUR)
        patch.setattr(sqlite_parts, "MAX_PART", 4)
        patch.setattr(sqlite, "SHORT", 30)
        arithmetic(first, steps, asked)


async def test_years_without_samples_cost_a_question_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = Reader._rolled

    def rolled(self: Reader, id_: int, files: Any, from_ms: int, to_ms: int) -> Any:
        looks.append((from_ms, to_ms))
        return real(self, id_, files, from_ms, to_ms)

    async with SqliteSink(tmp_path, now=lambda: 2 * DAY0) as sink:
        await sink.write([Row(A, DAY0 + n * MINUTE, 1.0, 0) for n in range(3 * 1440)])
        await sink.keep_up()
        monkeypatch.setattr(Reader, "_rolled", rolled)
        for width in (MINUTE, HOUR):
            looks.clear()
            found = (await sink.buckets([A], 0, 2 * DAY0, width, ["count"], 10**6))[A]
            assert sum(count for _, count in found) == 3 * 1440
            assert 0 < len(looks) <= 15, "a year of rollups is a dozen looks, half a century many"


async def test_a_dense_day_is_packed_in_pieces(
    dense: SqliteSink, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a series has of a day, little of it is held at once, and a write waits for one piece at most."""
    monkeypatch.setattr(sqlite_parts, "PACK_ROWS", 4 * sqlite_parts.MAX_PART)
    monkeypatch.setattr(sqlite_upkeep, "STEP_S", 0.0)
    monkeypatch.setattr(sqlite_upkeep, "BUDGET_S", 60.0)
    before = await dense.read([A, B], DAY0, DAY0 + DAY, COUNT)
    packs: list[int] = []
    pack = sqlite_upkeep.pack_some

    def counted(*args: Any) -> int | None:
        decoded.clear()
        upto = pack(*args)
        packs.append(sum(decoded))
        return upto

    monkeypatch.setattr(sqlite_upkeep, "pack_some", counted)
    steps = dense._upkeep.retain(DAY0 + 3 * DAY, Keeping((0, 0, 0)))
    async with SqliteSink(dense.folder, now=lambda: NOW) as other:  # a reader of another process, at every step
        while await asyncio.to_thread(next, steps, "end") is None:
            assert await other.read([A, B], DAY0, DAY0 + DAY, COUNT) == before
    pieces = COUNT / (4 * sqlite_parts.MAX_PART)
    assert pieces - 1 <= len([size for size in packs if size > 1000]) <= pieces + 3
    assert max(packs) <= 5 * sqlite_parts.MAX_PART
    assert await dense.read([A, B], DAY0, DAY0 + DAY, COUNT) == before
    db = sqlite3.connect(next(dense.folder.glob("raw-*.db")))
    found = db.execute("SELECT n, data FROM part WHERE n > 10 ORDER BY key").fetchall()
    db.close()
    assert all(is_packed(data) for _, data in found)
    assert [n for n, _ in found[:-1]] == [sqlite_parts.MAX_PART] * (len(found) - 1)  # none is left half full


async def test_a_pack_that_is_broken_off_goes_on(dense: SqliteSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_parts, "PACK_ROWS", 4 * sqlite_parts.MAX_PART)
    monkeypatch.setattr(sqlite_upkeep, "STEP_S", 0.0)
    monkeypatch.setattr(sqlite_upkeep, "BUDGET_S", 60.0)
    before = await dense.read([A, B], DAY0, DAY0 + DAY, COUNT)
    steps = dense._upkeep.retain(DAY0 + 3 * DAY, Keeping((0, 0, 0)))
    partition = dense._writer.files.partitions("raw")[0]
    while not _packed_upto(dense, partition.name):
        next(steps)
    upto = _packed_upto(dense, partition.name)
    await dense.close()
    async with SqliteSink(dense.folder, now=lambda: NOW) as again:
        assert _packed_upto(again, partition.name) == upto > 0
        await again.retain(DAY0 + 3 * DAY)
        assert _packed_upto(again, partition.name) == 0
        assert await again.read([A, B], DAY0, DAY0 + DAY, COUNT) == before


def _packed_upto(sink: SqliteSink, name: str) -> int:
    db = sqlite3.connect(sink.folder / name)
    try:
        return meta_of(db, "packed_part")
    finally:
        db.close()
