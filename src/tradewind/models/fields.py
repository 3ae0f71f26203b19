"""Taking a document apart: fields are asked for by name and kind; what is wrong is written down with its path."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tradewind.errors import Problem
from tradewind.ids import ID, RESERVED
from tradewind.problems import Problems, closest, some_of, unknown_words

ID_HINT = "1 to 64 letters, digits, _ or -"


def did_you_mean(word: str, known: Iterable[str], what: str = "known") -> str:
    names = known if isinstance(known, Collection) else tuple(known)
    close = closest(word, names)
    if close:
        return f"did you mean {close!r}?"
    return f"{what}: {some_of(names, 30)}" if names else f"none is {what}"


class Report:
    def __init__(self) -> None:
        self.problems = Problems()

    def add(self, code: str, path: str, hint: str) -> None:
        self.problems.append(Problem(code, path, hint))


class Fields:
    """One object of a document. A field that is absent, or wrong and reported, comes back as the default."""

    def __init__(self, document: Any, path: str, report: Report, known: Collection[str]) -> None:
        self.path = path
        self.report = report
        self.items: Mapping[str, Any] = {}
        self.is_object = isinstance(document, Mapping)
        if not isinstance(document, Mapping):
            report.add("wrong_type", path or "document", f"{kind(document)} stands where an object must")
            return
        self.items = document
        for name in unknown_words(document, known, report.problems):
            report.add("unknown_field", self.at(str(name)), did_you_mean(str(name), known))

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, expected: str) -> None:
        self.report.add("wrong_type", self.at(name), f"{kind(self.items[name])} stands where {expected} must")

    def missing(self, name: str, hint: str) -> None:
        if self.is_object:
            self.report.add("missing_field", self.at(name), hint)

    def text(self, name: str, default: str = "") -> str:
        value = self.items.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            self.wrong(name, "text")
            return default
        return str(value)

    def id(self, name: str, *, is_key: bool = False) -> str:
        """A name by the rules of ids; `` when there is none that could be used. `is_key`: it becomes part of a key."""
        value = self.items.get(name)
        if value is None or value == "":
            self.missing(name, f"give it {ID_HINT}")
            return ""
        text = self.text(name)
        if text and ID.fullmatch(text) is None:
            self.report.add("bad_name", self.at(name), f"{text[:80]!r}: {ID_HINT}")
            return ""
        if is_key and text in RESERVED:
            self.report.add("bad_name", self.at(name), f"{text!r} is a reserved word; choose another name")
            return ""
        return text

    def number(self, name: str, *, least: float | None = None) -> float | None:
        value = self.items.get(name)
        if value is None:
            return None
        found = number(value)
        if found is None:
            self.wrong(name, "a finite number")
        elif least is not None and found < least:
            self.report.add("out_of_range", self.at(name), f"{found:g} is below {least:g}")
            return None
        return found

    def flag(self, name: str, default: bool) -> bool:
        value = self.items.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "true or false")
            return default
        return value

    def list(self, name: str) -> list[Any]:
        value = self.items.get(name)
        if value is None:
            return []
        if not isinstance(value, (list, tuple)):
            self.wrong(name, "a list")
            return []
        return list(value)

    def object(self, name: str) -> dict[str, Any]:
        value = self.items.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.wrong(name, "an object")
            return {}
        return {str(key): item for key, item in value.items()}


def number(value: Any) -> float | None:
    """A finite number as it is, None for anything else; a truth value is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def kind(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
    return f"a {type(value).__name__}"
