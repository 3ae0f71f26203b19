"""Runs one rule over recorded samples and lists when it would have risen and fallen. Does nothing else: no action runs.

Rules of comparisons and ranges are judged over whole arrays at once; the others, sample by sample, by the evaluator
that judges live data. Both find the same. The first level is not an edge but a start (cause `startup`), as for a rule
that is new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from tradewind.errors import Invalid
from tradewind.rules.backtest_edges import find_edges, tell
from tradewind.rules.backtest_event import BacktestEvent, BacktestReport, Edge
from tradewind.rules.backtest_levels import is_simple, levels
from tradewind.rules.backtest_series import Series, Timeline, timeline
from tradewind.rules.program import RuleProgram, Sample, Verdict
from tradewind.rules.spec import CreateAlarm, Rule, kind_of
from tradewind.rules.verdict import BAD, GOOD, STALE

__all__ = ["BacktestEvent", "BacktestReport", "Read", "Series", "backtest", "backtest_history"]

MAX_EVENTS = 10_000
#: Rows that the evaluator takes at once, so that a long series needs little memory.
PIECE = 50_000
#: What was recorded of these addresses from the first time to the last, both included; sources without samples may be
#: left out.
Read = Callable[[Sequence[str], int, int], Awaitable[Mapping[str, Series]]]


def backtest(
    rule: Rule,
    samples: Mapping[str, Series],
    *,
    ages: Mapping[str, int] | None = None,
    until_ms: int | None = None,
    max_events: int = MAX_EVENTS,
    is_vectorised: bool = True,
) -> BacktestReport:
    """`samples` by address; those that the rule does not read are left out. `ages`: address → ms without a sample after
    which a source is stale; without one it never is, because what is recorded are often changes only. `until_ms`: how
    far the time goes, for timers behind the last sample, which is the default. Not `is_vectorised`: sample by sample
    in any case. A disabled rule is judged, too. Raises Invalid for a rule that reads nothing."""
    program = RuleProgram(rule)
    if not program.addresses:
        hint = "give it another condition beside the schedule"
        raise Invalid(f"the rule {rule.id!r} reads no samples", code="no_sources", hint=hint)
    line = timeline(program.addresses, samples, ages, until_ms)
    is_fast = is_vectorised and is_simple(program) and bool(line.samples)
    edges, events = _vectorised(program, line, max_events) if is_fast else _row_by_row(program, line, max_events)
    active_ms, is_active = _active_ms(edges, line.until_ms)
    alarms, raised = _alarms(rule, edges)
    rises = sum(edge.is_rise for edge in edges)
    return BacktestReport(
        rule_id=rule.id,
        from_ms=int(line.ts_ms[0]) if line.samples else 0,
        until_ms=line.until_ms,
        samples=line.samples,
        rises=rises,
        falls=len(edges) - rises,
        active_ms=active_ms,
        is_active=is_active,
        alarms=alarms,
        raised=raised,
        actions=_actions(rule, edges),
        events=events,
        is_cut=len(events) < len(edges),
        silent=[address for address in program.addresses if not len(samples.get(address, ()))],
        is_vectorised=is_fast,
        error=program.error,
    )


async def backtest_history(
    rule: Rule,
    read: Read,
    from_ms: int,
    until_ms: int,
    *,
    ages: Mapping[str, int] | None = None,
    max_events: int = MAX_EVENTS,
) -> BacktestReport:
    """Over what was recorded in that time, both ends included. Raises Invalid, and what `read` raises."""
    if not 0 <= from_ms <= until_ms:
        raise Invalid("the period ends before it begins", code="bad_period", hint="give `from` before `to`")
    samples = await read(rule.addresses, from_ms, until_ms)
    # In a thread: others must not wait for a million samples.
    return await asyncio.to_thread(backtest, rule, samples, ages=ages, until_ms=until_ms, max_events=max_events)


def _vectorised(program: RuleProgram, line: Timeline, most: int) -> tuple[list[Edge], list[BacktestEvent]]:
    table = levels(program, line)
    edges = find_edges(program.rule, line, table)
    return edges, tell(program, line, table, edges[:most])


def _row_by_row(program: RuleProgram, line: Timeline, most: int) -> tuple[list[Edge], list[BacktestEvent]]:
    state = program.fresh()
    edges: list[Edge] = []
    events: list[BacktestEvent] = []

    def note(verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            if verdict.edge:
                edges.append(Edge(verdict.edge == "rise", verdict.at_ms, verdict.cause))
                if len(events) < most:
                    events.append(BacktestEvent.of(verdict))

    for now_ms, found in _batches(program.addresses, line):
        note(program.run(state, found, now_ms))
    note(program.run(state, {}, line.until_ms))
    return edges, events


def _batches(addresses: Sequence[str], line: Timeline) -> Iterator[tuple[int, dict[str, Sample]]]:
    batch, now_ms = -1, 0
    found: dict[str, Sample] = {}
    for start in range(0, len(line.ts_ms), PIECE):
        part = slice(start, start + PIECE)
        columns: list[Any] = [
            column[part].tolist()
            for column in (line.batch, line.ts_ms, line.sampled_ms, line.place, line.values, line.is_known)
        ]
        for its, ts_ms, sampled_ms, place, value, is_known in zip(*columns, strict=True):
            if its != batch and found:
                yield now_ms, found
                found = {}
            batch, now_ms = its, ts_ms
            quality = GOOD if is_known else BAD if sampled_ms == ts_ms else STALE
            found[addresses[place]] = Sample(value, sampled_ms, quality)
    if found:
        yield now_ms, found


def _active_ms(edges: Sequence[Edge], until_ms: int) -> tuple[int, bool]:
    total, since = 0, -1
    for edge in edges:
        if not edge.is_rise:
            total += edge.at_ms - since
            since = -1
        elif since < 0:
            since = edge.at_ms
    return (total + until_ms - since, True) if since >= 0 else (total, False)


def _alarms(rule: Rule, edges: Sequence[Edge]) -> tuple[int, int]:
    """How many there would have been, and how often they would have been raised. All of a rule are one alarm."""
    creates = [action for action in rule.actions if isinstance(action, CreateAlarm)]
    alarms = raised = 0
    is_open = is_latched = False
    for edge in edges if creates else ():
        for action in creates:
            if action.on in ("both", "rise" if edge.is_rise else "fall"):
                alarms += not is_open
                # The one that opened it decides.
                is_latched = is_latched if is_open else action.latched or rule.latched
                raised += 1
                is_open = True
            elif not is_latched:
                is_open = False
    return alarms, raised


def _actions(rule: Rule, edges: Sequence[Edge]) -> dict[str, int]:
    """The loop guard is left out: it counts with the clock."""
    counts = {"rise": 0, "fall": 0}
    for edge in edges:
        if edge.cause != "bad" and (edge.cause != "startup" or rule.on_startup == "run"):
            counts["rise" if edge.is_rise else "fall"] += 1
    found: dict[str, int] = {}
    for action in rule.actions:
        if not isinstance(action, CreateAlarm):
            count = sum(counts.values()) if action.on == "both" else counts[action.on]
            found[kind_of(action)] = found.get(kind_of(action), 0) + count
    return found
