"""Alarms in Redis: raised, cleared, moved by operators. Every change is one script; lists are in `listing.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tradewind import codec, ids
from tradewind.alarms.context import script_context
from tradewind.alarms.journal_entry import JournalEntry, read_leaving
from tradewind.alarms.listing import AlarmPage, AlarmQuery, read_page
from tradewind.alarms.record import (
    ALARM_ID,
    Alarm,
    AlarmNotFound,
    NewAlarm,
    checked,
    from_fields,
    from_redis,
    new_alarm_id,
    wire,
)
from tradewind.alarms.transitions import Action, Status, allowed
from tradewind.errors import Conflict, Invalid, TradewindError
from tradewind.points.plane import PointPlane
from tradewind.redis.scripts import Scripts
from tradewind.redis.text import text_of

if TYPE_CHECKING:
    from tradewind.alarms.journal import AlarmJournal  # SQL is heavy, and not every role needs it

#: Alarms per script, so that none holds the server for long.
CHUNK = 200
MAX_NOTE, MAX_WHO = 2000, 200


class AlarmConflict(Conflict):
    """The alarm is in a state that forbids this, or was changed by somebody else. `allowed`: what it takes now."""

    def __init__(self, alarm_id: str, message: str, code: str, allowed_now: Sequence[str]) -> None:
        hint = f"allowed now: {', '.join(allowed_now)}" if allowed_now else "nothing can be done with it any more"
        super().__init__(message, code=code, hint=hint)
        self.alarm_id = alarm_id
        self.allowed = tuple(allowed_now)


@dataclass(frozen=True, slots=True)
class Raised:
    id: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Acted:
    """What an action did to one alarm. `is_changed`: it was not so already; `error`: why it was refused."""

    id: str
    status: str
    version: int
    is_changed: bool
    error: TradewindError | None = None


class AlarmStore:
    def __init__(self, plane: PointPlane, journal: AlarmJournal | None = None) -> None:
        self.plane = plane
        self.settings = plane.all_settings.alarms
        self._journal = journal
        self._scripts = Scripts(plane.link, "tradewind.alarms", plane.all_settings.redis.max_retries)
        self._context = script_context(plane.keys, plane.all_settings)

    # raised and cleared

    async def raise_(self, alarm: NewAlarm) -> Raised:
        """Raises Invalid naming every problem."""
        return (await self.raise_many([alarm]))[0]

    async def raise_many(self, alarms: Sequence[NewAlarm]) -> list[Raised]:
        """In this order. A call that is repeated after a lost reply counts nothing twice. Raises Invalid, nothing is
        raised then."""
        checked(alarms)
        found: list[Raised] = []
        for start in range(0, len(alarms), CHUNK):
            some = [wire(a, new_alarm_id(), ids.new_id()) for a in alarms[start : start + CHUNK]]
            replies = await self._run("alarm_raise", [self.plane.keys.alarm_open()], [codec.encode(a) for a in some])
            found += (Raised(text_of(alarm_id), bool(is_new)) for alarm_id, is_new in replies)
        return found

    async def clear(self, rule_id: str, source: str, actual: str = "") -> str:
        """The condition is over: the alarm is resolved, a latched one only marked. Its id, `` if none is open."""
        reply = await self._run("alarm_clear", [self.plane.keys.alarm_open()], [rule_id, source, actual])
        return text_of(reply[0])

    async def restore(self, records: Sequence[Mapping[str, str]]) -> list[int]:
        """Bring open alarms back, each the fields of its hash, with ids, counts and acknowledgements as they were. Per
        alarm 1; 0 when it, or another one of its rule and source, is there; -1 when it is no open alarm."""
        found: list[int] = []
        for start in range(0, len(records), CHUNK):
            some = [codec.encode(dict(record)) for record in records[start : start + CHUNK]]
            found += map(int, await self._run("alarm_restore", [self.plane.keys.alarm_open()], some))
        return found

    async def end_rule(self, rule_id: str, word: str) -> int:
        """The rule was `disabled` or `deleted`: its open alarms are marked so and resolved; how many."""
        return int(await self._run("alarm_end", [self.plane.keys.alarm_open()], [rule_id, word]))

    # operators

    async def acknowledge(self, alarm_id: str, who: str, note: str = "", version: int | None = None) -> Acted:
        return await self._one(Action.ACKNOWLEDGE, alarm_id, who, note, version)

    async def resolve(self, alarm_id: str, who: str, note: str = "", version: int | None = None) -> Acted:
        return await self._one(Action.RESOLVE, alarm_id, who, note, version)

    async def suppress(self, alarm_id: str, who: str, note: str = "", version: int | None = None) -> Acted:
        """Until it is unshelved."""
        return await self._one(Action.SUPPRESS, alarm_id, who, note, version)

    async def shelve(
        self, alarm_id: str, who: str, note: str = "", *, duration_s: float, version: int | None = None
    ) -> Acted:
        """Suppressed for so long; then, if it is still open, it is announced again."""
        return await self._one(Action.SHELVE, alarm_id, who, note, version, duration_s)

    async def unshelve(self, alarm_id: str, who: str, note: str = "", version: int | None = None) -> Acted:
        """Ends a shelving or a suppression by an operator. One whose cause is open stays suppressed by it."""
        return await self._one(Action.UNSHELVE, alarm_id, who, note, version)

    async def escalate(self, alarm_id: str, who: str, note: str = "", version: int | None = None) -> Acted:
        return await self._one(Action.ESCALATE, alarm_id, who, note, version)

    async def close(self, alarm_id: str, who: str, note: str = "", version: int | None = None) -> Acted:
        return await self._one(Action.CLOSE, alarm_id, who, note, version)

    async def act(
        self,
        action: Action,
        alarm_ids: Sequence[str],
        who: str,
        note: str = "",
        *,
        version: int | None = None,
        duration_s: float = 0,
        until_ms: int | None = None,
    ) -> list[Acted]:
        """The action on each of them; what is refused says so in `error`. Raises Invalid for bad arguments. `until_ms`:
        the end of a shelving that was asked for as a time, so that asking again changes nothing."""
        self._check(action, who, note, duration_s)
        found: list[Acted] = []
        known = list(dict.fromkeys(alarm_ids))
        for start in range(0, len(known), CHUNK):
            some = known[start : start + CHUNK]
            args = [
                action.value,
                who,
                note,
                "" if version is None else str(version),
                str(round(duration_s * 1000)) if until_ms is None else f"@{until_ms}",
                *some,
            ]
            reply = await self._run("alarm_act", [self.plane.keys.alarm_nonce(ids.new_id())], args)
            found += (_acted(action, *row) for row in zip(some, codec.decode(reply), strict=True))
        return found

    # reading

    async def get(self, alarm_id: str) -> Alarm:
        """Also one that has left Redis, if there is a journal. Raises AlarmNotFound."""
        found = await self.find([alarm_id])
        alarm = found[0]
        if alarm is None and self._journal is not None:
            record = (await read_leaving(self.plane)).get(alarm_id)
            alarm = _of_record(record) if record is not None else await self._journal.snapshot(alarm_id)
        if alarm is None:
            raise AlarmNotFound(alarm_id)
        return alarm

    async def find(self, alarm_ids: Sequence[str]) -> list[Alarm | None]:
        """Those that Redis has."""
        keys = self.plane.keys
        commands = [("HGETALL", keys.alarm(i)) for i in alarm_ids if ALARM_ID.fullmatch(i)]
        replies = iter(await self.plane.home.ask_raw(commands) if commands else [])
        return [from_redis(next(replies)) if ALARM_ID.fullmatch(i) else None for i in alarm_ids]

    async def history(self, alarm_id: str) -> list[JournalEntry]:
        """Every transition, oldest first: those in SQL, and those that are on their way there."""
        return await JournalEntry.read(self.plane, self._journal, alarm_id)

    async def open_id(self, rule_id: str, source: str) -> str:
        """The id of the open alarm, `` if there is none."""
        reply = (await self.plane.home.ask([("HGET", self.plane.keys.alarm_open(), f"{rule_id}|{source}")]))[0]
        return text_of(reply)

    async def list(self, query: AlarmQuery) -> AlarmPage:
        """Raises Invalid for a bad place, Conflict for archived ones without a journal."""
        if query.archived and self._journal is None:
            hint = "ask for those that Redis has"
            raise Conflict("archived alarms are in SQL, and there is none", code="no_sql", hint=hint)
        page = await read_page(self.plane, self._scripts, query)
        if not query.archived or self._journal is None:
            return page
        from tradewind.alarms.archive import with_archived

        leaving = [_of_record(record) for record in (await read_leaving(self.plane)).values()]
        return await with_archived(self._journal, query, page, [alarm for alarm in leaving if alarm is not None])

    # inside

    async def _one(
        self, action: Action, alarm_id: str, who: str, note: str, version: int | None, duration_s: float = 0
    ) -> Acted:
        """Raises AlarmNotFound, AlarmConflict."""
        acted = (await self.act(action, [alarm_id], who, note, version=version, duration_s=duration_s))[0]
        if acted.error is not None:
            raise acted.error
        return acted

    async def _run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        return await self._scripts.run(name, keys, [self._context, self.plane.clock.now_arg(), *args])

    def _check(self, action: Action, who: str, note: str, duration_s: float) -> None:
        longest = self.settings.shelve_max_s
        if action is Action.SHELVE and not 0 < duration_s <= longest:
            hint = f"more than 0 s, at most {longest:g} s (alarms.shelve_max_s)"
            raise Invalid(f"an alarm cannot be shelved for {duration_s:g} s", code="bad_duration", hint=hint)
        if len(who) > MAX_WHO or len(note) > MAX_NOTE:
            hint = f"at most {MAX_WHO} characters for who, {MAX_NOTE} for the note"
            raise Invalid("the name or the note is too long", code="too_long", hint=hint)


def _of_record(record: bytes) -> Alarm | None:
    """None for what is no record of an alarm."""
    try:
        return from_fields(codec.decode(record))
    except Invalid:
        return None


def _acted(action: Action, alarm_id: str, reply: tuple[int, str, int]) -> Acted:
    code, status, version = reply
    error: TradewindError | None = None
    if code == -1:
        error = AlarmNotFound(alarm_id)
    elif code in (-2, -3):
        can = allowed(Status(status))
        message = f"alarm {alarm_id!r} is {status}: {action.value} is not allowed"
        if code == -3:
            message = f"alarm {alarm_id!r} was changed meanwhile: it has version {version}"
        error = AlarmConflict(alarm_id, message, "alarm_state" if code == -2 else "version_moved", can)
    return Acted(alarm_id, status, version, code == 1, error)
