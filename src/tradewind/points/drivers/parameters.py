"""Checks of channel parameters that several drivers share. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from tradewind.errors import Problem


def whole_numbers(given: Mapping[str, Any], bounds: Mapping[str, tuple[int, int]]) -> list[Problem]:
    """Those that are there must be whole numbers within their bounds."""
    found = []
    for name, (low, high) in bounds.items():
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
            found.append(Problem("bad_number", f"parameters.{name}", f"give a whole number from {low} to {high}"))
    return found


def unknown_names(given: Mapping[str, Any], known: Collection[str], where: str = "parameters") -> list[Problem]:
    found = []
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            found.append(Problem("unknown_parameter", f"{where}.{name}", hint))
    return found
