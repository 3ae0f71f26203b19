"""Computes the models (role modsrv): reads the feed, computes what changed, stores outputs, memory and cursor at once.

Only the process that holds `models:leader` computes; the others stand by. When definitions change, the lead changes
hands or a store fails, it starts again from what is stored, which is always of one piece.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
import structlog

from tradewind.clock import Clock
from tradewind.errors import Unavailable
from tradewind.ids import ID, short_random
from tradewind.models.definitions import Definitions
from tradewind.models.network import Network
from tradewind.models.round import Outcome, RoundStore
from tradewind.models.snapshot import read_samples
from tradewind.models.state import restore
from tradewind.models.store import ModelStore
from tradewind.points.address import MEASUREMENT
from tradewind.points.board import Batch, Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.feed import FeedBatch, FeedReader, id_of
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType
from tradewind.redis.text import text_of
from tradewind.tasks.leader import Leadership

log = structlog.get_logger(__name__)
#: The name of the feed's consumer.
CONSUMER = "modsrv"
TICK_S = 1.0
ENTRIES = 500
MODELS_A_LOOK = 1000


class ModelStats(msgspec.Struct):
    """Since this process computes. `errors`: models that cannot be computed now, and why. `behind_ms`: how old the last
    batch was when it was stored."""

    models: int = 0
    rounds: int = 0
    entries: int = 0
    computed: int = 0
    outputs: int = 0
    missed: int = 0
    behind_ms: int = 0
    errors: dict[str, str] = {}


class ModelEngine:
    """`entries`: how many entries of the feed make a round at most. `channels`: say which points have an age of their
    own; without it `points.stale_s` counts for all."""

    def __init__(
        self,
        plane: PointPlane,
        board: Board,
        store: ModelStore,
        channels: ChannelStore | None = None,
        *,
        engine_id: str = "",
        entries: int = ENTRIES,
    ) -> None:
        self.plane = plane
        self.id = engine_id or f"modsrv-{short_random()}"
        self.stats = ModelStats()
        self.is_leading = False
        self._board = board
        self._store = store
        self._channels = channels
        self._channels_word: bytes | None = None
        self._told_ms = 0
        self._entries = entries
        self._ticked = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; gives the lead up then."""
        lead = Leadership(self.plane, self.id, self.plane.keys.models_leader(), self.plane.keys.models_epoch())
        await lead.serve(
            stop, lambda epoch: lead.progress.watch("compute", self._term(lead, epoch, stop)), self._trouble
        )

    def _trouble(self, error: Unavailable) -> None:
        log.warning("models_wait", engine=self.id, error=error.message)

    async def _term(self, lead: Leadership, epoch: int, stop: asyncio.Event) -> None:
        """Compute with the definitions as they are now, until they change or the lead is lost."""
        reader = FeedReader(self.plane, CONSUMER, count=self._entries)
        rounds: RoundStore | None = None
        try:
            with translated(self.plane.link):
                has_cursor = await self.plane.redis.hexists(self.plane.keys.feed_cursors(), CONSUMER)
            await reader.open()
            definitions = await self._store.load()
            for problem in definitions.problems:
                log.warning("model_left_out", path=problem.path, code=problem.code, hint=problem.hint)
            stale_ms = int(self.plane.settings.stale_s * 1000)
            network = Network(definitions.specs, self._refresh_ms(), stale_ms=stale_ms, future_ms=self._board.future_ms)
            self._channels_word = None
            await self._start(network, is_followed=bool(has_cursor))
            await self._mark_left(definitions, network)
            rounds = RoundStore(self.plane, self._board, network, self.id, epoch, definitions.version)
            log.info("models_computed", engine=self.id, models=len(network.names), epoch=epoch)
            self.stats = ModelStats(models=len(network.names))
            self.is_leading = True
            await self._tick(network)
            outcome = await self._finish(network, rounds, None)
            while outcome is Outcome.STORED and lead.epoch == epoch and not stop.is_set():
                outcome = await self._round(network, rounds, reader)
            if outcome is Outcome.STORED:
                outcome = await rounds.finished()
            if outcome is Outcome.DEPOSED:
                lead.step_down(epoch)
        finally:
            self.is_leading = False
            if rounds is not None:
                await rounds.close()
            await reader.close()

    async def _start(self, network: Network, *, is_followed: bool) -> None:
        """Inputs stand where they stood at the cursor; those that nothing is known of, where the board has them."""
        with translated(self.plane.link):
            raw = await self.plane.redis.hgetall(self.plane.keys.model_states())
        stored = restore(network, {text_of(field): data for field, data in raw.items()})
        found = await read_samples(self.plane, [*network.addresses, *network.output_addresses])
        for address, sample in ({**found, **stored} if is_followed else found).items():
            if sample is not None:
                network.preset(address, sample)
        network.preset_outputs(found)
        now = await _now_ms(self.plane)
        network.set_back(now)  # if it was, since these were stored
        network.touch_all(now)

    async def _mark_left(self, definitions: Definitions, network: Network) -> None:
        """Values of models that are off or cannot be read, and of outputs that a model has no more, are uncertain: this
        engine speaks for all values of models that it does not mark. Raises Unavailable."""
        keys, computed, names = self.plane.keys, set(network.output_addresses), list(definitions.models)
        for start in range(0, len(names), MODELS_A_LOOK):
            part = names[start : start + MODELS_A_LOOK]
            found = await self.plane.home.ask_each([("HKEYS", keys.model_values(name, MEASUREMENT)) for name in part])
            batches = []
            for name, fields in zip(part, found, strict=True):
                if isinstance(fields, WrongType):  # nobody can read these either
                    log.warning("model_left_out", path=name, code=fields.code, hint=fields.message)
                    continue
                left = [
                    field
                    for field in map(text_of, fields)
                    if ID.fullmatch(field) and f"modsrv:{name}:{MEASUREMENT}:{field}" not in computed
                ]
                if left:
                    batches.append(Batch.of_model(name, {}, quality=dict.fromkeys(left, "uncertain"), origin="modsrv"))
            if batches:
                await self._board.write(batches)

    async def _round(self, network: Network, rounds: RoundStore, reader: FeedReader) -> Outcome:
        wait_s = self._ticked + TICK_S - time.monotonic()
        batch = await reader.read(max(1, int(wait_s * 1000))) if wait_s > 0 else None
        if batch is not None:
            await self._take_in(network, batch)
        if time.monotonic() >= self._ticked + TICK_S:
            if await self._store.version() != rounds.version:
                return Outcome.OUTDATED
            await self._tick(network)
            return await self._finish(network, rounds, batch, is_tick=True)
        return await self._finish(network, rounds, batch)

    async def _take_in(self, network: Network, batch: FeedBatch) -> None:
        if batch.missed:
            log.warning("models_missed", engine=self.id, entries=batch.missed)
            self.stats.missed += batch.missed
            network.show(await read_samples(self.plane, network.addresses))
        for entry in batch.entries:
            network.apply(entry)
        self.stats.entries += len(batch.entries)

    async def _tick(self, network: Network) -> None:
        """Once a second: ages, and control values, of which the feed does not tell."""
        self._ticked = time.monotonic()
        controls = network.control_addresses
        if controls:
            network.show(await read_samples(self.plane, controls))
        await self._follow_ages(network)
        now = await _now_ms(self.plane)
        seen: dict[str, int] = {}
        for channel in network.overdue(now) - {""}:
            status = self.plane.keys.channel_status(channel)
            last = (await self.plane.at(channel).ask_each([("HGET", status, "last_ms")]))[0]
            seen[channel] = int(last) if isinstance(last, bytes) and last.isdigit() else 0
        network.age(now, seen)
        self._told_ms = now

    async def _follow_ages(self, network: Network) -> None:
        """Points may get another `max_age_s`."""
        if self._channels is not None and (word := await self._channels.word()) != self._channels_word:
            network.set_ages(await self._channels.ages())
            self._channels_word = word

    async def _finish(
        self, network: Network, rounds: RoundStore, batch: FeedBatch | None, *, is_tick: bool = False
    ) -> Outcome:
        """Computes while the round before is still being stored, and says what became of that."""
        network.settle()
        changes = network.take()
        outcome = await rounds.finished()
        if outcome is not Outcome.STORED:
            return outcome
        if is_tick:
            await self._speak_for_outputs(batch)
        rounds.begin(changes, batch.cursor if batch is not None else (), is_tick=is_tick)
        stats = self.stats
        stats.rounds += 1
        if stats.computed != network.computed:
            stats.computed = network.computed
            self._watch_errors(network)
        stats.outputs += sum(len(change.fields) for change in changes)
        if batch is not None:
            newest = batch.entries[-1].ts_ms if batch.entries else 0
            stats.behind_ms = max(0, Clock().now_ms() - newest) if newest else 0
        return outcome

    async def _speak_for_outputs(self, batch: FeedBatch | None) -> None:
        """All outputs are what they should be: as of now, or of what was read last while there is more to read."""
        ms = self._told_ms
        if batch is not None and len(batch.entries) >= self._entries:
            ms = min(ms, id_of(batch.entries[-1].id)[0])
        with translated(self.plane.link):
            await self.plane.redis.hset(self.plane.keys.models_status(), "last_ms", str(ms))

    def _watch_errors(self, network: Network) -> None:
        errors = network.errors()
        for name, error in errors.items():
            if name not in self.stats.errors:
                log.warning("model_fails", model=name, error=error)
        for name in self.stats.errors:
            if name not in errors:
                log.info("model_works_again", model=name)
        self.stats.errors = errors

    def _refresh_ms(self) -> int:
        return int(self.plane.settings.stale_s * 1000 / 3)


async def _now_ms(plane: PointPlane) -> int:
    """The clock that the board stamps with."""
    fixed = plane.clock.now_arg()
    if fixed:
        return int(fixed)
    with translated(plane.link):
        seconds, micros = await plane.redis.time()
    return int(seconds) * 1000 + int(micros) // 1000
