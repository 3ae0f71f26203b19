"""A rule made ready to be judged: samples and time in, edges out. Pure and deterministic: live rules, dry runs and
back-tests go this one way.

Levels are evaluated, edges act. Unknown holds: nothing changes, and delays stand still. Time is that of the events: a
level lasts from the sample that made it, and a timer acts as of the moment when it was due.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tradewind.rules.condition import FormulaLeaf, ScheduleLeaf, make_leaf
from tradewind.rules.condition_leaf import AGAIN, NOTHING, LeafProgram
from tradewind.rules.condition_limit import Band
from tradewind.rules.edge import is_waiting, ready_ms, turn
from tradewind.rules.logic import combined
from tradewind.rules.spec import Rule, sources_of
from tradewind.rules.state import RuleState
from tradewind.rules.state_store import dump_state, load_state, sign_of
from tradewind.rules.verdict import BAD, SUBSTITUTED, Sample, Verdict

__all__ = ["RuleProgram", "RuleState", "Sample", "Verdict"]

#: So many timers of a rule that is behind are judged one by one before it jumps to the present.
CATCH_UP = 1_000
#: Samples of a rule: place of the source, value, time, quality.
Given = Sequence[tuple[int, Any, int, int]]
UNCHANGED = Verdict()
CHANGED = Verdict(is_changed=True)


class RuleProgram:
    """`addresses`: what it reads, in the order of the lists of a state. `sign`: hash of what decides its level; a state
    with another one is not taken back."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.addresses = rule.addresses
        self.sign = sign_of(rule)
        self._places = {address: i for i, address in enumerate(self.addresses)}
        self.leaves: list[LeafProgram] = [
            make_leaf(leaf, tuple(self._places[address] for address in sources_of(leaf))) for leaf in rule.leaves()
        ]
        self.names = list(_unique(leaf.field for leaf in self.leaves))
        self._readers = [
            tuple(k for k, leaf in enumerate(self.leaves) if place in leaf.slots) for place in range(len(self._places))
        ]
        self._noted = [
            [(k, self.leaves[k].take) for k in readers if self.leaves[k].is_noted] for readers in self._readers
        ]
        #: By source: conditions that give it its band; none when one must see every sample.
        self.banded = [readers if all(self.leaves[k].is_banded for k in readers) else () for readers in self._readers]
        self._timed = tuple(k for k, leaf in enumerate(self.leaves) if leaf.is_timed or leaf.for_ms)
        self._is_lone = len(self._timed) == 1 and not self.leaves[self._timed[0]].for_ms
        self._is_dated = any(leaf.is_timed for leaf in self.leaves)
        self._root = combined(rule.logic, rule.conditions)

    def fresh(self) -> RuleState:
        """Of a rule that was never judged."""
        delays = [leaf.for_ms > 0 for leaf in self.leaves]
        return RuleState(len(self.addresses), delays, [leaf.fresh() for leaf in self.leaves])

    def dump(self, state: RuleState) -> bytes:
        return dump_state(self.sign, self.leaves, state)

    def load(self, data: bytes) -> RuleState | None:
        """None when it cannot be read, or belongs to other conditions."""
        state = load_state(self.sign, self.leaves, self.fresh(), data)
        if state is not None:
            state.due_ms = self._due(state, state.moment_ms)
        return state

    def run(self, state: RuleState, samples: Mapping[str, Sample], now_ms: int) -> list[Verdict]:
        """All that happens up to `now_ms`: timers, each as of its own time, then the samples. What changed nothing is
        left out."""
        found = self.past(state, now_ms)
        if samples:
            verdict = self.judge(state, samples, now_ms)
            if verdict.is_changed:
                found.append(verdict)
        return found

    def past(self, state: RuleState, now_ms: int) -> list[Verdict]:
        """Timers up to `now_ms`."""
        found: list[Verdict] = []
        steps = 0
        while 0 < state.due_ms <= now_ms:
            steps += 1
            verdict = self.step(state, (), state.due_ms if steps <= CATCH_UP else now_ms)
            if verdict.is_changed:
                found.append(verdict)
        return found

    def judge(self, state: RuleState, samples: Mapping[str, Sample], now_ms: int) -> Verdict:
        """`step` with samples by address; those of others are left out."""
        places = self._places
        given = [
            (places[a], sample.value, sample.ts_ms, sample.quality) for a, sample in samples.items() if a in places
        ]
        return self.step(state, given, now_ms) if given or not samples else UNCHANGED

    def step(self, state: RuleState, given: Given, now_ms: int) -> Verdict:
        """Changes the state in place. Timers due before must have been judged: `past` does that.

        A sample counts as of its own time, `now_ms` (not before it) is for what depends on the time. Samples older than
        the last one of their source change nothing; one of the same time takes its place. With no sample, the time
        alone is judged.
        """
        moment = now_ms if now_ms > state.moment_ms else state.moment_ms
        event, is_changed = -1, False
        touched: tuple[int, ...] = ()
        again: tuple[int, ...] = ()
        if given:
            event, is_changed, touched, again = self._take(state, given, moment)
            if not touched:
                return UNCHANGED
        if event < 0 or self._is_dated:
            event = moment
        for k in again:
            timer = state.timers[k]
            if timer is not None:  # it begins to last anew
                timer.stop()
        timed = self._timed
        moved: tuple[int, ...] = ()
        for k in touched if not timed or timed == touched else dict.fromkeys((*touched, *timed)):
            moves = self._evaluate(state, k, event if k in touched else moment, moment)
            if moves:
                is_changed = True
                if moves > 1:
                    moved += (k,)
        if state.is_quiet and not moved and not again:
            # The time of the only condition that has one comes no nearer before it has come.
            if timed and not (self._is_lone and moment < state.due_ms):
                state.due_ms = self._due(state, moment)
            if not is_changed:
                return UNCHANGED
            state.moment_ms = moment
            return CHANGED
        level = self._root(state.levels)
        edge, at_ms, is_moved = turn(self.rule, state, level, event, moment, self._is_pulsed(state, level, again))
        state.is_quiet = not is_waiting(self.rule, state, level)
        state.due_ms = self._due(state, moment)
        if not edge:
            if not (is_changed or is_moved):
                return UNCHANGED
            state.moment_ms = moment
            return CHANGED
        state.moment_ms = moment
        cause = "bad" if level is None else "startup" if state.is_first else "sample" if touched else "timer"
        state.is_first = False
        return self._verdict(state, edge, cause, at_ms, moved or touched, given[0][0] if given else -1)

    def band(self, state: RuleState, place: int) -> Band:
        """Of one source: values, bounds included, that would change nothing but what the source shows. None are when
        the lower bound is above the upper one."""
        banded = self.banded[place]
        if not banded:
            return NOTHING
        low, high = -math.inf, math.inf
        for k in banded:
            its_low, its_high = self.leaves[k].band(state.known, state.was[k], place)
            low, high = max(low, its_low), min(high, its_high)
        return low, high

    def move(self, state: RuleState, by_ms: int) -> None:
        """The clock was set: what is remembered is as long ago as before (samples for a rate do without)."""
        state.move(by_ms)
        for leaf, memory in zip(self.leaves, state.memories, strict=True):
            leaf.move(memory, by_ms)
        # What depends on the time of the day may be another one now.
        state.due_ms = state.moment_ms + 1 if self._is_dated else self._due(state, state.moment_ms)

    @property
    def error(self) -> str:
        """Why a condition had no value although all that it reads is known; `` if none."""
        found = (f"{name}: {leaf.error}" for name, leaf in zip(self.names, self.leaves, strict=True) if leaf.error)
        return next(found, "")

    def results(self, state: RuleState, moment_ms: int) -> dict[str, dict[str, Any]]:
        """Each condition by its field (else source; `#2` when it comes again): `matched`, `actual_value`."""
        found = ((name, state.levels[k], self._actual(state, k, moment_ms)) for k, name in enumerate(self.names))
        return {name: {"matched": level, "actual_value": actual} for name, level, actual in found}

    def level(self, state: RuleState) -> bool | None:
        """Of all conditions together, without delays of the rule."""
        return self._root(state.levels)

    def _take(self, state: RuleState, given: Given, moment: int) -> tuple[int, bool, tuple[int, ...], tuple[int, ...]]:
        """Put samples into the state: time of the event, whether something must be stored, conditions to be evaluated,
        and those that are true again for another reason."""
        event, is_changed = -1, False
        touched: tuple[int, ...] = ()
        again: tuple[int, ...] = ()
        for place, value, ts_ms, quality in given:
            last_ms = state.times[place]
            if ts_ms < last_ms:
                continue
            if type(value) is int or type(value) is bool:
                value = float(value)
            known = value if (quality < BAD or quality == SUBSTITUTED) and value == value else None
            old = state.known[place]
            if ts_ms == last_ms and known == old and value == state.values[place]:
                state.qualities[place] = quality
                continue
            # What is not known any more, or is again, is so from now on, however old the value is.
            since = ts_ms if known is not None and ts_ms > last_ms else moment
            if since > event:
                event = since
            state.values[place], state.known[place] = value, known
            state.times[place], state.qualities[place] = ts_ms, quality
            readers = self._readers[place]
            touched = tuple(dict.fromkeys((*touched, *readers))) if touched else readers
            for k, take in self._noted[place]:
                said = take(state.memories[k], old, known, ts_ms)
                if said:
                    is_changed = True
                    if said == AGAIN:
                        again += (k,)
        return event, is_changed, touched, again

    def _evaluate(self, state: RuleState, k: int, event: int, moment: int) -> int:
        """0: as it was, 1: something of it must be stored, 2: its level is another one."""
        leaf, timer = self.leaves[k], state.timers[k]
        moves = int(leaf.is_timed and leaf.begin(state.memories[k], moment))
        level = leaf.level(state.known, state.memories[k], state.was[k], moment)
        if timer is None and level is state.levels[k]:
            return moves
        if level is not None and level is not state.was[k]:
            state.was[k] = level
            moves = 1
        if timer is not None:
            if level is None:
                moves |= timer.pause(event)
            elif level:
                moves |= timer.run(event)
                level = moment >= timer.since_ms + leaf.for_ms
            else:
                moves |= timer.stop()
        if level is not state.levels[k]:
            state.levels[k] = level
            moves = 2
        return moves

    def _is_pulsed(self, state: RuleState, level: bool | None, again: tuple[int, ...]) -> bool:
        """Whether the rule would have been false for an instant."""
        if not again or level is not True:
            return False
        levels = list(state.levels)
        for k in again:
            levels[k] = False
        return self._root(levels) is False

    def _due(self, state: RuleState, moment: int) -> int:
        due = 0
        if state.timer.is_running:
            since = state.timer.since_ms
            due = since + self.rule.off_delay_ms if state.is_active else ready_ms(self.rule, state, since)
        for k in self._timed:
            leaf, timer = self.leaves[k], state.timers[k]
            at = leaf.due(state.known, state.memories[k], moment) if leaf.is_timed else 0
            if at and (not due or at < due):
                due = at
            if timer is not None and timer.is_running and not state.levels[k]:
                at = timer.since_ms + leaf.for_ms
                if not due or at < due:
                    due = at
        return max(due, moment + 1) if due else 0  # whatever was stored, time goes on

    def _verdict(
        self, state: RuleState, edge: str, cause: str, at_ms: int, moved: tuple[int, ...], place: int
    ) -> Verdict:
        """`place`: of the first sample, -1: there was none."""
        matched = (k for k, level in enumerate(state.levels) if level is (edge == "rise"))
        k = moved[0] if moved else next(matched, 0)
        leaf = self.leaves[k]
        place = place if place in leaf.slots else leaf.slot
        value = state.known[place] if isinstance(leaf, FormulaLeaf) else self._actual(state, k, at_ms)
        return Verdict(
            edge,
            True,
            cause,
            at_ms,
            self.results(state, at_ms),
            self.addresses[place] if place >= 0 else self.rule.source,
            self.names[k],
            None if isinstance(leaf, ScheduleLeaf) else value,
            tuple(a for a, word in zip(self.addresses, state.qualities, strict=True) if word == SUBSTITUTED),
        )

    def _actual(self, state: RuleState, k: int, moment: int) -> Any:
        return self.leaves[k].actual(state.known, state.memories[k], moment)


def _unique(names: Iterator[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}"
