"""Carrying commands out: the owner of a channel takes them one by one, writes, reads back, and records how it ended.

Whatever leaves the outcome unknown (no answer, a crash, a stop in the middle) ends as timeout and is never repeated.
What a command owes to its device (the 0 of a pulse) is stored before its first write; see owed_run.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Set

import msgspec
import structlog

from tradewind.errors import Conflict, Invalid, TradewindError, Unavailable
from tradewind.points.address import Address
from tradewind.points.board import Board
from tradewind.points.command_check import check_target, find_point, read_back_of
from tradewind.points.command_record import Command, CommandStatus, Interlocked, Outcome, Result
from tradewind.points.command_store import OVERRUN_MS, CommandStore
from tradewind.points.commands import apply_effects, require_interlock, sweep
from tradewind.points.convert import to_engineering, to_raw
from tradewind.points.driver import DeviceTrouble, Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.owed import owed_text
from tradewind.points.owed_run import OwedRunner
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality

log = structlog.get_logger(__name__)
LOOK_AGAIN_S = 0.1
_PULSED = frozenset(("pulse", "momentary"))
_ROUNDING = 1e-6


class CommandRunner:
    """Commands of the channels that this process owns. `owner` must be new with each start of the process."""

    def __init__(self, store: CommandStore, board: Board, owner: str) -> None:
        self._store = store
        self._board = board
        self._owner = owner
        self._owed = OwedRunner(store, board)

    def unsure(self, channel: str) -> Set[Address]:
        return self._owed.unsure(channel)

    async def settle(self, channel: ChannelSpec, driver: Driver) -> None:
        await self._store.lose_former(channel.id, self._owner)
        await self._owed.settle(channel, driver)

    async def release_former(self, channel: str, now: ChannelSpec | None, drivers: DriverRegistry) -> bool:
        return await self._owed.release_former(channel, now, drivers)

    async def adopt(self, channel: str) -> None:
        for command_id in await self._store.adopt(channel):
            log.warning("command_refused", command=command_id, channel=channel)

    async def sweep(self) -> None:
        await sweep(self._board, self._store)

    async def take(self, channel: str) -> Command | None:
        """The next command of a channel that this process holds, to be ended with `finish`; None when none waits."""
        return await self._store.take(channel, self._owner)

    async def run_next(self, channel: ChannelSpec, driver: Driver) -> bool:
        """Carry the next command of the channel out; False when none waits.

        Not while another call of the driver runs, except `listen`. Raises DeviceTrouble, once the outcome is recorded,
        when the connection is of no use any more.
        """
        command = await self.take(channel.id)
        if command is None:
            return False
        execution = Execution(command, channel, driver, self._board, self._store)
        try:
            outcome = await execution.run()
        except asyncio.CancelledError:
            # Already cancelled once; the few milliseconds that this takes tell everybody what is known.
            await self.finish(command, execution.interrupted())
            raise
        except Exception:
            log.exception("command_crashed", command=command.id, address=command.address)
            outcome = execution.interrupted()
        await self.finish(command, outcome)
        if (trouble := execution.connection_trouble()) is not None:
            raise trouble
        return True

    async def finish(self, command: Command, outcome: Outcome) -> bool:
        """Record how it ended, and show on the board what the device has confirmed. False: it had ended before."""
        end = time.monotonic() + OVERRUN_MS / 1000
        while True:
            try:
                effect = await self._store.finish(command, outcome)
                break
            except Unavailable:  # the outcome is known here only: keep it while somebody may still wait for it
                if time.monotonic() >= end:
                    raise
                await asyncio.sleep(0.2)
            except TradewindError as error:
                log.warning("command_too_late", command=command.id, outcome=outcome.status.value, error=error.message)
                return False
        log.info("command_ended", command=command.id, address=command.address, value=command.value, who=command.who,
                 status=outcome.status.value, result=outcome.result.value, message=outcome.message)  # fmt: skip
        if effect is not None:
            unsure = self._owed.unsure(command.point.entity)
            (unsure.add if effect.value is None else unsure.discard)(command.point)
            await apply_effects(self._board, self._store, [effect])
        return True


class Execution:
    """One execution of one command. `trouble`: the connection broke on the way."""

    def __init__(
        self, command: Command, channel: ChannelSpec, driver: Driver, board: Board, store: CommandStore
    ) -> None:
        self.trouble: DeviceTrouble | None = None
        self._command, self._channel, self._driver, self._board = command, channel, driver, board
        self._store = store
        self._deadline = time.monotonic() + command.timeout_ms / 1000
        self._is_written = False
        self._is_hung = False
        self._released_at: float | None = None

    def interrupted(self) -> Outcome:
        """How it stands when `run` was stopped in the middle."""
        if self._is_written:
            message = "stopped while it was carried out: outcome unknown"
            return Outcome(CommandStatus.TIMEOUT, Result.UNKNOWN, message, settles_at=self._released_at)
        return Outcome(CommandStatus.FAILED, Result.REFUSED, "stopped before anything was written")

    def connection_trouble(self) -> DeviceTrouble | None:
        """Set when the connection broke on the way, or may now hold the answer to a call that was given up."""
        if self.trouble is None and self._is_hung:
            return DeviceTrouble(f"channel {self._channel.id}: no answer to a write", hint="is the device overloaded?")
        return self.trouble

    async def run(self) -> Outcome:
        command, channel, address = self._command, self._channel, self._command.point
        value = command.number
        point = find_point(channel, address)
        problems = check_target(channel, point, address, value)  # the definition may have changed since it was accepted
        if problems or point is None:
            return _failed(Result.REFUSED, "; ".join(problem.hint for problem in problems))
        try:
            if point.interlock:
                await require_interlock(self._board, channel.id, point, value)
            paired = read_back_of(point, channel.id)
            before = await self._shown_at(paired) if paired is not None else 0
            raw = to_raw(point, value)
        except Interlocked as error:
            return _failed(Result.INTERLOCKED, error.message)
        except TradewindError as error:
            return _failed(Result.REFUSED, f"nothing was written: {error.message}")
        if time.monotonic() >= self._deadline:  # this process was paused in between
            return Outcome(CommandStatus.TIMEOUT, Result.EXPIRED, "its time ran out before it was written")
        is_pulse = point.kind is Kind.CONTROL and point.control_type in _PULSED and point.pulse_ms > 0 and value != 0
        refusal = await (self._pulse(point, raw) if is_pulse else self._written(self._driver.write(point, raw)))
        if refusal is not None:
            return refusal
        if paired is None:
            return Outcome(CommandStatus.SUCCESS, Result.DONE, settles_at=0.0 if is_pulse else None)
        expected = 0.0 if is_pulse else value
        return await self._verify(point, paired, expected, before)

    async def _written(self, write: Awaitable[None]) -> Outcome | None:
        """None when the device has confirmed it."""
        self._is_written = True
        try:
            async with asyncio.timeout_at(self._loop_deadline()):
                await write
        except (Invalid, Conflict) as error:
            return _failed(Result.REFUSED, f"the device refused it: {error.message}")
        except DeviceTrouble as error:
            self.trouble = error
            return Outcome(CommandStatus.TIMEOUT, Result.UNKNOWN, f"outcome unknown: {error.message}")
        except TimeoutError:
            self._is_hung = True
            message = f"outcome unknown: the device did not confirm it within {self._command.timeout_ms} ms"
            return Outcome(CommandStatus.TIMEOUT, Result.UNKNOWN, message)
        return None

    async def _pulse(self, point: PointSpec, raw: float) -> Outcome | None:
        """On, and off after the point's time. The off is owed from before the on until the device has confirmed it."""
        command, channel = self._command, self._channel
        off = to_raw(point, 0.0)
        text = owed_text(channel, point, off, 0.0, self._store.plane.clock.now_ms())
        due_ms = point.pulse_ms + 2 * channel.timeout_ms
        try:
            await self._store.owe(command, text, due_ms)
        except TradewindError as error:
            return _failed(Result.REFUSED, f"nothing was written: {error.message}")
        refusal = await self._written(self._driver.write(point, raw))
        if refusal is not None and refusal.result is Result.REFUSED:
            await self._nothing_owed()
            return refusal
        end = None
        try:
            await asyncio.sleep(point.pulse_ms / 1000)
        finally:  # also when the on was not confirmed, and when this process stops: an output must not stay on
            if self.trouble is None:
                self._deadline = max(self._deadline, time.monotonic() + channel.timeout_ms / 1000)
                end = await self._written(self._driver.write(point, off))
            if self.trouble is None and end is None:
                self._released_at = 0.0
                await self._nothing_owed()
            else:
                await self._still_owed()
        if refusal is None and end is not None:
            return Outcome(CommandStatus.TIMEOUT, Result.UNKNOWN, f"the pulse may not have ended: {end.message}")
        return msgspec.structs.replace(refusal, settles_at=self._released_at) if refusal is not None else None

    async def _nothing_owed(self) -> None:
        """The device has confirmed the release, or refused the beginning. Without Redis it stays owed and is done
        again, which does no harm."""
        try:
            for owed in await self._store.owed(self._channel.id):
                if owed.command_id == self._command.id:
                    await self._store.owed_done(owed, value=self._released_at)
        except Unavailable as error:
            log.warning("owed_not_settled", command=self._command.id, error=error.message)

    async def _still_owed(self) -> None:
        """Say so at once, instead of when it is due."""
        try:
            await self._store.tell_owed([self._command.address])
        except Unavailable as error:
            log.warning("owed_not_told", command=self._command.id, error=error.message)

    async def _verify(self, point: PointSpec, paired: Address, expected: float, before: int) -> Outcome:
        """Look until the paired point shows the value, or the time is over."""
        stored = to_engineering(point, to_raw(point, expected))  # as far as the device can tell it
        tolerance = point.tolerance + _ROUNDING
        seen: float | None = None
        try:
            while True:
                found = await self._look(paired, before)
                if found is not None:
                    seen = found = round(found, 6)  # as the board would show it
                    if min(abs(found - expected), abs(found - stored)) <= tolerance:
                        settles_at = expected if expected != self._command.number else None
                        return Outcome(CommandStatus.SUCCESS, Result.VERIFIED, "", found, settles_at)
                left_s = self._deadline - time.monotonic()
                if left_s <= 0:
                    break
                await asyncio.sleep(min(LOOK_AGAIN_S, left_s))
        except DeviceTrouble as error:
            self.trouble = error
        except (TimeoutError, Unavailable):
            pass
        if seen is not None:
            return _failed(Result.DIFFERS, f"written, but {paired} shows {seen:g}, not {expected:g}", seen)
        message = f"written, but {paired} showed nothing new in time: outcome unknown"
        return Outcome(CommandStatus.TIMEOUT, Result.UNVERIFIED, message)

    async def _look(self, paired: Address, before: int) -> float | None:
        """What the paired point shows now; None when that is not newer than the write, or not good."""
        own = find_point(self._channel, paired) if paired.entity == self._channel.id else None
        if own is not None:
            async with asyncio.timeout_at(self._loop_deadline()):
                reading = await self._driver.read(own)
                if reading is None and self._driver.is_polled:
                    every = await self._driver.poll()
                    reading = next((r for r in every if r.id == own.id and r.kind == own.kind), None)
            if reading is not None:
                return to_engineering(own, reading.raw) if reading.quality is Quality.GOOD else None
            if self._driver.is_polled:
                return None
        point = (await self._board.read([paired]))[0]
        is_new = point.ts is not None and point.ts > before and point.quality == Quality.GOOD
        return point.value if is_new else None

    async def _shown_at(self, paired: Address) -> int:
        """When the board's value of the point is from, before anything is written."""
        return (await self._board.read([paired]))[0].ts or 0

    def _loop_deadline(self) -> float:
        loop = asyncio.get_running_loop()
        return loop.time() + max(0.0, self._deadline - time.monotonic())


def _failed(result: Result, message: str, actual: float | None = None) -> Outcome:
    return Outcome(CommandStatus.FAILED, result, message, actual)
