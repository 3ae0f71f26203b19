"""One channel at work: connect, poll or listen, write what changed, carry commands out between polls, begin again.

A device that is gone for longer than the channel's timeout makes all its points bad; they keep value and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence

import structlog

from tradewind.errors import Invalid, TradewindError
from tradewind.points.batch import Batch
from tradewind.points.channel_bench import Bench
from tradewind.points.channel_samples import Samples
from tradewind.points.channel_slots import Slots, phase_of
from tradewind.points.channel_status import ChannelStatus
from tradewind.points.driver import DeviceTrouble, Driver
from tradewind.points.spec import ChannelSpec, Reading

log = structlog.get_logger(__name__)
#: The first and the longest pause before a channel is connected again; each is cut by chance to half at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
#: The longest pause while something may be owed to the device.
OWED_PAUSE_S = 5.0
#: So often in a row what is owed comes before the first poll; then the device must answer a poll first.
SETTLE_FIRST, SETTLE_PAUSE_S = 2, 30.0
#: What a driver may take beyond the channel's timeout before it is interrupted.
GRACE_S = 0.5
#: Readings that were delivered and not written yet; beyond that the oldest are dropped and counted.
MAX_WAITING = 100_000
#: Readings that come one by one are written together, so many at once at most.
GATHER_S = 0.02
TOGETHER = 2_000
#: How long what could not be written waits before it is tried again.
AGAIN_S = 0.5


class ChannelRunner:
    """`run` until it is cancelled. `wake` when a command may be waiting."""

    def __init__(self, channel: ChannelSpec, bench: Bench, status: ChannelStatus) -> None:
        self.channel = channel
        self.status = status
        self._bench = bench
        self._samples = Samples(channel, bench.stale_s / 2, bench.board.future_ms)
        if bench.commands is not None:
            self._samples.unsure = bench.commands.unsure(channel.id)
        self._timeout_s = channel.timeout_ms / 1000
        self._interval_s = channel.poll_interval_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._failed = 0  # since the last success
        self._began_s = self._last_ok_s = self._loop.time()
        self._is_troubled = True
        self._gone: asyncio.Event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._commands = asyncio.Event()
        self._is_ending = False
        self._is_owing = False
        self._settle_failures, self._settle_s = 0, 0.0
        self._no_command = asyncio.Event()
        self._no_command.set()
        self._writing = asyncio.Lock()
        self._delivered: list[Reading] = []
        self._has_delivered = asyncio.Event()

    @property
    def is_unsure(self) -> bool:
        """Whether commands left points unknown that could not be read back yet."""
        return bool(self._samples.unsure)

    def wake(self) -> None:
        self._commands.set()

    async def finish_command(self, timeout_s: float) -> None:
        """Take no more commands, and wait for the one that is being carried out: cut short, nobody knew its outcome."""
        self._is_ending = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._no_command.wait()

    async def run(self) -> None:
        log.info("channel begins", channel=self.channel.id, protocol=self.channel.protocol)
        self._expect_end(self._began_s)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name=f"watch {self.channel.id}")
            while True:
                error = await self._attempt()
                self._fail(error)
                pause_s = pause_after(self._failed, random.random())
                await asyncio.sleep(min(pause_s, OWED_PAUSE_S) if self._is_owing else pause_s)
                self._failed += 1

    async def _attempt(self) -> str:
        """One connection from its beginning to its end; why it ended."""
        try:
            await self._session()
        except TradewindError as error:
            return error.message + (f" ({error.hint})" if isinstance(error, Invalid) and error.hint else "")
        except Exception as error:  # the fence around drivers
            log.exception("driver failed", channel=self.channel.id, protocol=self.channel.protocol)
            return f"{type(error).__name__}: {error}"
        return "the connection ended"

    async def _session(self) -> None:
        self._began_s = self._loop.time()
        driver = self._bench.drivers.make(self.channel)
        self._lost_before = (0, 0)
        try:
            async with self._limit("did not connect"):
                await driver.connect()
            if self._settle_failures < SETTLE_FIRST:
                await self._settle(driver)  # first of all: a former owner may have left an output on
            self._commands.set()  # and commands
            await (self._poll(driver) if driver.is_polled else self._listen(driver))
        finally:
            with contextlib.suppress(Exception):  # close never raises, says the contract; here it may
                async with asyncio.timeout(self._timeout_s + GRACE_S):
                    await driver.close()
            self._count_losses(driver)
            if not driver.is_polled:  # what it had taken from the device and not handed over yet
                await self._write_delivered()

    # polled protocols

    async def _poll(self, driver: Driver) -> None:
        slots = Slots(self._interval_s, phase_of(self.channel.id, self._interval_s))
        missed_before = self.status.missed
        while True:
            await self._be_ours()
            self._began_s = self._loop.time()
            async with self._limit("did not answer"):
                readings = await driver.poll()
            now_s = self._loop.time()
            self.status.polled(now_s - self._began_s, self._bench.clock.now_ms())
            self._succeed()
            self._count_losses(driver)
            await self._write_poll(readings)
            due_s = slots.next(self._loop.time())
            self.status.missed = missed_before + slots.missed
            await self._until(due_s, driver)

    async def _be_ours(self) -> None:
        """A process that was stopped, or hung, goes on here although another one may poll the channel by now: it waits
        until its claims are looked at, and is ended then."""
        while not self._bench.is_ours(self.channel.id):  # noqa: ASYNC110 - it is a question of time
            await asyncio.sleep(0.02)

    async def _write_poll(self, readings: Sequence[Reading]) -> None:
        """What the board did not get is read again by the next poll, but events with their own times are not."""
        kept, self._delivered = self._delivered, []
        if not await self._write([*kept, *readings] if kept else readings):
            self._delivered = [reading for reading in (*kept, *readings) if reading.ts_ms]
            self._drop_oldest()

    async def _until(self, due_s: float, driver: Driver) -> None:
        """Wait for the slot; carry out what is asked meanwhile. A long command costs slots, which are then counted."""
        while True:
            if self._commands.is_set():
                self._commands.clear()
                await self._run_commands(driver, due_s)
            if self._loop.time() >= due_s:
                return
            try:
                async with asyncio.timeout_at(due_s):
                    await self._commands.wait()
            except TimeoutError:
                return

    async def _settle(self, driver: Driver) -> None:
        """Do what is owed to the device and read back what commands left unknown. Where that keeps failing (one dead
        unit behind a gateway), the device is polled first and this is tried again after a growing pause."""
        source = self._bench.commands
        if source is None or self._loop.time() < self._settle_s:
            return
        self._is_owing = True
        try:
            await source.settle(self.channel, driver)
            self._is_owing, self._settle_failures = False, 0
        except DeviceTrouble:
            self._settle_failures += 1
            if self._settle_failures >= SETTLE_FIRST:
                self._settle_s = self._loop.time() + min(SETTLE_PAUSE_S, 2**self._settle_failures)
            raise
        except TradewindError as error:  # Redis, not the device
            log.warning("commands out of reach", channel=self.channel.id, error=error.message)

    async def _run_commands(self, driver: Driver, due_s: float | None = None) -> None:
        source = self._bench.commands
        self._no_command.clear()
        try:
            await self._be_ours()
            await self._settle(driver)
            while source is not None and not self._is_ending and await source.run_next(self.channel, driver):
                self.status.commands += 1
                await self._settle(driver)
                await self._be_ours()
                if due_s is not None and self._loop.time() >= due_s:
                    self._commands.set()  # the next ones after the poll
                    return
        except DeviceTrouble:
            raise
        except TradewindError as error:  # Redis, not the device: what was taken is swept
            log.warning("commands out of reach", channel=self.channel.id, error=error.message)
        finally:
            self._no_command.set()

    # protocols that push

    async def _listen(self, driver: Driver) -> None:
        self._succeed()
        await self._write([])  # the points that are only written are good again
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._drain(driver), name=f"drain {self.channel.id}")
                group.create_task(self._serve_commands(driver), name=f"commands {self.channel.id}")
                await driver.listen(self._deliver)
                raise DeviceTrouble(f"channel {self.channel.id}: the connection ended")
        except BaseExceptionGroup as group_error:
            raise _first(group_error) from None
        finally:
            await self._write_delivered()

    def _deliver(self, readings: Sequence[Reading]) -> None:
        self._delivered += readings
        self._drop_oldest()
        self._has_delivered.set()

    def _drop_oldest(self) -> None:
        waiting = self._delivered
        if len(waiting) > MAX_WAITING:
            self.status.dropped += len(waiting) - MAX_WAITING
            del waiting[:-MAX_WAITING]

    async def _drain(self, driver: Driver) -> None:
        while True:
            with contextlib.suppress(TimeoutError):  # a driver that refuses all it gets delivers nothing
                async with asyncio.timeout(1):
                    await self._has_delivered.wait()
            self._count_losses(driver)
            if not self._has_delivered.is_set():
                continue
            self._has_delivered.clear()
            self.status.heard_ms = self._bench.clock.now_ms()
            self._succeed()
            while not await self._write_delivered():  # noqa: ASYNC110 - the change happens in a server
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(GATHER_S)

    def _count_losses(self, driver: Driver) -> None:
        dropped, refused = self._lost_before
        self.status.dropped += driver.dropped - dropped
        self.status.refused += driver.refused - refused
        self._lost_before = driver.dropped, driver.refused

    async def _write_delivered(self) -> bool:
        """False: the board is out of reach; what it did not get waits, and is written before anything newer."""
        while self._delivered:
            readings, self._delivered = self._delivered[:TOGETHER], self._delivered[TOGETHER:]
            try:
                is_written = await self._write(readings)
            except asyncio.CancelledError:
                self._put_back(readings)
                raise
            except Exception:  # a driver handed over what is no reading
                self.status.dropped += len(readings)
                raise
            if not is_written:
                self._put_back(readings)
                return False
        return True

    def _put_back(self, readings: list[Reading]) -> None:
        self._delivered[:0] = readings
        self._drop_oldest()

    async def _serve_commands(self, driver: Driver) -> None:
        while True:
            await self._commands.wait()
            self._commands.clear()
            await self._run_commands(driver)

    # the board

    async def _write(self, readings: Sequence[Reading]) -> bool:
        async with self._writing:  # in order with the mark of a device that is gone
            return await self._send(self._samples.changes(readings, self._loop.time(), self._bench.clock.now_ms()))

    async def _send(self, batches: list[Batch]) -> bool:
        """False: the board is out of reach."""
        if not batches:
            return True
        try:
            await self._bench.board.write(batches)
            if not self._is_troubled:
                self.status.error = ""
            return True
        except Invalid as error:  # and would never be taken
            self.status.dropped += sum(len(batch.values) for batch in batches)
            self._not_written(error)
            return True
        except TradewindError as error:  # the device is well: go on, and write all when the board is back
            self._not_written(error)
            return False
        except BaseException:
            self._samples.forget()
            raise

    def _not_written(self, error: TradewindError) -> None:
        self._samples.forget()
        self.status.error = f"values not written: {error.message}"
        log.warning("values not written", channel=self.channel.id, error=error.message)

    # health

    def _succeed(self) -> None:
        self._last_ok_s = self._loop.time()
        self._failed = 0
        if not self._is_troubled:
            return
        self._is_troubled = False
        self._gone.clear()
        self._samples.back()
        if self._timer is not None:
            self._timer.cancel()
        self.status.turn(True, self._bench.clock.now_ms())
        self.status.is_gone = False
        log.info("channel is online", channel=self.channel.id)

    def _fail(self, error: str) -> None:
        self.status.failures += 1
        if error != self.status.error:  # once, not with each attempt
            log.warning("channel is in trouble", channel=self.channel.id, error=error)
        self.status.turn(False, self._bench.clock.now_ms(), error)
        if not self._is_troubled:
            self._is_troubled = True
            self._expect_end(self._began_s)

    def _expect_end(self, trouble_s: float) -> None:
        """The device was heard last when the last poll succeeded; between rare polls it may also just have gone."""
        end_s = max(self._last_ok_s + self._timeout_s, trouble_s + min(self._timeout_s, self._interval_s))
        self._timer = self._loop.call_at(end_s, self._gone.set)

    async def _watch(self) -> None:
        """Marks all points bad once the device is gone."""
        while True:
            await self._gone.wait()
            async with self._writing:
                if not self._gone.is_set():
                    continue
                self.status.is_gone = True
                is_done = await self._send(self._samples.all_bad())
            if is_done:
                self._gone.clear()
            else:
                await asyncio.sleep(FIRST_PAUSE_S)

    @contextlib.asynccontextmanager
    async def _limit(self, what: str) -> AsyncIterator[None]:
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            async with asyncio.timeout(self._timeout_s + GRACE_S):
                yield
                if task is not None and task.cancelling() > before:
                    raise asyncio.CancelledError  # wait_for in a driver's library swallowed it (Python before 3.12)
        except TimeoutError as error:
            message = f"channel {self.channel.id}: the device {what} within {self.channel.timeout_ms} ms"
            raise DeviceTrouble(message, hint="check the device, or raise timeout_ms") from error


def pause_after(failed: int, chance: float) -> float:
    """Seconds before the next attempt, after so many failures before this one; chance from 0 to 1 spreads channels."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failed, 10)) * (0.5 + chance / 2))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
