"""Commands in Redis: each verb is one script, so that record, queue, list and journal never disagree.

Decides nothing about devices (command_check.py, command_run.py); knows only which transitions there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tradewind.errors import Conflict, Invalid, Overloaded
from tradewind.ids import short_random
from tradewind.points.address import Address
from tradewind.points.command_record import (
    Command,
    CommandBroken,
    CommandConflict,
    CommandNotFound,
    CommandStatus,
    Outcome,
    Result,
    fields_of,
    from_redis,
)
from tradewind.points.owed import Owed, read_owed
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import MAX_REPORTS, WrongType, is_wrong_type
from tradewind.redis.fences import sorted_out
from tradewind.redis.scripts import Arg
from tradewind.redis.text import text_of

KEEP_MS = 86_400_000
MAX_WAITING = 1000
#: How long after its timeout an execution that nobody ended counts as lost.
OVERRUN_MS = 5000
#: A value that the board does not show so long after the success is written by the sweeper.
_EFFECT_AGE_MS = 3000
#: Results after which nobody knows what the point stands at; as in command_shared.lua.
UNSURE = frozenset((Result.UNKNOWN, Result.LOST, Result.UNVERIFIED, Result.DIFFERS))


class Effect(msgspec.Struct, frozen=True):
    """What the board must show after a command. `value` None: that the point is uncertain."""

    command_id: str
    address: Address
    value: float | None
    ts_ms: int
    text: str


class PointOutcome(msgspec.Struct, frozen=True):
    """How the last command to a point ended; `unsure`: the command that left its state unknown, `` when it is known.
    `at` in ms."""

    id: str
    value: str
    status: str
    result: str
    message: str
    who: str
    source: str
    at: int
    unsure: str = ""


# Times are text in Lua's JSON: a double would print them as 1.7e+12.
_outcome_decoder = msgspec.json.Decoder(PointOutcome, strict=False)


class CommandStore:
    def __init__(self, plane: PointPlane) -> None:
        self.plane = plane
        self._events = plane.keys.command_events()

    async def _run(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        plane = self.plane
        return await plane.scripts.run(name, keys, [plane.keys.p, plane.clock.now_arg(), self._events, *args])

    async def submit(
        self, command_id: str, record: Mapping[str, Any], *, expiry_ms: int, sha: str, must_be_selected: bool
    ) -> tuple[str, bool]:
        """Accept a checked command; its id, and whether it is new (False: its key had brought it in).

        `record` holds address, model_name, field_name, value and the other fields that the caller decides. Raises
        Conflict (key of another request, selection) or Overloaded.
        """
        keys, address = self.plane.keys, str(record["address"])
        key = str(record.get("key", ""))
        channel = Address.parse(address).entity
        names = [
            keys.command(command_id), keys.command_list(record["model_name"]), keys.channel_todo(channel),
            keys.commands_open(), keys.command_select(address), keys.command_key(key),
        ]  # fmt: skip
        args: list[Arg] = [command_id, MAX_WAITING, KEEP_MS, sha if key else "", "1" if must_be_selected else ""]
        reply = await self._run("command_submit", names, [*args, expiry_ms, *fields_of(record)])
        if reply[0] == 1:
            return command_id, True
        if reply[0] == 2:
            return text_of(reply[1]), False
        raise _refusal(reply, key, address)

    async def known(self, key: str, sha: str) -> Command | None:
        """The command that an idempotency key has brought in. Raises Conflict when that was another request."""
        with translated():
            found = await self.plane.redis.get(self.plane.keys.command_key(key))
        if found is None:
            return None
        known_sha, _, command_id = text_of(found).partition(" ")
        if known_sha != sha:
            raise _refusal([-1, command_id.encode()], key, "")
        return (await self.read([command_id]))[0]

    async def take(self, channel: str, owner: str) -> Command | None:
        """The next command of the channel, now executing, for `owner`, who alone holds the channel.

        None when none waits or when this owner's last one has not ended. What a former owner left ends timeout.
        """
        keys = self.plane.keys
        names = [keys.channel_todo(channel), keys.channel_doing(channel), keys.commands_open(), keys.command_token()]
        args: list[Arg] = [owner, short_random(), OVERRUN_MS, *self._usual_ms()]
        flat = await self._run("command_take", names, args)
        known = dict(zip(flat[::2], flat[1::2], strict=True))
        return from_redis(known.get(b"id", b"").decode(errors="replace"), flat)

    async def adopt(self, channel: str) -> list[str]:
        """Look through what waits for a channel: commands of other programs get a deadline, what nobody can carry out
        ends failed; the ids of these."""
        names = [self.plane.keys.channel_todo(channel), self.plane.keys.commands_open()]
        _, *refused = await self._run("command_adopt", names, [*self._usual_ms(), 200])
        return [text_of(item) for item in refused]

    def _usual_ms(self) -> tuple[int, int]:
        """How long a command may wait and take that does not say it."""
        settings = self.plane.settings
        return round(settings.command_expiry_s * 1000), round(settings.command_timeout_s * 1000)

    async def lose_former(self, channel: str, owner: str) -> str:
        """End the command that another owner of the channel was carrying out; its id. `owner` alone holds it now."""
        return text_of(await self._run("command_lose", [self.plane.keys.channel_doing(channel)], [owner]))

    async def finish(self, command: Command, outcome: Outcome) -> Effect | None:
        """End a command that was taken; what the board must show now, if anything.

        Raises CommandConflict when it had ended before (the sweeper, another owner): the answer is in the journal only.
        """
        keys, point = self.plane.keys, command.point
        is_success = outcome.status is CommandStatus.SUCCESS
        stands_at = outcome.settles_at if outcome.settles_at is not None or not is_success else command.number
        of_model = is_success and command.is_of_model
        reply = await self._run(
            "command_finish",
            [keys.command(command.id), keys.command_effects(), keys.model_values(command.model_name, "control")],
            [
                command.id, str(command.token), outcome.status.value, outcome.result.value, outcome.message,
                "" if outcome.actual is None else repr(outcome.actual), "" if stands_at is None else repr(stands_at),
                command.field_name if of_model else "", f"{keys.channel_prefix}modsrv:{command.model_name}:control",
            ],
        )  # fmt: skip
        if reply[0] == -1:
            raise CommandNotFound(command.id)
        if reply[0] == 0:
            raise CommandConflict(command.id, text_of(reply[1]), f"ended as {outcome.status}")
        if stands_at is None and outcome.result not in UNSURE:
            return None
        return _effect(command.id, point, stands_at, reply[1])

    async def cancel(self, command_id: str, who: str = "", reason: str = "") -> None:
        """Raises CommandNotFound, CommandConflict when it has started, or CommandBroken."""
        message = "cancelled" + (f" by {who}" if who else "") + (f": {reason}" if reason else "")
        reply = await self._run("command_cancel", [self.plane.keys.command(command_id)], [command_id, who, message])
        if reply[0] == -1:
            raise CommandNotFound(command_id)
        if reply[0] == -2:
            raise CommandBroken(command_id, text_of(reply[1]))
        if reply[0] == 0:
            raise CommandConflict(command_id, text_of(reply[1]), "cancelled")

    async def sweep(self, limit: int = 500) -> list[str]:
        """End what has expired and what nobody ended; the ids."""
        return list(map(text_of, await self._run("command_sweep", [self.plane.keys.commands_open()], [limit])))

    async def select(self, address: str, value: str, owner: str, lasts_ms: int) -> int:
        """Reserve a point for one owner and value; ms when that ends. Raises Conflict when somebody else has it."""
        key = self.plane.keys.command_select(address)
        reply = await self._run("command_select", [key], [address, value, owner, lasts_ms])
        if reply[0] == 0:
            raise _refusal([-3, reply[1]], "", address)
        return int(reply[1])

    async def release(self, address: str, owner: str) -> bool:
        """Let a selected point go; False when it was not selected. Raises Conflict when somebody else has it."""
        reply = await self._run("command_select", [self.plane.keys.command_select(address)], [address, "", owner, 0])
        if reply[0] == 0:
            raise _refusal([-3, reply[1]], "", address)
        return bool(reply[0] == 1)

    async def read(self, ids: Sequence[str]) -> list[Command | None]:
        """None for those that are gone; what cannot be read is left out as if it were (`get` says why)."""
        return [found if isinstance(found, Command) else None for found in await self._read(ids)]

    async def get(self, command_id: str) -> Command:
        """Raises CommandNotFound or CommandBroken."""
        found = (await self._read([command_id]))[0]
        if isinstance(found, CommandBroken):
            raise found
        if found is None:
            raise CommandNotFound(command_id)
        return found

    async def _read(self, ids: Sequence[str]) -> list[Command | CommandBroken | None]:
        with translated():
            pipe = self.plane.redis.pipeline(transaction=False)
            for command_id in ids:
                pipe.hgetall(self.plane.keys.command(command_id))
            rows = await pipe.execute(raise_on_error=False)
            for row in rows:
                if isinstance(row, Exception) and not is_wrong_type(row):
                    raise row
        return [_read_row(command_id, row) for command_id, row in zip(ids, rows, strict=True)]

    async def of_model(self, model: str, limit: int = 100) -> list[Command]:
        """The last commands of a model or of `channel_{id}`, newest first. Drops ids whose record is gone."""
        key = self.plane.keys.command_list(model)
        with translated():
            ids = [text_of(item) for item in await self.plane.redis.lrange(key, 0, limit - 1)]
        found = await self.read(ids) if ids else []
        gone = [i for i, row in zip(ids, await self._read(ids) if None in found else [], strict=False) if row is None]
        if gone:
            with translated():
                pipe = self.plane.redis.pipeline(transaction=False)
                for command_id in gone:
                    pipe.lrem(key, 0, command_id)
                await pipe.execute()
        return [command for command in found if command is not None]

    async def recent(self, limit: int = 100) -> list[Command]:
        """The commands that changed last, of all models, newest first."""
        ids = dict.fromkeys(entry["id"] for entry in await self.journal(limit * 4) if entry.get("id"))
        return [command for command in await self.read(list(ids)[:limit]) if command is not None]

    async def journal(self, limit: int = 100) -> list[dict[str, str]]:
        """The last transitions, newest first."""
        with translated():
            rows = await self.plane.redis.xrevrange(self.plane.keys.command_journal(), count=limit)
        return [{text_of(name): text_of(value) for name, value in fields.items()} for _, fields in rows]

    async def waiting(self, channel: str) -> int:
        with translated():
            return int(await self.plane.redis.llen(self.plane.keys.channel_todo(channel)))

    async def effects(self, *, now_ms: int | None = None) -> list[Effect]:
        """Values of successes that the board should show but perhaps does not: whoever wrote the success was lost."""
        with translated():
            rows = await self.plane.redis.hgetall(self.plane.keys.command_effects())
        now = self.plane.clock.now_ms() if now_ms is None else now_ms
        found = []
        for command_id, row in rows.items():
            try:
                effect = read_effect(command_id.decode(), row.decode())
            except ValueError:  # doctor names it
                continue
            if effect.ts_ms <= now - _EFFECT_AGE_MS:
                found.append(effect)
        return found

    async def settled(self, effects: Sequence[Effect]) -> None:
        """The board shows them."""
        if effects:
            args = [part for effect in effects for part in (effect.command_id, effect.text)]
            await self.plane.scripts.run("effects_settled", [self.plane.keys.command_effects()], args)

    # what is owed to devices, and what is not known of points

    async def owe(self, command: Command, text: bytes, due_ms: int) -> None:
        """Store what the command will owe, before its first write. Raises CommandConflict when it is not to be carried
        out here any more: nothing may be written then."""
        keys = self.plane.keys
        args: list[Arg] = [command.id, str(command.token), command.address, due_ms, text]
        reply = await self._run("command_owe", [keys.command(command.id), keys.commands_owed()], args)
        if reply[0] == 0:
            raise CommandConflict(command.id, text_of(reply[1]) or "gone", "carried out")

    async def owed(self, channel: str = "") -> list[Owed]:
        """What is owed to devices, of one channel or of all. Leaves out what cannot be read (see `broken_owed`)."""
        with translated():
            rows = await self.plane.redis.hgetall(self.plane.keys.commands_owed())
        return [
            owed
            for address, text in rows.items()
            if not channel or address.startswith(b"comsrv:%s:" % channel.encode())
            if isinstance(owed := _owed(address, text), Owed)
        ]

    async def owed_done(
        self, owed: Owed, *, value: float | None = None, message: str = "", who: str = ""
    ) -> Effect | None:
        """Forget it, because the device has confirmed that it stands at `value`, or (None) because `who` dismisses it.
        None when it was not owed any more."""
        keys, address = self.plane.keys, owed.address
        names = [keys.commands_owed(), keys.command_effects(), keys.faults(), keys.channel_outcomes(address.entity)]
        args: list[Arg] = [
            str(address), owed.command_id, "" if value is None else repr(value), message, who,
            f"{address.kind}:{address.field}", MAX_REPORTS,
        ]  # fmt: skip
        reply = await self._run("owed_done", names, args)
        return _effect(owed.command_id, address, value, reply[1]) if reply[0] == 1 and value is not None else None

    async def tell_owed(self, late: Sequence[str] = ()) -> list[str]:
        """Report what is owed and past its time, and `late` addresses at once, as Critical faults of the station; the
        addresses that are reported now."""
        names = [self.plane.keys.commands_owed(), self.plane.keys.faults()]
        return list(map(text_of, await self._run("owed_tell", names, [MAX_REPORTS, *late])))

    async def outcomes(self, addresses: Sequence[Address]) -> list[PointOutcome | None]:
        """How the last command to each of these points ended; None: there was none, or it cannot be read."""
        with translated():
            pipe = self.plane.redis.pipeline(transaction=False)
            asked = [("HGET", self.plane.keys.channel_outcomes(address.entity)) for address in addresses]
            for address, (_, key) in zip(addresses, asked, strict=True):
                pipe.hget(key, f"{address.kind}:{address.field}")
            rows = sorted_out(asked, await pipe.execute(raise_on_error=False)) if addresses else []
        return [None if isinstance(row, WrongType) else _outcome(row) for row in rows]

    async def unsure(self, channel: str) -> dict[Address, PointOutcome]:
        """The points of a channel whose last command left their state unknown."""
        with translated():
            rows = await self.plane.redis.hgetall(self.plane.keys.channel_outcomes(channel))
        found = {}
        for name, row in rows.items():
            kind, _, point = text_of(name).partition(":")
            outcome = _outcome(row)
            if outcome is not None and outcome.unsure and kind in ("c", "a") and point.isdigit():
                found[Address.point(channel, kind, point)] = outcome
        return found

    async def read_back(self, address: Address, unsure: str, value: float) -> Effect | None:
        """The point that command `unsure` left unknown has been read back; what the board must show."""
        names = [self.plane.keys.channel_outcomes(address.entity), self.plane.keys.command_effects()]
        args = [str(address), f"{address.kind}:{address.field}", unsure, repr(value)]
        reply = await self._run("command_known", names, args)
        return _effect(unsure, address, value, reply[1]) if reply[0] == 1 else None


def read_effect(command_id: str, row: str) -> Effect:
    """Raises ValueError, also for an address that is none (Invalid is turned into it)."""
    try:
        address, value, ts = row.split(" ")
        return Effect(command_id, Address.parse(address), None if value == "?" else float(value), int(ts), row)
    except Invalid as error:
        raise ValueError(error.message) from error


def _effect(command_id: str, address: Address, value: float | None, ts_ms: int) -> Effect:
    text = f"{address} {'?' if value is None else repr(value)} {ts_ms}"
    return Effect(command_id, address, value, ts_ms, text)


def _owed(address: bytes, text: bytes) -> Owed | str:
    """Why it cannot be read."""
    try:
        return read_owed(address.decode(), text)
    except (ValueError, Invalid, msgspec.DecodeError) as error:
        return str(error)


def _outcome(row: bytes | None) -> PointOutcome | None:
    try:
        return None if row is None else _outcome_decoder.decode(row)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _read_row(command_id: str, row: dict[bytes, bytes] | Exception) -> Command | CommandBroken | None:
    if isinstance(row, Exception):
        return CommandBroken(command_id, "it is no hash")
    try:
        return from_redis(command_id, [part for pair in row.items() for part in pair])
    except CommandBroken as error:
        return error


def _refusal(reply: Sequence[Any], key: str, address: str) -> Exception:
    match reply[0]:
        case -1:
            return Conflict(
                f"idempotency key {key!r} belongs to command {text_of(reply[1])!r} with another request",
                code="idempotency_mismatch",
                hint="use a new key for a new request",
            )
        case -2:
            return Overloaded(
                f"{reply[1]} commands wait for the channel of {address} already",
                code="too_many_commands",
                hint="is the channel online? commands expire after points.command_expiry_s",
                retry_after_s=5,
            )
        case -3:
            return Conflict(
                f"{address} is selected by {text_of(reply[1])!r}",
                code="selected_by_other",
                hint="wait until the selection ends, or ask its owner to cancel it",
            )
        case -4:
            return Conflict(
                f"{address} must be selected first",
                code="not_selected",
                hint="select it with the same value, then operate",
            )
        case _:
            return Conflict(
                f"{address} is selected for the value {text_of(reply[1])}",
                code="selected_other_value",
                hint="operate with the selected value, or select again",
            )
