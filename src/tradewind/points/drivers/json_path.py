"""A small JSON path: `$.a.b[0]`, `a.b`, `["odd name"].x`, `[-1]`. One place in a document, no wildcards, no filters."""

from __future__ import annotations

import re
from typing import Any, Final

from tradewind.errors import Invalid

Path = tuple[str | int, ...]
MISSING: Final = object()

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"'\s]+) | \[(?P<index>-?[0-9]{1,9})\] | \[(?P<quote>["'])(?P<quoted>.*?)(?P=quote)\]""", re.X
)


def parse_path(text: str) -> Path:
    """The steps of a path; none for `$` or an empty text, which mean the whole document. Raises Invalid."""
    rest = text.strip()
    if rest.startswith("$"):
        rest = rest[1:]
    elif rest and rest[0] not in ".[":
        rest = f".{rest}"
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None:
            message = f"{text!r} is not a JSON path: cannot read {rest[at : at + 20]!r}"
            raise Invalid(message, code="bad_json_path", hint="write it like $.values.power[0]")
        if found["index"] is not None:
            steps.append(int(found["index"]))
        else:
            steps.append(found["name"] if found["name"] is not None else found["quoted"])
        at = found.end()
    return tuple(steps)


def find(path: Path, document: Any) -> Any:
    """What stands there, or MISSING. A step in digits also finds the key of an object that is written so."""
    for step in path:
        if isinstance(document, dict):
            document = document.get(step if isinstance(step, str) else str(step), MISSING)
        elif isinstance(document, list):
            try:
                document = document[int(step)]
            except (ValueError, IndexError):
                return MISSING
        else:
            return MISSING
        if document is MISSING:
            return MISSING
    return document
