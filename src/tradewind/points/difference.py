"""What differs between two sets of definitions (channels, models, flows, rules): plain documents by id. Pure.

Lists of objects with an `id` or a `name` are compared by it, so that a row put in between is one addition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Absent(Enum):
    """Stands for no value at all; null is a value."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True)
class FieldChange:
    """`path` as in `points[m:10001].scale`; `old` or `new` is ABSENT when the field came or went."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.old is ABSENT:
            return f"+ {self.path}: {_short(self.new)}"
        if self.new is ABSENT:
            return f"- {self.path}: {_short(self.old)}"
        return f"~ {self.path}: {_short(self.old)} → {_short(self.new)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """Ids in the order of the new set (removed ones: of the old)."""

    added: tuple[str, ...]
    changed: dict[str, tuple[FieldChange, ...]]
    removed: tuple[str, ...]
    unchanged: int

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.added or self.changed or self.removed)

    def lines(self, noun: str, most: int = 20) -> Iterator[str]:
        """For people: a line per definition, and below a changed one at most so many of its changes."""
        for name in self.added:
            yield f"+ {noun} {name}"
        for name, changes in self.changed.items():
            yield f"~ {noun} {name}"
            for change in changes[:most]:
                yield f"    {change}"
            if len(changes) > most:
                yield f"    … and {len(changes) - most} more"
        for name in self.removed:
            yield f"- {noun} {name}"


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
    """`old` and `new`: definitions by id, each plain JSON-like data."""
    changed = {}
    unchanged = 0
    for name, document in new.items():
        if name in old:
            changes = tuple(field_changes(old[name], document))
            if changes:
                changed[name] = changes
            else:
                unchanged += 1
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name in old if name not in new)
    return Difference(added, changed, removed, unchanged)


def field_changes(old: Any, new: Any, path: str = "") -> Iterator[FieldChange]:
    """Every place where two documents differ, deepest first named."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _by_key(old, new, lambda key: f"{path}.{key}" if path else str(key))
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        yield from _lists(old, new, path)
    elif not _is_same(old, new):
        yield FieldChange(path, old, new)


def _by_key(old: Mapping[str, Any], new: Mapping[str, Any], join: Any) -> Iterator[FieldChange]:
    for key, value in old.items():
        if key in new:
            yield from field_changes(value, new[key], join(key))
        else:
            yield FieldChange(join(key), value, ABSENT)
    for key, value in new.items():
        if key not in old:
            yield FieldChange(join(key), ABSENT, value)


def _lists(old: list[Any] | tuple[Any, ...], new: list[Any] | tuple[Any, ...], path: str) -> Iterator[FieldChange]:
    old_named, new_named = _named(old), _named(new)
    if old_named is not None and new_named is not None:
        yield from _by_key(old_named, new_named, lambda key: f"{path}[{key}]")
        before = [key for key in old_named if key in new_named]
        after = [key for key in new_named if key in old_named]
        if before != after:
            yield FieldChange(f"{path}[order]", before, after)
    elif any(isinstance(item, (Mapping, list, tuple)) for item in (*old, *new)):
        yield from _by_key(
            {str(index): item for index, item in enumerate(old)},
            {str(index): item for index, item in enumerate(new)},
            lambda key: f"{path}[{key}]",
        )
    elif len(old) != len(new) or not all(map(_is_same, old, new)):
        yield FieldChange(path, list(old), list(new))


def _named(items: list[Any] | tuple[Any, ...]) -> dict[str, Any] | None:
    """The objects of a list by what they are called; None when they are called nothing, or the same."""
    named: dict[str, Any] = {}
    for item in items:
        name = item.get("id", item.get("name")) if isinstance(item, Mapping) else None
        if name is None:
            return None
        kind = item.get("kind")
        key = f"{kind}:{name}" if kind is not None else str(name)
        if key in named:
            return None
        named[key] = item
    return named


def _is_same(old: Any, new: Any) -> bool:
    # In Python True == 1, in a definition it is another value.
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)


def _short(value: Any) -> str:
    said = json.dumps(value, ensure_ascii=False, default=str)
    return said if len(said) <= 80 else f"{said[:79]}…"
