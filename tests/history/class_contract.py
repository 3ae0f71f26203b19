"""What every sink promises of classes, as tests: each series is kept as long as the policy says. Like sink_contract."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.history.sink_contract import DAY, DAY0, HOUR, MINUTE, MODEL, A, B, NewSink, examples
from tests.soak import repeats
from tradewind.history.keeping import Keeping
from tradewind.history.policy import read_policy
from tradewind.history.sample import Row
from tradewind.history.sink import Sink


class Kept:
    """A policy of classes that may change, and what the settings say: `Kept({"brief": 2}, {A: "brief"}, raw_days=10)`
    keeps A for two days, all else for ten."""

    def __init__(self, classes: dict[str, int], of: dict[str, str], raw_days: int) -> None:
        self._days = (raw_days, 0, 0)
        self.use(classes, of)

    def use(self, classes: dict[str, int], of: dict[str, str]) -> None:
        policies = [{"match": match, "class": name} for match, name in of.items()]
        days = {name: {"raw_days": count} for name, count in classes.items()}
        self.now = Keeping(self._days, read_policy({"classes": days, "policies": policies}))

    async def __call__(self) -> Keeping:
        return self.now


async def retain_all(sink: Sink, now_ms: int) -> int:
    """As the recorder does, until there is nothing left to remove; the number of samples that went."""
    removed, left = 0, 3
    while left:
        rows = (await sink.retain(now_ms)).rows or 0
        removed, left = removed + rows, 3 if rows else left - 1
    return removed


few = settings(examples, max_examples=repeats(6))
_writes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=30)
_classes = st.dictionaries(st.integers(0, 3), st.sampled_from(["brief", "long", "archive", "default"]), max_size=4)
class_steps = st.lists(
    st.tuples(st.just("write"), _writes)
    | st.tuples(st.just("classes"), _classes)
    | st.tuples(st.just("day"), st.none()),
    min_size=3,
    max_size=9,
)


class ClassContract:
    async def test_each_series_is_kept_as_long_as_its_class_says(self, new_sink: NewSink) -> None:
        kept = Kept({"brief": 2, "archive": 0}, {"comsrv:1001:m:*": "brief", "modsrv:*": "archive"}, raw_days=10)
        sink = await new_sink(keeping=kept)
        hours = [DAY0 + n * HOUR for n in range(24 * 20)]
        await sink.write([Row(name, ts, 1.0, 0) for name in (A, B, MODEL) for ts in hours])
        now = DAY0 + 20 * DAY
        assert await retain_all(sink, now) == 24 * (18 + 10)
        got = await sink.read([A, B, MODEL], 0, now, 1000)
        assert [ts for ts, _, _ in got[A]] == hours[24 * 18 :]
        assert [ts for ts, _, _ in got[B]] == hours[24 * 10 :]
        assert [ts for ts, _, _ in got[MODEL]] == hours
        marks = await sink.kept_from([A, B, MODEL, "comsrv:9:m:9"])
        assert [marks[name].raw_ms for name in (A, B, MODEL)] == [now - 2 * DAY, now - 10 * DAY, None]
        assert marks["comsrv:9:m:9"].raw_ms is None
        stats = await sink.stats()
        assert stats.raw_from_ms is None and stats.oldest_ms == DAY0
        assert [(each.name, each.days.raw, each.series) for each in stats.classes] == [
            ("default", 10, 1),
            ("archive", 0, 1),
            ("brief", 2, 1),
        ]
        assert await retain_all(sink, now) == 0
        assert await retain_all(sink, now + DAY) == 48  # a day later each has lost a day more
        assert (await sink.kept_from([A]))[A].raw_ms == now - DAY

    async def test_the_class_of_a_series_is_what_the_policy_says_now(self, new_sink: NewSink) -> None:
        kept = Kept({"brief": 2}, {A: "brief"}, raw_days=10)
        sink = await new_sink(keeping=kept)
        now = DAY0 + 8 * DAY
        await sink.write([Row(name, DAY0 + n * DAY, 1.0, 0) for name in (A, B) for n in range(8)])
        assert await retain_all(sink, now) == 6
        kept.use({"brief": 2}, {B: "brief"})
        assert await retain_all(sink, now) == 6
        got = await sink.read([A, B], 0, now, 100)
        assert [len(got[A]), len(got[B])] == [2, 2]
        # What was removed is told, though the class of A keeps more now; new samples are kept as it says.
        marks = await sink.kept_from([A, B])
        assert [marks[name].raw_ms for name in (A, B)] == [now - 2 * DAY] * 2
        await sink.write([Row(A, now + n * DAY, 1.0, 0) for n in range(6)])
        assert await retain_all(sink, now + 6 * DAY) == 2
        assert len((await sink.read([A], 0, now + 6 * DAY, 100))[A]) == 8
        assert (await sink.kept_from([A]))[A].raw_ms == now - 2 * DAY

    async def test_what_was_told_of_as_removed_stays_told_when_less_is_removed_later(self, new_sink: NewSink) -> None:
        kept = Kept({"brief": 2, "archive": 0}, {A: "brief", MODEL: "archive"}, raw_days=5)
        sink = await new_sink(keeping=kept)
        now = DAY0 + 8 * DAY
        await sink.write([Row(A, DAY0 + n * DAY, 1.0, 0) for n in range(8)])
        assert await retain_all(sink, now) == 6
        kept.use({"archive": 0}, {MODEL: "archive"})
        await sink.write([Row(A, DAY0 + HOUR, 1.0, 0)])  # refused, or removed again
        await retain_all(sink, now)
        assert len((await sink.read([A], 0, now, 100))[A]) == 2
        assert (await sink.kept_from([A]))[A].raw_ms == now - 2 * DAY

    async def test_what_comes_late_for_a_class_does_not_stay(self, new_sink: NewSink) -> None:
        kept = Kept({"brief": 2}, {A: "brief"}, raw_days=30)
        sink = await new_sink(keeping=kept)
        now = DAY0 + 10 * DAY
        await sink.write([Row(name, DAY0 + n * HOUR, 1.0, 0) for name in (A, B) for n in range(240)])
        await retain_all(sink, now)
        late = [Row(name, DAY0 + HOUR + MINUTE, 5.0, 0) for name in (A, B, "comsrv:1001:m:8")]
        written = await sink.write(late)
        assert {reason for _, reason in written.refused} <= {"too_old"}
        assert written.stored + len(written.refused) == 3
        await sink.write([Row(A, now - DAY + 1, 7.0, 0)])
        await retain_all(sink, now + HOUR)
        got = await sink.read([A, B, "comsrv:1001:m:8"], 0, now, 1000)
        assert [len(got[A]), len(got[B]), len(got["comsrv:1001:m:8"])] == [49, 241, 1]
        assert got[A][0][0] == now - 2 * DAY

    @few
    @given(steps=class_steps)
    async def test_exactly_what_the_classes_keep_remains(self, new_sink: NewSink, steps: Any) -> None:
        """Whatever is written, early or late, and however the policy changes in between."""
        names = [f"comsrv:7:m:{n}" for n in range(4)]
        kept = Kept({}, {}, raw_days=6)
        sink = await new_sink(keeping=kept)
        known: dict[str, set[int]] = {name: set() for name in names}
        gone: dict[str, int] = dict.fromkeys(names, -1)
        most: dict[str, int] = dict.fromkeys(names, 0)
        now = DAY0 + 8 * DAY
        for what, more in steps:
            if what == "write":
                rows = [Row(names[n], DAY0 + quarter * 6 * HOUR, float(quarter), 0) for n, quarter in more]
                refused = {(row.series, row.ts_ms) for row, _ in (await sink.write(rows)).refused}
                for row in rows:
                    if (row.series, row.ts_ms) not in refused:
                        known[row.series].add(row.ts_ms)
                    else:
                        assert row.ts_ms < most[row.series]
                continue
            if what == "classes":
                kept.use({"brief": 2, "long": 9, "archive": 0}, {names[n]: name for n, name in more.items()})
            now += DAY
            await retain_all(sink, now)
            got, marks = await sink.read(names, 0, now + 90 * DAY, 1000), await sink.kept_from(names)
            whole = kept.now.longest("raw") * DAY
            for name in names:
                end = kept.now.days_of(name).cutoff_ms("raw", now)
                gone[name] = max([gone[name], *(ts for ts in known[name] if ts < end)])
                most[name] = max(most[name], end, now - whole if whole else 0)
                known[name] = {ts for ts in known[name] if ts >= end}
                assert [ts for ts, _, _ in got[name]] == sorted(known[name])
                mark = marks[name].raw_ms
                assert gone[name] < (mark or 0) <= most[name] or (gone[name] == -1 and mark is None)
