"""All rules together: which change reaches which rule, timers, stale values. Pure.

A change costs what the rules that read it cost, however many others there are. Most changes cross no limit: each source
of a rule has a band of values that would change nothing (`RuleProgram.band`), and only values outside of it are judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from tradewind.points.address import CONTROL
from tradewind.points.feed import FeedEntry, id_of
from tradewind.points.values import FUTURE_MS
from tradewind.rules.network_age import Ages
from tradewind.rules.network_seen import Hit, Seen
from tradewind.rules.network_timers import Timers
from tradewind.rules.network_watches import Watches, by_watch
from tradewind.rules.program import CATCH_UP, UNCHANGED, Given, RuleProgram
from tradewind.rules.spec import AlarmOpen, Rule
from tradewind.rules.state import RuleState
from tradewind.rules.verdict import GOOD, STALE, SUBSTITUTED, Sample, Verdict, is_known


class Fired(msgspec.Struct, frozen=True):
    """An edge of a rule."""

    rule: Rule
    verdict: Verdict


class Beginning(msgspec.Struct, frozen=True):
    """Where a rule without a state begins: after the entry `since` of the feed. `told`: sources of which entries after
    it tell values; what the board shows of those is too new to begin with."""

    since: str
    told: frozenset[str] = frozenset()


class RuleNetwork:
    """`stale_ms`: age at which a point of kind m or s is unknown; `ages`: address → that of a point with its own.

    `programs` and `states` by rule id, of enabled rules, those of higher priority first. `checks` counts how often a
    change met a rule that reads it, `judged` how often it had to be looked at closely. `former`: programs of a network
    before this one; those of the very same rules are taken over. `future_ms`: how far a time may lie ahead.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        stale_ms: int = 30_000,
        ages: Mapping[str, int] | None = None,
        former: Mapping[str, RuleProgram] | None = None,
        future_ms: int = FUTURE_MS,
    ) -> None:
        enabled = sorted((rule for rule in rules if rule.enabled), key=lambda rule: (-rule.priority, rule.id))
        self.programs = {rule.id: _program(rule, former) for rule in enabled}
        self.states: dict[str, RuleState] = {name: program.fresh() for name, program in self.programs.items()}
        self.judged = 0
        self._programs = list(self.programs.values())
        self._states = list(self.states.values())
        self._fresh = set(range(len(self._programs)))
        self._doubtful: set[int] = set()
        self._watches = watches = Watches(self._programs, future_ms)
        self._ages = Ages(watches.slots, watches.times, stale_ms, ages or {}, watches.substituted)
        self._timers = Timers(self._states)
        self._seen = Seen(watches.keys_of())
        self._untold = frozenset((*self.control_addresses, *self.alarm_conditions))
        self._fired: list[Fired] = []
        self._dirty: dict[int, None] = {}
        self._urgent: dict[int, None] = {}

    @property
    def checks(self) -> int:
        return self._watches.checks

    @property
    def addresses(self) -> list[str]:
        """Points and models' fields that rules read (no alarms)."""
        return [address for address in self._watches.slots if not address.startswith("alarm:")]

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
                self._seen.begin(state, self._watches.watches_of[at])
                self._fresh.discard(at)
                if not state.is_settled:
                    self._doubt(at)
        return [self._programs[at].rule.id for at in sorted(self._fresh)]

    def start(
        self,
        samples: Mapping[str, Sample],
        now_ms: int,
        begins: Mapping[str, Beginning] | None = None,
        *,
        is_behind: bool = False,
    ) -> None:
        """The board and the open alarms at the start: judges the rules that begin afresh. Call it once, after `restore`
        and before entries of the feed; rules that go on take their samples from the feed behind the cursor, but are
        shown at once what the feed does not tell, unless `is_behind`: then show it when the feed is read.

        `begins` by rule id: rules that begin before now; others begin with the board. All of them are to be stored at
        once, with what they have seen: what comes after must not depend on who judges it."""
        known = {self._watches.slots[a]: sample.ts_ms for a, sample in samples.items() if a in self._watches.slots}
        for address, sample in samples.items():
            if sample.quality == SUBSTITUTED and address in self._watches.slots:
                self._watches.hold(self._watches.slots[address], SUBSTITUTED)
        for at, state in enumerate(self._states):
            for slot, word in zip(self._watches.slots_of[at], state.qualities, strict=True):
                if word == SUBSTITUTED:  # until the feed tells of its release
                    self._watches.hold(slot, SUBSTITUTED)
        stale = self._ages.past(known, now_ms)
        for at, (program, state) in enumerate(zip(self._programs, self._states, strict=True)):
            slots = self._watches.slots_of[at]
            if at in self._fresh:
                begin = (begins or {}).get(program.rule.id)
                told = begin.told if begin is not None else frozenset()
                found = {a: samples[a] for a in program.addresses if a in samples and a not in told}
                for address, slot in zip(program.addresses, slots, strict=True):
                    if slot in stale and address in found:  # until `age` hears that its channel answers
                        found[address] = msgspec.structs.replace(found[address], quality=STALE)
                        self._doubt(at)
                moment = now_ms
                if begin is not None:
                    state.seen = [begin.since] * len(slots)
                    self._seen.begin(state, self._watches.watches_of[at])
                    if told:  # later times are those of the entries that are still to be read
                        moment = min(now_ms, max((id_of(begin.since)[0], *(s.ts_ms for s in found.values()))))
                if found or not told:
                    self._note(at, program.judge(state, found, moment), True)
                self._dirty[at] = self._urgent[at] = None
            stale.update(slot for slot, word in zip(slots, state.qualities, strict=True) if word == STALE)
            for place, watch in enumerate(self._watches.watches_of[at]):
                self._watches.set_band(watch, program, state, place)
            self._timers.put(at)
        self._ages.begin(known, stale)
        if not is_behind:
            self.show({a: sample for a, sample in samples.items() if a in self._untold}, now_ms)

    def _doubt(self, at: int) -> None:
        self._states[at].is_doubtful = True
        self._doubtful.add(at)

    def forget_seen(self) -> None:
        """The cursor was lost: the feed is not read again."""
        self._seen.forget()

    def apply_all(self, entries: Iterable[FeedEntry]) -> None:
        """Judge the rules that entries of the feed touch. Late ones change nothing, nor what was seen."""
        for entry, index, found in self._watches.sift(entries):
            parts = self._watches.read_all(index, entry, self._marked) if found is None else ((entry.ts_ms, found),)
            for moment, hits in parts:
                self._judge(self._seen.new(hits, entry.id) if self._seen else hits, moment)

    def apply(self, entry: FeedEntry) -> None:
        """One of them."""
        self.apply_all((entry,))

    def show(self, samples: Mapping[str, Sample], now_ms: int) -> None:
        """What stands where the feed does not tell (controls, alarms, after missed entries): judges what is new."""
        hits: list[Hit] = []
        moment = 0
        for address, sample in samples.items():
            slot = self._watches.slots.get(address, -1)
            if slot >= 0 and not self._ages.is_stale(slot, sample.ts_ms):
                index = self._watches.keys.get(address.rpartition(":")[0])
                ts_ms = self._not_before(slot, sample.ts_ms) if address in self._untold else sample.ts_ms
                hits += self._watches.meet(slot, sample.value, ts_ms, sample.quality)
                moment = max(moment, sample.ts_ms if is_known(sample.quality) else now_ms)
                if index is not None:
                    index.newest = max(index.newest, sample.ts_ms)
        self._judge(sorted(hits, key=by_watch), moment, is_urgent=True)

    def _not_before(self, slot: int, ts_ms: int) -> int:
        """What is looked at stands now, though the clock that stamped it may have been set back."""
        places = (self._watches.places[watch] for watch in self._watches.readers[slot])
        return max(ts_ms, self._watches.times[slot], *(self._states[at].times[place] for at, place in places))

    def overdue(self, now_ms: int) -> set[str]:
        """Channels with points past their age: only when they last answered tells whether those are stale."""
        return self._ages.overdue(now_ms)

    def age(self, now_ms: int, seen: Mapping[str, int]) -> None:
        """Points past their age become unknown, as of the moment when they did. `seen`: channel → when it answered;
        its unchanged points are as fresh as that."""
        readers = self._watches.readers
        for slot, is_stale, since_ms in sorted(self._ages.judge(now_ms, seen), key=lambda found: readers[found[0]][0]):
            self._judge(self._marked(slot, STALE if is_stale else GOOD, is_age=True), since_ms, is_urgent=True)
        for at in sorted(self._doubtful):
            self._states[at].is_doubtful = False
            self._note(at, self._programs[at].step(self._states[at], (), now_ms), True)
            self._timers.put(at)
        self._doubtful.clear()
        self._timers.resume()

    def set_clock(self, by_ms: int, now_ms: int | None = None) -> None:
        """The server's clock was set by so much: what rules wait for lasts as long as before, and no point is older by
        that. After `restore`; judge with `due` then. `now_ms`: what it shows, if it was set back: values with later
        times are not newer than what comes."""
        self._ages.move(by_ms, self._watches.set_back(now_ms, by_ms) if by_ms < 0 and now_ms is not None else ())
        for at, (program, state) in enumerate(zip(self._programs, self._states, strict=True)):
            if by_ms < 0 and now_ms is not None:
                _set_back(state.times, now_ms, by_ms, self._watches.future_ms)
            if state.moment_ms:
                program.move(state, by_ms)
                self._timers.put(at)
                self._dirty[at] = self._urgent[at] = None

    def set_back(self, to_ms: int) -> None:
        """The clock was set back to that, and nobody saw by how much: states of later moments go on from here."""
        latest = to_ms + self._watches.future_ms
        self._ages.move(0, self._watches.set_back(to_ms, None))
        for at, (program, state) in enumerate(zip(self._programs, self._states, strict=True)):
            _set_back(state.times, to_ms, None, self._watches.future_ms)
            if state.moment_ms > latest:
                program.move(state, to_ms - state.moment_ms)
                self._timers.put(at)
                self._dirty[at] = self._urgent[at] = None

    def _marked(self, slot: int, quality: int, *, is_age: bool = False) -> list[Hit]:
        """What watches show, with another quality; nothing for those to which that says nothing new."""
        hits: list[Hit] = []
        if not is_age and is_known(quality) and self._ages.is_late(slot):
            return hits  # without a value it is as old as it was: `age` has the say
        for watch in self._watches.readers[slot]:
            at, place = self._watches.places[watch]
            state = self._states[at]
            if is_age and (state.known[place] is None if quality == STALE else state.qualities[place] != STALE):
                continue
            self._catch_up(at, ())
            if state.times[place] >= 0:
                hits.append((watch, state.values[place], state.times[place], quality))
        return hits

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
            self._note(at, program.step(state, (), moment if steps[at] <= CATCH_UP else now_ms), False)
            self._timers.put(at)

    def _is_doubtful(self, at: int, moment: int) -> bool:
        sources = zip(self._states[at].known, self._watches.slots_of[at], strict=True)
        return any(known is not None and self._ages.is_past(slot, moment) for known, slot in sources)

    def _judge(self, hits: Iterable[Hit], now_ms: int, *, is_urgent: bool = False) -> None:
        """Hits in the order of their watches, so rules of higher priority first."""
        last, given = -1, list[tuple[int, float | str | None, int, int]]()
        for watch, value, ts_ms, quality in hits:
            at, place = self._watches.places[watch]
            if at != last:
                if given:
                    self._judge_rule(last, given, now_ms, is_urgent)
                last, given = at, []
            given.append((place, value, ts_ms, quality))
        if given:
            self._judge_rule(last, given, now_ms, is_urgent)

    def _judge_rule(self, at: int, given: Given, now_ms: int, is_urgent: bool) -> None:
        program, state = self._programs[at], self._states[at]
        due_ms = state.due_ms
        self.judged += 1
        if len(given) < len(state.times):
            self._catch_up(at, [place for place, _, _, _ in given])
        if 0 < due_ms <= now_ms:
            for verdict in program.past(state, now_ms):
                self._note(at, verdict, is_urgent)
        verdict = program.step(state, given, now_ms)
        if verdict is not UNCHANGED:
            self._note(at, verdict, is_urgent)
        for place, _, _, _ in given:
            if program.banded[place]:
                self._watches.set_band(self._watches.watches_of[at][place], program, state, place)
        if state.due_ms != due_ms:
            self._timers.put(at)

    def _catch_up(self, at: int, without: Collection[int]) -> None:
        """Values that changed nothing were not given to the state: show it where its sources stand."""
        state, slots = self._states[at], self._watches.slots_of[at]
        for place, slot in enumerate(slots):
            # Of the same time, too, unless the state knows better: that the source is bad or stale.
            is_newer = self._watches.times[slot] > state.times[place] - (state.known[place] is not None)
            if (
                is_newer
                and place not in without
                and not (self._seen and self._seen.is_behind(self._watches.watches_of[at][place]))
            ):
                state.values[place] = state.known[place] = self._watches.values[slot]
                state.times[place] = self._watches.times[slot]

    def _note(self, at: int, verdict: Verdict, is_urgent: bool) -> None:
        if verdict.is_changed:
            self._dirty[at] = None
            if is_urgent or verdict.edge:
                self._urgent[at] = None
        if verdict.edge:
            self._fired.append(Fired(self._programs[at].rule, verdict))

    def take(self) -> list[Fired]:
        """The edges since it was last called, in order; of one entry those of higher priority first."""
        found, self._fired = self._fired, []
        return found

    def take_states(self, *, is_all: bool = True) -> dict[str, bytes]:
        """Rule id → state to be stored, of those that changed. With the cursor: all. Not `is_all`, together with edges
        but without the cursor: only those with an edge and those that changed by what is not in the feed; the others
        change in the same way when it is read again."""
        taken = list(self._dirty if is_all else self._urgent)
        self._urgent.clear()
        found: dict[str, bytes] = {}
        for at in taken:
            del self._dirty[at]
            program, state = self._programs[at], self._states[at]
            self._seen.mark(state, self._watches.watches_of[at])
            found[program.rule.id] = program.dump(state)
        if is_all and self._seen:
            self._seen.tidy()
        return found

    def errors(self) -> dict[str, str]:
        """Rules with conditions that have no value although all that they read is known, and why."""
        return {name: program.error for name, program in self.programs.items() if program.error}


def _program(rule: Rule, former: Mapping[str, RuleProgram] | None) -> RuleProgram:
    before = former.get(rule.id) if former else None
    return before if before is not None and before.rule is rule else RuleProgram(rule)


def _set_back(times: list[int], now_ms: int, by_ms: int | None, future_ms: int) -> None:
    """As `Watches.set_back`, of the sources of one rule."""
    for place, ms in enumerate(times):
        if ms > now_ms + future_ms:
            times[place] = now_ms if by_ms is None else max(0, min(now_ms, ms + by_ms))
