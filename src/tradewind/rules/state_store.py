"""A rule's state as msgpack, small and fast to make; and the sign that says to which conditions it belongs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from tradewind.rules.condition_leaf import LeafProgram
from tradewind.rules.spec import Rule
from tradewind.rules.state import RuleState
from tradewind.rules.timer import Timer
from tradewind.rules.verdict import is_known

#: Form 1 had no `seen`.
FORM = 2
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def sign_of(rule: Rule) -> int:
    """Of the conditions and their logic. Delays of the rule may change without it starting afresh."""
    said = msgspec.json.encode((rule.logic, rule.conditions), order="deterministic")
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) >> 1


def dump_state(sign: int, leaves: Sequence[LeafProgram], state: RuleState) -> bytes:
    timers = [None if timer is None else (timer.since_ms, timer.paused_ms) for timer in state.timers]
    memories = [leaf.dump(memory) for leaf, memory in zip(leaves, state.memories, strict=True)]
    return _pack(
        (
            FORM,
            sign,
            state.is_active | state.is_settled << 1 | state.is_first << 2,
            (state.timer.since_ms, state.timer.paused_ms, state.risen_ms, state.moment_ms),
            state.values,
            state.times,
            state.qualities,
            state.levels,
            state.was,
            timers if any(timers) else None,
            memories if any(memory is not None for memory in memories) else None,
            state.note,
            _short(state.seen),
        )
    )


def _short(seen: list[str]) -> list[str] | str:
    """Sources of one rule are mostly of one channel."""
    return seen[0] if seen and seen.count(seen[0]) == len(seen) else seen


def load_state(sign: int, leaves: Sequence[LeafProgram], state: RuleState, data: bytes) -> RuleState | None:
    """The fresh state, filled; None when that cannot be. `due_ms` is left to the program."""
    try:
        form, its_sign, flags, marks, values, times, qualities, levels, was, timers, memories, note, *more = _unpack(
            data
        )
        if form not in (1, FORM) or its_sign != sign:
            return None
        seen = more[0] if form == FORM else ""
        state.seen = [seen] * len(values) if isinstance(seen, str) else seen
        if not (len(values) == len(times) == len(qualities) == len(state.seen) == len(state.values)):
            return None
        if not (len(levels) == len(was) == len(state.levels)):
            return None
        state.is_active, state.is_settled, state.is_first = (bool(flags & bit) for bit in (1, 2, 4))
        since, paused, state.risen_ms, state.moment_ms = marks
        state.timer = Timer(since, paused)
        state.values, state.times, state.qualities, state.levels, state.was = values, times, qualities, levels, was
        state.known = [_known(value, quality) for value, quality in zip(values, qualities, strict=True)]
        for k, stored in enumerate(timers or ()):
            if stored is not None:
                state.timers[k] = Timer(*stored)
        if memories is not None:
            state.memories = [leaf.load(memory) for leaf, memory in zip(leaves, memories, strict=True)]
        state.note = note
    except (msgspec.DecodeError, ValueError, TypeError, IndexError, KeyError, AttributeError):
        return None
    return state


def _known(value: Any, quality: int) -> Any:
    return None if value is None or not is_known(quality) or value != value else value
