"""Questions about samples in InfluxQL, always between two times. No I/O.

Nothing that a user wrote gets into the text but parts of addresses, whose grammar has no character that InfluxQL or a
regular expression gives a meaning to; what is no address is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

from tradewind.errors import Invalid
from tradewind.history.influx_line import MODEL, MODEL_CONTROL, TAGS, TELEMETRY, Place, place_of
from tradewind.history.sample import MAX_TS_MS
from tradewind.ids import is_id
from tradewind.points.address import is_number

#: Where it stands what retention has removed; read by every process.
RETENTION = "history_retention"
#: Series in one statement: with more, InfluxDB takes long to find them.
MAX_SERIES = 1000
NOT_GOOD = '"quality" > 0'
#: Aggregates that InfluxQL has a function for.
FUNCTIONS = ("mean", "min", "max", "first", "last", "count", "sum", "stddev")


class Choice(NamedTuple):
    """Some series of one measurement; `where` is empty for all of them."""

    measurement: str
    where: str = ""

    @property
    def tags(self) -> str:
        return ", ".join(f'"{tag}"' for tag in TAGS[self.measurement])

    @property
    def marks(self) -> str:
        """The measurement with what retention has removed of these series, under the same tags."""
        return f"{RETENTION}_{self.measurement}"

    def rest(self, from_ms: int = 0, to_ms: int = MAX_TS_MS + 1, also: str = "", of: str = "") -> str:
        """FROM and WHERE, for [from_ms, to_ms); of another measurement with the same tags, if `of` names it."""
        parts = [self.where] if self.where else []
        parts += [f"time >= {max(from_ms, 0)}ms", f"time <= {min(to_ms - 1, MAX_TS_MS)}ms"]
        if also:
            parts.append(also)
        return f'FROM "{of or self.measurement}" WHERE {" AND ".join(parts)}'


EVERYTHING = tuple(Choice(measurement) for measurement in TAGS)


def choices(series: Iterable[str]) -> list[Choice]:
    """All of these series, in as few statements as InfluxDB likes."""
    places: dict[Place, None] = {}
    for name in series:
        try:
            places[place_of(name)] = None
        except Invalid:
            continue
    found = []
    for measurement in TAGS:
        left = iter([place.values for place in places if place.measurement == measurement])
        while some := list(islice(left, MAX_SERIES)):
            found.append(Choice(measurement, _any_of(TAGS[measurement], some)))
    return found


def _any_of(tags: Sequence[str], some: Sequence[tuple[str, ...]]) -> str:
    groups: dict[tuple[str, ...], list[str]] = {}
    for *outer, last in some:
        groups.setdefault(tuple(outer), []).append(last)
    terms = []
    for values, fields in groups.items():
        parts = [f"\"{tag}\" = '{value}'" for tag, value in zip(tags, values, strict=False)]
        one_of = f"= '{fields[0]}'" if len(fields) == 1 else f"=~ /^(?:{'|'.join(fields)})$/"
        terms.append("(" + " AND ".join([*parts, f'"{tags[-1]}" {one_of}']) + ")")
    return "(" + " OR ".join(terms) + ")" if len(terms) > 1 else terms[0]


def of_pattern(pattern: str) -> list[Choice]:
    """Where series of that pattern can stand at all: less to list than everything."""
    service, _, rest = pattern.partition(":")
    entity, is_whole, _ = rest.partition(":")
    if "*" in service:
        return list(EVERYTHING)
    measurements = {"comsrv": (TELEMETRY,), "modsrv": (MODEL, MODEL_CONTROL)}.get(service, ())
    is_exact = is_whole and (is_number(entity) if service == "comsrv" else is_id(entity))
    return [
        Choice(measurement, f"\"{TAGS[measurement][0]}\" = '{entity}'" if is_exact else "")
        for measurement in measurements
    ]


def matches(pattern: str, series: str) -> bool:
    """A `*` stands for any text, all else for itself."""
    return fnmatchcase(series, pattern.replace("[", "[[]").replace("?", "[?]"))


def raw(choice: Choice, from_ms: int, to_ms: int, limit: int) -> str:
    """time, value, quality"""
    return f'SELECT "value", "quality" {choice.rest(from_ms, to_ms)} GROUP BY {choice.tags} LIMIT {limit}'


def last(choice: Choice, from_ms: int = 0, to_ms: int = MAX_TS_MS + 1) -> str:
    """time, value, quality: the newest sample of each series"""
    return f'SELECT last("value"), "quality" {choice.rest(from_ms, to_ms)} GROUP BY {choice.tags}'


def per_series(choice: Choice, function: str, field: str = "value", to_ms: int = MAX_TS_MS + 1) -> str:
    """time, number"""
    return f'SELECT {function}("{field}") {choice.rest(0, to_ms)} GROUP BY {choice.tags}'


def marks(choice: Choice) -> str:
    """time, the mark of each series that has one"""
    return f'SELECT max("raw_from_ms") {choice.rest(of=choice.marks)} GROUP BY {choice.tags}'


def over_all(choice: Choice, function: str, to_ms: int = MAX_TS_MS + 1) -> str:
    """time, number; of all its series together"""
    return f'SELECT {function}("value") {choice.rest(0, to_ms)}'


def buckets(choice: Choice, from_ms: int, to_ms: int, bucket_ms: int, functions: Sequence[str], limit: int) -> str:
    """start, then a number per function"""
    asked = ", ".join(f'{function}("value")' for function in functions)
    group = f"GROUP BY time({bucket_ms}ms), {choice.tags} fill(none) LIMIT {limit}"
    return f"SELECT {asked} {choice.rest(from_ms, to_ms)} {group}"


def not_good(choice: Choice, from_ms: int, to_ms: int, bucket_ms: int, limit: int) -> str:
    """start, samples that are not good; buckets without any are left out"""
    group = f"GROUP BY time({bucket_ms}ms), {choice.tags} fill(none) LIMIT {limit}"
    return f'SELECT count("value") {choice.rest(from_ms, to_ms, also=NOT_GOOD)} {group}'


def delete(choice: Choice, to_ms: int | None = None, of: str = "") -> str:
    """All of it, or what lies before `to_ms`; of another measurement with the same tags, if `of` names it."""
    parts = [choice.where] if choice.where else []
    if to_ms is not None:
        parts.append(f"time < {to_ms}ms")
    return f'DELETE FROM "{of or choice.measurement}" WHERE {" AND ".join(parts)}'


def predicate(place: Place, measurement: str = "") -> str:
    """One series in the words of `/api/v2/delete`; of another measurement with the same tags, if one is named."""
    tags: Mapping[str, str] = dict(zip(TAGS[place.measurement], place.values, strict=True))
    return " AND ".join(
        [f'_measurement="{measurement or place.measurement}"', *(f'{tag}="{tags[tag]}"' for tag in tags)]
    )


def show_entities(choice: Choice) -> str:
    """key, value: the channels or models; from the index, so no times bound it"""
    where = f" WHERE {choice.where}" if choice.where else ""
    return f'SHOW TAG VALUES FROM "{choice.measurement}" WITH KEY = "{TAGS[choice.measurement][0]}"{where}'


def show_series(choice: Choice) -> str:
    """key; from the index, so no times bound it"""
    return f'SHOW SERIES FROM "{choice.measurement}"' + (f" WHERE {choice.where}" if choice.where else "")
