"""Ended tasks on their way to SQL: read from the outbox, write, and only then let Redis forget them.

At least once: a crash between the commit and the trim writes the same rows again, which changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from tradewind.errors import Invalid, error_text
from tradewind.numerals import stored_whole
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg
from tradewind.tasks.archive_row import ArchiveRow, row_from_redis
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import DEAD_LETTERS, TERMINAL

if TYPE_CHECKING:
    from tradewind.tasks.archive_table import TaskArchive

log = structlog.get_logger(__name__)
#: A batch is let grow until no task has ended for so long, at most so long: work goes before its record.
GATHER_S = 0.25
GATHER_MOST_S = 1.0
#: Tasks per transaction, about; entries are taken whole.
BATCH = 1000
PURGE_S = 3600.0
#: Up to this share of the outbox's bound the archive gives way to the tasks.
GIVE_WAY = 0.1
WAIT_S = 2.0
#: Failures that no worker has seen: the leader's scripts ended the task.
ENDED_WITHOUT_WORKER = frozenset({"WorkerLost", "DeadlineExceeded", "NoEnding"})


class Archiver:
    def __init__(self, plane: Plane, archive: TaskArchive) -> None:
        self.plane = plane
        self.archive = archive
        self._purged = 0.0

    async def run(self) -> None:
        """Move what there is, wait for more. Raises Unavailable when Redis or SQL is away; the outbox keeps all."""
        client = self.plane.link.new_client(WAIT_S)
        try:
            while True:
                began = time.monotonic()
                if await self.step():
                    await self._give_way(time.monotonic() - began)
                else:
                    await self._purge()
                    with translated():
                        await client.xread({self.plane.keys.outbox(): "0-0"}, count=1, block=int(WAIT_S * 1000))
                    await self._gather()
        finally:
            await client.aclose()

    async def _gather(self) -> None:
        end, last = time.monotonic() + GATHER_MOST_S, None
        while time.monotonic() < end:
            await asyncio.sleep(GATHER_S)
            with translated():
                newest = await self.plane.redis.xrevrange(self.plane.keys.outbox(), count=1)
                waiting = await self.plane.redis.get(self.plane.keys.outbox_count())
            if not newest or newest[0][0] == last or stored_whole(waiting) >= self.plane.settings.outbox_max * GIVE_WAY:
                return
            last = newest[0][0]

    async def _give_way(self, took_s: float) -> None:
        """Tasks go before their record: while some are queued and the outbox is short, work a third of the time."""
        keys = self.plane.keys
        with translated():
            pipe = self.plane.redis.pipeline(transaction=False)
            pipe.get(keys.outbox_count())
            pipe.llen(keys.queue("high"))
            pipe.llen(keys.queue("normal"))
            waiting, high, normal = await pipe.execute()
        if high + normal > 0 and stored_whole(waiting) < self.plane.settings.outbox_max * GIVE_WAY:
            await asyncio.sleep(min(1.0, 2 * took_s))

    async def step(self) -> int:
        """Archive one batch; how many tasks."""
        keys, scripts = self.plane.keys, self.plane.scripts
        taken: list[bytes] = []
        ids: list[str] = []
        count = 10  # an entry has the tasks of one commit: one, or hundreds
        while len(ids) < BATCH:
            with translated():
                after = b"(" + taken[-1] if taken else "-"
                entries = await self.plane.redis.xrange(keys.outbox(), min=after, count=count)
            for entry_id, fields in entries:
                taken.append(entry_id)
                ids += fields.get(b"ids", b"").decode(errors="replace").split()
            if len(entries) < count:
                break
            count = min(200, count * 2)
        if not taken:
            return 0
        rows: list[ArchiveRow] = []
        ends: list[Arg] = []
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            for task_id, found in zip(
                part, await scripts.run("task_read", [keys.token()], [keys.p, *part]), strict=True
            ):
                fields = _ended(found)
                if fields is None:  # brought back, or gone since
                    continue
                ends += (task_id, fields.get("end", ""))
                row = _row(task_id, fields, found[1])
                if row is not None:
                    rows.append(row)
        await self._write(rows)
        for row in rows:
            if row.status in DEAD_LETTERS and (
                row.error_type in ENDED_WITHOUT_WORKER or row.error_message.endswith("its worker did not stop it")
            ):
                _log_failure(row)
        args: list[Arg] = [keys.p, int(self.plane.settings.result_ttl_s * 1000), len(taken), *taken, *ends]
        await scripts.run("task_archived", [keys.outbox(), keys.outbox_count()], args)
        return len(ids)

    async def _write(self, rows: list[ArchiveRow]) -> None:
        """Write; a row that can never be stored is logged and left out, its neighbours are not."""
        if not rows:
            return
        try:
            await self.archive.write_rows(rows)
        except Invalid as error:
            if len(rows) == 1:
                log.error("a finished task cannot be archived", task=rows[0].id, error=error.message)
                return
            middle = len(rows) // 2
            await self._write(rows[:middle])
            await self._write(rows[middle:])

    async def _purge(self) -> None:
        if time.monotonic() - self._purged < PURGE_S and self._purged:
            return
        before = self.plane.clock.now_ms() - self.plane.settings.archive_keep_days * 86_400_000
        removed = 1
        while removed:
            removed = await self.archive.purge(before)
        self._purged = time.monotonic()


def _log_failure(row: ArchiveRow) -> None:
    """Its worker could not log this end: it was lost, or never had the task."""
    log.warning(
        "task_failed", task=row.id, type=row.type, attempt=row.attempt, status=row.status, worker=row.worker_id,
        error_type=row.error_type, error=row.error_message, traceback="",
    )  # fmt: skip


def _ended(found: list[Any]) -> dict[str, str] | None:
    """The fields of a task that has ended."""
    if not found:
        return None
    flat = [item.decode(errors="replace") for item in found[0]]
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return fields if fields.get("status") in TERMINAL else None


def _row(task_id: str, fields: dict[str, str], body: bytes) -> ArchiveRow | None:
    try:
        return row_from_redis(task_id, fields, body)
    except (msgspec.MsgspecError, ValueError, KeyError) as error:  # written by a stranger: it must not block the others
        log.error("a finished task cannot be archived", task=task_id, error=error_text(error))
        return None
