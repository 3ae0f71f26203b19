"""Copies definitions, policies, schedules, flow states and open alarms from Redis to SQL, shortly after each change.

Run by one process at a time. Never copies a Redis that has lost its data over a good copy: the station id is compared
before every write, after what is written was read; and what is missing counts as removed only after a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import structlog

from tradewind import clock
from tradewind.recovery.copy_table import Copy, CopyTable
from tradewind.recovery.kinds import Definitions, Kind
from tradewind.recovery.station_table import StationTable

log = structlog.get_logger(__name__)
#: Between two looks for changes, and between two comparisons of everything.
LOOK_S, COMPARE_S = 2.0, 30.0
#: A thing that is missing for so long was removed: keys that are deleted one by one take the station id last, perhaps.
REMOVED_S = 6.0
#: Of one transaction.
MAX_ROWS, MAX_CHARS = 200, 2_000_000


class Copier:
    """`is_due`: whether this process still copies. `now_s`: a monotonic clock."""

    def __init__(
        self,
        definitions: Definitions,
        copies: CopyTable,
        station: StationTable,
        station_id: str,
        *,
        is_due: Callable[[], bool] = lambda: True,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._definitions = definitions
        self._copies = copies
        self._station = station
        self._id = station_id
        self._is_due = is_due
        self._now_s = now_s
        self._known: dict[str, dict[str, str]] = {}
        self._marks: dict[str, object] = {}
        self._missing: dict[tuple[str, str], float] = {}
        self._compared = -COMPARE_S

    async def step(self) -> int:
        """Copy what has changed; how much. Does nothing while Redis lacks the station id. Raises Unavailable."""
        now = self._now_s()
        is_whole = now - self._compared >= COMPARE_S
        if await self._definitions.station_id() != self._id:
            return 0
        if is_whole:  # also what another process has written since
            self._known = await self._copies.digests(self._id)
        count = 0
        for kind in self._definitions.kinds:
            mark = await kind.mark()
            is_waiting = any(of == kind.name for of, _ in self._missing)
            if not is_whole and not is_waiting and mark is not None and mark == self._marks.get(kind.name):
                continue
            try:
                count += await self._copy(kind, await kind.digests(), now)
            finally:
                kind.forget()
            self._marks[kind.name] = mark
        if is_whole and await self._may_write():
            await self._station.set_copied(self._id, clock.now_ms())
            self._compared = now
        return count

    async def _copy(self, kind: Kind, found: dict[str, str], now: float) -> int:
        known = self._known.setdefault(kind.name, {})
        changed = [name for name, digest in found.items() if known.get(name) != digest]
        count = 0
        part: list[Copy] = []
        for start in range(0, len(changed), MAX_ROWS):
            for name, body in (await kind.bodies(changed[start : start + MAX_ROWS])).items():
                part.append(Copy(kind.name, name, found[name], body))
                if len(part) == MAX_ROWS or sum(len(copy.body) for copy in part) > MAX_CHARS:
                    count += await self._write(part)
                    part = []
        count += await self._write(part)
        return count + await self._remove(kind.name, set(known) - set(found), now)

    async def _write(self, part: list[Copy]) -> int:
        if not part or not await self._may_write():
            return 0
        await self._copies.put(self._id, part, clock.now_ms())
        for copy in part:
            self._known[copy.kind][copy.id] = copy.digest
        return len(part)

    async def _remove(self, kind: str, missing: Collection[str], now: float) -> int:
        for of, name in list(self._missing):
            if of == kind and name not in missing:
                del self._missing[of, name]
        gone = [name for name in missing if now - self._missing.setdefault((kind, name), now) >= REMOVED_S]
        if not gone or not await self._may_write():
            return 0
        await self._copies.remove(self._id, kind, gone)
        for name in gone:
            del self._known[kind][name], self._missing[kind, name]
        return len(gone)

    async def _may_write(self) -> bool:
        return self._is_due() and await self._definitions.station_id() == self._id
