"""What a station's process does for recovery, and what health, the API and the CLI may ask of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from tradewind import clock
from tradewind.errors import Conflict, Unavailable
from tradewind.health_part import Part
from tradewind.ids import short_random
from tradewind.recovery.standing import Standing
from tradewind.recovery.watch import RESTORE, StationWatch
from tradewind.tasks.leader import Leadership, either
from tradewind.tasks.plane import Plane

if TYPE_CHECKING:  # heavy, and not every role needs them
    from tradewind.recovery.copier import Copier
    from tradewind.recovery.copy_table import CopyTable
    from tradewind.recovery.kinds import Definitions
    from tradewind.recovery.release import ReleaseJournal
    from tradewind.recovery.restore_run import RestoreRun, RestoreState
    from tradewind.recovery.restorer import Restorer, Rooms
    from tradewind.recovery.station_table import StationTable
    from tradewind.sql import Sql

log = structlog.get_logger(__name__)
#: Between two tries to restore without being asked.
AGAIN_S = 10.0


class Recovery:
    """Without `sql` a loss is noticed by what this process has seen, and nothing is copied or restored. `rooms` gives
    the stores that things are restored with."""

    def __init__(self, plane: Plane, sql: Sql | None, name: str = "", rooms: Callable[[], Rooms] | None = None) -> None:
        self._plane = plane
        self._name = f"{name or 'station'}-{short_random()}"
        self._shelf = _Shelf(plane, sql, self._name, rooms) if sql is not None and rooms is not None else None
        table = self._shelf.table if self._shelf is not None else None
        self.watch = StationWatch(plane, table, self._name, self._bring_policy if table is not None else None)
        self._rooms = rooms
        self._running: set[asyncio.Task[RestoreState]] = set()

    @cached_property
    def releases(self) -> ReleaseJournal:
        """The journal of `apply`. Raises Conflict in a process without stores."""
        from tradewind.recovery.kinds import Definitions
        from tradewind.recovery.release import ReleaseJournal
        from tradewind.recovery.restorer import Restorer

        if self._rooms is None:
            raise Conflict("this process has no stores", code="no_stores")
        definitions, rooms = Definitions(self._plane), self._rooms()
        copies = self._shelf.copies if self._shelf is not None else None
        return ReleaseJournal(self._plane, definitions, Restorer(definitions, copies, rooms), rooms)

    async def check_in(self) -> None:
        """Before the roles begin. Raises Conflict when this Redis is another station's, Unavailable."""
        await self.watch.look()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises Conflict when Redis turns out to be another station's."""
        jobs = [asyncio.create_task(self.watch.run(), name="station watch")]
        if self._shelf is not None:
            jobs.append(asyncio.create_task(self._keep(stop), name="station keeper"))
        stopped = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                await asyncio.wait([*jobs, stopped], return_when=asyncio.FIRST_COMPLETED)
                for job in jobs:
                    if job.done() and not stop.is_set():
                        job.result()
        finally:
            ending: list[asyncio.Task[Any]] = [*jobs, *self._running, stopped]
            for each in ending:
                each.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    # copying, by one process at a time

    async def _keep(self, stop: asyncio.Event) -> None:
        keys = self._plane.keys
        lead = Leadership(self._plane, self._name, keys.station_keeper(), keys.station_epoch())
        await lead.serve(stop, lambda epoch: self._term(lead, epoch, stop), self._trouble)

    def _trouble(self, error: Unavailable) -> None:
        log.warning("station_keeper_waits", error=error.message)

    async def _term(self, lead: Leadership, epoch: int, stop: asyncio.Event) -> None:
        from tradewind.recovery.copier import LOOK_S

        copier: Copier | None = None
        tried = -AGAIN_S
        while lead.epoch == epoch and not stop.is_set():
            if self.watch.loss is not None:
                copier = None
                if self._plane.all_settings.recover == "auto" and time.monotonic() - tried >= AGAIN_S:
                    await self._restore_unasked()
                    tried = time.monotonic()
            elif self.watch.expected:
                copier = copier or self._copier(self.watch.expected, lambda: lead.epoch == epoch)
                await copier.step()
            await either(stop, lead.changed, timeout_s=LOOK_S if self.watch.loss is None else 0.5)
            lead.changed.clear()

    def _copier(self, station_id: str, is_due: Callable[[], bool]) -> Copier:
        from tradewind.recovery.copier import Copier

        shelf = self._need()
        return Copier(shelf.definitions, shelf.copies, shelf.table, station_id, is_due=is_due)

    # restoring

    async def _restore_unasked(self) -> None:
        shelf = self._need()
        row = await shelf.table.read()
        if row is None or not row.copied_ms:
            log.error("not_restored", error="this SQL database has no complete copy", hint="restore from one that has")
            return
        try:
            state = await shelf.restoring.begin()
        except Conflict:
            return
        await shelf.restoring.run(state, row.id)

    async def _bring_policy(self) -> None:
        shelf = self._need()
        row = await shelf.table.read()
        if row is not None:
            await shelf.restorer.restore_policy(row.id)

    async def view(self) -> dict[str, Any]:
        """What is known of a loss and of the copy, and what is missing. Raises Unavailable."""
        try:
            standing = await self.watch.look()
        except Conflict:
            standing = Standing.FOREIGN
        loss, shelf = self.watch.loss, self._shelf
        found: dict[str, Any] = {
            "state": "lost" if standing is Standing.LOST else str(standing.value),
            "station_id": self.watch.expected,
            "lost_at": clock.iso(loss.since_ms) if loss is not None else None,
            "detail": str(loss) if loss is not None else "",
            "hint": f"{RESTORE}; see docs/recovery.md" if loss is not None else "",
            "recover": self._plane.all_settings.recover,
            "copied_at": None,
            "kinds": {},
            "restore": None,
        }
        if shelf is None:
            return found
        row = await shelf.table.read()
        if row is not None:
            found["copied_at"] = clock.iso(row.copied_ms) if row.copied_ms else None
            found["kinds"] = msgspec.to_builtins(await shelf.restorer.missing(row.id))
        last = await shelf.restoring.last()
        if last is not None:
            found["restore"] = _state_view(last)
        return found

    async def plan(self, kinds: Collection[str]) -> dict[str, Any]:
        """What a restore would bring back, by kind. Raises Conflict without SQL or copy, Unavailable."""
        shelf = self._need()
        return dict(msgspec.to_builtins(await shelf.restorer.missing(await self._copied(), kinds)))

    async def start_restore(self, kinds: Collection[str], *, replace: bool = False) -> dict[str, Any]:
        """Begin to restore; `view` tells how far it is. Raises Conflict, also while another one runs, Unavailable."""
        shelf = self._need()
        station_id = await self._copied()
        state = await shelf.restoring.begin()
        task = asyncio.create_task(shelf.restoring.run(state, station_id, kinds, replace=replace), name="restore")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return _state_view(state)

    async def accept(self) -> None:
        """Redis is as it shall be: the loss is over, and what Redis lacks leaves the copies. Raises Conflict."""
        shelf = self._need()
        if self.watch.loss is None:
            raise Conflict("nothing is lost", code="nothing_lost", hint="there is nothing to accept")
        state = await shelf.restoring.begin()
        await shelf.restoring.end_loss(self.watch.expected)
        state.state, state.ended_ms = "accepted", clock.now_ms()
        await shelf.restoring.finish(state)
        log.warning("loss_accepted", station=self.watch.expected)

    async def _copied(self) -> str:
        row = await self._need().table.read()
        if row is None or not row.copied_ms:
            message = "this SQL database has no complete copy of the station"
            raise Conflict(message, code="no_copy", hint="use a process with the database that the copies are in")
        return row.id

    def _need(self) -> _Shelf:
        if self._shelf is None:
            hint = "ask a process with the role scheduler or api and tasks.archive on, or with alarmsrv"
            raise Conflict("copies are kept in SQL, and this process has none", code="no_sql", hint=hint)
        return self._shelf

    # health

    async def look(self) -> dict[str, Part]:
        """For health: whether Redis has the data of this station (`off`: nobody can know). Raises Unavailable."""
        try:
            standing = await self.watch.look()
        except Conflict as error:
            return {"store": Part("down", error.message, error.hint)}
        if standing is Standing.LOST:
            return {"store": Part("down", f"{self.watch.loss}; {await self._doing()}")}
        if self._shelf is None:
            return {"store": Part("off", "no SQL in this process: a loss of Redis before its start is not noticed")}
        return {"store": Part("ok", f"station {self.watch.expected}")}

    async def _doing(self) -> str:
        last = await self._shelf.restoring.last() if self._shelf is not None else None
        if last is not None and last.is_running:
            return f"being restored: {last.kind} {last.done} of {last.total}"
        failed = sum(len(kind.failed) for kind in last.result.values()) if last is not None else 0
        if last is not None and last.state == "incomplete":
            return f"restored but for {failed or 'some'}: see `tradewind restore --from sql`"
        return RESTORE


class _Shelf:
    """What is needed to copy and to restore."""

    def __init__(self, plane: Plane, sql: Sql, name: str, rooms: Callable[[], Rooms]) -> None:
        from tradewind.recovery.copy_table import CopyTable
        from tradewind.recovery.kinds import Definitions
        from tradewind.recovery.restore_run import RestoreRun
        from tradewind.recovery.restorer import Restorer
        from tradewind.recovery.station_table import StationTable

        self.table: StationTable = StationTable(sql, plane.all_settings.key_prefix)
        self.copies: CopyTable = CopyTable(sql)
        self.definitions: Definitions = Definitions(plane)
        self.restorer: Restorer = Restorer(self.definitions, self.copies, rooms())
        self.restoring: RestoreRun = RestoreRun(plane, self.restorer, name)


def _state_view(state: RestoreState) -> dict[str, Any]:
    return {
        "id": state.id,
        "by": state.by,
        "state": state.state if state.state != "running" or state.is_running else "failed",
        "started_at": clock.iso(state.started_ms),
        "ended_at": clock.iso(state.ended_ms) if state.ended_ms else None,
        "kind": state.kind,
        "done": state.done,
        "total": state.total,
        "error": state.error,
        "result": msgspec.to_builtins(state.result),
    }
