"""Samples as lines of InfluxDB's line protocol, and where in InfluxDB a series stands. No I/O.

`comsrv:1001:m:10001` is measurement `telemetry` with tags channel_id, point_id, point_type; a model's output is `model`
with tags model, field, and what was written to a model is `model_control`. Field `value`; `quality` where it matters.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress, repeat
from typing import NamedTuple

import msgspec
import numpy as np

from tradewind.errors import Invalid
from tradewind.history.columns import Columns, sort_out
from tradewind.history.sample import Refused, Row
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

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_UNSPEAKABLE = re.compile(r"\n|\\(?=[,= ]|$)")
_ESCAPED = str.maketrans({",": r"\,", "=": r"\=", " ": r"\ "})


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
    if _PLAIN.fullmatch(text):
        return text
    if _UNSPEAKABLE.search(text):
        raise Invalid(f"{text!r} cannot stand in a line of InfluxDB", code="bad_tag")
    return text.translate(_ESCAPED)


def head_of(measurement: str, tags: Mapping[str, str]) -> str:
    """A line up to its first field; tags in order, as InfluxDB likes them best."""
    named = "".join(f",{escaped(name)}={escaped(tags[name])}" for name in sorted(tags))
    return f"{measurement}{named} value="


class _Heads(dict[str, bytes]):
    def __missing__(self, series: str) -> bytes:
        place = place_of(series)
        head = head_of(place.measurement, dict(zip(TAGS[place.measurement], place.values, strict=True))).encode()
        if len(self) >= MAX_HEADS:
            self.clear()
        self[series] = head
        return head


class Lines(NamedTuple):
    """`rows` and the `text` of their lines, in the same order; what can be stored nowhere is in `refused`."""

    rows: Columns
    text: bytes
    refused: list[Refused]

    @property
    def lines(self) -> list[str]:
        """One for each row."""
        return self.text.decode().removesuffix("\n").split("\n") if self.text else []


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
        columns, refused = sort_out(rows, self._heads)
        return Lines(columns, self._text(columns), refused)

    def _text(self, rows: Columns) -> bytes:
        """All lines at once: a column of texts for each piece of a line, then one join."""
        if not rows:
            return b""
        pieces: list[Iterable[bytes]] = [map(self._heads.__getitem__, rows.series), _numbers(rows.value)]
        if self.marked is not None and any(rows.quality):
            self.marked.update(compress(rows.series, rows.quality))
        if self.marked is None:
            pieces.append([b",quality=%di" % quality for quality in rows.quality])
        elif self.marked:
            marks = map(self.marked.__contains__, rows.series)
            pieces.append([b",quality=%di" % q if mark else b"" for mark, q in zip(marks, rows.quality, strict=True)])
        pieces.append(_ends(rows.ts))
        return b"".join(chain.from_iterable(zip(*pieces, strict=True)))


def _numbers(values: array[float]) -> list[bytes]:
    """The shortest text of each that gives the same number again; a JSON list of many is made faster than `repr` of
    each."""
    return msgspec.json.encode(values.tolist())[1:-1].split(b",")


def _ends(times: array[int]) -> Iterable[bytes]:
    """What stands behind the fields. Many samples in a row have the same time, mostly."""
    ts = np.frombuffer(times, np.int64)
    starts = np.flatnonzero(np.append(True, ts[1:] != ts[:-1]))
    counts = np.diff(np.append(starts, len(ts))).tolist()
    return chain.from_iterable(map(repeat, [b" %d\n" % one for one in ts[starts].tolist()], counts))
