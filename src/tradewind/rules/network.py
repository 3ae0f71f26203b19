"""All rules together: which change reaches which rule, timers, stale values. Pure.

A change costs what the rules that read it cost, however many others there are. Most changes cross no limit: each source
of a rule has a band of values that would change nothing (`RuleProgram.band`), and only values outside of it are judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from tradewind.points.address import CONTROL
from tradewind.points.feed import FeedEntry
from tradewind.rules.network_age import Ages
from tradewind.rules.network_index import KeyIndex
from tradewind.rules.network_timers import Timers
from tradewind.rules.program import CATCH_UP, NO_SAMPLES, RuleProgram
from tradewind.rules.spec import AlarmOpen, Rule
from tradewind.rules.state import RuleState
from tradewind.rules.verdict import BAD, GOOD, STALE, UNCERTAIN, Sample, Verdict

_WORDS = {"good": GOOD, "uncertain": UNCERTAIN, "bad": BAD}


class Fired(msgspec.Struct, frozen=True):
    """An edge of a rule."""

    rule: Rule
    verdict: Verdict


class RuleNetwork:
    """`stale_ms`: age at which a point of kind m or s is unknown; `ages`: address → that of a point with its own.

    `programs` and `states` by rule id, of enabled rules, those of higher priority first. `checks` counts how often a
    change met a rule that reads it, `judged` how often it had to be looked at closely.
    """

    def __init__(self, rules: Iterable[Rule], stale_ms: int = 30_000, ages: Mapping[str, int] | None = None) -> None:
        enabled = sorted((rule for rule in rules if rule.enabled), key=lambda rule: (-rule.priority, rule.id))
        self.programs = {rule.id: RuleProgram(rule) for rule in enabled}
        self.states: dict[str, RuleState] = {name: program.fresh() for name, program in self.programs.items()}
        self.checks = 0
        self.judged = 0
        self._programs = list(self.programs.values())
        self._states = list(self.states.values())
        self._fresh = set(range(len(self._programs)))
        # A slot per address, a watch per source of a rule.
        self._slots: dict[str, int] = {}
        self._slots_of: list[list[int]] = []
        self._watches_of: list[list[int]] = []
        self._places: list[tuple[int, int]] = []
        for at, program in enumerate(self._programs):
            first = len(self._places)
            self._slots_of.append([self._slots.setdefault(a, len(self._slots)) for a in program.addresses])
            self._watches_of.append(list(range(first, first + len(program.addresses))))
            self._places += [(at, place) for place in range(len(program.addresses))]
        self._readers: list[list[int]] = [[] for _ in self._slots]
        for slots, watches in zip(self._slots_of, self._watches_of, strict=True):
            for slot, watch in zip(slots, watches, strict=True):
                self._readers[slot].append(watch)
        self._low = [float("inf")] * len(self._places)
        self._high = [float("-inf")] * len(self._places)
        self._values: list[float | str | None] = [None] * len(self._slots)
        self._times = [-1] * len(self._slots)
        self._keys: dict[str, KeyIndex] = {}
        for address, slot in self._slots.items():
            if not address.startswith("alarm:"):
                key, _, field = address.rpartition(":")
                self._keys.setdefault(key, KeyIndex()).slots[field] = slot
        self._ages = Ages(self._slots, self._times, stale_ms, ages or {})
        self._timers = Timers(self._states)
        self._fired: list[Fired] = []
        self._dirty: dict[int, None] = {}

    @property
    def addresses(self) -> list[str]:
        """Points and models' fields that rules read (no alarms)."""
        return [address for address in self._slots if not address.startswith("alarm:")]

    @property
    def control_addresses(self) -> list[str]:
        """Those of them of which the feed does not tell: read them each second and `show` them."""
        return [address for address in self.addresses if address.split(":")[2] == CONTROL]

    @property
    def alarm_conditions(self) -> dict[str, AlarmOpen]:
        """Alarm conditions by their address: `show` 1 or 0 for each at the start and when alarms move."""
        leaves = (leaf for program in self._programs for leaf in program.rule.leaves())
        return {leaf.address: leaf for leaf in leaves if isinstance(leaf, AlarmOpen)}

    def restore(self, stored: Mapping[str, bytes]) -> list[str]:
        """Give rules their states back; the ids of those that begin afresh."""
        for at, program in enumerate(self._programs):
            data = stored.get(program.rule.id)
            state = program.load(data) if data is not None else None
            if state is not None:
                self._states[at] = self.states[program.rule.id] = state
                if state.moment_ms:  # else only its note was stored
                    self._fresh.discard(at)
        return [self._programs[at].rule.id for at in sorted(self._fresh)]

    def start(self, samples: Mapping[str, Sample], now_ms: int) -> None:
        """The board and the open alarms at the start: judges the rules that begin afresh. Call it once, after `restore`
        and before entries of the feed; rules that go on take their samples from the feed behind the cursor, but are
        shown at once what the feed does not tell."""
        known = {self._slots[a]: sample.ts_ms for a, sample in samples.items() if a in self._slots}
        stale = self._ages.past(known, now_ms)
        for at, (program, state) in enumerate(zip(self._programs, self._states, strict=True)):
            slots = self._slots_of[at]
            if at in self._fresh:
                found = {a: samples[a] for a in program.addresses if a in samples}
                for address, slot in zip(program.addresses, slots, strict=True):
                    if slot in stale:  # until `age` hears that its channel answers
                        found[address] = msgspec.structs.replace(found[address], quality=STALE)
                self._note(at, [program.judge(state, found, now_ms)])
            stale.update(slot for slot, word in zip(slots, state.qualities, strict=True) if word == STALE)
            self._after(at, range(len(program.addresses)))
        self._ages.begin(known, stale)
        untold = {*self.control_addresses, *self.alarm_conditions}
        self.show({a: sample for a, sample in samples.items() if a in untold}, now_ms)

    def apply(self, entry: FeedEntry) -> None:
        """Judge the rules that an entry of the feed touches. Late ones change nothing."""
        index = self._keys.get(entry.key)
        if index is None or entry.is_late:
            return
        ts_ms = entry.ts_ms
        if not entry.data or entry.qualities or entry.each_ts or ts_ms < index.newest:
            self._apply_one_by_one(index, entry)
            return
        index.newest = ts_ms
        slots, found, watches, met = index.read(entry.data, self._readers)
        values, times, low, high = self._values, self._times, self._low, self._high
        for slot, value in zip(slots, found):  # noqa: B905 - strict costs more than the rest
            values[slot] = value
            times[slot] = ts_ms
        self.checks += len(watches)
        pairs = zip(watches, met)  # noqa: B905
        hits = [(watch, value) for watch, value in pairs if not low[watch] <= value <= high[watch]]
        if hits:
            self._judge({watch: Sample(value, ts_ms) for watch, value in hits}, ts_ms)

    def _apply_one_by_one(self, index: KeyIndex, entry: FeedEntry) -> None:
        quality, times = entry.quality(), entry.times()
        index.newest = max(index.newest, entry.ts_ms)
        found: dict[int, Sample] = {}
        for field, value in entry.values().items():
            word = _WORDS[quality.pop(field, "good")]
            if field in index.slots:
                self._meet(index.slots[field], Sample(value, times[field], word), found)
        for field, text in quality.items():  # what is left came without a value
            slot = index.slots.get(field, -1)
            if slot >= 0 and entry.ts_ms >= self._times[slot]:
                found.update(self._marked(slot, _WORDS[text]))
        self._judge(found, entry.ts_ms)

    def _meet(self, slot: int, sample: Sample, found: dict[int, Sample]) -> None:
        """Put a sample into its slot; what must be judged for it goes into `found`."""
        if sample.ts_ms < self._times[slot]:
            return
        value = sample.value
        self._values[slot], self._times[slot] = value, sample.ts_ms
        self.checks += len(self._readers[slot])
        is_known = sample.quality < BAD
        for watch in self._readers[slot]:
            if is_known and isinstance(value, (int, float)) and self._low[watch] <= value <= self._high[watch]:
                continue
            found[watch] = sample

    def show(self, samples: Mapping[str, Sample], now_ms: int) -> None:
        """What stands where the feed does not tell (controls, alarms, after missed entries): judges what is new."""
        found: dict[int, Sample] = {}
        moment = 0
        for address, sample in samples.items():
            slot = self._slots.get(address, -1)
            if slot >= 0 and not self._ages.is_stale(slot, sample.ts_ms):
                self._meet(slot, sample, found)
                moment = max(moment, sample.ts_ms if sample.quality < BAD else now_ms)
                index = self._keys.get(address.rpartition(":")[0])
                if index is not None:
                    index.newest = max(index.newest, sample.ts_ms)
        self._judge(found, moment)

    def overdue(self, now_ms: int) -> set[str]:
        """Channels with points past their age: only when they last answered tells whether those are stale."""
        return self._ages.overdue(now_ms)

    def age(self, now_ms: int, seen: Mapping[str, int]) -> None:
        """Points past their age become unknown, as of the moment when they did. `seen`: channel → when it answered;
        its unchanged points are as fresh as that."""
        for slot, is_stale, since_ms in self._ages.judge(now_ms, seen):
            self._judge(self._marked(slot, STALE if is_stale else GOOD, is_age=True), since_ms)
        self._timers.resume()

    def _marked(self, slot: int, quality: int, *, is_age: bool = False) -> dict[int, Sample]:
        """What watches show, with another quality; nothing for those to which that says nothing new."""
        found: dict[int, Sample] = {}
        for watch in self._readers[slot]:
            at, place = self._places[watch]
            state = self._states[at]
            if is_age and (state.known[place] is None if quality == STALE else state.qualities[place] != STALE):
                continue
            self._catch_up(at, ())
            if state.times[place] >= 0:
                found[watch] = Sample(state.values[place], state.times[place], quality)
        return found

    def next_due(self) -> int:
        """When `due` has something to do; 0: no timer runs."""
        return self._timers.next_ms()

    def due(self, now_ms: int) -> None:
        """Judge timers. `now_ms`: the server's clock once the feed is read to its end; while entries still wait, not
        more than the time of the last one read, or a timer would overtake a value that stops it.

        A timer of a rule that reads a point past its age waits until `age` has said whether that is stale."""
        steps: dict[int, int] = {}
        while (found := self._timers.pop(now_ms)) is not None:
            moment, at = found
            if self._is_doubtful(at, moment):
                self._timers.postpone(moment, at)
                continue
            steps[at] = steps.get(at, 0) + 1
            self._catch_up(at, ())
            program, state = self._programs[at], self._states[at]
            self.judged += 1
            self._note(at, [program.judge(state, NO_SAMPLES, moment if steps[at] <= CATCH_UP else now_ms)])
            self._after(at, ())

    def _is_doubtful(self, at: int, moment: int) -> bool:
        sources = zip(self._states[at].known, self._slots_of[at], strict=True)
        return any(known is not None and self._ages.is_past(slot, moment) for known, slot in sources)

    def _judge(self, found: Mapping[int, Sample], now_ms: int) -> None:
        """Samples by watch; rules of higher priority first."""
        if not found:
            return
        by_rule: dict[int, dict[int, Sample]] = {}
        for watch, sample in found.items():
            at, place = self._places[watch]
            by_rule.setdefault(at, {})[place] = sample
        for at in sorted(by_rule):
            samples = by_rule[at]
            self._catch_up(at, samples)
            program = self._programs[at]
            given = {program.addresses[place]: sample for place, sample in samples.items()}
            self.judged += 1
            self._note(at, program.run(self._states[at], given, now_ms))
            self._after(at, samples)

    def _catch_up(self, at: int, without: Collection[int]) -> None:
        """Values that changed nothing were not given to the state: show it where its sources stand."""
        state, slots = self._states[at], self._slots_of[at]
        if len(without) == len(slots):
            return
        for place, slot in enumerate(slots):
            # Of the same time, too, unless the state knows better: that the source is bad or stale.
            if self._times[slot] > state.times[place] - (state.known[place] is not None) and place not in without:
                state.values[place] = state.known[place] = self._values[slot]
                state.times[place] = self._times[slot]

    def _note(self, at: int, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            if verdict.is_changed:
                self._dirty[at] = None
            if verdict.edge:
                self._fired.append(Fired(self._programs[at].rule, verdict))

    def _after(self, at: int, places: Iterable[int]) -> None:
        program, state = self._programs[at], self._states[at]
        watches = self._watches_of[at]
        for place in places:
            self._low[watches[place]], self._high[watches[place]] = program.band(state, place)
        self._timers.put(at)

    def take(self) -> list[Fired]:
        """The edges since it was last called, in order; of one entry those of higher priority first."""
        found, self._fired = self._fired, []
        return found

    def take_states(self) -> dict[str, bytes]:
        """Rule id → state to be stored together with the edges and the cursor, of those that changed."""
        dirty, self._dirty = self._dirty, {}
        found = ((self._programs[at], self._states[at]) for at in dirty)
        return {program.rule.id: program.dump(state) for program, state in found}

    def errors(self) -> dict[str, str]:
        """Rules with conditions that have no value although all that they read is known, and why."""
        return {name: program.error for name, program in self.programs.items() if program.error}
