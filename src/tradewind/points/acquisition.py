"""The role comsrv: polls every enabled channel that this process holds, and follows their definitions.

Each channel has a task of its own that alone starts and stops its runner, so there are never two pollers of a channel
in a process; leases (channel_claim) see to it that there are not two in the world.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from typing import Any

import msgspec
import structlog
from redis.exceptions import RedisError

from tradewind.errors import Invalid, TradewindError, error_text
from tradewind.ids import short_random
from tradewind.points.address import is_number
from tradewind.points.board import Batch, Board
from tradewind.points.channel_bench import Bench, CommandSource
from tradewind.points.channel_claim import ClaimKeeper
from tradewind.points.channel_push import PushWatch
from tradewind.points.channel_runner import OWED_PAUSE_S, ChannelRunner
from tradewind.points.channel_samples import READ_KINDS
from tradewind.points.channel_status import ChannelStatus, StatusBook
from tradewind.points.channel_store import ChannelStore
from tradewind.points.driver_registry import PUSH, DriverRegistry
from tradewind.points.owed_run import channels_owed
from tradewind.points.plane import PointPlane
from tradewind.points.spec import ChannelSpec, Kind, Quality
from tradewind.points.substitutions import Substitutions
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType
from tradewind.redis.fences import sorted_out
from tradewind.redis.text import text_of

log = structlog.get_logger(__name__)
#: How long a command may wait before its channel hears of it.
COMMANDS_S = 0.1
CHANGES_S = 0.5
SWEEP_S = 1.0
#: Each so many looks for commands, points that a command left unknown are read back.
UNSURE = 10
#: How long a channel that is to stop waits for the command that it is carrying out.
STOP_S = 10.0


def new_owner() -> str:
    """Who holds channels and carries their commands out; new with each start of a process."""
    return f"comsrv-{short_random()}"


class _Post:
    """A channel in this process: what it should be, and the task that makes it so. `spec` None: it should end; not
    enabled: nobody polls it, and only what is owed to its device is done."""

    __slots__ = ("changed", "owed", "runner", "spec", "task")

    def __init__(self, spec: ChannelSpec) -> None:
        self.spec: ChannelSpec | None = spec
        self.changed = asyncio.Event()
        self.owed = asyncio.Event()
        self.runner: ChannelRunner | PushWatch | None = None
        self.task: asyncio.Task[None] | None = None

    def set(self, spec: ChannelSpec | None) -> None:
        if spec != self.spec:
            self.spec = spec
            self.changed.set()


class Acquisition:
    """`owner`: the same as that of `commands`."""

    def __init__(
        self,
        plane: PointPlane,
        board: Board,
        store: ChannelStore,
        *,
        drivers: DriverRegistry | None = None,
        commands: CommandSource | None = None,
        owner: str = "",
        lease_s: float = 10.0,
    ) -> None:
        self.owner = owner or new_owner()
        self._plane = plane
        self._store = store
        self._bench = Bench(
            board, drivers or DriverRegistry(), plane.clock, plane.settings.stale_s, commands, self._is_held
        )
        self._lease_s = lease_s
        self._substitutions = Substitutions(board, store)
        self._specs: dict[str, ChannelSpec] = {}
        self._posts: dict[str, _Post] = {}
        self._owed: frozenset[str] = frozenset()
        self._book = StatusBook(plane, self.reload)
        self._claims: ClaimKeeper | None = None
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then every device is let go and every lease handed back."""
        self._claims = ClaimKeeper(self._plane, self.owner, self._settle, lease_s=self._lease_s)
        self._claims.start()
        log.info("acquisition begins", owner=self.owner)
        try:
            async with asyncio.TaskGroup() as posts:
                self._tasks = posts
                try:
                    async with asyncio.TaskGroup() as jobs:
                        running = [
                            jobs.create_task(self._follow(), name="channel definitions"),
                            jobs.create_task(self._book.run(), name="channel status"),
                            jobs.create_task(self._hear_commands(), name="channel commands"),
                            jobs.create_task(self._sweep(), name="command sweep"),
                            jobs.create_task(self._watch_claims(), name="channel claims"),
                        ]
                        await stop.wait()
                        for task in running:
                            task.cancel()
                finally:
                    self._tasks = None
                for post in self._posts.values():
                    post.set(None)
        finally:
            await self._claims.stop()

    def reload(self, channel: str) -> None:
        """Stop the channel's runner, wait until it has let the device go, and start a new one."""
        post = self._posts.get(channel)
        if post is not None:
            log.info("channel reloads", channel=channel)
            post.changed.set()

    def statistics(self) -> list[dict[str, Any]]:
        """The figures of the channels that this process polls, as in their status hashes."""
        return [{"channel": status.channel, **status.fields()} for status in self._book.all()]

    def _settle(self) -> None:
        """Make the posts fit the definitions and the leases; called whenever one of them has changed."""
        claims, tasks = self._claims, self._tasks
        if claims is None or tasks is None:
            return
        wanted = {channel: spec for channel, spec in self._specs.items() if spec.enabled}
        for channel in self._owed - wanted.keys():  # switched off or removed, but its device may still be on
            wanted[channel] = msgspec.structs.replace(self._specs.get(channel) or ChannelSpec(channel), enabled=False)
        claims.want(wanted)
        leaving, held = claims.leaving, claims.held  # in this order
        for channel, post in self._posts.items():
            post.set(wanted.get(channel) if channel in held - leaving else None)
        for channel in held - self._posts.keys():
            spec = wanted.get(channel)
            if spec is None or channel in leaving:
                claims.release(channel)
                continue
            post = self._posts[channel] = _Post(spec)
            post.task = tasks.create_task(self._keep(channel, post), name=f"channel {channel}")

    async def _keep(self, channel: str, post: _Post) -> None:
        """One runner after the other, as long as there should be one."""
        served: ChannelSpec | None = None
        try:
            while post.spec is not None:
                post.changed.clear()
                served = post.spec
                try:
                    await self._serve(served, post)
                except Exception as error:  # the fence between channels: one that fails ends no other
                    self._book.fail(channel, error_text(error))
                    log.exception("channel_failed", channel=channel)
                if not post.changed.is_set():  # it failed by itself, which no runner should
                    await asyncio.sleep(1)
        except BaseException:
            self._tasks = None  # a group of which a task failed or is cancelled takes no new ones
            raise
        finally:
            del self._posts[channel]
            spec, claims = self._specs.get(channel), self._claims
            is_off = spec is None or not spec.enabled
            if is_off and served is not None and self._is_held(channel):
                await self._mark(channel, {(point.kind, point.id) for point in served.points})
            await self._book.close(channel, is_removed=spec is None, is_ours=self._is_held(channel), is_off=is_off)
            spec = self._specs.get(channel)
            is_off = (spec is None or not spec.enabled) and channel not in self._owed
            if claims is not None and (is_off or channel in claims.leaving):
                claims.release(channel)
            self._settle()  # it may be wanted again already

    async def _mark_foreign(self, spec: ChannelSpec) -> None:
        """Values from before the channel had this driver (pushed by programs, or of another protocol) are not what the
        device says: uncertain until it has said something. So are all of which that is not known."""
        status, place = self._plane.keys.channel_status(spec.id), self._plane.at(spec.id)
        try:
            former = (await place.ask_each([("HGET", status, "protocol")]))[0]
            if former == spec.protocol.encode():
                return
            if spec.protocol != PUSH:
                await self._mark(spec.id, await self._stored(spec.id, READ_KINDS))
            with translated(place.link):
                await place.redis.hset(status, "protocol", spec.protocol)
        except TradewindError as error:
            self._not_marked(spec.id, error)

    async def _mark_undeclared(self, spec: ChannelSpec) -> None:
        """Values of points that the channel has no more would look as fresh as the channel."""
        declared = {(point.kind, point.id) for point in spec.points}
        try:
            await self._mark(spec.id, await self._stored(spec.id, tuple(Kind)) - declared)
        except TradewindError as error:
            self._not_marked(spec.id, error)

    async def _stored(self, channel: str, kinds: Sequence[Kind]) -> set[tuple[Kind, str]]:
        """The points that have values; what another program has left that is none of ours is left out."""
        names = [("HKEYS", self._plane.keys.points(channel, kind)) for kind in kinds]
        found: set[tuple[Kind, str]] = set()
        for kind, reply in zip(kinds, await self._plane.at(channel).ask_each(names), strict=True):
            if isinstance(reply, WrongType):
                self._not_marked(channel, reply)
            else:
                found |= {(kind, name) for name in map(text_of, reply) if is_number(name)}
        return found

    def _not_marked(self, channel: str, error: TradewindError) -> None:
        self._book.fail(channel, f"values not marked: {error.message}")
        log.warning("channel_values_not_marked", channel=channel, error=error.message)

    async def _mark(self, channel: str, points: Set[tuple[Kind, str]]) -> None:
        """Nobody refreshes these any more: they are uncertain, and keep value and time."""
        uncertain = Quality.UNCERTAIN.value
        marks = {kind: {point: uncertain for its, point in sorted(points) if its is kind} for kind in Kind}
        batches = [Batch.of_channel(channel, kind, {}, quality=found) for kind, found in marks.items() if found]
        try:
            await self._bench.board.write(batches)
        except TradewindError as error:
            self._not_marked(channel, error)

    def _is_held(self, channel: str) -> bool:
        return self._claims is not None and self._claims.is_ours(channel)

    async def _serve(self, spec: ChannelSpec, post: _Post) -> None:
        """Run the channel until something about it changes."""
        if not spec.enabled:
            await self._release_former(spec, post, None)
            return
        points = sum(point.kind in READ_KINDS for point in spec.points)
        status = ChannelStatus(spec.id, self.owner, points, self._plane.clock.now_ms())
        self._book.open(status)
        await self._mark_foreign(spec)
        if spec.protocol != PUSH:
            await self._mark_undeclared(spec)
        runner: ChannelRunner | PushWatch
        if spec.protocol == PUSH:
            runner = PushWatch(spec, self._bench.board, status)
        else:
            runner = ChannelRunner(spec, self._bench, status)
        post.runner = runner
        running = asyncio.create_task(runner.run(), name=f"runner {spec.id}")
        former = asyncio.create_task(self._release_former(spec, post, spec), name=f"owed {spec.id}")
        change = asyncio.create_task(post.changed.wait())
        try:
            await asyncio.wait({running, change}, return_when=asyncio.FIRST_COMPLETED)
            if self._is_held(spec.id) and not running.done():
                await runner.finish_command(STOP_S)
        finally:
            change.cancel()
            patience_s = spec.timeout_ms / 1000 + 2
            for task in (former, running):
                await _ended(
                    task, patience_s, lambda error: log.error("channel failed", channel=spec.id, exc_info=error)
                )
            post.runner = None
            status.turn(False, self._plane.clock.now_ms(), "stopped")

    async def _release_former(self, spec: ChannelSpec, post: _Post, now: ChannelSpec | None) -> None:
        """Do what is owed to targets that the channel's definition does not name (any more), until all is done; then
        again when something is. `now` None: until the channel is wanted otherwise."""
        source, failed = self._bench.commands, 0
        if now is None:
            post.owed.set()
        while source is not None and (now is not None or not post.changed.is_set()):
            try:
                async with asyncio.timeout(None if now is not None else COMMANDS_S):
                    await post.owed.wait()
            except TimeoutError:
                continue
            post.owed.clear()
            try:
                is_done = await source.release_former(spec.id, now, self._bench.drivers)
            except TradewindError as error:
                log.warning("commands out of reach", channel=spec.id, error=error.message)
                is_done = False
            failed = 0 if is_done else failed + 1
            if not is_done:
                await asyncio.sleep(min(OWED_PAUSE_S, 0.5 * failed))
                post.owed.set()

    async def _watch_claims(self) -> None:
        """Let go what ended by our own clock, also when the thread that should say so hangs."""
        while True:
            await asyncio.sleep(min(SWEEP_S, self._lease_s / 10))
            if (claims := self._claims) is None:
                continue
            running = {channel for channel, post in self._posts.items() if post.spec is not None}
            leaving, held = claims.leaving, claims.held
            if running - held or held - leaving - self._posts.keys():
                self._settle()

    async def _sweep(self) -> None:
        """End what is over, also without a scheduler; several do no harm."""
        sweeps: dict[str, Callable[[], Awaitable[Any]]] = {"substitutions": self._substitutions.sweep}
        if self._bench.commands is not None:
            sweeps["commands"] = self._bench.commands.sweep
        while True:
            await asyncio.sleep(SWEEP_S)
            for what, sweep in sweeps.items():  # apart: while one fails, the others end in time
                try:
                    await sweep()
                except (TradewindError, RedisError) as error:
                    log.warning("not_swept", what=what, error=error_text(error))

    async def _follow(self) -> None:
        """Learn of definitions as they change."""
        async for change in self._store.watch(CHANGES_S):
            for channel in change.removed:
                self._specs.pop(channel, None)
            for channel in change.changed:
                spec = await self._read(channel)
                if spec is None:
                    self._specs.pop(channel, None)
                else:
                    self._specs[channel] = spec
            self._settle()

    async def _read(self, channel: str) -> ChannelSpec | None:
        while True:
            try:
                return (await self._store.get_many([channel]))[0]
            except Invalid as error:
                log.error("channel left out", channel=channel, error=error.message)
                return None
            except TradewindError as error:  # the change is told only once
                log.warning("channel definition out of reach", channel=channel, error=error.message)
                await asyncio.sleep(CHANGES_S)

    async def _hear_commands(self) -> None:
        """Wake the runners whose channels have commands; one short question as long as there are none anywhere."""
        keys = self._plane.keys
        for turn in itertools.count():
            if self._bench.commands is None:
                return
            await asyncio.sleep(COMMANDS_S)
            try:
                if turn % UNSURE == 0:
                    for runner in [post.runner for post in self._posts.values() if post.runner is not None]:
                        if runner.is_unsure:
                            runner.wake()
                with translated(self._plane.link):
                    pipe = self._plane.redis.pipeline(transaction=False)
                    pipe.zcard(keys.commands_open()).hkeys(keys.commands_owed())
                    asked = [("ZCARD", keys.commands_open()), ("HKEYS", keys.commands_owed())]
                    count, owed = sorted_out(asked, await pipe.execute(raise_on_error=False))
                if not isinstance(owed, WrongType):
                    self._hear_owed(channels_owed(owed))
                is_look = turn % UNSURE == 0  # a command of another program stands in no index yet
                if not count and not is_look:
                    continue
                with translated(self._plane.link):
                    channels = list(self._posts)
                    pipe = self._plane.redis.pipeline(transaction=False)
                    for channel in channels:
                        pipe.llen(keys.channel_todo(channel))
                    asked = [("LLEN", keys.channel_todo(channel)) for channel in channels]
                    lengths = sorted_out(asked, await pipe.execute(raise_on_error=False)) if channels else []
                if is_look:
                    await self._adopt([c for c, n in zip(channels, lengths, strict=True) if isinstance(n, int) and n])
            except TradewindError as error:
                log.warning("commands out of reach", error=error.message)
                await asyncio.sleep(1)
                continue
            for channel, length in zip(channels, lengths, strict=True):
                post = self._posts.get(channel)
                if isinstance(length, int) and length and post is not None and post.runner is not None:
                    post.runner.wake()

    async def _adopt(self, channels: Iterable[str]) -> None:
        if self._bench.commands is None:
            return
        for channel in channels:
            try:
                await self._bench.commands.adopt(channel)
            except TradewindError as error:
                log.warning("commands_not_adopted", channel=channel, error=error.message)

    def _hear_owed(self, channels: frozenset[str]) -> None:
        if channels != self._owed:
            self._owed = channels
            self._settle()
        for channel in channels & self._posts.keys():
            post = self._posts[channel]
            post.owed.set()
            if post.runner is not None:
                post.runner.wake()


async def _ended(task: asyncio.Task[None], patience_s: float, on_error: Callable[[BaseException], None]) -> None:
    """Cancel a task and wait for its end, also when we are cancelled ourselves: two pollers are worse than a late stop.
    A cancellation that was swallowed on the way is repeated."""
    is_cancelled = False
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=patience_s)
        except asyncio.CancelledError:
            is_cancelled = True
    if not task.cancelled() and (error := task.exception()) is not None:
        on_error(error)
    if is_cancelled:
        raise asyncio.CancelledError
