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
from tradewind.rules.verdict import BAD

FORM = 1
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
        )
    )


def load_state(sign: int, leaves: Sequence[LeafProgram], state: RuleState, data: bytes) -> RuleState | None:
    """The fresh state, filled; None when that cannot be. `due_ms` is left to the program."""
    try:
        form, its_sign, flags, marks, values, times, qualities, levels, was, timers, memories, note = _unpack(data)
        if form != FORM or its_sign != sign:
            return None
        if not (len(values) == len(times) == len(qualities) == len(state.values)):
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
    return None if value is None or quality >= BAD or value != value else value
