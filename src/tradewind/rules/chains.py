"""Chains of actions: a rule writes what another one, or itself, reads. In memory: a restart begins anew to count."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.rules.spec import Action, SendControl, SetValue

#: So long after an action a change of what it wrote counts as its doing.
CHAIN_MS = 60_000
MAX_KNOWN = 100_000


class Chains:
    def __init__(self) -> None:
        self._written: dict[str, tuple[int, int]] = {}

    def length(self, source: str, now_ms: int) -> int:
        """How many actions, one after the other, led to a change of that address; 0: no rule did it."""
        length, at_ms = self._written.get(source, (0, 0))
        # Not after now: the clock may have been set back.
        return length if length and 0 <= now_ms - at_ms <= CHAIN_MS else 0

    def wrote(self, addresses: Iterable[str], length: int, now_ms: int) -> None:
        if len(self._written) > MAX_KNOWN:
            self._written = {a: found for a, found in self._written.items() if now_ms - found[1] <= CHAIN_MS}
        for address in addresses:
            self._written[address] = (length, now_ms)

    def end(self, source: str) -> None:
        self._written.pop(source, None)


def targets(actions: Iterable[Action]) -> list[str]:
    """The addresses that actions, with their values filled in, write."""
    found = [action.address for action in actions if isinstance(action, SendControl)]
    return found + [f"modsrv:{one.model}:control:{one.field}" for one in actions if isinstance(one, SetValue)]
