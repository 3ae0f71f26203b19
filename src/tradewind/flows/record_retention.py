"""Which cycles of a flow SQL still remembers: the newest, the newest failed ones, and those that run.

The last failed cycles stay in `flow_cycles` for as long as their logs do, however many cycles came after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tradewind.flows.record_row import LogRow, Record
from tradewind.flows.record_table import FlowRecordTable, Span, Standing
from tradewind.settings import FlowSettings
from tradewind.sql.tables import flow_cycles, flow_logs, flow_signals


async def retain(table: FlowRecordTable, ended: Mapping[str, str], settings: FlowSettings, now_ms: int) -> None:
    """Delete what is too old of the flows in `ended`, flow id → id of the record by which a cycle of it ended.

    If log lines were among it, the newest cycle of the flow gets a line that says how many. Raises Unavailable.
    """
    if not ended:
        return
    # The record has to reach as far as the logs, or they would be forgotten with it.
    records = max(settings.record_cycles, settings.log_cycles)
    standings = await table.standing(
        list(ended), last=settings.log_cycles, failed=settings.log_failed_cycles, records=records
    )
    old_logs, old_cycles = [], []
    for flow_id, standing in standings.items():
        if len(standing.newest) == settings.log_cycles:
            old_logs += _spans(flow_id, standing, standing.newest[-1])
        if standing.record_floor is not None:
            old_cycles += _spans(flow_id, standing, standing.record_floor)
    await table.delete(flow_signals, old_logs)
    removed = await table.delete(flow_logs, old_logs)
    await table.delete(flow_cycles, old_cycles)
    lines = [_line(ended[flow], flow, standings[flow].newest[0], count, now_ms) for flow, count in removed.items()]
    if lines:
        await table.write(lines)


def gaps(kept: Iterable[int], floor: int) -> list[tuple[int, int]]:
    """The stretches (both ends excluded) below `floor`, from the first cycle on, that hold no cycle of `kept`."""
    found, above = [], -2
    for below in sorted({cycle for cycle in kept if cycle < floor} | {floor}):
        if below - above > 1:
            found.append((above, below))
        above = below
    return found


def _spans(flow_id: str, standing: Standing, floor: int) -> list[Span]:
    # One that is said to run, and is older than the whole record, has lost its end: it is not spared for ever.
    running = [cycle for cycle in standing.running if standing.record_floor is None or cycle >= standing.record_floor]
    return [Span(flow_id, above, below) for above, below in gaps([*standing.failed, *running], floor)]


def _line(ref: str, flow_id: str, cycle: int, count: int, now_ms: int) -> Record:
    message = f"Cleaned up {count} old log entries"
    row = LogRow(flow_id, f"{ref}-clean", cycle, None, "INFO", "scheduler", message, None, now_ms)
    return Record(ref, flow_id, logs=(row,))
