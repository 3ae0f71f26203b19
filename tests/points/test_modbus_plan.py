from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid, Problem
from tradewind.points.drivers.modbus_cell import ORDERS, TYPES, Cell, cell_of, registers_of, value_of
from tradewind.points.drivers.modbus_plan import Block, plan_blocks, split
from tradewind.points.drivers.modbus_poll import MAX_QUIET_S, REFUSED_S, PollPlan
from tradewind.points.spec import Kind, PointSpec, Quality

M, S, C, A = Kind.MEASUREMENT, Kind.SIGNAL, Kind.CONTROL, Kind.ADJUSTMENT


def cell(address: int, kind: str = "uint16", *, slave: int = 1, function: int = 3, order: str = "ABCD", bit: int = -1,
         point: str = "") -> Cell:  # fmt: skip
    return Cell(M, point or f"{address}", slave, function, address, kind, order, bit)


def spans(blocks: list[Block]) -> list[tuple[int, int, int, int]]:
    return [(b.slave, b.function, b.start, b.count) for b in blocks]


def mapped(kind: Kind, **mapping: Any) -> Cell:
    problems: list[Problem] = []
    found = cell_of(PointSpec(kind, "1", mapping=mapping), {}, problems)
    assert found is not None, problems
    return found


def test_a_thousand_registers_are_eight_reads() -> None:
    assert spans(plan_blocks(cell(n) for n in range(1000))) == [(1, 3, n, 125) for n in range(0, 1000, 125)]


def test_two_thousand_bits_are_one_read_and_one_more_is_a_second() -> None:
    assert spans(plan_blocks(cell(n, "bool", function=2) for n in range(2001))) == [(1, 2, 0, 2000), (1, 2, 2000, 1)]


def test_gaps_are_read_over_up_to_the_limit() -> None:
    cells = [cell(0), cell(9), cell(19)]
    assert spans(plan_blocks(cells, max_gap=8)) == [(1, 3, 0, 10), (1, 3, 19, 1)]
    assert spans(plan_blocks(cells, max_gap=0)) == [(1, 3, 0, 1), (1, 3, 9, 1), (1, 3, 19, 1)]


def test_slaves_and_functions_are_read_apart() -> None:
    cells = [cell(0), cell(1, slave=2), cell(1, function=4), cell(1)]
    assert spans(plan_blocks(cells)) == [(1, 3, 0, 2), (1, 4, 1, 1), (2, 3, 1, 1)]


def test_no_value_is_cut_in_two() -> None:
    cells = [cell(n, "uint16") for n in range(124)] + [cell(124, "float64")]
    assert spans(plan_blocks(cells)) == [(1, 3, 0, 124), (1, 3, 124, 4)]


@pytest.mark.parametrize(
    ("order", "data"),
    [("ABCD", "0102 0304"), ("DCBA", "0403 0201"), ("BADC", "0201 0403"), ("CDAB", "0304 0102")],
)
def test_byte_orders_of_32_bits(order: str, data: str) -> None:
    block = Block([cell(0, "uint32", order=order)])
    assert block.readings(bytes.fromhex(data))[0].raw == 0x01020304
    written = registers_of(cell(0, "uint32", order=order, function=16), 0x01020304)
    assert struct.pack(">2H", *written) == bytes.fromhex(data)


@pytest.mark.parametrize(("order", "data"), [("ABCD", "0102"), ("CDAB", "0102"), ("BADC", "0201"), ("DCBA", "0201")])
def test_byte_orders_of_one_register(order: str, data: str) -> None:
    assert Block([cell(0, order=order)]).readings(bytes.fromhex(data))[0].raw == 0x0102


def test_mixed_types_orders_bits_and_overlaps_in_one_block() -> None:
    cells = [
        cell(0, "int16", point="a"),
        cell(1, "float32", order="CDAB", point="b"),
        cell(3, "bool", bit=0, point="c"),
        cell(3, "bool", bit=15, point="d"),
        cell(3, "uint16", point="e"),
        cell(3, "uint32", point="f"),
        cell(6, "int64", point="g"),
    ]
    high, low = struct.unpack(">2H", struct.pack(">f", 1.5))
    data = struct.pack(">h5Hq", -2, low, high, 0x8000, 7, 0, -(2**40))
    found = {r.id: r.raw for r in plan_blocks(cells)[0].readings(data)}
    assert found == {"a": -2, "b": 1.5, "c": 0, "d": 1, "e": 0x8000, "f": 0x8000_0007, "g": -(2**40)}


def test_bits_of_an_answer_stand_in_the_order_of_the_protocol() -> None:
    block = plan_blocks([cell(n, "bool", function=1) for n in (20, 21, 29)])[0]
    assert [r.raw for r in block.readings(bytes([0b0000_0010, 0b0000_0010]))] == [0, 1, 1]


def test_an_answer_of_another_length_is_no_answer() -> None:
    with pytest.raises(ValueError, match="2 bytes for 2 registers"):
        Block([cell(0, "uint32")]).readings(b"\0\0")
    with pytest.raises(ValueError, match="6 bytes for 2 registers"):
        Block([cell(0, "uint32")]).readings(b"\0\0\0\0\0\0")


numbers = {
    **{name: st.integers(-(2 ** (b - 1)), 2 ** (b - 1) - 1) for name, b in (("int16", 16), ("int32", 32))},
    **{name: st.integers(0, 2**b - 1) for name, b in (("uint16", 16), ("uint32", 32))},
    "int64": st.integers(-(2**53), 2**53),
    "uint64": st.integers(0, 2**53),
    "float32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
}


@given(st.data(), st.sampled_from(sorted(numbers)), st.sampled_from(sorted(ORDERS)))
def test_what_is_written_is_read_back(data: st.DataObject, kind: str, order: str) -> None:
    value = data.draw(numbers[kind])
    spot = cell(5, kind, order=order)
    registers = registers_of(spot, value)
    assert len(registers) == TYPES[kind][0]
    assert value_of(spot, registers) == value
    assert Block([spot]).readings(struct.pack(f">{len(registers)}H", *registers))[0].raw == value


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from(sorted(TYPES)), st.sampled_from(sorted(ORDERS))), max_size=60
    ),
    st.integers(0, 20),
)
def test_every_point_is_read_once_by_a_plan_within_the_limits(places: list[tuple[int, str, str]], gap: int) -> None:
    cells = [cell(a, k, order=o, bit=0 if k == "bool" else -1, point=f"{i}") for i, (a, k, o) in enumerate(places)]
    blocks = plan_blocks(cells, max_gap=gap, max_registers=20)
    assert sorted(c.id for b in blocks for c in b.cells) == sorted(c.id for c in cells)
    memory = [n * 257 % 65536 for n in range(500)]
    for block in blocks:
        assert block.count <= 20
        data = struct.pack(f">{block.count}H", *memory[block.start : block.start + block.count])
        found = {r.id: r.raw for r in block.readings(data)}
        for one in block.cells:
            expected = value_of(one, memory[one.address : one.address + one.size])
            assert found[one.id] == expected or (found[one.id] != found[one.id] and expected != expected)


@pytest.mark.parametrize(("value", "registers"), [(42288.9999, [42289]), (2.5, [3]), (-0.4, [0])])
def test_integers_are_rounded(value: float, registers: list[int]) -> None:
    assert registers_of(cell(0, "uint16"), value) == registers


@pytest.mark.parametrize(
    ("kind", "value"), [("uint16", -1), ("int16", 32768), ("float32", 1e39), ("uint16", float("nan"))]
)
def test_what_does_not_fit_is_refused_and_never_wrapped(kind: str, value: float) -> None:
    with pytest.raises(Invalid, match="does not fit"):
        registers_of(cell(7, kind), value)


def test_mappings_have_sensible_defaults() -> None:
    assert mapped(M, register_address=5) == Cell(M, "1", 1, 3, 5, "float32")
    assert mapped(S, register_address="0x10") == Cell(S, "1", 1, 2, 16, "bool")
    assert mapped(S, register_address=5, function_code=3, bit_position=4).bit == 4
    assert mapped(C, register_address=5) == Cell(C, "1", 1, 5, 5, "bool")
    assert mapped(C, register_address=5, function_code=6).type == "uint16"
    assert mapped(A, register_address=5, data_type="int16", function_code=3).function == 16


@pytest.mark.parametrize(
    ("kind", "mapping", "code", "path"),
    [
        (M, {}, "missing", "mapping.register_address"),
        (M, {"register_address": 70000}, "bad_number", "mapping.register_address"),
        (M, {"register_address": 65535}, "bad_address", "mapping.register_address"),
        (M, {"register_address": 1, "data_type": "int17"}, "bad_data_type", "mapping.data_type"),
        (M, {"register_address": 1, "byte_order": "ACBD"}, "bad_byte_order", "mapping.byte_order"),
        (M, {"register_address": 1, "function_code": 6}, "bad_function_code", "mapping.function_code"),
        (A, {"register_address": 1, "function_code": 6}, "bad_function_code", "mapping.function_code"),
        (A, {"register_address": 1, "function_code": 4}, "bad_function_code", "mapping.function_code"),
        (S, {"register_address": 1, "bit_position": 16}, "bad_number", "mapping.bit_position"),
        (M, {"register_address": 1, "slave_id": 1.5}, "bad_number", "mapping.slave_id"),
    ],
)
def test_bad_mappings_are_named(kind: Kind, mapping: dict[str, Any], code: str, path: str) -> None:
    problems: list[Problem] = []
    assert cell_of(PointSpec(kind, "1", mapping=mapping), {}, problems) is None
    assert [(p.code, p.path) for p in problems] == [(code, path)]


def test_a_split_leaves_gaps_out_first_and_halves_after_that() -> None:
    block = plan_blocks([cell(n) for n in (0, 1, 4, 5, 6, 7)])[0]
    assert spans(split(block)) == [(1, 3, 0, 2), (1, 3, 4, 4)]
    assert spans(split(split(block)[1])) == [(1, 3, 4, 2), (1, 3, 6, 2)]
    assert split(Block([cell(3, "bool", bit=0, point="a"), cell(3, "bool", bit=1, point="b")])) == []


def drive(plan: PollPlan, now: float, holes: set[int], most: int = 125) -> tuple[int, set[str], set[str]]:
    """One poll of a device with bad registers; how many reads, which points came good and bad."""
    reads = 0
    plan.start(now)
    while (block := plan.next(now)) is not None:
        reads += 1
        if block.count > most or holes & set(range(block.start, block.start + block.count)):
            plan.refused(block, now, is_divisible=True)
        else:
            plan.good(block, block.readings(bytes(block.count * 2)))
    found = plan.finish()
    good = {r.id for r in found if r.quality is Quality.GOOD}
    assert len(found) == len({r.id for r in found})
    return reads, good, {r.id for r in found} - good


def test_only_the_bad_register_is_bad_and_the_next_poll_knows_it() -> None:
    plan = PollPlan(cell(n) for n in range(125))
    everything = {str(n) for n in range(125)}
    reads, good, bad = drive(plan, 0, {50})
    assert (good, bad) == (everything - {"50"}, {"50"})
    assert reads < 20
    again, good, bad = drive(plan, 1, {50})
    assert (good, bad) == (everything - {"50"}, {"50"})
    assert again <= 4
    assert drive(plan, REFUSED_S + 1, set())[1:] == (everything, set())


def test_a_device_that_reads_only_a_few_registers_at_once_is_read_in_short_blocks() -> None:
    plan = PollPlan(cell(n) for n in range(100))
    for now in (0, 1, 2):
        reads, good, bad = drive(plan, now, set(), most=30)
        assert len(good) == 100
        assert bad == set()
    assert reads == 4


@given(st.sets(st.integers(0, 199), min_size=1), st.sets(st.integers(0, 199)))
def test_whatever_registers_are_bad_exactly_their_points_are_bad(wanted: set[int], holes: set[int]) -> None:
    plan = PollPlan(cell(n) for n in wanted)
    for now in (0, 1):
        _, good, bad = drive(plan, now, holes)
        assert good == {str(n) for n in wanted - holes}
        assert bad == {str(n) for n in wanted & holes}


def test_a_silent_unit_is_left_alone_for_a_growing_time() -> None:
    plan = PollPlan([cell(0, point="1"), cell(0, slave=2, point="2")])
    asked = []
    for now in range(200):
        plan.start(now)
        while (block := plan.next(now)) is not None:
            if block.slave == 2:
                asked.append(now)
                plan.silent(block, now)
            else:
                plan.good(block, block.readings(b"\0\0"))
        assert {r.id: r.quality for r in plan.finish()} == {"1": Quality.GOOD, "2": Quality.BAD}
    assert asked == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert asked[-1] - asked[-2] == MAX_QUIET_S


def test_what_there_was_no_time_for_comes_first_in_the_next_poll() -> None:
    plan = PollPlan([cell(0), cell(100), cell(200)])
    seen = []
    for now in (0, 1):
        plan.start(now)
        for _ in range(2):
            block = plan.next(now)
            assert block is not None
            seen.append(block.start)
            plan.good(block, block.readings(b"\0\0"))
        left = plan.next(now)
        assert left is not None
        plan.put_back(left)
        assert len(plan.finish()) == 2
    assert seen == [0, 100, 200, 0]
