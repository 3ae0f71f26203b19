"""Samples as lines of InfluxDB's line protocol, and where in InfluxDB a series stands. No I/O.

`comsrv:1001:m:10001` is measurement `telemetry` with tags channel_id, point_id, point_type; a model's output is `model`
with tags model, field, and what was written to a model is `model_control`. Field `value`; `quality` where it matters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from operator import itemgetter
from typing import NamedTuple

from tradewind.errors import Invalid
from tradewind.history.sample import BAD, GOOD, MAX_TS_MS, Refused, Row, refusal
from tradewind.points.address import CONTROL, MEASUREMENT, Address
from tradewind.points.spec import Kind

TELEMETRY, MODEL, MODEL_CONTROL = "telemetry", "model", "model_control"
#: The tags of each measurement; the last one tells the points of one channel or model apart.
TAGS = {
    TELEMETRY: ("channel_id", "point_type", "point_id"),
    MODEL: ("model", "field"),
    MODEL_CONTROL: ("model", "field"),
}
POINT_TYPES = {
    str(Kind.MEASUREMENT): "measurement",
    str(Kind.SIGNAL): "signal",
    str(Kind.CONTROL): "control",
    str(Kind.ADJUSTMENT): "adjustment",
}
_KINDS = {word: kind for kind, word in POINT_TYPES.items()}
#: Beginnings of lines that are kept ready; more series than this are made anew each time.
MAX_HEADS = 200_000

_UNSPEAKABLE = re.compile(r"\n|\\(?=[,= ]|$)")
_ESCAPED = str.maketrans({",": r"\,", "=": r"\=", " ": r"\ "})
_series, _time, _value, _quality = map(itemgetter, range(4))


class Place(NamedTuple):
    """`values` of the measurement's tags, in the order of TAGS."""

    measurement: str
    values: tuple[str, ...]


def place_of(series: str) -> Place:
    """Raises Invalid for what is no address."""
    address = Address.parse(series)
    if address.is_point:
        return Place(TELEMETRY, (address.entity, POINT_TYPES[address.kind], address.field))
    return Place(MODEL if address.kind == MEASUREMENT else MODEL_CONTROL, (address.entity, address.field))


def address_of(measurement: str, tags: Mapping[str, str]) -> str | None:
    """The series that stands there; None if it is not one of ours."""
    values = [tags.get(tag, "") for tag in TAGS.get(measurement, ())]
    try:
        if measurement == TELEMETRY:
            return str(Address.point(values[0], _KINDS.get(values[1], ""), values[2]))
        if values:
            return str(Address.model(values[0], values[1], CONTROL if measurement == MODEL_CONTROL else MEASUREMENT))
    except Invalid:
        pass
    return None


def escaped(text: str) -> str:
    """As the key or the value of a tag, or the key of a field. Raises Invalid for what no line can say: a line break,
    and a backslash before something that has a meaning."""
    if _UNSPEAKABLE.search(text):
        raise Invalid(f"{text!r} cannot stand in a line of InfluxDB", code="bad_tag")
    return text.translate(_ESCAPED)


def head_of(measurement: str, tags: Mapping[str, str]) -> str:
    """A line up to its first field; tags in order, as InfluxDB likes them best."""
    named = "".join(f",{escaped(name)}={escaped(tags[name])}" for name in sorted(tags))
    return f"{measurement}{named} value="


class _Heads(dict[str, str]):
    def __missing__(self, series: str) -> str:
        place = place_of(series)
        head = head_of(place.measurement, dict(zip(TAGS[place.measurement], place.values, strict=True)))
        if len(self) >= MAX_HEADS:
            self.clear()
        self[series] = head
        return head


class Lines(NamedTuple):
    """`rows` and their `lines`, one for one; what can be stored nowhere is in `refused`."""

    rows: Sequence[Row]
    lines: list[str]
    refused: list[Refused]


class LineMaker:
    """Makes lines.

    InfluxDB merges the fields of one key, so a good sample without `quality` would leave the mark of a former bad one
    in place. A series in `marked`, which has or had samples that are not good, gets its quality written always; with
    None, every series does.
    """

    def __init__(self) -> None:
        self.marked: set[str] | None = set()
        self._heads = _Heads()

    def make(self, rows: Sequence[Row]) -> Lines:
        refused: list[Refused] = []
        if not _are_sound(rows):
            rows, refused = _parted(rows)
        try:
            return Lines(rows, self._lines(rows), refused)
        except (Invalid, TypeError):  # a series that is no address
            rows, more = _parted(rows)
            return Lines(rows, self._lines(rows), refused + more)

    def _lines(self, rows: Sequence[Row]) -> list[str]:
        heads, marked = self._heads, self.marked
        if marked is None:
            return [f"{heads[series]}{value!r},quality={quality}i {ts}" for series, ts, value, quality in rows]
        if any(map(_quality, rows)):
            marked.update(row[0] for row in rows if row[3])
        if not marked:
            return [f"{heads[series]}{value!r} {ts}" for series, ts, value, _ in rows]
        return [
            f"{heads[series]}{value!r},quality={quality}i {ts}"
            if series in marked
            else f"{heads[series]}{value!r} {ts}"
            for series, ts, value, quality in rows
        ]


def _are_sound(rows: Sequence[Row]) -> bool:
    """True when no row can be refused for its value, time or quality: one look at all, much faster than at each."""
    if not rows:
        return True
    if not (
        {*map(type, map(_value, rows))} <= {float, int}
        and {*map(type, map(_time, rows))} == {int}
        and {*map(type, map(_quality, rows))} == {int}
    ):
        return False
    try:
        if not isfinite(sum(map(_value, rows))):
            return False
    except OverflowError:
        return False
    times, qualities = [row[1] for row in rows], {*map(_quality, rows)}
    return min(times) >= 0 and max(times) <= MAX_TS_MS and min(qualities) >= GOOD and max(qualities) <= BAD


def _parted(rows: Sequence[Row]) -> tuple[list[Row], list[Refused]]:
    sound, refused = [], []
    for row in rows:
        reason = refusal(row)
        if reason is None:
            sound.append(row)
        else:
            refused.append(Refused(row, reason))
    return sound, refused
