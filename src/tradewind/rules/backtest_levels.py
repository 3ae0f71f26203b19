"""Levels of simple conditions over a whole time line at once: comparisons with numbers, ranges. Pure.

A level is 0 (false), 1 (unknown) or 2 (true), so that `all` is the least of them and `any` the greatest.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from tradewind.rules.backtest_series import Flags, Floats, Timeline
from tradewind.rules.condition import AlarmLeaf, LimitLeaf, TextLeaf
from tradewind.rules.condition_leaf import LeafProgram
from tradewind.rules.condition_limit import Band
from tradewind.rules.program import RuleProgram
from tradewind.rules.spec import Condition, Group

FALSE, UNKNOWN, TRUE = 0, 1, 2
Levels = NDArray[np.int8]


class LevelTable(msgspec.Struct, frozen=True, eq=False):
    """`leaves`: levels of each condition after each batch; `root`: of all together."""

    leaves: list[Levels]
    root: Levels


def is_simple(program: RuleProgram) -> bool:
    """Whether `levels` can do it; else the evaluator must go row by row."""
    return all(not leaf.for_ms and true_for(leaf, False) is not None for leaf in program.leaves)


def true_for(leaf: LeafProgram, was: bool) -> tuple[Band, bool] | None:
    """An interval, bounds included, and whether the condition is true inside of it or outside, when its level was that
    before. None: it is not that simple."""
    if isinstance(leaf, LimitLeaf):
        return leaf.limit.true_for(was)
    if isinstance(leaf, TextLeaf) and leaf.number is not None:
        return (leaf.number, leaf.number), leaf.is_equal
    return ((0.0, 0.0), False) if isinstance(leaf, AlarmLeaf) else None


def levels(program: RuleProgram, line: Timeline) -> LevelTable:
    rows = {slot: line.rows_of(slot) for slot in {leaf.slot for leaf in program.leaves}}
    found = []
    for leaf in program.leaves:
        own = rows[leaf.slot]
        its = leaf_levels(leaf, line.values[own], line.is_known[own])
        found.append(its if len(own) == len(line.batch_ms) else _held(its, line.batch[own], len(line.batch_ms)))
    rule = program.rule
    return LevelTable(found, _combined(rule.logic, rule.conditions, iter(found)))


def leaf_levels(leaf: LeafProgram, values: Floats, is_known: Flags) -> Levels:
    """After each of its samples. With hysteresis a value between both limits leaves the level as it was known last."""
    if_true, if_false = _tested(leaf, values, True), _tested(leaf, values, False)
    told = (if_true == if_false) & is_known
    at = np.maximum.accumulate(np.where(told, np.arange(len(values)), -1)) if not told.all() else np.arange(len(values))
    found = np.where((at >= 0) & if_false[at], TRUE, FALSE).astype(np.int8)
    found[~is_known] = UNKNOWN
    return found


def _tested(leaf: LeafProgram, values: Floats, was: bool) -> Flags:
    found = true_for(leaf, was)
    assert found is not None
    (low, high), is_inside = found
    within = (values >= low) & (values <= high)
    return within if is_inside else ~within


def _held(its: Levels, batches: NDArray[np.intp], count: int) -> Levels:
    """After each batch of the line, of a source that is in some of them."""
    at = np.searchsorted(batches, np.arange(count), "right") - 1
    found = np.full(count, UNKNOWN, np.int8)
    is_there = at >= 0
    found[is_there] = its[at[is_there]]
    return found


def _of_group(group: Group, leaves: Iterator[Levels]) -> Levels:
    found = _combined(group.logic, group.conditions, leaves)
    return TRUE - found if group.negated else found


def _combined(logic: str, conditions: tuple[Condition, ...], leaves: Iterator[Levels]) -> Levels:
    parts = [_of_group(part, leaves) if isinstance(part, Group) else next(leaves) for part in conditions]
    found = parts[0]
    for part in parts[1:]:
        found = np.maximum(found, part) if logic == "any" else np.minimum(found, part)
    return found
