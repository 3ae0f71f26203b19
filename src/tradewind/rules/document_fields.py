"""Fields of a rule's document that several parts of it have. Pure."""

from __future__ import annotations

from collections.abc import Collection

from tradewind.errors import Invalid
from tradewind.models.fields import Fields, number
from tradewind.points.values import parse_value

MAX_VALUE = 1_000
MAX_MS = 31 * 86_400_000


def scalar(fields: Fields, name: str) -> float | str | None:
    """A number where it is one, also as text or truth value; else the text. None: absent, or wrong and reported."""
    value = fields.items.get(name)
    if value is None:
        return None
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        if len(value) > MAX_VALUE:
            fields.report.add("too_long", fields.at(name), f"at most {MAX_VALUE} characters")
            return None
        try:
            return parse_value(value.strip())
        except Invalid:
            return value
    found = number(value)
    if found is None:
        fields.wrong(name, "a number or a text")
    return found


def choice(fields: Fields, name: str, known: Collection[str], default: str = "") -> str:
    """One of the known words; without a default it must be there."""
    value = fields.items.get(name)
    if value is None or value == "":
        if not default:
            fields.missing(name, f"one of {', '.join(known)}")
        return default
    if value not in known:
        fields.report.add("bad_choice", fields.at(name), f"{str(value)[:80]!r} is none of {', '.join(known)}")
        return default
    return str(value)


def milliseconds(fields: Fields, name: str, *, is_needed: bool = False) -> int:
    found = fields.number(name, least=1.0 if is_needed else 0.0)
    if found is None:
        if is_needed and fields.items.get(name) is None:
            fields.missing(name, "give milliseconds")
        return 0
    if not found.is_integer() or found > MAX_MS:
        fields.report.add("out_of_range", fields.at(name), f"whole milliseconds, at most {MAX_MS} (31 days)")
        return 0
    return int(found)


def delay(fields: Fields, name: str, other: str) -> int:
    """A delay that has two names."""
    if fields.items.get(name) is not None and fields.items.get(other) is not None:
        fields.report.add("two_names", fields.at(other), f"it is another word for {name}; give one of them")
    return milliseconds(fields, name) or milliseconds(fields, other)


def hysteresis(fields: Fields) -> float | None:
    if fields.items.get("hysteresis") is not None and fields.items.get("deadband") is not None:
        fields.report.add("two_names", fields.at("deadband"), "it is another word for hysteresis; give one of them")
    found = fields.number("hysteresis", least=0.0)
    return found if found is not None else fields.number("deadband", least=0.0)
