"""A rule made ready to be judged: samples and time in, edges out. Pure and deterministic: live rules, dry runs and
back-tests go this one way.

Levels are evaluated, edges act. Unknown holds: nothing changes, and delays stand still. Time is that of the events: a
level lasts from the sample that made it, and a timer acts as of the moment when it was due.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tradewind.rules.condition import FormulaLeaf, ScheduleLeaf, make_leaf
from tradewind.rules.condition_leaf import AGAIN, LeafProgram
from tradewind.rules.condition_limit import Band
from tradewind.rules.logic import combined
from tradewind.rules.spec import Rule, sources_of
from tradewind.rules.state import RuleState
from tradewind.rules.state_store import dump_state, load_state, sign_of
from tradewind.rules.verdict import BAD, Sample, Verdict

__all__ = ["RuleProgram", "RuleState", "Sample", "Verdict"]

#: So many timers of a rule that is behind are judged one by one before it jumps to the present.
CATCH_UP = 1_000
NO_SAMPLES: Mapping[str, Sample] = {}
UNCHANGED = Verdict()
CHANGED = Verdict(is_changed=True)
_ON_BAD = {"hold": None, "false": False, "true": True}


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
        self._timed = tuple(k for k, leaf in enumerate(self.leaves) if leaf.is_timed or leaf.for_ms)
        self._is_dated = any(leaf.is_timed for leaf in self.leaves)
        self._root = combined(rule.logic, rule.conditions)
        self._on_bad = _ON_BAD[rule.on_bad]

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
        found: list[Verdict] = []
        steps = 0
        while 0 < state.due_ms <= now_ms:
            steps += 1
            moment = state.due_ms if steps <= CATCH_UP else now_ms
            verdict = self.judge(state, NO_SAMPLES, moment)
            if verdict.is_changed:
                found.append(verdict)
        if samples:
            verdict = self.judge(state, samples, now_ms)
            if verdict.is_changed:
                found.append(verdict)
        return found

    def judge(self, state: RuleState, samples: Mapping[str, Sample], now_ms: int) -> Verdict:
        """One step; changes the state in place. Timers due before must have been judged: `run` does that.

        A sample counts as of its own time, `now_ms` (not before it) is for what depends on the time. Samples older than
        the last one of their source change nothing; one of the same time takes its place. With no sample, the time
        alone is judged.
        """
        moment = max(now_ms, state.moment_ms)
        event, is_changed, again, touched = self._take(state, samples, moment) if samples else (-1, False, (), {})
        if samples and not touched:
            return UNCHANGED
        if event < 0 or self._is_dated:
            event = moment
        for k in again:
            timer = state.timers[k]
            if timer is not None:  # it begins to last anew
                timer.stop()
        moved = []
        for k in dict.fromkeys((*touched, *self._timed)) if self._timed else touched:
            moves = self._evaluate(state, k, event if k in touched else moment, moment)
            is_changed |= moves > 0
            if moves > 1:
                moved.append(k)
        level = self._root(state.levels)
        edge, at_ms, is_moved = self._step(state, level, event, moment, self._is_pulsed(state, level, again))
        state.due_ms = self._due(state, moment)
        if not edge:
            if not (is_changed or is_moved):
                return UNCHANGED
            state.moment_ms = moment
            return CHANGED
        state.moment_ms = moment
        cause = "bad" if level is None else "startup" if state.is_first else "sample" if touched else "timer"
        state.is_first = False
        return self._verdict(state, edge, cause, at_ms, moved or list(touched), next(iter(samples), ""))

    def band(self, state: RuleState, place: int) -> Band:
        """Of one source: values, bounds included, that would change nothing but what the source shows. None are when
        the lower bound is above the upper one."""
        low, high = -math.inf, math.inf
        for k in self._readers[place]:
            its_low, its_high = self.leaves[k].band(state.known, state.was[k], place)
            low, high = max(low, its_low), min(high, its_high)
        return low, high

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

    def _take(
        self, state: RuleState, samples: Mapping[str, Sample], moment: int
    ) -> tuple[int, bool, tuple[int, ...], dict[int, None]]:
        """Put samples into the state: time of the event, whether something must be stored, conditions that are true
        again for another reason, conditions to be evaluated."""
        event, is_changed = -1, False
        again: tuple[int, ...] = ()
        touched: dict[int, None] = {}
        for address, sample in samples.items():
            place = self._places.get(address, -1)
            if place < 0 or sample.ts_ms < state.times[place]:
                continue
            value, old = sample.value, state.known[place]
            if type(value) is int or type(value) is bool:
                value = float(value)
            known = None if value is None or sample.quality >= BAD or value != value else value
            is_new = sample.ts_ms > state.times[place]
            if not is_new and known == old and value == state.values[place]:
                state.qualities[place] = sample.quality
                continue
            # What is not known any more, or is again, is so from now on, however old the value is.
            event = max(event, sample.ts_ms if known is not None and is_new else moment)
            state.values[place], state.known[place] = value, known
            state.times[place], state.qualities[place] = sample.ts_ms, sample.quality
            for k in self._readers[place]:
                touched[k] = None
                leaf = self.leaves[k]
                if leaf.is_noted:
                    said = leaf.take(state.memories[k], old, known, sample.ts_ms)
                    is_changed |= said > 0
                    if said == AGAIN:
                        again += (k,)
        return event, is_changed, again, touched

    def _evaluate(self, state: RuleState, k: int, event: int, moment: int) -> int:
        """0: as it was, 1: something of it must be stored, 2: its level is another one."""
        leaf = self.leaves[k]
        moves = int(leaf.is_timed and leaf.begin(state.memories[k], moment))
        level = leaf.level(state.known, state.memories[k], state.was[k], moment)
        if level is not None and level is not state.was[k]:
            state.was[k] = level
            moves = 1
        timer = state.timers[k]
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

    def _step(
        self, state: RuleState, level: bool | None, event: int, moment: int, is_pulsed: bool
    ) -> tuple[str, int, bool]:
        """Edge, its time, whether anything changed."""
        timer = state.timer
        wanted = self._on_bad if level is None else level
        if not state.is_settled:
            if wanted is None or (level is None and not wanted):
                return "", 0, False
            state.is_settled = True
            state.is_first = wanted
            if not wanted:
                return "", 0, True
        if wanted is None:
            return "", 0, timer.pause(event)
        is_moved = False
        if is_pulsed and not self.rule.off_delay_ms:
            is_moved = timer.stop()
            state.is_first = False
            if state.is_active:
                if self._ready_ms(state, event) <= event:
                    state.risen_ms = event
                    return "rise", event, True
                state.is_active = False
                timer.run(event)
                return "fall", event, True
        if wanted is state.is_active:
            state.is_first = False
            return "", 0, timer.stop() or is_moved
        has_begun = timer.run(event)
        is_moved |= has_begun
        ready = self._ready_ms(state, timer.since_ms) if wanted else timer.since_ms + self.rule.off_delay_ms
        if moment < ready:
            return "", 0, is_moved
        if has_begun:  # what was ready while nothing was known is an edge only now
            ready = max(ready, event)
        timer.stop()
        state.is_active = wanted
        if not wanted:
            return "fall", ready, True
        state.risen_ms = ready
        return "rise", ready, True

    def _ready_ms(self, state: RuleState, since_ms: int) -> int:
        """When a level that is true since then becomes a rise."""
        ready = since_ms + self.rule.for_ms
        return max(ready, state.risen_ms + self.rule.cooldown_ms) if state.risen_ms >= 0 else ready

    def _due(self, state: RuleState, moment: int) -> int:
        due = 0
        if state.timer.is_running:
            since = state.timer.since_ms
            due = since + self.rule.off_delay_ms if state.is_active else self._ready_ms(state, since)
        for k in self._timed:
            leaf, timer = self.leaves[k], state.timers[k]
            times = [leaf.due(state.known, state.memories[k], moment)] if leaf.is_timed else []
            if timer is not None and timer.is_running and not state.levels[k]:
                times.append(timer.since_ms + leaf.for_ms)
            for at in times:
                if at and (not due or at < due):
                    due = at
        return max(due, moment + 1) if due else 0  # whatever was stored, time goes on

    def _verdict(self, state: RuleState, edge: str, cause: str, at_ms: int, moved: list[int], address: str) -> Verdict:
        matched = (k for k, level in enumerate(state.levels) if level is (edge == "rise"))
        k = moved[0] if moved else next(matched, 0)
        leaf = self.leaves[k]
        place = self._places[address] if address in self._places and self._places[address] in leaf.slots else leaf.slot
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
        )

    def _actual(self, state: RuleState, k: int, moment: int) -> Any:
        return self.leaves[k].actual(state.known, state.memories[k], moment)


def _unique(names: Iterator[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}"
