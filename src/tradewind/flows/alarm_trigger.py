"""When a transition of an alarm starts a cycle. Pure: which transitions a trigger wants.

`{"type": "alarm", "rule_id": "hot", "level": ["Critical", "High"], "status": "New", "to": "node.handle"}`; also
`category` and `source` (which may end in `*`). Each may be a word or a list; one that is left out fits everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tradewind.alarms.journal_entry import JournalEntry
from tradewind.alarms.record import LEVELS, level_of
from tradewind.alarms.transitions import Status
from tradewind.errors import Invalid, Problem

TYPE = "alarm"
FIELDS = ("type", "rule_id", "level", "category", "source", "status", "to")
_STATUSES = {status.lower(): status.value for status in Status}


class AlarmTrigger(msgspec.Struct, frozen=True):
    """Empty: any. `status`: the one that the alarm has come to."""

    rule_id: frozenset[str] = frozenset()
    level: frozenset[str] = frozenset()
    category: frozenset[str] = frozenset()
    source: frozenset[str] = frozenset()
    status: frozenset[str] = frozenset()

    def fits(self, entry: JournalEntry) -> bool:
        return (
            (not self.rule_id or entry.rule_id in self.rule_id)
            and (not self.level or entry.level in self.level)
            and (not self.category or entry.category in self.category)
            and (not self.status or entry.to_status in self.status)
            and (not self.source or any(_is_of(entry.source, wanted) for wanted in self.source))
        )


def payload_of(entry: JournalEntry) -> dict[str, Any]:
    """What a cycle gets to see."""
    return {
        "id": entry.alarm_id,
        "event": entry.event,
        "from": entry.from_status or None,
        "status": entry.to_status,
        "level": entry.level,
        "category": entry.category,
        "rule_id": entry.rule_id,
        "source": entry.source,
        "title": entry.title,
        "actual_value": entry.actual_value,
        "count": entry.raised,
        "who": entry.who,
        "note": entry.note,
        "ts": entry.at_ms,
    }


def read_trigger(raw: Mapping[str, Any], path: str = "") -> AlarmTrigger:
    """Raises Invalid with everything that is wrong."""
    problems: list[Problem] = []
    for name in raw:
        if name not in FIELDS:
            problems.append(Problem("unknown_field", f"{path}{name}", f"an alarm trigger has {', '.join(FIELDS)}"))
    found = {name: _words(raw, name, path, problems) for name in ("rule_id", "level", "category", "source", "status")}
    levels = {word: level_of(word) for word in found["level"]}
    if None in levels.values():
        problems.append(Problem("bad_level", f"{path}level", f"one of {', '.join(LEVELS)}"))
    statuses = {word: _STATUSES.get(word.lower()) for word in found["status"]}
    if None in statuses.values():
        problems.append(Problem("bad_status", f"{path}status", f"one of {', '.join(Status)}"))
    if problems:
        raise Invalid("the trigger is not valid", hint="see problems", problems=problems)
    found["level"] = frozenset(level.value for level in levels.values() if level is not None)
    found["status"] = frozenset(status for status in statuses.values() if status is not None)
    return AlarmTrigger(**found)


def trigger_problems(triggers: tuple[dict[str, Any], ...]) -> list[Problem]:
    """Of all alarm triggers of a flow."""
    found: list[Problem] = []
    for i, raw in enumerate(triggers):
        if raw.get("type") == TYPE:
            try:
                read_trigger(raw, f"triggers[{i}].")
            except Invalid as error:
                found += error.problems
    return found


def _words(raw: Mapping[str, Any], name: str, path: str, problems: list[Problem]) -> frozenset[str]:
    given = raw.get(name)
    words = given if isinstance(given, list) else [given] if given is not None else []
    if not all(isinstance(word, str) and word for word in words):
        problems.append(Problem("not_a_text", f"{path}{name}", "give a word, or a list of words"))
        return frozenset()
    return frozenset(words)


def _is_of(source: str, wanted: str) -> bool:
    return source.startswith(wanted[:-1]) if wanted.endswith("*") else source == wanted
