"""Brings copies from SQL back to Redis through the stores of the rooms, with their checks. What is there stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from tradewind import codec
from tradewind.alarms.store import AlarmStore
from tradewind.alarms.transitions import OPEN
from tradewind.errors import Conflict, Invalid, TradewindError, Unavailable
from tradewind.flows.control import FlowControl
from tradewind.history.store import HistoryStore
from tradewind.models.store import ModelStore
from tradewind.notify.store import NotifyStore
from tradewind.offload import offload
from tradewind.points.board import Board
from tradewind.points.channel_store import NEW, ChannelStore, channel_document, validate_channel
from tradewind.points.spec import ChannelSpec
from tradewind.recovery.kind_names import KINDS
from tradewind.recovery.kinds import POLICY, Definitions
from tradewind.redis.faults import reading
from tradewind.rules.store import RuleStore
from tradewind.tasks.control import TaskControl
from tradewind.tasks.periodic import Schedule, ScheduleStore

if TYPE_CHECKING:  # SQL is heavy, and a rollback needs none
    from tradewind.recovery.copy_table import CopyTable

log = structlog.get_logger(__name__)
#: Things that are put with one call, where a call takes several.
PART = 500
#: How long flows wait for workers that announce their node types again.
TYPES_S = 15.0


@dataclass(frozen=True, slots=True)
class Rooms:
    """The stores that things are put with."""

    board: Board
    channels: ChannelStore
    models: ModelStore
    rules: RuleStore
    alarms: AlarmStore
    notify: NotifyStore
    history: HistoryStore
    schedules: ScheduleStore
    control: TaskControl
    flows: FlowControl


class Failed(msgspec.Struct, frozen=True):
    id: str
    error: str


class Restored(msgspec.Struct):
    """Of one kind. `kept`: there already. `ended`: alarms that ended after they were copied."""

    restored: int = 0
    kept: int = 0
    ended: int = 0
    failed: list[Failed] = []


class Missing(msgspec.Struct, frozen=True):
    """Of one kind: how many the copy has, how many of them Redis lacks, and the first of these."""

    copied: int
    missing: int
    examples: list[str] = []


#: Called with kind, how many of it are done, how many there are.
Progress = Callable[[str, int, int], Awaitable[None]]


class Restorer:
    """`copies`: None where nothing but `put` is called for."""

    def __init__(self, definitions: Definitions, copies: CopyTable | None, rooms: Rooms) -> None:
        self._definitions = definitions
        self._table = copies
        self._rooms = rooms

    @property
    def _copies(self) -> CopyTable:
        if self._table is None:
            raise Conflict("copies are kept in SQL, and there is none", code="no_sql")
        return self._table

    async def missing(self, station_id: str, kinds: Collection[str] = KINDS) -> dict[str, Missing]:
        """What the copy has and Redis lacks. Raises Unavailable."""
        copied = await self._copies.digests(station_id)
        found = {}
        for kind in self._definitions.kinds:
            if kind.name in kinds:
                names = set(copied.get(kind.name, ()))
                lacking = sorted(names - await kind.ids())
                found[kind.name] = Missing(len(names), len(lacking), lacking[:20])
        return found

    async def run(
        self, station_id: str, kinds: Collection[str], progress: Progress, *, replace: bool = False
    ) -> dict[str, Restored]:
        """Restore these kinds; what each of them came to. Raises Unavailable when a server is away."""
        copied = await self._copies.digests(station_id)
        found: dict[str, Restored] = {}
        for kind in self._definitions.kinds:
            if kind.name not in kinds:
                continue
            names = set(copied.get(kind.name, ()))
            present = names & await kind.ids()
            wanted = sorted(names) if replace and kind.name != "alarms" else sorted(names - present)
            result = found[kind.name] = Restored(kept=len(names) - len(wanted))
            await progress(kind.name, 0, len(wanted))
            for start in range(0, len(wanted), PART):
                bodies = await self._copies.bodies(station_id, kind.name, wanted[start : start + PART])
                await self.put(kind.name, bodies, result, replace=replace)
                await progress(kind.name, min(start + PART, len(wanted)), len(wanted))
            if result.restored or result.failed:
                log.info("restored", kind=kind.name, count=result.restored, kept=result.kept, failed=len(result.failed))
            for failed in result.failed:
                log.error("not_restored", kind=kind.name, id=failed.id, error=failed.error)
        return found

    async def restore_policy(self, station_id: str) -> None:
        """The notification policy alone, if there is none: people must be told. Raises TradewindError."""
        if (await self._rooms.notify.policy()).version == 0:
            bodies = await self._copies.bodies(station_id, "notifications", [POLICY])
            await self.put("notifications", bodies, Restored())

    async def put(self, kind: str, bodies: Mapping[str, str], result: Restored, *, replace: bool = False) -> None:
        """Texts as they were copied. Adds to `result`; raises Unavailable."""
        documents: Mapping[str, Any] = bodies
        if kind not in ("limits", "paused"):
            documents, failed = await offload(_decoded, bodies)
            result.failed += failed
        if kind == "alarms":
            await self._put_alarms(documents, result)
            return
        if kind in ("templates", "models", "groups", "rules"):
            await self._put_together(kind, documents, result)
            return
        put = {
            "limits": self._put_limit,
            "paused": self._put_paused,
            "schedules": self._put_schedule,
            "channels": self._put_channel,
            "notifications": self._put_notifications,
            "history": self._put_history,
            "flows": self._put_flow,
        }[kind]
        await self._each(documents, lambda name, document: put(name, document, replace), result)

    async def _each(
        self, documents: Mapping[str, Any], put: Callable[[str, Any], Awaitable[bool]], result: Restored
    ) -> None:
        """One after the other; what is refused comes again while others got in, and flows while workers announce their
        node types. `put`: False when it was there."""
        left, end = dict(documents), time.monotonic() + TYPES_S
        while left:
            refused: dict[str, TradewindError] = {}
            for name, document in left.items():
                try:
                    if await put(name, document):
                        result.restored += 1
                    else:
                        result.kept += 1
                except Unavailable:
                    raise
                except TradewindError as error:
                    refused[name] = error
            is_stuck = len(refused) == len(left)
            if is_stuck and (time.monotonic() > end or not any(map(_lacks_type, refused.values()))):
                result.failed += [Failed(name, _why(error)) for name, error in refused.items()]
                return
            if is_stuck:
                await asyncio.sleep(1)
            left = {name: left[name] for name in refused}

    async def _put_together(self, kind: str, documents: Mapping[str, Any], result: Restored) -> None:
        """Those that need each other in one change; one by one when that is refused, to name what is wrong."""
        rooms = self._rooms
        whole = list(documents.values())
        if kind in ("groups", "rules"):
            whole = [{field: value for field, value in d.items() if field != "version"} for d in whole]

        async def put(documents: Sequence[Any]) -> None:
            if kind == "templates":
                await rooms.models.apply([], templates=documents)
            elif kind == "models":
                await rooms.models.apply(documents)
            elif kind == "groups":
                await rooms.rules.apply([], groups=documents)
            else:
                await rooms.rules.apply(documents)

        async def put_one(_name: str, document: Any) -> bool:
            await put([document])
            return True

        if not whole:
            return
        try:
            await put(whole)
            result.restored += len(whole)
        except (Invalid, Conflict):
            await self._each(dict(zip(documents, whole, strict=True)), put_one, result)

    async def _put_limit(self, name: str, text: str, _replace: bool) -> bool:
        limit, _, window_ms = text.partition(":")
        with reading(f"the copy of {name}"):
            count, window_s = int(limit), int(window_ms) // 1000
        await self._rooms.control.set_rate_limit(name, count, window_s)
        return True

    async def _put_paused(self, name: str, _text: str, _replace: bool) -> bool:
        await self._rooms.control.pause(name)
        return True

    async def _put_schedule(self, name: str, document: Any, _replace: bool) -> bool:
        await self._rooms.schedules.set(_convert(document, Schedule, name))
        return True

    async def _put_channel(self, name: str, document: Any, replace: bool) -> bool:
        channel = await offload(_channel, document, name)  # one may have 100,000 points
        try:
            await self._rooms.channels.put([channel], expected="" if replace else NEW)
        except Conflict:  # somebody was faster
            return False
        return True

    async def _put_notifications(self, _name: str, document: Any, replace: bool) -> bool:
        now = (await self._rooms.notify.policy()).version
        if now and not replace:
            return False
        await self._rooms.notify.put({k: v for k, v in document.items() if k != "version"}, version=now)
        return True

    async def _put_history(self, _name: str, document: Any, replace: bool) -> bool:
        if await self._rooms.history.policy_text() and not replace:
            return False
        await self._rooms.history.put_policy(document)
        return True

    async def _put_flow(self, name: str, document: Any, replace: bool) -> bool:
        flows = self._rooms.flows
        with reading(f"the copy of {name}"):
            config, cycles, status = codec.decode(document["config"]), int(document["cycles"]), str(document["status"])
            created = str(document["created_at"])
        try:
            await flows.register(config, name, is_new=not replace)
        except Conflict as error:
            if error.code == "flow_exists":
                return False
            raise
        recorded = (await self._table.last_cycles([name])).get(name, -1) if self._table is not None else -1
        used = max(recorded, cycles)
        if status == "draining" or (status == "running" and document.get("once") and used >= 0):
            status = "stopped"  # its cycle is lost; what ran once is not run again by a restore
        kept = status if status in ("paused", "stopped", "completed", "failed", "expired") else ""
        is_fresh = await flows.store.restore(name, last_cycle=used, status=kept, created_at=created)
        if is_fresh and status == "running":
            await flows.start(name)
        return True

    async def _put_alarms(self, documents: Mapping[str, Any], result: Restored) -> None:
        """With the version after the newest in the journal; one that has ended there since is not opened again."""
        told = await self._copies.last_transitions(list(documents))
        records = []
        for name, record in documents.items():
            version, status = told.get(name, (0, ""))
            if status and status not in OPEN:
                result.ended += 1
                continue
            records.append({**record, "version": str(max(version, int(record.get("version", 0))) + 1)})
        for record, reply in zip(records, await self._rooms.alarms.restore(records), strict=True):
            if reply == 1:
                result.restored += 1
            elif reply == 0:
                result.kept += 1
            else:
                result.failed.append(Failed(str(record.get("id")), "the copy is no whole record of an open alarm"))


def _decoded(bodies: Mapping[str, str]) -> tuple[dict[str, Any], list[Failed]]:
    """Those that are objects, and those that are not."""
    documents: dict[str, Any] = {}
    failed = []
    for name, body in bodies.items():
        try:
            documents[name] = _object(codec.decode(body), name)
        except Invalid as error:
            failed.append(Failed(name, error.message))
    return documents, failed


def _channel(document: Any, name: str) -> ChannelSpec:
    """Raises Invalid."""
    return validate_channel(channel_document(_convert(document, ChannelSpec, name)))


def _object(document: Any, name: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise Invalid(f"the copy of {name} is no object", code="bad_copy")
    return document


def _convert(document: Any, kind: type[Any], name: str) -> Any:
    try:
        return msgspec.convert(document, kind, strict=False)
    except msgspec.MsgspecError as error:
        raise Invalid(f"the copy of {name} cannot be read: {error}", code="bad_copy") from error


def _lacks_type(error: TradewindError) -> bool:
    return isinstance(error, Invalid) and any(problem.code == "unknown_type" for problem in error.problems)


def _why(error: TradewindError) -> str:
    problems = getattr(error, "problems", ())
    few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
    return f"{error.message}: {few}" if few and few not in error.message else error.message
