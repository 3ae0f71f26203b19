"""All models together: which point reaches which model, what must be computed again, in which order. Pure.

Samples go in (`apply`, `age`), `settle` computes what they touch, `take` gives the outputs to be written. A model that
remembers, and every model below one, is computed after each entry of the feed, so that nothing depends on where a round
ends: also within one time the order of the feed decides. All others are computed once at the end of a round, and before
a point gets another reading that came with its own time: each of those is an event, and so is what comes of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tradewind.models.graph import ordered
from tradewind.models.intake import KeyState, is_plain
from tradewind.models.outputs import Change, Port, Sample
from tradewind.models.program import BAD, GOOD, SUBSTITUTED, UNCERTAIN, Program
from tradewind.models.spec import ModelSpec
from tradewind.points.address import CONTROL, MEASUREMENT
from tradewind.points.feed import FeedEntry
from tradewind.points.spec import Kind
from tradewind.points.values import FUTURE_MS

#: Kinds that somebody measures or computes: when nothing confirms them for long, they are stale.
_MEASURED = frozenset((Kind.MEASUREMENT, Kind.SIGNAL, MEASUREMENT))
_WORDS = {"": GOOD, "good": GOOD, "substituted": SUBSTITUTED, "uncertain": UNCERTAIN, "bad": BAD}


class Network:
    """`refresh_ms`: an output within its deadband is written again after that time, so that it does not look stale.
    `stale_ms`: when a measured input is stale that has no age of its own (0: never); `ages`: address → ms, of points
    that have one; an input's `max_age` goes before. `future_ms`: a time so much after now is from before the clock was
    set back."""

    def __init__(
        self,
        specs: Mapping[str, ModelSpec],
        refresh_ms: int = 10_000,
        *,
        stale_ms: int = 0,
        ages: Mapping[str, int] | None = None,
        future_ms: int = FUTURE_MS,
    ) -> None:
        self._refresh_ms = refresh_ms
        self._future_ms = future_ms
        self._stale_ms = stale_ms
        active = {name: spec for name, spec in specs.items() if spec.enabled}
        needs = {
            name: [m for m in (_model_of(item.address) for item in spec.inputs) if m] for name, spec in active.items()
        }
        self.names = ordered(needs)[0]
        used = [
            [(item.address, round((item.max_age_s or 0) * 1000)) for item in active[name].inputs] for name in self.names
        ]
        slots = {place: at for at, place in enumerate(sorted({p for places in used for p in places}, key=_in_row))}
        self.programs = [
            Program(active[name], [slots[place] for place in places])
            for name, places in zip(self.names, used, strict=True)
        ]
        size = len(slots)
        self.values: list[float | None] = [None] * size
        self.qualities = [BAD] * size
        self.times = [0] * size
        self._stale: set[int] = set()
        self._late: list[int] = []
        self._channel_of = ["" for _ in slots]
        for (address, _), slot in slots.items():
            service, entity, _, _ = address.split(":")
            self._channel_of[slot] = entity if service == "comsrv" else ""
        self._places = slots
        self._seen: dict[str, int] = {}
        self._slots: dict[str, tuple[int, ...]] = {}
        for (address, _), slot in slots.items():
            self._slots[address] = (*self._slots.get(address, ()), slot)
        self.exact = self._find_exact(needs)
        readers: list[list[int]] = [[] for _ in range(size)]
        for at, program in enumerate(self.programs):
            for slot in dict.fromkeys(program.slots):
                readers[slot].append(at)
        self._exact_readers = [tuple(at for at in found if at in self.exact) for found in readers]
        self._other_readers = [tuple(at for at in found if at not in self.exact) for found in readers]
        self._ports = [
            [Port(output, self._slots.get(_output(name, output.field), ())) for output in program.spec.outputs]
            for name, program in zip(self.names, self.programs, strict=True)
        ]
        self._touched_exact: dict[int, int] = {}
        self._touched: dict[int, int] = {}
        self._changes: list[Change] = []
        # By model: the change that takes its outputs now; and the models of which an event has its part in that.
        self._open: dict[int, Change] = {}
        self._eventful: set[int] = set()
        # Slots with a reading of its own time that is not computed yet.
        self._events: set[int] = set()
        self.computed = 0
        #: Models whose memory or inputs have changed since `dirty` was emptied.
        self.dirty: set[int] = set()
        # By key (`comsrv:1001:m`), then by field, the slots; without what models here compute themselves.
        index: dict[str, dict[str, tuple[int, ...]]] = {}
        for address, found in self._slots.items():
            key, _, field = address.rpartition(":")
            if _model_of(address) not in active:
                index.setdefault(key, {})[field] = found
        self._keys = {key: KeyState(fields) for key, fields in index.items()}
        self._state_of: list[KeyState | None] = [None] * size
        for state in self._keys.values():
            for found in state.index.values():
                for slot in found:
                    self._state_of[slot] = state
        self._own = frozenset(self.output_addresses)
        self.set_ages(ages or {})

    def set_ages(self, ages: Mapping[str, int]) -> None:
        """Ages of points, which may change with their definitions."""
        self._ages: dict[int, int] = {}
        for (address, own_ms), slot in self._places.items():
            kind = address.split(":")[2]
            is_measured = kind in _MEASURED and address not in self._own
            age_ms = own_ms or (ages.get(address, self._stale_ms) if is_measured else 0)
            if age_ms:
                self._ages[slot] = age_ms
        self._least_age_ms = min(self._ages.values(), default=0)
        self._calm_ms = 0

    def _find_exact(self, needs: Mapping[str, Sequence[str]]) -> frozenset[int]:
        exact: set[str] = set()
        for name, program in zip(reversed(self.names), reversed(self.programs), strict=True):
            if program.memories or name in exact:
                exact.add(name)
                exact.update(needs[name])
        return frozenset(at for at, name in enumerate(self.names) if name in exact)

    @property
    def addresses(self) -> list[str]:
        """What the models read."""
        return list(self._slots)

    @property
    def control_addresses(self) -> list[str]:
        """Those of them that are control values, of which the feed does not tell."""
        return [address for address in self._slots if address.split(":")[2] == CONTROL]

    @property
    def output_addresses(self) -> list[str]:
        return [
            _output(name, port.field) for name, ports in zip(self.names, self._ports, strict=True) for port in ports
        ]

    def preset(self, address: str, sample: Sample) -> None:
        """Where a point stands when the network starts; touches nothing."""
        for slot in self._slots.get(address, ()):
            self.values[slot], self.times[slot], self.qualities[slot] = sample.value, sample.ts_ms, sample.quality
        self._note(address, sample.ts_ms)

    def _note(self, address: str, ts_ms: int) -> None:
        """The fast way of `apply` must know of what came another way."""
        state = self._keys.get(address.rpartition(":")[0])
        if state is not None:
            state.newest = max(ts_ms, state.newest)
            state.marks += 1

    def preset_outputs(self, found: Mapping[str, Sample]) -> None:
        """What stands on the board already."""
        for name, ports in zip(self.names, self._ports, strict=True):
            for port in ports:
                port.last = found.get(_output(name, port.field))
                port.data_ms = port.last.ts_ms if port.last is not None else 0

    def touch_all(self, now_ms: int) -> None:
        """Compute every model at the next occasion, as of its newest input, or of now when it has none."""
        for at, program in enumerate(self.programs):
            newest = max((self.times[slot] for slot in program.slots), default=0)
            (self._touched_exact if at in self.exact else self._touched)[at] = newest or now_ms

    def apply(self, entry: FeedEntry) -> None:
        """Take in an entry of the feed, and compute what remembers. Late ones change nothing: the board did not show
        them either."""
        state = self._keys.get(entry.key)
        if state is None or entry.is_late:
            return
        if entry.is_back:
            self.set_back(entry.ts_ms)
        if entry.is_event:
            self._begin_event(state, entry)
        if is_plain(entry) and entry.ts_ms >= state.newest and not state.stale:
            self._apply_plain(state, entry)
        else:
            self._apply_one_by_one(state, entry)
        if self._touched_exact:
            self._settle(self._touched_exact, entry.is_event)

    def set_back(self, to_ms: int) -> None:
        """The clock was set back to that: what has a later time is as old as now, and memories go on from here."""
        latest = to_ms + self._future_ms
        lasts = [port.last for ports in self._ports for port in ports if port.last is not None]
        if max(max(self.times, default=0), max((last.ts_ms for last in lasts), default=0)) <= latest:
            return
        for slot, ms in enumerate(self.times):
            if ms > latest:
                self.times[slot] = to_ms
        for state in self._keys.values():
            state.newest = min(state.newest, to_ms)
        for ports in self._ports:
            for port in ports:
                if port.last is not None and port.last.ts_ms > latest:
                    port.last = msgspec.structs.replace(port.last, ts_ms=to_ms)
        for touched in (self._touched, self._touched_exact):
            touched.update({at: to_ms for at, ms in touched.items() if ms > latest})
        self._seen = {channel: ms for channel, ms in self._seen.items() if ms <= latest}
        self._calm_ms = 0
        for program in self.programs:
            for memory in program.memories.values():
                memory.set_back(to_ms)
        self.dirty.update(self.exact)

    def _begin_event(self, state: KeyState, entry: FeedEntry) -> None:
        """Compute what the readings before would lose to these."""
        index = state.index
        slots = [slot for field in entry.fields() for slot in index.get(field, ()) if self._other_readers[slot]]
        if not self._events.isdisjoint(slots):
            self.settle()
        self._events.update(slots)

    def _apply_one_by_one(self, state: KeyState, entry: FeedEntry) -> None:
        quality, times = entry.quality(), entry.times()
        state.marks += 1
        state.newest = max(entry.ts_ms, state.newest)
        for field, value in entry.values().items():
            word = _WORDS[quality.pop(field, "good")]
            self.sample(state.index.get(field, ()), value, times[field], word)
        for field, text in quality.items():  # what is left came without a value
            for slot in state.index.get(field, ()):
                self.qualities[slot] = _WORDS[text]
                self._set_stale(slot, False)
                self._calm_ms = 0  # it is as old as it was
                self._touch(slot, entry.ts_ms)

    def _apply_plain(self, state: KeyState, entry: FeedEntry) -> None:
        values, times, ts_ms = self.values, self.times, entry.ts_ms
        self._calm_ms = min(self._calm_ms, ts_ms + self._least_age_ms)
        flat = entry.data.replace(":", ",").split(",")
        plan = state.plan_for(flat, self._exact_readers, self._other_readers)
        state.newest = ts_ms
        if plan.row is not None:
            values[plan.row] = plan.values(flat)
            times[plan.row] = [ts_ms] * len(plan.slots)
        else:
            for slot, value in zip(plan.slots, plan.values(flat), strict=True):
                values[slot] = value
                times[slot] = ts_ms
        if state.cleaned != state.marks:
            state.cleaned = state.marks
            for slot in plan.slots:
                self.qualities[slot] = GOOD
        for readers, touched in ((plan.exact, self._touched_exact), (plan.others, self._touched)):
            for at in readers:
                if touched.get(at, -1) < ts_ms:
                    touched[at] = ts_ms

    def sample(self, slots: Iterable[int], value: float, ts_ms: int, quality: int = GOOD) -> None:
        """A point has a new value. Older ones than there are already are ignored."""
        values, times, qualities = self.values, self.times, self.qualities
        self._calm_ms = min(self._calm_ms, ts_ms + self._least_age_ms)
        for slot in slots:
            if ts_ms < times[slot]:
                continue
            values[slot] = value
            times[slot] = ts_ms
            qualities[slot] = quality
            for at in self._exact_readers[slot]:
                if self._touched_exact.get(at, -1) < ts_ms:
                    self._touched_exact[at] = ts_ms
            for at in self._other_readers[slot]:
                if self._touched.get(at, -1) < ts_ms:
                    self._touched[at] = ts_ms
            if slot in self._stale:
                self._set_stale(slot, False)

    def show(self, found: Mapping[str, Sample]) -> None:
        """What the board shows, by address: takes in what is new in it."""
        for address, sample in found.items():
            for slot in self._slots.get(address, ()):
                old = (self.values[slot], self.times[slot], self.qualities[slot])
                if old != (sample.value, sample.ts_ms, sample.quality):
                    self.sample((slot,), sample.value, sample.ts_ms, sample.quality)
                    self._note(address, sample.ts_ms)

    def overdue(self, now_ms: int) -> set[str]:
        """Channels with points past their age: only when they last answered tells whether those are stale. `` for
        inputs that no channel speaks for."""
        if now_ms <= self._calm_ms:
            return {self._channel_of[slot] for slot in self._stale}
        ends = {slot: self._since(slot) + age_ms for slot, age_ms in self._ages.items()}
        self._late = [slot for slot, end_ms in ends.items() if end_ms < now_ms]
        # Until then no other one can be past its age, unless one comes that is old already.
        self._calm_ms = min((end_ms for end_ms in ends.values() if end_ms >= now_ms), default=now_ms)
        return {self._channel_of[slot] for slot in self._late}

    def age(self, now_ms: int, seen: Mapping[str, int]) -> None:
        """Values past their age become uncertain, as of the moment when they did. `seen`: when channels last answered;
        their unchanged points are as fresh as that."""
        if not self._late:
            self.overdue(now_ms)
        self._seen.update(seen)
        for slot in {*self._late, *self._stale}:
            since, age_ms = self._since(slot), self._ages.get(slot, 0)
            if age_ms and since + age_ms < now_ms:
                if self.qualities[slot] == GOOD:
                    self.qualities[slot] = UNCERTAIN
                    self._set_stale(slot, True)
                    self._touch(slot, since + age_ms)
            else:
                self._calm_ms = min(self._calm_ms, since + age_ms)
                if slot in self._stale:
                    self._set_stale(slot, False)
                    self.qualities[slot] = GOOD
                    self._touch(slot, since)
        self._late = []

    def _since(self, slot: int) -> int:
        return max(self.times[slot], self._seen.get(self._channel_of[slot], 0))

    def _set_stale(self, slot: int, is_stale: bool) -> None:
        if is_stale is (slot in self._stale):
            return
        (self._stale.add if is_stale else self._stale.discard)(slot)
        state = self._state_of[slot]
        if state is not None:
            state.stale += 1 if is_stale else -1

    def _touch(self, slot: int, ts_ms: int) -> None:
        for at in self._exact_readers[slot]:
            self._touched_exact[at] = max(ts_ms, self._touched_exact.get(at, 0))
        for at in self._other_readers[slot]:
            self._touched[at] = max(ts_ms, self._touched.get(at, 0))

    def settle(self) -> None:
        """Compute everything that was touched."""
        is_event = bool(self._events)
        self._events.clear()
        self._settle(self._touched_exact, is_event)
        self._settle(self._touched, is_event)

    def _settle(self, touched: dict[int, int], is_event: bool) -> None:
        heap = sorted(touched)
        run, values, qualities, times = heapq.heappop, self.values, self.qualities, self.times
        while heap:
            at = run(heap)
            moment = touched.pop(at)
            program = self.programs[at]
            self.computed += 1
            if at in self.exact:
                self.dirty.add(at)
            # A mark of age moves the time of an output, not that of its data: what comes late is still to be counted.
            data_ms = max((times[slot] for slot in program.slots), default=moment)
            for port, (value, quality) in zip(self._ports[at], program.run(values, qualities, times), strict=True):
                sample = port.news(value, quality, moment, data_ms, self._refresh_ms)
                if sample is None:
                    continue
                port.last, port.data_ms = sample, data_ms
                self._put(at, port.field, sample, is_event)
                for slot in port.slots:
                    values[slot], times[slot], qualities[slot] = sample.value, data_ms, sample.quality
                    for reader in self._exact_readers[slot]:
                        self._reach(reader, sample.ts_ms, self._touched_exact, touched, heap)
                    for reader in self._other_readers[slot]:
                        self._reach(reader, sample.ts_ms, self._touched, touched, heap)

    def _put(self, at: int, field: str, sample: Sample, is_event: bool) -> None:
        """An output to be written: beside those before it if an event made one of them, else in their place."""
        change = self._open.get(at)
        if change is None or (field in change.fields and (is_event or at in self._eventful)):
            change = self._open[at] = Change(self.names[at], {})
            self._changes.append(change)
            self._eventful.discard(at)
        if is_event:
            self._eventful.add(at)
        change.fields[field] = sample

    def _reach(self, at: int, ts_ms: int, wanted: dict[int, int], touched: dict[int, int], heap: list[int]) -> None:
        if wanted is touched and at not in wanted:
            heapq.heappush(heap, at)
        wanted[at] = max(ts_ms, wanted.get(at, 0))

    def errors(self) -> dict[str, str]:
        """Models that cannot be computed from what they have now, and why."""
        return {name: p.error for name, p in zip(self.names, self.programs, strict=True) if p.error}

    def take(self) -> list[Change]:
        """The outputs that have changed since it was last called, in order; of a model several times after events."""
        found, self._changes = self._changes, []
        self._open.clear()
        self._eventful.clear()
        return found


def _in_row(place: tuple[str, int]) -> tuple[str, int, str, int]:
    """Points of a channel by number: a batch of all of them then goes into the lists in one piece (intake.py)."""
    key, _, field = place[0].rpartition(":")
    return key, len(field), field, place[1]


def _output(model: str, field: str) -> str:
    return f"modsrv:{model}:{MEASUREMENT}:{field}"


def _model_of(address: str) -> str:
    """The model whose measurement it is; `` for anything else."""
    service, entity, kind, _ = address.split(":")
    return entity if service == "modsrv" and kind == MEASUREMENT else ""
