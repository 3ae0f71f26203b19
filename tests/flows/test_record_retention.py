"""Which cycles survive: against a plain model, on real servers, with crashes between commit and trim."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.flows.record_outbox import Outbox, cycle, log, signal
from tests.soak import repeats
from tests.sql.databases import fresh_database
from tradewind.flows.record_retention import gaps
from tradewind.flows.record_table import DELETE
from tradewind.redis.connection import Link
from tradewind.sql import Sql, open_sql

on_both = pytest.mark.parametrize(
    ("any_redis", "dialect"), [("redis_7", "sqlite"), ("valkey", "postgresql")], indirect=["any_redis"]
)
FAILED = ("failed", "timeout")
STATUSES = ("completed", "failed", "stopped", "timeout", "running")


@pytest.fixture
async def sql(request: pytest.FixtureRequest, dialect: str, tmp_path: Path) -> AsyncIterator[Sql]:
    async with fresh_database(request, dialect, tmp_path) as url:
        sql = await open_sql(url, None)
        yield sql
        await sql.close()


@given(st.sets(st.integers(-1, 60)), st.integers(-1, 60))
def test_gaps_cover_exactly_what_is_not_kept(kept: set[int], floor: int) -> None:
    covered = [n for above, below in gaps(kept, floor) for n in range(max(above, -2) + 1, below)]
    assert covered == [n for n in range(-1, floor) if n not in kept]


def survivors(statuses: list[str], last: int, failed: int, records: int) -> tuple[list[int], list[int]]:
    """Cycles with logs, cycles with a record: said as the documentation says it."""
    everything = range(len(statuses))
    newest = set(everything[-last:])
    bad = set([n for n in everything if statuses[n] in FAILED][-failed:] if failed else [])
    recorded = set(everything[-max(records, last) :])
    running = {n for n in recorded if statuses[n] == "running"}
    # Without one cycle more than is kept there is nothing to clean up.
    return sorted(newest | bad | running), sorted(recorded | bad)


@on_both
@settings(max_examples=repeats(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(STATUSES), st.booleans(), st.booleans()), max_size=30),
    st.integers(1, 6),
    st.integers(0, 5),
    st.integers(1, 12),
)
async def test_exactly_the_right_cycles_survive(
    link: Link, sql: Sql, course: list[tuple[str, bool, bool]], last: int, failed: int, records: int
) -> None:
    """A course of cycles; after each one the recorder may take its turn, and may lose its trim."""
    prefix = f"t{secrets.token_hex(5)}:"
    kept = Outbox(link, sql, prefix, log_cycles=last, log_failed_cycles=failed, record_cycles=records)
    forgetful = Outbox(link, sql, prefix, log_cycles=last, log_failed_cycles=failed, record_cycles=records)

    async def no_trim(_last: bytes) -> None:
        pass

    forgetful.recorder._trim = no_trim  # type: ignore[method-assign]
    flow = f"f{secrets.token_hex(4)}"
    course = [*course, ("completed", False, False)]
    for number, (status, is_turn, is_lost) in enumerate(course):
        await kept.add(cycle(flow, number, "running"), log(flow, number))
        await kept.add(signal(flow, number), log(flow, number))
        if status != "running":
            await kept.add(cycle(flow, number, status))
        if is_lost:
            await forgetful.recorder.step()
        if is_turn:
            await kept.drain()
    await kept.drain()
    logs, cycles = survivors([status for status, _, _ in course], last, failed, records)
    assert await kept.cycles_in(flow) == {"flow_logs": logs, "flow_signals": logs, "flow_cycles": cycles}
    messages = await kept.messages(flow)
    assert messages.count("work") == 2 * len(logs)


@on_both
async def test_the_newest_cycle_says_how_many_lines_were_removed(link: Link, sql: Sql, key_prefix: str) -> None:
    outbox = Outbox(link, sql, key_prefix, log_cycles=2, log_failed_cycles=0)
    for number in range(3):
        await outbox.add(*[log("f", number)] * 7, cycle("f", number))
        await outbox.add(log("other", number), cycle("other", number))
    await outbox.drain()
    assert await outbox.messages("f") == ["work"] * 14 + ["Cleaned up 7 old log entries"]
    assert await outbox.messages("other") == ["work"] * 2 + ["Cleaned up 1 old log entries"]
    async with sql.read("test") as connection:
        row = (await connection.exec_driver_sql("SELECT * FROM flow_logs WHERE message LIKE 'Cleaned up 7%'")).one()
    assert (row.cycle, row.node_id, row.log_level, row.log_source) == (2, None, "INFO", "scheduler")


@on_both
async def test_more_rows_than_one_transaction_deletes(link: Link, sql: Sql, key_prefix: str) -> None:
    outbox = Outbox(link, sql, key_prefix, log_cycles=1, log_failed_cycles=0)
    count = 2 * DELETE + 1
    await outbox.add(*(log("f", 0) for _ in range(count)), cycle("f", 0))
    await outbox.add(log("f", 1), cycle("f", 1))
    await outbox.drain()
    assert await outbox.messages("f") == ["work", f"Cleaned up {count} old log entries"]


@on_both
async def test_lines_of_a_cycle_that_is_long_over_go_with_the_next_end(link: Link, sql: Sql, key_prefix: str) -> None:
    outbox = Outbox(link, sql, key_prefix, log_cycles=2, log_failed_cycles=0)
    for number in range(5):
        await outbox.add(log("f", number), cycle("f", number))
    await outbox.drain()
    await outbox.add(log("f", 0), signal("f", 0))
    await outbox.add(log("f", 5), cycle("f", 5))
    await outbox.drain()
    assert (await outbox.cycles_in("f"))["flow_logs"] == [4, 5]
    assert (await outbox.cycles_in("f"))["flow_signals"] == []
