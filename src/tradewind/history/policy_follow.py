"""The recorder's policy: the one in Redis, followed as it changes."""

from __future__ import annotations

import asyncio

from tradewind.errors import Invalid
from tradewind.history.batcher import Batcher
from tradewind.history.policy_memory import PolicyMemory, policy_of
from tradewind.history.status import Faults, Figures, words_of
from tradewind.history.store import HistoryStore

LOST = "Redis has lost the policy of history; the last one is still in use: apply it again"


class PolicyFollower:
    def __init__(
        self, store: HistoryStore, memory: PolicyMemory, batcher: Batcher, figures: Figures, faults: Faults
    ) -> None:
        self._store = store
        self._memory = memory
        self._batcher = batcher
        self._figures = figures
        self._faults = faults
        self._text: bytes | None = None

    async def look(self, *, is_first: bool = False) -> None:
        """One that cannot be read changes nothing, and neither does one that Redis has lost; both are told. Raises
        Unavailable."""
        text = await self._store.policy_text()
        if text == self._text and not is_first:
            return
        self._text = text
        last = await asyncio.to_thread(self._memory.last)
        try:
            self._batcher.use(policy_of(text or last))
        except Invalid as error:
            self._figures.policy_error = error.message
            await self._faults.set("history:policy", True, "history_policy", words_of(error))
            return
        await asyncio.to_thread(self._memory.keep, text)
        is_lost = bool(last) and not text
        self._figures.policy_error = LOST if is_lost else ""
        told = LOST if is_lost else "the policy of history is in use"
        await self._faults.set("history:policy", is_lost, "history_policy", told)
