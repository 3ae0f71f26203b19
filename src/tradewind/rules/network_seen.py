"""Which entries of the feed a stored state has in it. The cursor is stored less often than states: what is read again
after a crash must not be judged twice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tradewind.points.feed import BEFORE_ALL, id_of
from tradewind.rules.network_index import KeyIndex
from tradewind.rules.state import RuleState

#: What must be judged: watch, value, time, quality.
Hit = tuple[int, float | str | None, int, int]


class Seen:
    """`keys`: by watch, None for what the feed does not tell. True while a watch may be behind its state."""

    def __init__(self, keys: Sequence[KeyIndex | None]) -> None:
        self._keys = keys
        self._until: dict[int, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def begin(self, state: RuleState, watches: Sequence[int]) -> None:
        """Of a state that was given back. Raises ValueError for what is no id."""
        self._until.update({watch: id_of(seen) for watch, seen in zip(watches, state.seen, strict=True) if seen})

    def forget(self) -> None:
        self._until.clear()

    def new(self, hits: Iterable[Hit], entry_id: str) -> list[Hit]:
        """Without those that are in the state of their rule."""
        place, until = id_of(entry_id), self._until
        return [hit for hit in hits if hit[0] not in until or until[hit[0]] < place]

    def is_behind(self, watch: int) -> bool:
        """The newest that was read is older than what the state has."""
        until, key = self._until.get(watch), self._keys[watch]
        return until is not None and key is not None and id_of(key.last_id or BEFORE_ALL) < until

    def mark(self, state: RuleState, watches: Sequence[int]) -> None:
        """Before the state is stored."""
        for place, watch in enumerate(watches):
            key = self._keys[watch]
            if key is not None and key.last_id and not self.is_behind(watch):
                state.seen[place] = key.last_id

    def tidy(self) -> None:
        """Forget what all has been read again."""
        self._until = {watch: until for watch, until in self._until.items() if self.is_behind(watch)}
