"""Rollups equal what the samples give: pure functions, then the files through every order of writing and upkeep."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.history.sink_contract import (
    DAY0,
    HOUR,
    MINUTE,
    SECOND,
    assert_buckets,
    batches,
    edges,
    gaps,
    oracle,
    same_samples,
    times,
    values,
    widths,
)
from tests.soak import repeats
from tradewind.history import sqlite_move
from tradewind.history.aggregate import answer, cells_of, fold, line_of
from tradewind.history.keeping import Keeping
from tradewind.history.rollup import aligned, levels_for, rollups_of, stretches
from tradewind.history.sample import Row
from tradewind.history.sink import AGGREGATES
from tradewind.history.sqlite_listing import list_series
from tradewind.history.sqlite_parts import ROLLED
from tradewind.history.sqlite_reader import Reader
from tradewind.history.sqlite_tail import Tail, TailCache
from tradewind.history.sqlite_upkeep import Upkeep
from tradewind.history.sqlite_writer import Writer

NAMES = ["comsrv:1:m:1", "comsrv:1:m:2", "modsrv:grid:measurement:power"]


@settings(max_examples=repeats(60), deadline=None)
@given(history=batches, width=widths, gap=gaps, limit=st.sampled_from([1, 3, 10_000]))
def test_cells_folded_in_two_steps_answer_like_the_samples(
    history: list[list[tuple[int, float, int]]], width: int, gap: int, limit: int
) -> None:
    known = {DAY0 + at: (value, quality) for batch in history for at, value, quality in batch}
    line = line_of([(ts, *sample) for ts, sample in known.items()])
    small = next(step for step in (MINUTE, SECOND, 1) if width % step == 0 and gap >= step)
    cells = fold(cells_of(line, small, gap), min(width, 10 * small) if width % (10 * small) == 0 else small, gap)
    to_ms = DAY0 + 6 * HOUR
    wanted = oracle(known, DAY0, to_ms, width, AGGREGATES, gap)
    assert_buckets(answer(cells, width, AGGREGATES, limit, to_ms, gap), wanted[:limit], AGGREGATES)


@settings(max_examples=repeats(40), deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, HOUR - 1), values, min_size=1, max_size=50), max_size=5))
def test_rollups_of_many_series_at_once_are_those_of_each(samples: list[dict[int, float]]) -> None:
    lines = [line_of([(DAY0 + at, value, 0) for at, value in one.items()]) for one in samples]
    for line, (minutes, hours) in zip(lines, rollups_of(lines), strict=True):
        for mine, alone in ((minutes, cells_of(line, MINUTE)), (hours, cells_of(line, HOUR))):
            assert len(mine) == len(alone)
            for name in ("first_ms", "last_ms", "n", "good", "first", "last", "low", "high"):
                assert (mine[name] == alone[name]).all()
            for name in ("total", "m2", "inner"):
                assert np.allclose(mine[name], alone[name], rtol=1e-9, atol=1e-3)


@pytest.mark.parametrize(
    ("bucket_ms", "gap_ms", "levels"),
    [
        (HOUR, None, (HOUR, MINUTE)),
        (24 * HOUR, HOUR, (HOUR, MINUTE)),
        (HOUR, HOUR - 1, (MINUTE,)),
        (15 * MINUTE, None, (MINUTE,)),
        (90 * SECOND, None, ()),
        (MINUTE, 10 * SECOND, ()),
    ],
)
def test_only_rollups_that_divide_the_bucket_and_know_the_gap_answer(
    bucket_ms: int, gap_ms: int | None, levels: tuple[int, ...]
) -> None:
    assert levels_for(bucket_ms, gap_ms) == levels


def test_ranges() -> None:
    assert aligned(DAY0 + 1, DAY0 + 3 * HOUR, HOUR) == (DAY0 + HOUR, DAY0 + 3 * HOUR)
    assert aligned(DAY0 + 1, DAY0 + 2 * HOUR - 1, HOUR) is None
    first = DAY0 // HOUR
    got = stretches([first + 5, first, first + 1, first + 9], DAY0 + 10, DAY0 + 6 * HOUR)
    assert got == [(DAY0 + 10, DAY0 + 2 * HOUR), (DAY0 + 5 * HOUR, DAY0 + 6 * HOUR)]


def move_all(upkeep: Upkeep) -> None:
    for _ in upkeep.moves():
        pass


class Rollups(RuleBasedStateMachine):
    """Writes, late ones and rewrites among them, upkeep, packing, restarts, in any order; a dict knows better."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.known: dict[str, dict[int, tuple[float, int]]] = {name: {} for name in NAMES}
        self.reader = Reader(self.folder, TailCache(), lambda name, what: pytest.fail(f"{name}: {what}"))
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sqlite_move, "SLICE", 1)
        self.patch.setattr(sqlite_move, "PORTION_S", -1.0)  # the smallest portions that there are
        self.begin()

    def begin(self) -> None:
        self.writer = Writer(self.folder)
        self.upkeep = Upkeep(self.writer, now=lambda: DAY0 * 2)

    @rule(
        rows=st.lists(st.tuples(st.sampled_from(NAMES), times, values, st.sampled_from([0, 0, 1])), min_size=1),
        day=st.sampled_from([0, 0, 0, 24 * HOUR]),
    )
    def write(self, rows: list[tuple[str, int, float, int]], day: int) -> None:
        assert self.writer.write([Row(name, DAY0 + day + at, *rest) for name, at, *rest in rows])[0].stored == len(rows)
        for name, at, value, quality in rows:
            self.known[name][DAY0 + day + at] = value, quality

    @rule()
    def move(self) -> None:
        move_all(self.upkeep)

    @rule(portions=st.integers(1, 9))
    def move_some(self, portions: int) -> None:
        for _ in range(portions):
            self.upkeep.move_some()

    @rule(steps=st.integers(1, 5))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.upkeep.step()

    @rule()
    def pack(self) -> None:
        for _ in self.upkeep.retain(DAY0 * 2, Keeping()):
            pass

    @rule(name=st.sampled_from(NAMES))
    def forget(self, name: str) -> None:
        assert self.upkeep.forget([name]) == len(self.known[name])
        self.known[name] = {}

    @rule()
    def restart(self) -> None:
        self.writer.close()
        self.begin()

    @rule(ends=st.tuples(edges, edges), width=widths, gap=gaps)
    def ask(self, ends: tuple[int, int], width: int, gap: int) -> None:
        from_ms, to_ms = DAY0 + min(ends), DAY0 + 24 * HOUR + max(ends)
        got = self.reader.buckets(NAMES, from_ms, to_ms, width, AGGREGATES, 10_000, gap)
        some = self.reader.buckets(NAMES, from_ms, to_ms, width, ["max", "sum"], 10_000, gap)
        raw = self.reader.read(NAMES, 0, DAY0 * 2, 10_000)
        latest = self.reader.latest(NAMES)
        counts = {info.address: info.count for info in list_series(self.reader, "*", 10, "")}
        for name in NAMES:
            known = self.known[name]
            assert counts.get(name, 0) == len(known)
            assert same_samples(raw[name], known)
            assert_buckets(got[name], oracle(known, from_ms, to_ms, width, AGGREGATES, gap), AGGREGATES)
            assert_buckets(some[name], oracle(known, from_ms, to_ms, width, ["max", "sum"], gap), ["max", "sum"])
            assert latest[name] == (None if not known else (max(known), *known[max(known)]))

    def teardown(self) -> None:
        self.ask((0, 6 * HOUR), HOUR, HOUR)
        self.patch.undo()
        self.reader.close()
        self.writer.close()
        shutil.rmtree(self.folder)


TestRollups = Rollups.TestCase
TestRollups.settings = settings(max_examples=repeats(10), stateful_step_count=25, deadline=None)


def test_hours_are_rolled_once_they_are_over_and_again_after_late_samples(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    upkeep = Upkeep(writer, now=lambda: DAY0 * 2)
    reader = Reader(tmp_path, TailCache(), lambda name, what: pytest.fail(f"{name}: {what}"))
    name = NAMES[0]

    def hour_is(sum_: float) -> None:
        assert reader.buckets([name], DAY0, DAY0 + HOUR, HOUR, ["sum"], 9, HOUR)[name] == [(DAY0, sum_)]

    def in_rollup() -> float:
        with reader.asking("look"):
            files = reader._rollups(HOUR, DAY0, DAY0 + HOUR)
            return float(reader._rolled(1, files, DAY0, DAY0 + HOUR)["total"].sum())

    writer.write([Row(name, DAY0 + n * SECOND, 1.0, 0) for n in range(3 * 3600)])
    move_all(upkeep)
    hour_is(3600)
    assert in_rollup() == 0
    while upkeep.step():
        pass
    with writer.changing(writer.files.partitions("raw")[0]) as file:
        states = file.db.execute("SELECT state FROM hour ORDER BY hour").fetchall()
    assert states == [(ROLLED,), (ROLLED,), (0,)]  # the last one is not over
    assert in_rollup() == 3600
    writer.write([Row(name, DAY0 + 500, 10.0, 0), Row(name, DAY0, 2.0, 0)])
    hour_is(3611)  # from the tail
    move_all(upkeep)
    assert in_rollup() == 3600
    hour_is(3611)  # dirty: from the samples
    while upkeep.step():
        pass
    assert in_rollup() == 3611
    hour_is(3611)
    reader.close()
    writer.close()


def test_a_question_misses_nothing_that_is_moved_while_it_is_asked(tmp_path: Path) -> None:
    """The writer moves the tail just before and just after the question looks at it."""
    writer = Writer(tmp_path)
    upkeep = Upkeep(writer, now=lambda: DAY0 * 2)
    hours = iter(range(1, 24))

    def write_an_hour() -> None:
        start = DAY0 + next(hours) * HOUR
        writer.write([Row(NAMES[0], start + n * MINUTE, 1.0, 0) for n in range(60)])

    class Moving(TailCache):
        def load(self, main: sqlite3.Connection) -> Tail:
            move_all(upkeep)
            write_an_hour()
            tail = super().load(main)
            move_all(upkeep)
            while upkeep.step():
                pass
            return tail

    reader = Reader(tmp_path, Moving(), lambda name, what: pytest.fail(f"{name}: {what}"))
    write_an_hour()
    move_all(upkeep)
    for known in (3, 5, 7):
        write_an_hour()
        rows = reader.read(NAMES[:1], DAY0, DAY0 * 2, 10**6)[NAMES[0]]
        assert [ts for ts, _, _ in rows] == [DAY0 + HOUR + n * MINUTE for n in range(known * 60)]
    for known in (9, 11, 13):
        write_an_hour()
        got = reader.buckets(NAMES[:1], DAY0, DAY0 * 2, HOUR, ["count"], 10**6, HOUR)[NAMES[0]]
        assert [count for _, count in got] == [60] * known
    write_an_hour()
    assert reader.latest(NAMES[:1])[NAMES[0]] == (DAY0 + 16 * HOUR - MINUTE, 1.0, 0)
    reader.close()
    writer.close()
