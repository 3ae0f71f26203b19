"""Groups of rules: the document and what is checked of it. Pure; stored together with the rules (store.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.errors import Problem
from tradewind.ids import is_id
from tradewind.problems import Problems, unknown_words

MAX_TEXT = 1000
#: In this order they stand in Redis.
FIELDS = ("id", "name", "description", "created_at", "updated_at", "version")


def read_group(document: Any) -> tuple[dict[str, Any], list[Problem]]:
    """What a group says of itself (id, name, description), and everything that is wrong with it."""
    if not isinstance(document, Mapping):
        return {}, [Problem("not_an_object", "", "write a group as an object with id and name")]
    problems = Problems()
    for name in unknown_words(document, FIELDS, problems):
        problems.append(Problem("unknown_field", str(name), f"a group has {', '.join(FIELDS)}"))
    group_id = document.get("id")
    if not isinstance(group_id, str) or not is_id(group_id):
        problems.append(Problem("bad_id", "id", "letters, digits, _ and -, at most 64, no reserved word"))
    for name in ("name", "description"):
        text = document.get(name, "")
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            problems.append(Problem("bad_text", name, f"write text of at most {MAX_TEXT} characters"))
    found = {
        "id": group_id,
        "name": document.get("name", "") or group_id,
        "description": document.get("description", ""),
    }
    return found, problems
