"""An alarm as data: levels, the record in `alarm:{id}`, what it takes to raise one. No I/O."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from tradewind import codec, ids
from tradewind.alarms.transitions import Status
from tradewind.errors import Invalid, NotFound, Problem

GENERAL = "general"
#: What a station reports of itself.
STATION = "station"
MAX_TITLE, MAX_TEXT, MAX_SOURCE, MAX_VALUE, MAX_TAGS, MAX_DATA = 200, 4000, 200, 200, 50, 16_000
MAX_ESCALATE_MS = 30 * 86_400_000
ALARM_ID = re.compile(r"alarm_[A-Za-z0-9_-]{1,58}")
_SOURCE = re.compile(r"[^\s|*\x00-\x1f\x7f]+")


class Level(StrEnum):
    CRITICAL = "Critical"
    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"
    INFO = "Info"

    @property
    def priority(self) -> int:
        return 5 - LEVELS.index(self)

    @property
    def colour(self) -> str:
        return _COLOURS[self]


LEVELS = tuple(Level)
_COLOURS = dict(zip(LEVELS, ("red", "orange", "yellow", "blue", "green"), strict=True))
_LEVEL_WORDS = {level.lower(): level for level in LEVELS}
_LEVEL_WORDS |= {"major": Level.HIGH, "minor": Level.MEDIUM, "warning": Level.LOW}
_LEVEL_WORDS |= {str(level.priority): level for level in LEVELS}


def level_of(word: str) -> Level | None:
    """The level of a word in any case, of Major, Minor, Warning, or of its number; None for any other."""
    return _LEVEL_WORDS.get(word.strip().lower())


class AlarmNotFound(NotFound):
    def __init__(self, alarm_id: str) -> None:
        super().__init__(f"there is no alarm {alarm_id!r}", code="alarm_not_found", hint="list the alarms")
        self.alarm_id = alarm_id


class NewAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to raise an alarm. One is open per (`rule_id`, `source`): raising it again counts it up.

    `escalate_ms`: None = as the settings say, 0 = never. `notify`: names of targets; None = as the routes say. While an
    alarm of one of the rules in `inhibited_by` is open, this one begins suppressed.
    """

    rule_id: str
    source: str
    title: str
    level: str = Level.MEDIUM.value
    description: str = ""
    category: str = GENERAL
    tags: Sequence[str] = ()
    threshold: str = ""
    actual: str = ""
    data: Mapping[str, Any] = {}
    latched: bool = False
    escalate_ms: int | None = None
    notify: Sequence[str] | None = None
    inhibited_by: Sequence[str] = ()


def new_alarm_id() -> str:
    return f"alarm_{uuid.uuid4()}"


def check(alarm: NewAlarm, path: str = "") -> list[Problem]:
    """Everything that is wrong with it."""
    problems = []

    def no(field: str, code: str, hint: str) -> None:
        problems.append(Problem(code, f"{path}{field}", hint))

    if level_of(alarm.level) is None:
        no("level", "bad_level", f"one of {', '.join(LEVELS)} (or Major, Minor, Warning)")
    if not ids.ID.fullmatch(alarm.category):
        no("category", "bad_category", "1 to 64 letters, digits, _ or -")
    if not ids.ID.fullmatch(alarm.rule_id):
        no("rule_id", "bad_id", "1 to 64 letters, digits, _ or -")
    if len(alarm.source) > MAX_SOURCE or not _SOURCE.fullmatch(alarm.source):
        no("source", "bad_source", f"1 to {MAX_SOURCE} characters, no blanks, no | and no *")
    if not 0 < len(alarm.title) <= MAX_TITLE:
        no("title", "bad_title", f"1 to {MAX_TITLE} characters")
    for field, longest in (("description", MAX_TEXT), ("threshold", MAX_VALUE), ("actual", MAX_VALUE)):
        if len(getattr(alarm, field)) > longest:
            no(field, "too_long", f"at most {longest} characters")
    if len(alarm.tags) > MAX_TAGS or not all(ids.ID.fullmatch(tag) for tag in alarm.tags):
        no("tags", "bad_tags", f"at most {MAX_TAGS} words of letters, digits, _ or -")
    if len(codec.encode(alarm.data)) > MAX_DATA or codec.has_non_finite(alarm.data):
        no("data", "bad_data", f"an object of at most {MAX_DATA} bytes of JSON, finite numbers only")
    if alarm.escalate_ms is not None and not 0 <= alarm.escalate_ms <= MAX_ESCALATE_MS:
        no("escalate_ms", "out_of_range", f"0 to {MAX_ESCALATE_MS}")
    return problems


def checked(alarms: Sequence[NewAlarm]) -> None:
    """Raises Invalid naming every problem of all of them."""
    problems = [p for n, alarm in enumerate(alarms) for p in check(alarm, f"[{n}]." if len(alarms) > 1 else "")]
    if problems:
        raise Invalid(
            f"{problems[0].path}: {problems[0].hint}", code="bad_alarm", hint="see problems", problems=problems
        )


def wire(alarm: NewAlarm, alarm_id: str, nonce: str = "") -> dict[str, Any]:
    """As `alarm_raise` of `alarms/alarm.lua` takes it; tags and data as JSON texts: Lua takes [] for {}."""
    level = level_of(alarm.level) or Level.HIGH
    found: dict[str, Any] = {"id": alarm_id, "rule_id": alarm.rule_id, "source": alarm.source, "level": level.value}
    found |= {"title": alarm.title, "description": alarm.description, "category": alarm.category}
    found |= {"tags": codec.encode(list(alarm.tags)).decode(), "threshold": alarm.threshold, "actual": alarm.actual}
    found |= {"data": codec.encode(dict(alarm.data)).decode(), "nonce": nonce}
    if alarm.latched:
        found["latched"] = True
    if alarm.escalate_ms is not None:
        found["escalate_ms"] = alarm.escalate_ms
    if alarm.notify is not None:
        found["notify"] = codec.encode(list(alarm.notify)).decode()
    if alarm.inhibited_by:
        found["inhibited_by"] = list(alarm.inhibited_by)
    return found


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """The record. `created_at`, … are ISO texts as in Redis, the other times milliseconds. `cause`: id of the alarm
    that suppresses it; `held_by`: the operator who does; `cleared_at`: when the condition of a latched one ended."""

    id: str
    title: str
    description: str
    level: Level
    status: Status
    category: str
    priority: int
    tags: list[str]
    source_point: str
    threshold_value: str
    actual_value: str
    created_at: str
    updated_at: str
    acknowledged_by: str | None = None
    acknowledged_at: str | None = None
    resolved_at: str | None = None
    data: Any
    rule_id: str
    count: int
    first_seen: int
    last_seen: int
    shelved_until: int | None = None
    cause: str | None = None
    held_by: str | None = None
    cleared_at: str | None = None
    latched: bool = False
    escalations: int = 0
    escalate_ms: int | None = None
    note: str | None = None
    version: int
    announced_ms: int = 0
    ended_ms: int | None = None

    @property
    def colour(self) -> str:
        return self.level.colour

    @property
    def is_acknowledged(self) -> bool:
        return self.acknowledged_at is not None

    def to_json(self) -> dict[str, Any]:
        """The seed's hash as JSON, then ours."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {**found, "colour": self.colour}


_INTS = ("priority", "count", "first_seen", "last_seen", "version", "escalations", "announced_ms")
_MAYBE_INTS = ("shelved_until", "ended_ms", "escalate_ms")


def from_fields(raw: Mapping[str, str]) -> Alarm | None:
    """The alarm of the fields of its hash; None when it is not there, not whole, or not ours: one hides no other."""
    try:
        return _from_fields(raw)
    except (KeyError, TypeError, ValueError, Invalid):
        return None


def _from_fields(raw: Mapping[str, str]) -> Alarm:
    known: dict[str, Any] = {name: raw[name] for name in Alarm.__struct_fields__ if name in raw}
    for name in _INTS:
        if name in known:
            known[name] = int(known[name])
    for name in _MAYBE_INTS:
        if name in known:
            known[name] = int(known[name])
    known["level"], known["status"] = Level(raw["level"]), Status(raw["status"])
    known["latched"] = raw.get("latched") == "1"
    known["tags"], known["data"] = codec.decode(raw["tags"]), codec.decode(raw["data"])
    return Alarm(**known)


def from_redis(flat: Sequence[bytes]) -> Alarm | None:
    """The alarm of a flat reply of HGETALL."""
    words = [part.decode(errors="replace") for part in flat]
    return from_fields(dict(zip(words[::2], words[1::2], strict=True)))
