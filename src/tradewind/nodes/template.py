"""Texts with places: `{name}` and `{name.key.0}` stand for values of inputs, `{{name}}` for the word in braces itself.

Other braces are left alone, so JSON may be written as it is. Only looks values up: no attributes, no formats, no code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tradewind import codec
from tradewind.errors import Invalid, Problem

_PATH = r"[A-Za-z0-9_-]{1,64}(?:\.[A-Za-z0-9_-]{1,64}){0,16}"
_PLACE = re.compile(rf"\{{\{{({_PATH})\}}\}}|\{{({_PATH})\}}")


def names(template: Any) -> set[str]:
    """The inputs that a template, or any text inside of JSON-like data, asks for."""
    return {place.split(".")[0] for text in _texts(template) for _, place in _PLACE.findall(text) if place}


def fill(template: str, values: Mapping[str, Any], quote: Callable[[str], str] | None = None) -> str:
    """The text with each place filled: strings as they are, other values as JSON. `quote` is applied to each value.

    Raises Invalid for a place that no value answers to.
    """

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        text = as_text(look_up(match[2], values))
        return quote(text) if quote else text

    return _PLACE.sub(replace, template) if "{" in template else template


def fill_data(template: Any, values: Mapping[str, Any]) -> Any:
    """JSON-like data with its texts filled; a text that is nothing but one place becomes the value itself."""
    if isinstance(template, str):
        match = _PLACE.fullmatch(template)
        return look_up(match[2], values) if match and match[2] else fill(template, values)
    if isinstance(template, dict):
        return {fill(key, values): fill_data(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill_data(value, values) for value in template]
    return template


def look_up(path: str, values: Mapping[str, Any]) -> Any:
    value: Any = values
    for word in path.split("."):
        try:
            value = value[int(word)] if isinstance(value, list) else value[word]
        except (KeyError, IndexError, ValueError, TypeError):
            known = ", ".join(sorted(map(str, values))) or "none"
            raise Invalid(
                f"there is no value for {{{path}}}", code="unknown_name", hint=f"the inputs are: {known}"
            ) from None
    return value


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else codec.encode(value).decode()


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def check(template: Any, known: Collection[str], path: str) -> list[Problem]:
    """One problem for each place that no input can fill."""
    shown = ", ".join(sorted(known)) or "none"
    return [
        Problem("unknown_name", path, f"{{{name}}} is no input of this node; its inputs: {shown}")
        for name in sorted(names(template) - set(known))
    ]
