"""Edges of a rule whose levels are known in advance: what RuleProgram does step by step, here from one change of the
level to the next. A property test holds both together. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tradewind.rules.backtest_event import BacktestEvent, Edge
from tradewind.rules.backtest_levels import FALSE, TRUE, UNKNOWN, LevelTable
from tradewind.rules.backtest_series import Timeline
from tradewind.rules.history_record import Checked
from tradewind.rules.program import RuleProgram
from tradewind.rules.spec import Rule
from tradewind.rules.timer import NEVER

_WANTED: dict[str, bool | None] = {"hold": None, "false": False, "true": True}
_SHOWN = (False, None, True)


def find_edges(rule: Rule, line: Timeline, table: LevelTable) -> list[Edge]:
    """In order. An edge by a timer is as of the moment when it was due."""
    is_new = np.ones(len(table.root), np.bool_)
    is_new[1:] = table.root[1:] != table.root[:-1]
    batches = np.flatnonzero(is_new)
    times, levels = line.batch_ms[batches].tolist(), table.root[batches].tolist()
    on_bad, for_ms, off_ms, cooldown_ms = _WANTED[rule.on_bad], rule.for_ms, rule.off_delay_ms, rule.cooldown_ms
    is_active = is_settled = is_first = False
    since = paused = risen = NEVER
    level = UNKNOWN
    found: list[Edge] = []
    for now, new, batch in zip([*times, line.until_ms], [*levels, -1], [*batches.tolist(), -1], strict=True):
        if since >= 0 and paused < 0:  # timers first
            due = since + off_ms if is_active else since + for_ms
            if not is_active and risen >= 0:
                due = max(due, risen + cooldown_ms)
            if due <= now:
                is_active = not is_active
                risen = due if is_active else risen
                cause = "bad" if level == UNKNOWN else "startup" if is_first else "timer"
                found.append(Edge(is_active, due, cause))
                is_first = False
                since = NEVER
        if new < 0:
            break
        level = new
        wanted = on_bad if level == UNKNOWN else level == TRUE
        if not is_settled:
            if wanted is None:
                continue
            is_settled, is_first = True, wanted
            if not wanted:
                continue
        if wanted is None:
            if since >= 0 and paused < 0:
                paused = max(now, since)
            continue
        if wanted is is_active:
            is_first = False
            since = paused = NEVER
            continue
        if since < 0:
            since = now
        elif paused >= 0:
            since += max(0, now - paused)
            paused = NEVER
        ready = since + (for_ms if wanted else off_ms)
        if wanted and risen >= 0:
            ready = max(ready, risen + cooldown_ms)
        if now < ready:
            continue
        ready = max(ready, now)
        since = NEVER
        is_active = wanted
        risen = ready if wanted else risen
        found.append(Edge(wanted, ready, "bad" if level == UNKNOWN else "startup" if is_first else "sample", batch))
        is_first = False
    return found


def tell(program: RuleProgram, line: Timeline, table: LevelTable, edges: Sequence[Edge]) -> list[BacktestEvent]:
    """What the evaluator would say of them."""
    # A timer acts before the rows of its moment.
    by_timer = np.searchsorted(line.batch_ms, [edge.at_ms for edge in edges]) - 1
    given = np.array([edge.batch for edge in edges], np.intp)
    batches = np.where(given >= 0, given, by_timer)
    levels = [its[batches].tolist() for its in table.leaves]
    before = [np.where(batches > 0, its[batches - 1], UNKNOWN).tolist() for its in table.leaves]
    shown = [_shown(line, place, batches) for place in range(len(program.addresses))]
    rows = np.searchsorted(line.batch, [batches, batches + 1]).tolist()
    slots = [leaf.slot for leaf in program.leaves]
    parts = list(zip(program.names, slots, levels, strict=True))
    found = []
    for at, (edge, first, last) in enumerate(zip(edges, *rows, strict=True)):
        if edge.batch < 0:
            wanted = TRUE if edge.is_rise else FALSE
            leaf = next((k for k, its in enumerate(levels) if its[at] == wanted), 0)
        else:
            reached = [k for place in line.place[first:last].tolist() for k, slot in enumerate(slots) if slot == place]
            # The first that changed, else the first that was reached.
            leaf = next((k for k in reached if levels[k][at] != before[k][at]), reached[0])
        conditions: dict[str, Checked] = {name: Checked(_SHOWN[its[at]], shown[slot][at]) for name, slot, its in parts}
        slot = slots[leaf]
        word = "rise" if edge.is_rise else "fall"
        source, name = program.addresses[slot], program.names[leaf]
        found.append(BacktestEvent(word, edge.at_ms, edge.cause, source, name, shown[slot][at], conditions))
    return found


def _shown(line: Timeline, place: int, batches: NDArray[np.intp]) -> list[float | None]:
    """What a source showed after each of these batches."""
    rows = line.rows_of(place)
    if not len(rows):
        return [None] * len(batches)
    at = np.searchsorted(line.batch[rows], batches, "right") - 1
    row = rows[at]
    is_known = (at >= 0) & line.is_known[row]
    return [value if known else None for value, known in zip(line.values[row].tolist(), is_known.tolist(), strict=True)]
