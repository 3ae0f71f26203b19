"""Outbox entries become rows; what is no record is set apart, alone."""

from __future__ import annotations

import random

import pytest

from tests.flows.record_outbox import AT, cycle, gone, log, signal
from tradewind import codec
from tradewind.flows.record_row import CycleRow, LogRow, SignalRow, read_entry


def test_a_log_line_keeps_the_fields_of_the_seed() -> None:
    line = log("f", 3, "héllo", node="n", level="warn", source="node", meta={"a": [1]})
    (record,), rejects = read_entry("5-1", codec.encode([line]))
    assert not rejects
    assert record.logs == (LogRow("f", "5-1-0", 3, "n", "WARNING", "node", "héllo", '{"a":[1]}', AT + 3),)


def test_a_signal_is_one_row_per_target_with_its_payload_as_it_was_sent() -> None:
    data = b'[{"k":"signal","flow":"f","cycle":1,"to":[["B","i"],["C","i"]],"sig":{"id":"s","type":"ANY","payload":'
    data += b'{"p": 1.10},"timestamp":1.5,"source_node":"A","source_handle":"o","flow_id":"f","cycle":1}}]'
    (record,), _ = read_entry("1-0", data)
    row = SignalRow("f", 1, "A", "o", "B", "i", "s", "ANY", '{"p": 1.10}', 1500)
    assert record.signals == (row, row._replace(target_node="C"))


@pytest.mark.parametrize("to", [[], {}])
def test_an_output_without_target_is_a_row_too(to: object) -> None:
    (record,), _ = read_entry("1-0", codec.encode([signal("f", 1, to=to)]))
    assert [(row.target_node, row.target_handle) for row in record.signals] == [("", "")]


def test_a_time_in_iso_form_is_read() -> None:
    (record,), _ = read_entry("1-0", codec.encode([signal("f", 1, timestamp="2023-11-14T22:13:20Z")]))
    assert record.signals[0].created_ms == AT


def test_a_cycle_has_its_counts_and_nodes() -> None:
    nodes = {"n": ["failed", 1, 2, "boom"]}
    counts = {"total": 3, "completed": 1, "failed": 1, "skipped": 1}
    (record,), _ = read_entry("1-0", codec.encode([cycle("f", 7, "failed", counts=counts, nodes=nodes, error="e")]))
    stored = codec.encode(nodes).decode()
    numbers = (AT, AT + 7, AT + 8, 3, 1, 1, 1, 0)
    assert record.cycles == (CycleRow("f", 7, "failed", "schedule", *numbers, "", "e", stored),)


def test_the_end_of_a_flow_has_no_rows() -> None:
    (record,), _ = read_entry("1-0", codec.encode([gone("f")]))
    assert record.is_gone and not (record.logs or record.signals or record.cycles)


def test_nul_characters_do_not_reach_the_database() -> None:
    (record,), _ = read_entry("1-0", codec.encode([log("f", 1, "a\0b", meta={"x": "\0"})]))
    assert record.logs[0].message == "a\ufffdb"
    assert record.logs[0].log_metadata == '{"x":"\\u0000"}'


@pytest.mark.parametrize(
    "bad",
    [
        b"1",
        b"null",
        b'{"k":"new","flow":"f"}',
        b'{"flow":"f"}',
        codec.encode({**log("f", 1), "flow": ""}),
        codec.encode({**log("f", 1), "flow": "f" * 65}),
        codec.encode({**log("f", 1), "cycle": 2**70}),
        codec.encode({**log("f", 1), "at": "yesterday"}),
        codec.encode({**log("f", 1), "message": None}),
        codec.encode(signal("f", 1, to=["B"])),
        codec.encode(signal("f", 1, to={"B": "i"})),
        codec.encode(signal("f", 1, timestamp="yesterday")),
        codec.encode(signal("f", 1, source="A" * 129)),
        codec.encode({**signal("f", 1), "sig": None}),
        codec.encode({**cycle("f", 1), "nodes": [1]}),
        codec.encode({**cycle("f", 1), "counts": {"total": -1}}),
    ],
    ids=repr,
)
def test_a_bad_element_is_set_apart_and_its_neighbours_are_read(bad: bytes) -> None:
    good = codec.encode(log("f", 1))
    records, rejects = read_entry("9-0", b"[%b,%b,%b]" % (good, bad, good))
    assert [record.ref for record in records] == ["9-0-0", "9-0-2"]
    assert [(reject.ref, reject.data) for reject in rejects] == [("9-0-1", bad)]
    assert rejects[0].reason


@pytest.mark.parametrize("bad", [b"", b"not JSON", b"[1,", b"7", b"\xff\xfe", b"[" * 100_000])
def test_a_bad_entry_is_set_apart(bad: bytes) -> None:
    records, rejects = read_entry("9-0", bad)
    assert not records and [(reject.ref, reject.data) for reject in rejects] == [("9-0", bad)]


def test_an_empty_entry_is_fine_also_as_lua_writes_it() -> None:
    assert read_entry("1-0", b"[]") == read_entry("1-0", b"{}") == ([], [])


def test_damaged_entries_never_raise() -> None:
    chance = random.Random(4)
    whole = codec.encode([log("f", 1, meta={"a": 1}), signal("f", 1, payload=[1]), cycle("f", 1, nodes={}), gone("f")])
    for _ in range(5000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        read_entry("1-0", bytes(data))
