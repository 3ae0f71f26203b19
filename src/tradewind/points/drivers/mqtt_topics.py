"""What MQTT topics and payloads mean for the points of a channel: templates, routes, values, times. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from tradewind import codec
from tradewind.clock import from_iso
from tradewind.errors import Invalid, Problem
from tradewind.numerals import read_number
from tradewind.points.drivers.json_path import Path, find, parse_path
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality, Reading

_PLACE = re.compile(r"\{([a-z_]+)\}")
_TOPIC_NAMES: Final = frozenset(("channel", "channel_name", "kind", "point", "name"))
_WORDS: Final = {
    word: float(state)
    for state, words in enumerate(
        ("0 off false no closed disabled offline inactive stopped", "1 on true yes open enabled online active running")
    )
    for word in words.split()
}
_PAYLOADS: Final = frozenset(("auto", "number", "json", "bool"))
#: A number this large is milliseconds; as seconds it would be the year 5138.
_MS_FROM: Final = 1e11


class Payload:
    """The bytes of a message; as text and as JSON they are read once, however many points ask."""

    __slots__ = ("_data", "_document", "_text")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._text: str | None = None
        self._document: Any = self

    def text(self) -> str:
        """Raises UnicodeDecodeError."""
        if self._text is None:
            self._text = self._data.decode("utf-8").strip()
        return self._text

    def document(self) -> Any:
        """Raises Invalid and UnicodeDecodeError."""
        if self._document is self:
            self._document = codec.decode(self.text())
        return self._document


@dataclass(frozen=True, slots=True)
class Source:
    """Where the values of one point come from."""

    point: PointSpec
    topic: str
    qos: int
    payload: str
    path: Path
    time_path: Path | None

    def read(self, payload: Payload) -> Reading:
        """What a message says; quality bad, and no number, when it says nothing about the point."""
        kind, point_id = self.point.kind, self.point.id
        try:
            document = payload.document() if self._is_json(payload.text()) else payload.text()
        except (UnicodeDecodeError, Invalid):
            return Reading(kind, point_id, math.nan, 0, Quality.BAD)
        raw = number_of(find(self.path, document), only_words=self.payload == "bool")
        ts_ms = 0 if self.time_path is None else time_of(find(self.time_path, document))
        return Reading(kind, point_id, raw, ts_ms, Quality.GOOD if math.isfinite(raw) else Quality.BAD)

    def _is_json(self, text: str) -> bool:
        if self.payload != "auto":
            return self.payload == "json"
        return bool(self.path) or self.time_path is not None or text[:1] in ("{", "[", '"')


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the values written to one point go."""

    point: PointSpec
    topic: str
    qos: int
    retain: bool
    payload: str

    def message(self, channel: ChannelSpec, raw: float, ts_ms: int) -> bytes:
        names = {**names_for(channel, self.point), "value": number_text(raw), "ts": str(ts_ms)}
        return filled(self.payload, names).encode()


def number_of(found: Any, *, only_words: bool = False) -> float:
    """NaN for what is no number and no word for on or off."""
    if isinstance(found, bool):
        return float(found)
    if isinstance(found, (int, float)):
        return float(found) if abs(found) < 1e300 else math.nan
    if not isinstance(found, str):
        return math.nan
    word = found.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    if only_words:
        return math.nan
    try:
        return read_number(word)
    except ValueError:
        return math.nan


def time_of(found: Any) -> int:
    """Milliseconds of an ISO time, of seconds or of milliseconds; 0 (now) for what is none of them."""
    if isinstance(found, str):
        try:
            return from_iso(found)
        except ValueError:
            found = number_of(found)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 1e14:
        return 0
    return round(found if found >= _MS_FROM else found * 1000)


def number_text(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def filled(template: str, names: dict[str, str]) -> str:
    """Known `{name}`s are replaced; all other braces stay, so that JSON can be written as it is."""
    return _PLACE.sub(lambda match: names.get(match[1], match[0]), template)


def names_for(channel: ChannelSpec, point: PointSpec) -> dict[str, str]:
    return {
        "channel": channel.id, "channel_name": channel.name, "kind": point.kind.value, "point": point.id,
        "name": point.name or point.id,
    }  # fmt: skip


def sources_of(channel: ChannelSpec, problems: list[Problem]) -> list[Source]:
    """One per m and s point that has a topic; what is wrong with the others goes to `problems`."""
    given, found = channel.parameters, []
    for at, point in enumerate(channel.points):
        if point.kind not in (Kind.MEASUREMENT, Kind.SIGNAL):
            continue
        row = {**given, **point.mapping}
        where = f"points[{at}].mapping"
        before = len(problems)
        topic = _topic(channel, point, row.get("topic"), f"{where}.topic", problems, wildcards=True)
        payload = row.get("payload") or "auto"
        if payload not in _PAYLOADS:
            problems.append(Problem("bad_payload", f"{where}.payload", f"give one of {', '.join(sorted(_PAYLOADS))}"))
        path = _path(row.get("json_path"), f"{where}.json_path", problems)
        time_path = _path(row.get("timestamp_path"), f"{where}.timestamp_path", problems)
        qos = _qos(row.get("qos", 0), f"{where}.qos", problems)
        if len(problems) == before:
            found.append(Source(point, topic, qos, str(payload), path or (), time_path))
    return found


def sinks_of(channel: ChannelSpec, problems: list[Problem]) -> list[Sink]:
    """One per c and a point; `write_topic`, else `topic` of its own row."""
    given, found = channel.parameters, []
    for at, point in enumerate(channel.points):
        if point.kind not in (Kind.CONTROL, Kind.ADJUSTMENT):
            continue
        row = {**given, **point.mapping}
        where = f"points[{at}].mapping"
        before = len(problems)
        template = point.mapping.get("write_topic") or point.mapping.get("topic") or given.get("write_topic")
        topic = _topic(channel, point, template, f"{where}.write_topic", problems, wildcards=False)
        payload = row.get("write_payload") or "{value}"
        if not isinstance(payload, str) or "{value}" not in payload:
            hint = 'write where the value goes, such as {"set":{value}}'
            problems.append(Problem("bad_payload", f"{where}.write_payload", hint))
        # A write must be confirmed, unless its own row says otherwise.
        qos = _qos(point.mapping.get("qos", given.get("qos") or 1), f"{where}.qos", problems)
        if len(problems) == before:
            found.append(Sink(point, topic, qos, bool(row.get("retain", False)), str(payload)))
    return found


def _topic(
    channel: ChannelSpec, point: PointSpec, template: Any, path: str, problems: list[Problem], *, wildcards: bool
) -> str:
    if not isinstance(template, str) or not template:
        hint = "name a topic, in the point's mapping or as a parameter of the channel"
        problems.append(Problem("no_topic", path, hint))
        return ""
    unknown = sorted(set(_PLACE.findall(template)) - _TOPIC_NAMES)
    if unknown:
        shown = ", ".join(f"{{{name}}}" for name in sorted(_TOPIC_NAMES))
        problems.append(Problem("bad_topic", path, f"{{{unknown[0]}}} is unknown; there are {shown}"))
        return ""
    topic = filled(template, names_for(channel, point))
    levels = topic.split("/")
    is_wild = any("+" in level or "#" in level for level in levels)
    misplaced = any(("+" in level or "#" in level) and len(level) > 1 for level in levels) or "#" in levels[:-1]
    if len(topic.encode()) > 65535 or "\0" in topic or misplaced:
        problems.append(Problem("bad_topic", path, f"{topic!r} is not an MQTT topic: + and # fill a level, # the last"))
    elif is_wild and not wildcards:
        problems.append(Problem("bad_topic", path, f"{topic!r} has a wildcard: nothing can be published there"))
    return topic


def _path(text: Any, where: str, problems: list[Problem]) -> Path | None:
    if text is None or text == "":
        return None
    try:
        return parse_path(str(text))
    except Invalid as error:
        problems.append(Problem("bad_json_path", where, f"{error.message}; {error.hint}"))
        return None


def _qos(value: Any, where: str, problems: list[Problem]) -> int:
    if isinstance(value, bool) or value not in (0, 1, 2):
        problems.append(Problem("bad_qos", where, "give 0, 1 or 2"))
        return 0
    return int(value)
