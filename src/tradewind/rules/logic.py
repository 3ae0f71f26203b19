"""`all`, `any` and `not` over three values: all: False wins, then unknown; any: True wins, then unknown; not unknown is
unknown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from tradewind.rules.spec import Condition, Group

Levels = Sequence[bool | None]
Combined = Callable[[Levels], bool | None]


def combined(logic: str, conditions: tuple[Condition, ...]) -> Combined:
    """Of the levels of all leaves, in the order of the document."""
    return _group(logic, conditions, count())


def _group(logic: str, conditions: tuple[Condition, ...], places: count[int]) -> Combined:
    parts = [_part(part, places) if isinstance(part, Group) else _leaf(next(places)) for part in conditions]
    if len(parts) == 1:
        return parts[0]
    winner = logic == "any"

    def level(levels: Levels) -> bool | None:
        found: bool | None = not winner
        for part in parts:
            its = part(levels)
            if its is winner:
                return winner
            if its is None:
                found = None
        return found

    return level


def _part(group: Group, places: count[int]) -> Combined:
    inner = _group(group.logic, group.conditions, places)
    if not group.negated:
        return inner

    def level(levels: Levels) -> bool | None:
        its = inner(levels)
        return None if its is None else not its

    return level


def _leaf(place: int) -> Combined:
    return lambda levels: levels[place]
