"""Logs, signals and cycles of flows on their way to SQL: read the outbox, write, and only then let Redis forget them.

At least once: a crash between the commit and the trim writes the same rows again, which changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from tradewind.errors import Invalid, TradewindError
from tradewind.flows.record_retention import retain
from tradewind.flows.record_row import RUNNING, Record, read_entry
from tradewind.flows.record_table import FlowRecordTable
from tradewind.redis.connection import translated
from tradewind.tasks.plane import Plane

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tradewind.sql import Sql

log = structlog.get_logger(__name__)
#: Entries per transaction, and about how many bytes of them.
BATCH = 500
BATCH_BYTES = 4_000_000
#: A batch is let grow until nothing has come for so long, at most so long.
GATHER_S = 0.25
GATHER_MOST_S = 1.0
WAIT_S = 2.0
#: Up to this share of the outbox's bound the record gives way to running work.
GIVE_WAY = 0.1
MAX_BACKOFF_S = 5.0
SWEEP_S = 3600.0
ORPHAN_MS = 86_400_000
#: How much of something that is no record is shown in the log.
_SHOWN = 1000


class Step(NamedTuple):
    """How many entries were moved, and whether more are waiting."""

    entries: int
    is_more: bool


class FlowRecorder:
    """One per station, in the leader. A second one does no harm but its work twice."""

    def __init__(self, plane: Plane, sql: Sql) -> None:
        self.plane = plane
        self.settings = plane.all_settings.flows
        self.table = FlowRecordTable(sql)
        self._failures = 0
        self._swept = 0.0

    async def run(self) -> None:
        """Move what there is, wait for more, until cancelled. When Redis or SQL is away it says so once and goes on
        trying; the outbox keeps all."""
        client = self.plane.link.new_client(WAIT_S)
        try:
            while True:
                try:
                    await self._turn(client)
                    if self._failures:
                        log.info("flows are recorded again", failures=self._failures)
                        self._failures = 0
                except TradewindError as error:
                    if not self._failures:
                        log.warning("flows cannot be recorded now", error=error.message, hint=error.hint)
                    self._failures += 1
                    await asyncio.sleep(min(MAX_BACKOFF_S, 0.1 * 2 ** min(self._failures, 10)))
        finally:
            await client.aclose()

    async def step(self) -> Step:
        """Move one batch. Raises Unavailable."""
        entries, is_more = await self._read()
        if not entries:
            return Step(0, False)
        gone, records = _in_order(self._records(entries))
        await self.table.forget(gone)
        await self._write(records)
        # Before the trim: if it fails, or we do, it comes again with the batch.
        await retain(self.table, _ended(records), self.settings, self.plane.clock.now_ms())
        await self._trim(entries[-1][0])
        return Step(len(entries), is_more)

    async def _turn(self, client: Redis) -> None:
        began = time.monotonic()
        if (await self.step()).is_more:
            await self._give_way(time.monotonic() - began)
            return
        await self._sweep()
        with translated():
            await client.xread({self.plane.keys.flow_outbox(): "0-0"}, count=1, block=int(WAIT_S * 1000))
        await self._gather()

    async def _gather(self) -> None:
        """Let a batch grow until nothing has come for a while: work goes before its record."""
        end, last, key = time.monotonic() + GATHER_MOST_S, None, self.plane.keys.flow_outbox()
        while time.monotonic() < end:
            await asyncio.sleep(GATHER_S)
            with translated():
                newest = await self.plane.redis.xrevrange(key, count=1)
            if not newest or newest[0][0] == last:
                return
            last = newest[0][0]

    async def _give_way(self, took_s: float) -> None:
        """Work goes before its record: while the outbox is short, record a third of the time."""
        with translated():
            waiting = await self.plane.redis.xlen(self.plane.keys.flow_outbox())
        if waiting < self.settings.outbox_max * GIVE_WAY:
            await asyncio.sleep(min(1.0, 2 * took_s))

    async def _read(self) -> tuple[list[tuple[bytes, dict[bytes, bytes]]], bool]:
        """The oldest entries, and whether there may be more."""
        entries: list[tuple[bytes, dict[bytes, bytes]]] = []
        size, count = 0, 20  # an entry has the records of one commit: a few, or megabytes
        while len(entries) < BATCH and size < BATCH_BYTES:
            after = b"(" + entries[-1][0] if entries else "-"
            count = min(count, BATCH - len(entries))
            with translated():
                some = await self.plane.redis.xrange(self.plane.keys.flow_outbox(), min=after, count=count)
            entries += some
            size += sum(len(fields.get(b"d", b"")) for _, fields in some)
            if len(some) < count:
                return entries, False
            count *= 2
        return entries, True

    def _records(self, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> list[Record]:
        records: list[Record] = []
        for entry_id, fields in entries:
            found, rejects = read_entry(entry_id.decode(), fields.get(b"d", b""))
            records += found
            for reject in rejects:
                shown = reject.data[:_SHOWN].decode(errors="replace")
                log.error("not a record of a flow: left out", record=reject.ref, error=reject.reason, data=shown)
        return records

    async def _write(self, records: Sequence[Record]) -> None:
        """Write; a record that can never be stored is logged and left out, its neighbours are not."""
        if not records:
            return
        try:
            await self.table.write(records)
        except Invalid as error:
            if len(records) == 1:
                only = records[0]
                log.error(
                    "a record of a flow cannot be stored", record=only.ref, flow=only.flow_id, error=error.message
                )
                return
            middle = len(records) // 2
            await self._write(records[:middle])
            await self._write(records[middle:])

    async def _trim(self, last: bytes) -> None:
        """Everything up to `last` is in SQL; what is new has a higher id."""
        ms, _, number = last.decode().partition("-")
        with translated():
            key = self.plane.keys.flow_outbox()
            await self.plane.redis.xtrim(key, minid=f"{ms}-{int(number) + 1}", approximate=False)

    async def _sweep(self) -> None:
        """Once an hour: what came in after its flow was deleted, and will never be looked at."""
        if self._swept and time.monotonic() - self._swept < SWEEP_S:
            return
        orphans = await self.table.orphans(self.plane.clock.now_ms() - ORPHAN_MS)
        if orphans:
            log.info("records of deleted flows are removed", flows=len(orphans))
            await self.table.forget(orphans)
        self._swept = time.monotonic()


def _in_order(records: Sequence[Record]) -> tuple[list[str], list[Record]]:
    """Flows to forget first, and what is to be written then: nothing that came before the end of its flow."""
    last_gone = {record.flow_id: n for n, record in enumerate(records) if record.is_gone}
    return list(last_gone), [record for n, record in enumerate(records) if n > last_gone.get(record.flow_id, -1)]


def _ended(records: Sequence[Record]) -> dict[str, str]:
    """Flows of which a cycle has ended → id of the last record that says so."""
    return {r.flow_id: r.ref for r in records for cycle in r.cycles if cycle.status != RUNNING}
