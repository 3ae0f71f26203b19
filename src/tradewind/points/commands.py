"""Commands as anyone may use them: submit, select, cancel, read, wait; and what the sweeper does.

A command is checked here, stored by command_store.py, and carried out by the owner of its channel (command_run.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec
import structlog

from tradewind.errors import Invalid, Problem, TimedOut
from tradewind.points.address import Address
from tradewind.points.board import Batch, Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.command_check import (
    Control,
    check_control,
    check_request,
    check_target,
    find_point,
    judge,
    parse_interlock,
)
from tradewind.points.command_record import (
    Command,
    CommandRequest,
    CommandStatus,
    Interlocked,
    names_of,
    new_command_id,
    value_text,
)
from tradewind.points.command_store import CommandStore, Effect, PointOutcome
from tradewind.points.owed import Owed
from tradewind.points.plane import PointPlane
from tradewind.points.spec import ChannelSpec, PointSpec, Quality
from tradewind.redis.connection import translated
from tradewind.redis.fences import do_all

log = structlog.get_logger(__name__)
#: Finds the control of a model; None: the model has no such control. Models live in another room.
FindControl = Callable[[str, str], Awaitable[Control | None]]
SELECT_S = 30.0
ORIGIN = "command"


class Accepted(msgspec.Struct, frozen=True):
    """`is_new` is False when its idempotency key had already brought it in; `note` says what may delay it."""

    id: str
    status: CommandStatus
    is_new: bool = True
    note: str = ""


class Selection(msgspec.Struct, frozen=True):
    """A point reserved for one owner and one value until `until_ms`."""

    address: str
    value: float
    owner: str
    until_ms: int


class _Target(msgspec.Struct, frozen=True):
    address: Address
    channel: ChannelSpec
    point: PointSpec
    names: tuple[str, str]


class Commands:
    def __init__(
        self, plane: PointPlane, board: Board, channels: ChannelStore, find_control: FindControl | None = None
    ) -> None:
        self.store = CommandStore(plane)
        self._plane = plane
        self._board = board
        self._channels = channels
        self._find_control = find_control

    async def submit(self, request: CommandRequest) -> Accepted:
        """Accept a command for a device. It is carried out at most once.

        Raises Invalid with all problems, Conflict (interlock, selection, idempotency key of another request) or
        Overloaded. A channel that is offline accepts it: it expires if the device does not come back in time.
        """
        known = await self.store.known(request.idempotency_key, request.sha()) if request.idempotency_key else None
        if known is not None:  # before all checks: what they look at may have changed since
            return Accepted(known.id, known.status, is_new=False)
        target = await self._checked(request)
        settings = self._plane.settings
        timeout_s = request.timeout_s if request.timeout_s is not None else settings.command_timeout_s
        expiry_s = request.expiry_s if request.expiry_s is not None else settings.command_expiry_s
        note = "" if await self._is_online(target.channel.id) else f"channel {target.channel.id} is offline"
        record = {
            "model_name": target.names[0],
            "field_name": target.names[1],
            "value": value_text(target.address.kind, request.value),
            "message": f"{note}; expires in {expiry_s:g} s" if note else "",
            "source": request.source,
            "address": str(target.address),
            "reason": request.reason,
            "who": request.who,
            "timeout_ms": round(timeout_s * 1000) + target.point.pulse_ms,
            "key": request.idempotency_key,
        }
        command_id, is_new = await self.store.submit(
            new_command_id(),
            record,
            expiry_ms=round(expiry_s * 1000),
            sha=request.sha(),
            must_be_selected=target.point.select_first,
        )
        if is_new:
            log.info("command_submitted", command=command_id, address=str(target.address), value=record["value"],
                     source=request.source, who=request.who, reason=request.reason)  # fmt: skip
            return Accepted(command_id, CommandStatus.PENDING, note=note)
        return Accepted(command_id, (await self.store.get(command_id)).status, is_new=False)

    async def select(self, request: CommandRequest, lasts_s: float = SELECT_S) -> Selection:
        """Reserve a point for `request.who` and this value; only that command may follow. Checked as by `submit`."""
        if not request.who:
            problem = Problem("no_owner", "who", "say who selects: only the same may operate")
            raise Invalid("a selection needs an owner", code="bad_command", hint=problem.hint, problems=[problem])
        target = await self._checked(request)
        value = value_text(target.address.kind, request.value)
        until_ms = await self.store.select(str(target.address), value, request.who, round(lasts_s * 1000))
        return Selection(str(target.address), request.value, request.who, until_ms)

    async def release(self, address: str, who: str) -> bool:
        """Give a selection up; False when there was none. Raises Conflict when it is somebody else's."""
        return await self.store.release(str(Address.parse(address)), who)

    async def cancel(self, command_id: str, who: str = "", reason: str = "") -> Command:
        """Raises CommandNotFound, or CommandConflict once it is being carried out."""
        await self.store.cancel(command_id, who, reason)
        log.info("command_cancelled", command=command_id, who=who, reason=reason)
        return await self.store.get(command_id)

    async def get(self, command_id: str) -> Command:
        return await self.store.get(command_id)

    async def wait(self, command_id: str, timeout_s: float) -> Command:
        """The command once it has ended. Raises TimedOut, which changes nothing about the command."""
        end = time.monotonic() + timeout_s
        pause_s = 0.01
        while True:
            command = await self.store.get(command_id)
            if command.status.is_final:
                return command
            left_s = end - time.monotonic()
            if left_s <= 0:
                message = f"command {command_id} is still {command.status} after {timeout_s:g} s"
                raise TimedOut(message, code="command_waits", hint="ask for it again later")
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.2, 1.0)  # somebody may wait for long, and for many

    async def sweep(self) -> list[str]:
        """End what has expired or was lost, and bring to the board what a lost process did not. One caller is enough,
        several do no harm. The ids of the commands that ended."""
        return await sweep(self._board, self.store)

    async def outcomes(self, addresses: Sequence[Address]) -> list[PointOutcome | None]:
        """How the last command to each of these points ended; None where there was none."""
        return await self.store.outcomes(addresses)

    async def owed(self) -> list[Owed]:
        """Writes that devices are still owed, such as the 0 of a pulse."""
        return await self.store.owed()

    async def dismiss(self, address: str, who: str, reason: str) -> bool:
        """Give up what is owed to a device, on somebody's responsibility; False when nothing was."""
        where = Address.parse(address)
        owed = [item for item in await self.store.owed(where.entity) if item.address == where]
        for item in owed:
            message = "dismissed" + (f" by {who}" if who else "") + (f": {reason}" if reason else "")
            await self.store.owed_done(item, message=message, who=who)
            log.warning("owed_dismissed", address=address, command=item.command_id, who=who, reason=reason)
        return bool(owed)

    async def _checked(self, request: CommandRequest) -> _Target:
        problems = check_request(request)
        target = None
        if not any(problem.path in ("address", "model", "field") for problem in problems):
            target = await self._target(request, problems)
        if problems or target is None:
            few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
            message = f"the command is refused: {few}"
            raise Invalid(message, code="bad_command", hint="correct what is named", problems=problems)
        if target.point.interlock:
            await require_interlock(self._board, target.channel.id, target.point, request.value)
        return target

    async def _target(self, request: CommandRequest, problems: list[Problem]) -> _Target | None:
        if request.model:
            control = await self._find_control(request.model, request.field) if self._find_control else None
            if control is None:
                hint = f"model {request.model!r} has no control {request.field!r} with an address"
                problems.append(Problem("unknown_control", "field", hint))
                return None
            address, names = Address.parse(control.address), (request.model, request.field)
            problems += check_control(control, request.value)
        else:
            address = Address.parse(request.address)
            names = names_of(address)
        channel = (await self._channels.get_many([address.entity]))[0]
        point = find_point(channel, address)
        found = check_target(channel, point, address, request.value)
        problems += [problem for problem in found if problem not in problems]
        if channel is None or point is None:
            return None
        return _Target(address, channel, point, names)

    async def _is_online(self, channel: str) -> bool:
        with translated():
            place, keys = self._plane.at(channel), self._plane.keys
            return bool(await place.redis.hget(keys.channel_status(channel), "online") == b"1")

    async def list(self, model: str = "", limit: int = 100) -> Sequence[Command]:
        """Newest first: of a model, of `channel_{id}`, or the last ones of all."""
        return await (self.store.of_model(model, limit) if model else self.store.recent(limit))


async def sweep(board: Board, store: CommandStore) -> list[str]:
    """What `Commands.sweep` does; every comsrv does it, too, so that commands end without a scheduler."""
    ended: list[str] = []

    async def end() -> None:
        ended.extend(await store.sweep())
        for command_id in ended:
            log.warning("command_timed_out", command=command_id)

    async def tell() -> None:
        for address in await store.tell_owed():
            log.error("output_owed", address=address)

    async def show() -> None:
        by_channel: dict[str, list[Effect]] = {}
        for effect in await store.effects():
            by_channel.setdefault(effect.address.entity, []).append(effect)
        await do_all(*(partial(apply_effects, board, store, some) for some in by_channel.values()))

    await do_all(end, tell, show)
    return ended


async def apply_effects(board: Board, store: CommandStore, effects: Sequence[Effect]) -> None:
    """Show on the board what devices have confirmed, and which points are uncertain since a command whose outcome is
    unknown; a repetition is a duplicate there and does nothing."""
    if not effects:
        return
    await board.write([_batch_of(effect) for effect in effects])
    await store.settled(effects)
    marked = [effect for effect in effects if effect.value is None]
    # Somebody may have read the point back between the effect and the mark: then the mark is wrong.
    outcomes = await store.outcomes([effect.address for effect in marked])
    known = [e.address for e, now in zip(marked, outcomes, strict=True) if now is not None and not now.unsure]
    if known:
        await board.write([Batch(a.key, {}, quality={a.field: Quality.GOOD.value}) for a in known])


def _batch_of(effect: Effect) -> Batch:
    address, origin = effect.address, f"{ORIGIN}:{effect.command_id}"
    if effect.value is None:
        return Batch(address.key, {}, quality={address.field: Quality.UNCERTAIN.value}, origin=origin)
    return Batch(address.key, {address.field: effect.value}, effect.ts_ms, origin=origin)


async def require_interlock(board: Board, channel: str, point: PointSpec, value: float) -> None:
    """Raises Interlocked when the point's interlock forbids the value now, or cannot be judged."""
    interlock = parse_interlock(point.interlock, channel, point.interlock_accepts)
    names = list(interlock.addresses)
    found = await board.read([interlock.addresses[name] for name in names])
    why = judge(interlock, value, dict(zip(names, found, strict=True)))
    if why:
        raise Interlocked(why, f"comsrv:{channel}:{point.kind}:{point.id}")
