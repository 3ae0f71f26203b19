"""A question about a range of history: its words read, its limits kept, all that is wrong named at once. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.history.rollup import levels_for
from tradewind.history.sample import MAX_TS_MS, is_series
from tradewind.history.sink import AGGREGATES
from tradewind.history.times import DAY_MS, HOUR_MS, bucket_count, nice_bucket, span_ms, span_text, time_ms

T = TypeVar("T")
FILLS = ("none", "null", "previous")
#: Points of a series, when the question does not say how many.
DEFAULT_BUCKETS = 1000
DEFAULT_SAMPLES = 10_000
#: Time, over all series, that buckets which no rollup fits may go through sample by sample.
MAX_SCAN_MS = 31 * DAY_MS


class Limits(msgspec.Struct, frozen=True):
    """Of one answer: points over all of its series, and series."""

    max_points: int = 100_000
    max_series: int = 100


class Words(msgspec.Struct, frozen=True):
    """What a caller wrote; None and empty: nothing."""

    series: Sequence[str] = ()
    from_: str | int | None = None
    to: str | int | None = None
    bucket: str | int | None = None
    agg: Sequence[str] = ()
    limit: int | None = None
    gap: str | int | None = None
    fill: str | None = None


class Question(msgspec.Struct, frozen=True):
    """`bucket_ms` 0 asks for samples. `limit`: points of each series. `gap_ms`: as the caller named it."""

    series: tuple[str, ...]
    from_ms: int
    to_ms: int
    bucket_ms: int
    aggs: tuple[str, ...]
    limit: int
    gap_ms: int | None = None
    fill: str = "none"


def read_question(words: Words, limits: Limits, now_ms: int, *, is_bounded: bool = True) -> Question:
    """From the last hour, in buckets that suit the width, their means; unless the words say otherwise.

    `is_bounded` off: for answers that are sent piece by piece, of any length. Raises Invalid with every problem.
    """
    problems: list[Problem] = []
    series = tuple(dict.fromkeys(words.series))
    problems += series_problems(words.series, limits.max_series)
    to_ms = _read(problems, lambda: time_ms("now" if words.to is None else words.to, now_ms, "to"), now_ms)
    from_ms = _read(
        problems,
        lambda: max(to_ms - HOUR_MS, 0) if words.from_ is None else time_ms(words.from_, now_ms, "from"),
        to_ms,
    )
    if from_ms > to_ms:
        problems.append(Problem("bad_range", "from", "it lies behind `to`: swap them"))
    gap_ms = None if words.gap is None else _read(problems, lambda: span_ms(words.gap, "gap"), 1)
    aggs = tuple(dict.fromkeys(each for text in words.agg for each in text.split(",") if each)) or ("mean",)
    known = ", ".join(AGGREGATES)
    problems += [Problem("bad_agg", "agg", f"{agg[:32]!r} is none of {known}") for agg in aggs if agg not in AGGREGATES]
    fill = words.fill or "none"
    if fill not in FILLS:
        problems.append(Problem("bad_fill", "fill", f"use one of {', '.join(FILLS)}"))
    share = max(limits.max_points // max(len(series), 1), 1)
    if words.limit is not None and not 1 <= words.limit <= (share if is_bounded else MAX_TS_MS):
        hint = f"use 1 to {share}: {limits.max_points} points in all, for {len(series)} series"
        problems.append(Problem("out_of_range", "limit", hint))
    width_ms = max(to_ms - from_ms, 1)
    most = min(words.limit or DEFAULT_BUCKETS, share)
    bucket_ms = _read(problems, lambda: _bucket(words.bucket, width_ms, most), 0)
    if bucket_ms == 0 and (words.agg or fill != "none"):
        hint = "samples have no aggregates and no fill: leave them out, or name a bucket"
        problems.append(Problem("not_with_raw", "agg" if words.agg else "fill", hint))
    if not problems:
        asked = Question(series, from_ms, to_ms, bucket_ms, aggs, words.limit or share, gap_ms, fill)
        problems += _width_problems(asked, is_bounded, is_cut=words.limit is not None and fill == "none")
    if problems:
        raise refusal(problems)
    limit = words.limit or (min(DEFAULT_SAMPLES, share) if bucket_ms == 0 else share)
    return Question(series, from_ms, to_ms, bucket_ms, aggs if bucket_ms else (), limit, gap_ms, fill)


def series_problems(series: Sequence[str], most: int) -> list[Problem]:
    problems = [
        Problem("bad_address", f"series[{at}]", f"{str(name)[:128]!r} is no address such as comsrv:1001:m:10001")
        for at, name in enumerate(series)
        if not is_series(name)
    ]
    if not series:
        problems.append(Problem("nothing_asked", "series", "name at least one address"))
    if len(series) > most:
        problems.append(Problem("too_many", "series", f"{len(series)} series are too many: {most} at most"))
    return problems


def refusal(problems: Sequence[Problem], message: str = "the question is not valid") -> Invalid:
    first = problems[0]
    told = f"{message}: {first.path}: {first.hint}"
    return Invalid(told, code=first.code, hint=first.hint, problems=list(problems)[:1000])


def _bucket(given: str | int | None, width_ms: int, most: int) -> int:
    if given in (None, "", "auto"):
        return nice_bucket(width_ms, most)
    return 0 if given == "raw" else span_ms(given, "bucket")


def _width_problems(asked: Question, is_bounded: bool, is_cut: bool) -> list[Problem]:
    """`is_cut`: the answer may end before the range does."""
    if not asked.bucket_ms or not is_bounded:
        return []
    count, width_ms = bucket_count(asked.from_ms, asked.to_ms, asked.bucket_ms), asked.to_ms - asked.from_ms
    if not is_cut and count > asked.limit:
        wider = span_text(nice_bucket(width_ms, asked.limit))
        hint = f"{count} buckets a series are too many: use bucket={wider} or auto, or a shorter time"
        return [Problem("too_many_points", "bucket", hint)]
    held = (asked.gap_ms or HOUR_MS) if "integral" in asked.aggs else None
    if not levels_for(asked.bucket_ms, held) and width_ms * len(asked.series) > MAX_SCAN_MS:
        hint = "such a long time needs buckets of whole minutes (with an integral a gap of a minute or more)"
        return [Problem("too_much", "bucket", f"{hint}: only these are ready")]
    return []


def _read(problems: list[Problem], read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except Invalid as error:
        problems += error.problems
        return otherwise
