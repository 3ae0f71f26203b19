"""Judges the rules (role rulesrv): reads the feed, judges what changed, stores edges with their states and effects at
once; once a second the cursor with all that rules remember.

Only the process that holds `rulesrv:leader` judges; the others stand by. When rules change, the lead changes hands or a
store fails, it starts again from what is stored: each state knows what it has seen of the feed behind the cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog

from tradewind.errors import Unavailable
from tradewind.ids import short_random
from tradewind.points.feed import FeedBatch, FeedReader, id_of
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.index_sweep import SWEEP_S, sweep_for_ever
from tradewind.redis.text import text_of
from tradewind.rules.beginnings import read_beginnings
from tradewind.rules.chains import Chains
from tradewind.rules.effects import effects_of, read_note
from tradewind.rules.lead import RuleLead, ServerClock
from tradewind.rules.network import RuleNetwork
from tradewind.rules.open_alarms import LeftOpen, alarm_samples, journal_place
from tradewind.rules.patient_reader import PatientReader
from tradewind.rules.program import RuleProgram
from tradewind.rules.round import STEPS_A_CALL, Outcome, RoundStore
from tradewind.rules.snapshot import channels_seen, read_rule_samples
from tradewind.rules.spec import AlarmOpen
from tradewind.rules.stats import RuleStats
from tradewind.rules.store import RuleStore
from tradewind.rules.sweep import RuleSweep

log = structlog.get_logger(__name__)
#: The name of the feed's consumer.
CONSUMER = "rulesrv"
TICK_S = 1.0
#: How often it is looked whether alarms moved, if a condition asks for them.
ALARM_TICK_S = 0.1
ENTRIES = 500
TROUBLE_PAUSE_S = 1.0
#: Ages of points that have their own: address → ms.
Ages = Callable[[], Awaitable[Mapping[str, int]]]


class Runner(Protocol):
    """What carries out the actions while this process judges; see ActionRunner."""

    async def run(self) -> None: ...


class RuleEngine:
    """`entries`: how many entries of the feed make a round at most; `steps_a_call`: effects that one script does."""

    def __init__(
        self,
        plane: PointPlane,
        store: RuleStore,
        runner: Runner | None = None,
        *,
        ages: Ages | None = None,
        engine_id: str = "",
        entries: int = ENTRIES,
        steps_a_call: int = STEPS_A_CALL,
    ) -> None:
        self.plane = plane
        self.id = engine_id or f"rulesrv-{short_random()}"
        self.stats = RuleStats()
        self.is_leading = False
        #: Of the rules that are judged.
        self.version = ""
        self._store = store
        self._runner = runner
        self._ages = ages
        self._entries = entries
        self._steps_a_call = steps_a_call
        self._clock = ServerClock(plane)
        self._ticked = 0.0
        self._looked = 0.0
        self._journal = b""
        self._is_behind = False
        self._left_open = LeftOpen()
        self._chains = Chains()
        self._alarm_conditions: Mapping[str, AlarmOpen] = {}
        self._controls: Sequence[str] = ()
        self._programs: Mapping[str, RuleProgram] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; gives the lead up then."""
        lead = RuleLead(self.plane, self.id)
        lead.start()
        sweeps = [RuleSweep(self.plane.link, self.plane.keys, self.plane.all_settings)]
        sweep = sweep_for_ever(sweeps, "rules", SWEEP_S, leads=lambda: bool(lead.epoch))
        sweeping = asyncio.create_task(sweep, name="rule sweep")
        try:
            while not stop.is_set():
                epoch = lead.epoch
                if not epoch:
                    await _either(stop, lead.changed)
                    lead.changed.clear()
                    continue
                try:
                    await lead.progress.watch("judge", self._term(lead, epoch, stop))
                except Unavailable as error:
                    lead.progress.met("judge", error.message)
                    log.warning("rules_wait", engine=self.id, error=error.message)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), TROUBLE_PAUSE_S)
        finally:
            self.is_leading = False
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
            await lead.stop()

    async def _term(self, lead: RuleLead, epoch: int, stop: asyncio.Event) -> None:
        """Judge the rules as they are now, until they change or the lead is lost."""
        feed = FeedReader(self.plane, CONSUMER, count=self._entries)
        reader = PatientReader(feed, self._clock)
        rounds: RoundStore | None = None
        acting = asyncio.create_task(self._runner.run(), name="rule actions") if self._runner is not None else None
        try:
            with translated(self.plane.link):
                has_cursor = await self.plane.redis.hexists(self.plane.keys.feed_cursors(), CONSUMER)
            await reader.open()
            definitions = await self._store.load()
            rounds = RoundStore(self.plane, self.id, epoch, definitions.version, self._steps_a_call)
            outcome = await rounds.drain()
            ages = await self._ages() if self._ages is not None else {}
            rules = [rule for rule in definitions.specs.values() if rule.enabled]
            network = RuleNetwork(
                rules,
                int(self.plane.settings.stale_s * 1000),
                ages,
                self._programs,
                int(self.plane.settings.future_s * 1000),
            )
            self._programs = network.programs
            await self._start(network, feed, is_followed=bool(has_cursor))
            self.stats = RuleStats(rules=len(rules))
            for problem in definitions.problems:
                log.warning("rule_left_out", path=problem.path, code=problem.code, hint=problem.hint)
                self.stats.errors.setdefault(problem.path.partition(".")[0], problem.hint)
            log.info("rules_judged", engine=self.id, rules=len(rules), epoch=epoch)
            self.version = definitions.version
            self.is_leading = outcome is Outcome.STORED
            if outcome is Outcome.STORED:
                outcome = await self._finish(network, rounds, (), self._clock.now_ms(), is_tick=True)
            while outcome is Outcome.STORED and lead.epoch == epoch and not stop.is_set():
                outcome = await self._round(network, rounds, reader)
                if acting is not None and acting.done():
                    acting.result()  # it never ends by itself: tell why it did
            if outcome is Outcome.STORED and lead.epoch == epoch:
                outcome = await self._finish(network, rounds, (), self._clock.now_ms(), is_tick=True)
            if outcome is Outcome.STORED:
                outcome = await rounds.finished()
            if outcome is Outcome.DEPOSED:
                lead.step_down(epoch)
        finally:
            self.is_leading = False
            if acting is not None:
                acting.cancel()
                await asyncio.gather(acting, return_exceptions=True)
            if rounds is not None:
                await rounds.close()
            await reader.close()

    async def _start(self, network: RuleNetwork, feed: FeedReader, *, is_followed: bool) -> None:
        """Rules go on where they stood at the cursor; new ones begin where the feed ended when they were saved."""
        now = await self._clock.look()
        self._ticked = self._looked = time.monotonic()
        with translated(self.plane.link):
            raw = await self.plane.redis.hgetall(self.plane.keys.rule_states())
        fresh = network.restore({text_of(field): data for field, data in raw.items()})
        self._follow_clock(network)
        self._left_open = await LeftOpen.read(self.plane)
        self._alarm_conditions, self._controls = network.alarm_conditions, network.control_addresses
        self._journal = await journal_place(self.plane)
        samples = await read_rule_samples(self.plane, network.addresses)
        samples |= await alarm_samples(self.plane, self._alarm_conditions, now)
        begins = await read_beginnings(self.plane, feed, network, fresh) if is_followed else {}
        first = await anext(feed.unread(), None)
        self._is_behind = first is not None
        network.start(samples, now, begins, is_behind=self._is_behind)
        if not is_followed:  # what happened since is not in the feed any more
            network.forget_seen()
            network.show(samples, now)
        await self._age(network, now if first is None else min(now, id_of(first.id)[0]))

    async def _round(self, network: RuleNetwork, rounds: RoundStore, reader: PatientReader) -> Outcome:
        batch, until = await reader.read(self._wait_ms(network), network.next_due())
        if batch is not None and batch.entries and self._clock.is_passed(id_of(batch.entries[-1].id)[0]):
            await self._clock.look()
        self._follow_clock(network)
        began = read_ms = self._clock.now_ms()
        if batch is not None:
            await self._take_in(network, batch)
            if batch.more_after is not None:
                until = min(until, batch.more_after.ts_ms)
                read_ms = min(read_ms, id_of(batch.more_after.id)[0])
            elif self._is_behind:  # now it may look at what the feed does not tell
                self._is_behind, self._journal, self._looked = False, b"", 0.0
                network.show(await read_rule_samples(self.plane, self._controls), began)
            elif batch.entries:  # what was written since may be on its way
                until = min(until, id_of(batch.entries[-1].id)[0])
        elif self._is_behind:
            read_ms = 0
        is_tick = time.monotonic() >= self._ticked + TICK_S
        if is_tick:
            if await self._store.version() != rounds.version:
                await rounds.finished()
                return Outcome.OUTDATED
            await self._tick(network, read_ms)
            self.stats.watch(network.programs)
        await self._look_at_alarms(network)
        network.due(min(until, self._clock.now_ms()))  # it may have been set back since
        cursor = batch.cursor if batch is not None else ()
        return await self._finish(network, rounds, cursor, began, is_tick=is_tick)

    def _wait_ms(self, network: RuleNetwork) -> int:
        """Until the next timer or tick; 1 when that has come."""
        wait = (self._ticked + TICK_S - time.monotonic()) * 1000
        if self._alarm_conditions:
            wait = min(wait, (self._looked + ALARM_TICK_S - time.monotonic()) * 1000)
        due = network.next_due()
        if due:
            wait = min(wait, due - self._clock.now_ms())
        return max(1, int(wait))

    async def _take_in(self, network: RuleNetwork, batch: FeedBatch) -> None:
        if batch.missed:
            log.warning("rules_missed", engine=self.id, entries=batch.missed)
            self.stats.missed += batch.missed
            samples = await read_rule_samples(self.plane, network.addresses)
            network.show(samples, self._clock.now_ms())
        for is_back, entries in itertools.groupby(batch.entries, key=lambda entry: entry.is_back):
            part = list(entries)
            if is_back:  # before they are judged: they have earlier times than what stands
                await self._clock.look()
                self._follow_clock(network)
                network.set_back(min(entry.ts_ms for entry in part))
            network.apply_all(part)
        self.stats.entries += len(batch.entries)
        if batch.entries:
            self.stats.behind_ms = max(0, self._clock.now_ms() - id_of(batch.entries[-1].id)[0])

    async def _tick(self, network: RuleNetwork, read_ms: int) -> None:
        """Once a second: ages, and control values, of which the feed does not tell. `read_ms`: the feed has been read
        up to then; what it tells later may be a value that seems to be missing."""
        self._ticked = time.monotonic()
        now = await self._clock.look()
        is_behind = read_ms < self._clock.now_ms() - TROUBLE_PAUSE_S * 1000
        self._follow_clock(network)
        if self._controls and not self._is_behind:
            network.show(await read_rule_samples(self.plane, self._controls), now)
        await self._age(network, read_ms if is_behind else now)

    def _follow_clock(self, network: RuleNetwork) -> None:
        step_ms = self._clock.take_step()
        if step_ms:
            log.warning("clock_was_set", engine=self.id, by_s=step_ms / 1000)
            network.set_clock(step_ms, self._clock.now_ms())

    async def _age(self, network: RuleNetwork, now: int) -> None:
        network.age(now, await channels_seen(self.plane, network.overdue(now)))

    async def _look_at_alarms(self, network: RuleNetwork) -> None:
        if self._is_behind or not self._alarm_conditions or time.monotonic() < self._looked + ALARM_TICK_S:
            return
        self._looked = time.monotonic()
        place = await journal_place(self.plane)
        if place != self._journal:
            self._journal = place
            now = self._clock.now_ms()
            network.show(await alarm_samples(self.plane, self._alarm_conditions, now), now)

    async def _finish(
        self, network: RuleNetwork, rounds: RoundStore, cursor: Sequence[str], began: int, *, is_tick: bool = False
    ) -> Outcome:
        """Judges while the round before is still being stored, and says what became of that."""
        steps = self._steps(network, began)
        if is_tick:
            steps += self._left_open.steps(network)
        states = network.take_states(is_all=is_tick)
        outcome = await rounds.finished()
        if outcome is not Outcome.STORED:
            return outcome
        rounds.begin(steps, states, cursor, is_tick=is_tick)
        self.stats.rounds += 1
        self.stats.checks = network.checks
        return outcome

    def _steps(self, network: RuleNetwork, began: int) -> list[bytes]:
        now, settings = self._clock.now_ms(), self.plane.all_settings.rules
        window_ms = int(settings.loop_window_s * 1000)
        steps: list[bytes] = []
        for fired in network.take():
            state = network.states[fired.rule.id]
            note = read_note(state.note, fired.rule)
            chain = self._chains.length(fired.verdict.source, now)
            made = effects_of(
                fired, note, now, began, chain=chain, loop_depth=settings.loop_depth, loop_window_ms=window_ms
            )
            self._chains.wrote(made.written, chain + 1, now)
            if made.note.stopped_version:  # what changes it next is no doing of the chain
                self._chains.end(fired.verdict.source)
            state.note = msgspec.to_builtins(made.note)
            steps += made.steps
            self.stats.fired += 1
        return steps


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
