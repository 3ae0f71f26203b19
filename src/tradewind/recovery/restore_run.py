"""One restore at a time: holds the right to it, tells how far it is, and ends the loss when nothing is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import msgspec
import structlog

from tradewind import clock
from tradewind.errors import Conflict, TradewindError, Unavailable
from tradewind.ids import short_random
from tradewind.recovery.kind_names import KINDS
from tradewind.recovery.restorer import Restored, Restorer
from tradewind.recovery.watch import CODE, SOURCE
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg, Scripts
from tradewind.tasks.plane import Plane

log = structlog.get_logger(__name__)
HOLD_MS = 30_000


class RestoreState(msgspec.Struct):
    """`state`: running, done, incomplete (something is still missing), failed or accepted. `kind`, `done`, `total`:
    where it is."""

    id: str
    by: str
    state: str
    started_ms: int
    beat_ms: int
    ended_ms: int = 0
    kind: str = ""
    done: int = 0
    total: int = 0
    error: str = ""
    result: dict[str, Restored] = {}

    @property
    def is_running(self) -> bool:
        """One that has not been heard of for longer than its right lasts was killed."""
        return self.state == "running" and clock.now_ms() - self.beat_ms < HOLD_MS


class RestoreRun:
    def __init__(self, plane: Plane, restorer: Restorer, name: str) -> None:
        self._plane = plane
        self._restorer = restorer
        self._name = name
        self._scripts = Scripts(plane.link, "tradewind.recovery", plane.all_settings.redis.max_retries)

    async def last(self) -> RestoreState | None:
        """The one under way, or the last. Raises Unavailable."""
        with translated(self._plane.link):
            text = await self._plane.redis.get(self._plane.keys.station_restore())
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(text, type=RestoreState) if text else None
        return None

    async def begin(self) -> RestoreState:
        """Take the right to restore. Raises Conflict while another one does, Unavailable."""
        now = clock.now_ms()
        state = RestoreState(short_random(), self._name, "running", now, now)
        if not await self._hold(state, HOLD_MS):
            last = await self.last()
            who = f" by {last.by} since {clock.iso(last.started_ms)}" if last is not None else ""
            raise Conflict(f"a restore is under way{who}", code="restore_runs", hint="wait for its end")
        await self._tell(state)
        return state

    async def run(
        self, state: RestoreState, station_id: str, kinds: Collection[str] = KINDS, *, replace: bool = False
    ) -> RestoreState:
        """After `begin`. What goes wrong is told in the state. Raises Unavailable only when Redis cannot be told."""

        async def progress(kind: str, done: int, total: int) -> None:
            if not await self._hold(state, HOLD_MS):
                raise Conflict("another process restores now", code="restore_runs")
            state.kind, state.done, state.total, state.beat_ms = kind, done, total, clock.now_ms()
            await self._tell(state)

        try:
            state.result = await self._restorer.run(station_id, kinds, progress, replace=replace)
            missing = await self._restorer.missing(station_id)
            # Alarms that ended since they were copied stay away.
            left = sum(found.missing for kind, found in missing.items() if kind != "alarms")
            left += len(state.result["alarms"].failed) if "alarms" in state.result else missing["alarms"].missing
            state.state = "incomplete" if left else "done"
            if not left:
                await self.end_loss(station_id)
        except TradewindError as error:
            state.state, state.error = "failed", error.message
            log.error("restore_failed", error=error.message)
        finally:
            state.ended_ms = state.beat_ms = clock.now_ms()
            if state.state == "running":
                state.state, state.error = "failed", "it was interrupted"
            await self.finish(state)
        return state

    async def finish(self, state: RestoreState) -> None:
        """Tell how it ended, and give the right to restore back."""
        await self._tell(state)
        await self._hold(state, 0)

    async def end_loss(self, station_id: str) -> None:
        """Redis has the data of the station, or it is said that it has: the id goes back. Raises Unavailable."""
        keys = self._plane.keys
        names = [keys.station_id(), keys.station_loss(), keys.faults(), keys.rules_leader()]
        args: list[Arg] = [station_id, CODE, SOURCE, "the data of the station are back", clock.now_ms()]
        await self._scripts.run("restore_end", names, args)

    async def _hold(self, state: RestoreState, ms: int) -> bool:
        with contextlib.suppress(Unavailable) if not ms else contextlib.nullcontext():
            return bool(await self._scripts.run("restore_hold", [self._plane.keys.station_restoring()], [state.id, ms]))
        return False

    async def _tell(self, state: RestoreState) -> None:
        with translated(self._plane.link):
            await self._plane.redis.set(self._plane.keys.station_restore(), msgspec.json.encode(state))
