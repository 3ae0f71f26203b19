"""Opening the spool of a recorder, and what is said when that is not possible."""

from __future__ import annotations

import asyncio
import time

from tradewind.errors import Unavailable
from tradewind.history.spools import Spools
from tradewind.history.status import Faults, Figures, words_of

#: How long another process may have the spool before that is a fault.
TAKEN_S = 5.0


class SpoolOpener:
    def __init__(self, spool: Spools, figures: Figures, faults: Faults) -> None:
        self._spool = spool
        self._figures = figures
        self._faults = faults
        self._taken_since = 0.0

    async def open(self, term: int) -> None:
        """Without a spool samples go to the sink only; that is told, and it is to be tried again. Raises Unavailable
        when other processes have all of them, as after MAX_SPOOLS that hang."""
        try:
            await asyncio.to_thread(self._spool.open, term)
        except Unavailable as error:
            is_taken, now = error.code == "spool_taken", time.monotonic()
            self._taken_since = self._taken_since or now
            if not is_taken or now - self._taken_since > TAKEN_S:
                self._figures.spool_error = words_of(error)
                await self._faults.set("history:spool", True, error.code, self._figures.spool_error)
            if is_taken:
                raise
            return
        if self._figures.spool_error:
            await self._faults.set("history:spool", False, "spool_broken", "the spool is open")
        self._figures.spool_error, self._taken_since = "", 0.0
