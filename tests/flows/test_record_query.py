"""What was recorded comes back: one contract over both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.record_outbox import AT, cycle, log, signal
from tests.sql.databases import DIALECTS, fresh_database
from tradewind import codec
from tradewind.errors import Invalid
from tradewind.flows.record_query import MAX_LIMIT, CycleEntry, FlowRecords, LogEntry, SignalEntry
from tradewind.flows.record_row import read_entry
from tradewind.flows.record_table import FlowRecordTable
from tradewind.sql import Sql, open_sql


@pytest.fixture(params=DIALECTS)
async def sql(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sql]:
    async with fresh_database(request, request.param, tmp_path) as url:
        sql = await open_sql(url, None)
        yield sql
        await sql.close()


class Store:
    def __init__(self, sql: Sql) -> None:
        self.table = FlowRecordTable(sql)
        self.records = FlowRecords(sql)
        self._entries = 0

    async def put(self, *found: dict[str, Any]) -> None:
        self._entries += 1
        records, rejects = read_entry(f"{self._entries}-0", codec.encode(found))
        assert not rejects
        await self.table.write(records)

    async def lines(self, flow: str = "f", **filters: Any) -> list[str]:
        return [entry.message for entry in (await self.records.logs(flow, **filters)).items]


@pytest.fixture
def store(sql: Sql) -> Store:
    return Store(sql)


async def test_a_log_line_comes_back_as_it_was_written(store: Store) -> None:
    await store.put(log("f", 3, "zwölf 天气 \0", node="n", level="ERROR", source="node", meta={"a": [1, None]}))
    await store.put(log("f", -1, "", level="trace", source="api"))
    first, second = (await store.records.logs("f")).items
    message = "zwölf 天气 \ufffd"
    assert first == LogEntry(first.seq, "f", 3, "n", "ERROR", "node", message, {"a": [1, None]}, AT + 3)
    assert second == LogEntry(second.seq, "f", -1, None, "TRACE", "api", "", None, AT - 1)


async def test_logs_are_found_by_every_field(store: Store) -> None:
    await store.put(log("f", 1, "one", node="a", level="DEBUG"), log("f", 1, "Two", node="b", source="scheduler"))
    await store.put(log("f", 2, "three", node="a", level="WARN"), log("f", 2, "100% four_", level="CRITICAL"))
    await store.put(log("g", 1, "five", level="ODD"))
    assert await store.lines(cycle=1) == ["one", "Two"]
    assert await store.lines(node_id="a") == ["one", "three"]
    assert await store.lines(source="scheduler") == ["Two"]
    assert await store.lines(level="INFO") == ["Two", "three", "100% four_"]
    assert await store.lines(level="warning") == ["three", "100% four_"]
    assert await store.lines("g", level="DEBUG") == ["five"]
    assert await store.lines("g", level="INFO") == []
    assert await store.lines(search="T") == ["Two", "three"]
    assert await store.lines(search="%") == ["100% four_"]
    assert await store.lines(search="r_") == ["100% four_"]
    assert await store.lines(cycle=2, node_id="a", search="thr", level="ERROR") == []
    assert await store.lines("nobody") == []


@pytest.mark.parametrize("newest_first", [False, True])
async def test_pages_of_logs_meet_each_line_once_while_others_come(store: Store, newest_first: bool) -> None:
    for number in range(7):
        await store.put(log("f", number % 2, f"{number}"), log("other", 1))
    seen: list[str] = []
    cursor = None
    while True:
        page = await store.records.logs("f", after=cursor, limit=3, newest_first=newest_first)
        seen += [entry.message for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        if len(seen) == 3:
            await store.put(log("f", 0, "7", at=1))  # older by its own time, recorded last
    assert seen == [str(n) for n in (range(6, -1, -1) if newest_first else range(8))]
    assert await store.lines(limit=8) == [str(n) for n in range(8)]


async def test_the_last_line_seen_is_a_cursor_to_follow_from(store: Store) -> None:
    await store.put(log("f", 1, "a"))
    page = await store.records.logs("f")
    assert page.next_cursor is None
    after = str(page.items[-1].seq)
    assert await store.lines(after=after) == []
    await store.put(log("f", 1, "b"))
    assert await store.lines(after=after) == ["b"]


async def test_a_number_is_not_used_again_after_its_line_is_deleted(store: Store) -> None:
    await store.put(log("f", 1, "a"), log("f", 1, "b"))
    last = (await store.records.logs("f")).items[-1].seq
    await store.table.forget(["f"])
    await store.put(log("f", 0, "new"))
    assert await store.lines(after=str(last)) == ["new"]


async def test_a_signal_comes_back_per_edge(store: Store) -> None:
    await store.put(signal("f", 1, "A", (("B", "x"), ("C", "y")), {"p": [1.5, "ü", None]}, type="PRICE_DATA"))
    await store.put(signal("f", 1, "B", []), signal("f", 2, "A"))
    page = await store.records.signals("f", 1)
    payload = {"p": [1.5, "ü", None]}
    assert page.items[:2] == [
        SignalEntry("f", 1, "A", "out", "B", "x", "s1", "PRICE_DATA", payload, AT),
        SignalEntry("f", 1, "A", "out", "C", "y", "s1", "PRICE_DATA", payload, AT),
    ]
    assert [(entry.source_node, entry.target_node) for entry in page.items[2:]] == [("B", "")]
    both = (await store.records.signals("f", 1, node="B")).items
    assert [(entry.source_node, entry.target_node) for entry in both] == [("A", "B"), ("B", "")]
    assert (await store.records.signals("f", 9)).items == []


async def test_a_payload_that_nobody_can_decode_is_shown_as_text(store: Store) -> None:
    data = codec.encode([signal("f", 1, payload="HERE"), signal("f", 1, "B", payload=5)])
    records, rejects = read_entry("1-0", data.replace(b'"HERE"', b"[1e999]"))
    assert not rejects
    await store.table.write(records)
    assert [entry.payload for entry in (await store.records.signals("f", 1)).items] == ["[1e999]", 5]


async def test_the_later_signal_of_an_edge_stays(store: Store) -> None:
    new = signal("f", 1, payload="new", timestamp=AT / 1000 + 1)
    await store.put(signal("f", 1, payload="old"), new, signal("f", 1, payload="late"))
    await store.put(signal("f", 1, payload="late again"))
    assert [entry.payload for entry in (await store.records.signals("f", 1)).items] == ["new"]


async def test_pages_of_signals_are_complete_in_bytewise_order(store: Store) -> None:
    names = ["a", "B", "b-1", "b_1", "ä", "", "Z", "b"]
    await store.put(*(signal("f", 1, name, [[other, "i"] for other in names]) for name in names))
    seen: list[tuple[str, str]] = []
    cursor = None
    while True:
        page = await store.records.signals("f", 1, after=cursor, limit=7)
        seen += [(entry.source_node, entry.target_node) for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == sorted((a, b) for a in names for b in names)


async def test_a_cycle_comes_back_with_its_nodes(store: Store) -> None:
    nodes = {"A": ["completed", 1, 2, ""], "B": ["failed", 2, 3, "boom"]}
    counts = {"total": 2, "completed": 1, "failed": 1, "skipped": 0, "terminated": 0}
    await store.put(cycle("f", 4, "running", counts={"total": 2}))
    running = await store.records.cycle("f", 4)
    assert running is not None and (running.status, running.end_ms, running.nodes) == ("running", 0, None)
    await store.put(cycle("f", 4, "failed", counts=counts, nodes=nodes, error="boom", stopped_by="A"))
    await store.put(cycle("f", 4, "running"))  # once more, and late
    args = ("f", 4, "failed", "schedule", AT, AT + 4, AT + 5, counts, "A", "boom")
    assert await store.records.cycle("f", 4) == CycleEntry(*args, nodes)
    assert (await store.records.cycles("f")).items == [CycleEntry(*args)]
    assert await store.records.cycle("f", 5) is None
    await store.put(cycle("f", 4, "failed", error="told again, without nodes"))
    again = await store.records.cycle("f", 4)
    assert again is not None and again.nodes == nodes and again.error.startswith("told")


async def test_a_cycle_that_starts_and_ends_in_one_batch_has_ended(store: Store) -> None:
    await store.put(cycle("f", 1, "completed", nodes={"A": ["completed", 1, 2, ""]}), cycle("f", 1, "running"))
    await store.put(cycle("f", 2, "running"), cycle("f", 2, "stopped"))
    assert [entry.status for entry in (await store.records.cycles("f")).items] == ["stopped", "completed"]


async def test_cycles_are_listed_newest_first(store: Store) -> None:
    await store.put(*(cycle("f", n, "failed" if n % 3 == 0 else "completed") for n in range(10)), cycle("g", 99))
    first = await store.records.cycles("f", limit=4)
    assert [entry.cycle for entry in first.items] == [9, 8, 7, 6] and first.next_cursor == "6"
    rest = await store.records.cycles("f", before=first.next_cursor)
    assert [entry.cycle for entry in rest.items] == [5, 4, 3, 2, 1, 0] and rest.next_cursor is None
    failed = await store.records.cycles("f", status="failed", before=9)
    assert [entry.cycle for entry in failed.items] == [6, 3, 0]


async def test_what_cannot_be_asked_is_invalid(store: Store) -> None:
    records = store.records
    for limit in (0, -1, MAX_LIMIT + 1):
        for call in (
            records.logs("f", limit=limit),
            records.signals("f", 1, limit=limit),
            records.cycles("f", limit=limit),
        ):
            with pytest.raises(Invalid):
                await call
    for bad in (
        records.logs("f", level="LOUD"),
        records.logs("f", after="x"),
        records.logs("f", after="٣"),
        records.logs("f", after="9" * 30),
        records.logs("f", cycle=2**70),
        records.logs("f", search="x" * 201),
        records.logs("f", search="\0"),
        records.signals("f", 1, after="!"),
        records.signals("f", 1, after="WzFd"),
        records.cycles("f", before="x"),
        records.cycle("f", 2**70),
    ):
        with pytest.raises(Invalid) as caught:
            await bad
        assert caught.value.problems[0].hint
