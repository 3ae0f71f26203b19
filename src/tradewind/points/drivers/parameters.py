"""Checks of channel parameters that several drivers share. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tradewind.errors import Problem
from tradewind.problems import Problems, closest, unknown_words


def whole_numbers(given: Mapping[str, Any], bounds: Mapping[str, tuple[int, int]]) -> list[Problem]:
    """Those that are there must be whole numbers within their bounds."""
    found = []
    for name, (low, high) in bounds.items():
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
            found.append(Problem("bad_number", f"parameters.{name}", f"give a whole number from {low} to {high}"))
    return found


def unknown_names(given: Mapping[str, Any], known: Collection[str], where: str = "parameters") -> list[Problem]:
    found = Problems()
    for name in unknown_words(given, known, found):
        close = closest(str(name), known)
        others = f"there are {', '.join(known)}" if known else "leave it out: there are none"
        hint = f"did you mean {close}?" if close else others
        found.append(Problem("unknown_parameter", f"{where}.{name}", hint))
    return found
