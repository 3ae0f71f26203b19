"""Reads the fields of an object, keeps everything that is wrong with them, and never stops at the first."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from tradewind.clock import from_iso
from tradewind.errors import Invalid, Problem
from tradewind.flows.slots import parse_duration
from tradewind.problems import Problems, closest, unknown_words

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
NAME_HINT = "letters, digits, _ and -, at most 64 characters"
#: Moments after this one (the year 5138) would leave the calendar.
_MAX_MS = 10**14


class Report:
    """What is wrong, in the order found."""

    def __init__(self) -> None:
        self.problems = Problems()
        self.comparisons_left = 1_000

    def add(self, code: str, path: str, hint: str) -> None:
        self.problems.append(Problem(code, path or "$", hint))

    def guess(self, word: str, known: Collection[str]) -> str:
        """`did you mean "window"?` and the known words."""
        if len(known) > 500:
            return f"{word[:64]!r} is not known"
        close = closest(word, known)
        words = sorted(known)
        some = ", ".join(words[:15]) + (", …" if len(words) > 15 else "")
        return (f'did you mean "{close}"? ' if close else "") + f"known: {some or 'none'}"


def join(path: str, key: str) -> str:
    """`nodes[2].config` and `window` make `nodes[2].config.window`; odd keys are quoted."""
    if not NAME.fullmatch(key):
        short = key if len(key) <= 64 else f"{key[:63]}…"
        return f'{path}["{short}"]'
    return f"{path}.{key}" if path else key


class Fields:
    """One object. Each method reads a field, returns its value or the default, and puts what was given in `kept`: the
    canonical form. An absent field and null are the same."""

    def __init__(self, raw: Mapping[str, Any], path: str, report: Report) -> None:
        self.raw = raw
        self.path = path
        self.report = report
        self.kept: dict[str, Any] = {}

    def bad(self, code: str, name: str, hint: str) -> None:
        self.report.add(code, join(self.path, name), hint)

    def check_keys(self, known: Collection[str]) -> None:
        for key in unknown_words(self.raw, known, self.report.problems):
            self.bad("unknown_field", key, self.report.guess(key, known))

    def text(self, name: str, limit: int) -> str:
        value = self.raw.get(name)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > limit:
            self.bad("bad_text", name, f"give text of at most {limit} characters")
            return ""
        self.kept[name] = value
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """The first of the choices is the default."""
        value = self.raw.get(name)
        if value is None:
            return choices[0]
        if value not in choices:
            known = "give " + " or ".join(f'"{choice}"' for choice in choices)
            self.bad(f"bad_{name}", name, known)
            return choices[0]
        self.kept[name] = value
        return str(value)

    def seconds(self, name: str, default: float = 0) -> float:
        value = self.raw.get(name)
        if value is None:
            return default
        try:
            made = parse_duration(value) / 1000
        except Invalid as error:
            self.bad("bad_duration", name, error.hint)
            return default
        self.kept[name] = value
        return made

    def whole(self, name: str, high: int) -> int | None:
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
            self.bad("out_of_range", name, f"give a whole number from 0 to {high}")
            return None
        self.kept[name] = value
        return value

    def flag(self, name: str) -> bool:
        value = self.raw.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            self.bad("not_a_bool", name, "give true or false")
            return False
        self.kept[name] = value
        return value

    def names(self, name: str, limit: int) -> tuple[str, ...]:
        value = self.raw.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(word, str) and NAME.fullmatch(word) for word in value):
            self.bad("bad_words", name, f"give a list of words: {NAME_HINT} each")
            return ()
        words = list(dict.fromkeys(value))
        if len(words) > limit:
            self.bad("too_many", name, f"give at most {limit}")
            return ()
        self.kept[name] = words
        return tuple(words)

    def mapping(self, name: str) -> dict[str, Any]:
        value = self.raw.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.bad("not_an_object", name, 'give an object such as {"window": 20}')
            return {}
        self.kept[name] = value
        return value

    def moment(self, name: str) -> int:
        """Milliseconds of ISO-8601 text or of themselves; 0 when absent."""
        value = self.raw.get(name)
        if value is None:
            return 0
        made = 0
        if isinstance(value, int) and not isinstance(value, bool):
            made = value
        elif isinstance(value, str):
            try:
                made = from_iso(value)
            except (ValueError, OverflowError):
                made = 0
        if not 0 < made < _MAX_MS:
            self.bad("bad_time", name, "give ISO-8601 such as 2026-11-16T08:00:00Z, or milliseconds since the epoch")
            return 0
        self.kept[name] = value
        return made
