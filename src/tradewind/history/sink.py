"""The seam between history and what keeps it: files of our own (`sqlite.py`) or InfluxDB (`influx.py`).

tests/history/sink_contract.py holds both to what is promised here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from tradewind.errors import Invalid, Problem, Unavailable
from tradewind.history.keeping import Days, Keeping
from tradewind.history.policy import DEFAULT_CLASS
from tradewind.history.sample import MAX_TS_MS, Refused, Row

#: What `buckets` can answer, per bucket. `stddev` is that of a sample (n - 1), 0.0 for a single value; `good` counts
#: the samples of good quality; `integral` is value × seconds, see `Sink.buckets`.
AGGREGATES = ("mean", "min", "max", "first", "last", "count", "sum", "integral", "stddev", "good")

#: A value holds for no longer than this, if the question does not say otherwise.
GAP_MS = 3_600_000

#: (ts_ms, value, quality)
Sample: TypeAlias = tuple[int, float, int]
#: (bucket start, then a number per aggregate asked for, in that order)
Bucket: TypeAlias = tuple[int | float | None, ...]


class SinkAway(Unavailable):
    """The sink does not take or answer now: try the same again, after `retry_after_s` if it named a time.

    Whether some of the rows were stored is not known; writing them again does no harm.
    """

    code = "sink_away"

    def __init__(
        self, message: str, *, code: str | None = None, hint: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Written:
    """`stored` rows are safe on the disk of the sink, rewritten ones included; the others are in `refused`."""

    stored: int
    refused: list[Refused] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SeriesInfo:
    """The raw samples still kept of a series; None and 0 when only rollups are left."""

    address: str
    first_ms: int | None
    last_ms: int | None
    count: int


@dataclass(frozen=True, slots=True)
class ClassStats:
    """A class of series, the days that it keeps, and what there is of it. `rows`: None when counting is dear."""

    name: str
    days: Days
    series: int
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class SinkStats:
    """`raw_from_ms`, `minute_from_ms`, `hour_from_ms`: retention removed what lies before, of every series; None:
    nothing yet. Classes that keep less have lost more, see `Sink.kept_from`.

    A sink without rollups of its own answers every bucket from raw data: its three are equal. `problems` names what is
    damaged or set aside, in words for the operator. `classes`: empty when the policy cannot be told.
    """

    rows: int
    bytes: int
    oldest_ms: int | None
    newest_ms: int | None
    series: int
    raw_from_ms: int | None = None
    minute_from_ms: int | None = None
    hour_from_ms: int | None = None
    problems: tuple[str, ...] = ()
    classes: tuple[ClassStats, ...] = ()


class KeptFrom(NamedTuple):
    """Retention removed what lies before, of samples and of the rollups of minutes and hours; None: nothing yet."""

    raw_ms: int | None = None
    minute_ms: int | None = None
    hour_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Retained:
    """What retention removed: raw `rows` (None: the sink does not say), bytes, and names such as files."""

    rows: int | None = 0
    bytes: int = 0
    names: tuple[str, ...] = ()


class Sink(ABC):
    """Keeps samples by (series, ts). Ranges are [from_ms, to_ms); answers list times in ascending order.

    Every method but `open` and `close` raises SinkAway when the sink does not answer now, and Invalid for a question
    that makes no sense. A series that is not known has no samples; that is no error.
    """

    #: Whether rollups outlive the samples that they were made of.
    has_rollups = False
    #: Questions that may be under way at once.
    at_once = 8

    @abstractmethod
    async def open(self) -> None:
        """Does not raise SinkAway: a sink may be opened while it is away."""

    @abstractmethod
    async def close(self) -> None:
        """After the writes under way. May be called twice."""

    @abstractmethod
    async def write(self, rows: Sequence[Row]) -> Written:
        """Store what can be stored, also late rows, in any order; for one key the last row of the last call stays.

        Rows that can never be stored are refused one by one, and cost their neighbours nothing. After the answer the
        stored rows survive a crash of the sink's machine, and every reader sees them.
        """

    @abstractmethod
    async def read(self, series: Sequence[str], from_ms: int, to_ms: int, limit: int) -> dict[str, list[Sample]]:
        """Raw samples, the first `limit` of each series; a key for each series asked for."""

    @abstractmethod
    async def buckets(
        self,
        series: Sequence[str],
        from_ms: int,
        to_ms: int,
        bucket_ms: int,
        aggs: Sequence[str],
        limit: int,
        gap_ms: int = GAP_MS,
    ) -> dict[str, list[Bucket]]:
        """Aggregates of the samples in [from_ms, to_ms) per bucket, the first `limit` buckets of each series.

        Buckets begin at multiples of `bucket_ms` since the epoch; only what lies in the range counts, so the first and
        the last may be partial. Buckets without samples are left out. A number that is not finite is None.

        `integral`: a value holds until the next sample, but for `gap_ms` at most and not beyond the range; the last
        value before the range holds into it likewise. If it is asked for, buckets through which a value only holds
        are there too, with count, sum and good 0 and None for the rest.
        """

    @abstractmethod
    async def latest(self, series: Sequence[str]) -> dict[str, Sample | None]:
        """The newest sample of each series by its own time."""

    @abstractmethod
    async def series(self, pattern: str = "*", limit: int = 1000, after: str = "") -> list[SeriesInfo]:
        """Known series in order of address, those behind `after`; in `pattern`, `*` stands for any text."""

    async def names(self, pattern: str, limit: int) -> list[str]:
        """The addresses of `series` alone; maybe also of some whose samples are gone."""
        return [info.address for info in await self.series(pattern, limit)]

    @abstractmethod
    async def stats(self) -> SinkStats: ...

    async def problems(self) -> tuple[str, ...]:
        """What is damaged of what it keeps itself, as in `stats`, and cheap. Does not raise SinkAway; a sink that is a
        server keeps nothing."""
        return ()

    @abstractmethod
    async def kept_from(self, series: Sequence[str]) -> dict[str, KeptFrom]:
        """Where retention has come to with each series: what was removed stays told, also when its class changes."""

    @abstractmethod
    async def retain(self, now_ms: int) -> Retained:
        """Remove what is older than the class of each series keeps, as the policy says now. Bounded work: call it
        again, every minute or so. A little more may stay (a day; of what came late, an hour), never less."""

    @abstractmethod
    async def forget(self, series: Sequence[str]) -> int:
        """Remove everything of these series, rollups too; the number of raw samples removed."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def class_stats(keeping: Keeping, series: Mapping[str, int], rows: Mapping[str, int] | None) -> tuple[ClassStats, ...]:
    """The default class first, the others in order of name."""
    names = sorted(keeping.classes, key=lambda name: (name != DEFAULT_CLASS, name))
    return tuple(
        ClassStats(name, keeping.classes[name], series.get(name, 0), None if rows is None else rows.get(name, 0))
        for name in names
    )


def check_range(from_ms: int, to_ms: int, limit: int) -> None:
    """Raises Invalid for a range or a limit that no sink answers."""
    problems = []
    if from_ms > to_ms:
        problems.append(Problem("bad_range", "from", f"{from_ms} lies behind to, {to_ms}: swap them"))
    if limit < 1:
        problems.append(Problem("bad_limit", "limit", "use 1 or more"))
    if problems:
        raise Invalid(f"bad range [{from_ms}, {to_ms})", code="bad_range", problems=problems)


def check_buckets(bucket_ms: int, aggs: Sequence[str], gap_ms: int) -> None:
    """Raises Invalid for buckets that no sink answers."""
    problems = []
    if not 1 <= bucket_ms <= MAX_TS_MS:
        problems.append(Problem("bad_bucket", "bucket", "use 1 millisecond or more"))
    if gap_ms < 1:
        problems.append(Problem("bad_gap", "gap", "use 1 millisecond or more"))
    known = ", ".join(AGGREGATES)
    problems += [Problem("bad_agg", "agg", f"{agg!r} is none of {known}") for agg in aggs if agg not in AGGREGATES]
    if not aggs:
        problems.append(Problem("bad_agg", "agg", f"name at least one of {known}"))
    if problems:
        raise Invalid("bad buckets", code="bad_buckets", problems=problems)
