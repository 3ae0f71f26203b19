"""Samples from outside into the sink: checked as a whole first, then written; told how far it came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tradewind.clock import now_ms
from tradewind.errors import Problem
from tradewind.history.keeping import DAY_MS, Keeping
from tradewind.history.sample import Refused, Row, refusal
from tradewind.history.sink import Sink, SinkAway

TOO_OLD = "too_old"
#: Rows of one write.
PART = 10_000
REASONS = {
    "not_finite": "the value is not finite",
    "not_a_number": "the value is no number",
    "bad_time": "the time is no whole number of milliseconds between 1970 and 2262",
    "bad_quality": "the quality is none of 0, 1, 2, 4",
    "bad_series": "it is no address such as comsrv:1001:m:10001",
    TOO_OLD: "retention has removed that time already",
}


class TooOld(msgspec.Struct, frozen=True, rename={"series_class": "class"}):
    """Rows that were refused since their class keeps nothing from before `kept_from` any more."""

    series_class: str
    raw_days: int
    rows: int
    kept_from: int


class Uploaded(msgspec.Struct, frozen=True):
    """`refused`: by the sink, though the rows are sound; `too_old` counts those of them that lie before retention. The
    others are stored; `rollups_only` of these are so old that retention will leave only their rollups."""

    stored: int
    refused: list[Refused]
    too_old: list[TooOld] = []
    rollups_only: int = 0


def sound_rows(rows: Sequence[Row], on_problem: Callable[[Problem], None], path: str = "rows") -> list[Row]:
    """Those that can be stored; what is wrong with each of the others is told."""
    sound = []
    for at, row in enumerate(rows):
        reason = refusal(row)
        if reason is None:
            sound.append(row)
        else:
            on_problem(Problem(reason, f"{path}[{at}]", REASONS.get(reason, reason)))
    return sound


async def upload(sink: Sink, rows: Sequence[Row], keeping: Keeping | None = None, now: int | None = None) -> Uploaded:
    """Write rows that are checked. Writing them again does no harm, so after SinkAway, which says how many are stored,
    the same can be sent once more. `keeping`: what is older than it keeps is not handed to a sink where nothing of it
    would stay."""
    keeping, now = keeping or Keeping(), now_ms() if now is None else now
    days = {name: keeping.days_of(name).raw for name in {row.series for row in rows}}
    ends = {name: now - count * DAY_MS if count else 0 for name, count in days.items()}
    old = [row for row in rows if row.ts_ms < ends[row.series]]
    fresh, refused, stored = rows, list[Refused](), 0
    if old and not sink.has_rollups:
        fresh, refused = [row for row in rows if row.ts_ms >= ends[row.series]], [Refused(row, TOO_OLD) for row in old]
    for at in range(0, len(fresh), PART):
        try:
            written = await sink.write(fresh[at : at + PART])
        except SinkAway as error:
            hint = f"{stored} of {len(rows)} rows are stored for certain: send all of them again"
            raise SinkAway(error.message, code=error.code, hint=hint, retry_after_s=error.retry_after_s) from error
        stored += written.stored
        refused += written.refused
    late = [row for row, reason in refused if reason == TOO_OLD]
    marks = await sink.kept_from(list({row.series for row in late})) if late else {}
    kept_from = {name: max(mark.raw_ms or 0, 0 if sink.has_rollups else ends[name]) for name, mark in marks.items()}
    rollups_only = len(old) - sum(row.ts_ms < ends[row.series] for row in late)
    return Uploaded(stored, refused, _counted(late, keeping, kept_from), rollups_only)


def _counted(late: Sequence[Row], keeping: Keeping, kept_from: Mapping[str, int]) -> list[TooOld]:
    counts = Counter(keeping.class_of(row.series) for row in late)
    return [
        TooOld(
            name,
            keeping.classes[name].raw,
            counts[name],
            max(kept_from[row.series] for row in late if keeping.class_of(row.series) == name),
        )
        for name in sorted(counts)
    ]
