"""Rows as columns: the same rows, and the same verdict on them, as a list gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.history.columns import Columns, share_a_key, sort_out
from tradewind.history.influx_line import LineMaker
from tradewind.history.sample import MAX_TS_MS, Refused, Row, refusal

A, B = "comsrv:1001:m:10001", "modsrv:power:measurement:total"

sound = st.builds(
    Row,
    st.sampled_from([A, B, "comsrv:1:s:2"]),
    st.integers(0, MAX_TS_MS),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 2),
)
any_row = st.builds(
    Row,
    st.sampled_from([A, B, "nonsense", "", 7, None]),
    st.one_of(st.integers(0, MAX_TS_MS), st.sampled_from([-1, MAX_TS_MS + 1, 2**70, 1.5, True, None])),
    st.one_of(st.floats(), st.sampled_from([5, -(2**1022), 10**400, True, "1", None, np.float64(1.5)])),
    st.sampled_from([0, 1, 2, 3, -1, 300, True, None]),
)


@given(st.lists(sound, max_size=20), st.lists(sound, max_size=20), st.integers(-25, 25), st.integers(-25, 25))
def test_columns_read_like_the_list_of_their_rows(first: list[Row], more: list[Row], begin: int, end: int) -> None:
    columns = Columns(first)
    columns.extend(more)
    columns.extend(Columns(first))
    rows = [*first, *more, *first]
    assert columns == rows and len(columns) == len(rows) and bool(columns) is bool(rows)
    assert columns[begin:end] == rows[begin:end]
    assert [columns[at] for at in range(len(rows))] == rows
    assert all(type(row) is Row for row in columns)


def test_a_slice_is_another_one() -> None:
    columns = Columns([Row(A, 1, 1.0, 0), Row(A, 2, 2.0, 0)])
    part = columns[:1]
    columns.append(Row(A, 3, 3.0, 0))
    part.append(Row(B, 9, 9.0, 2))
    assert [row.ts_ms for row in columns] == [1, 2, 3] and [row.ts_ms for row in part] == [1, 9]


@given(st.lists(st.one_of(sound, any_row), max_size=12))
def test_the_verdict_on_many_is_that_on_each(rows: list[Row]) -> None:
    kept, refused = sort_out(rows)
    assert list(kept) == [row for row in rows if refusal(row) is None]
    expected = [Refused(row, reason) for row in rows if (reason := refusal(row)) is not None]
    assert [(repr(item.row), item.reason) for item in refused] == [(repr(item.row), item.reason) for item in expected]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Row(A, 1, math.nan, 0), "not_finite"),
        (Row(A, -1, 1.0, 0), "bad_time"),
        (Row(A, MAX_TS_MS + 1, 1.0, 0), "bad_time"),
        (Row(A, 1, 1.0, 3), "bad_quality"),
        (Row("nonsense", 1, 1.0, 0), "bad_series"),
    ],
)
def test_one_bad_row_of_columns_costs_no_neighbour(bad: Row, reason: str) -> None:
    good = [Row(A, at, 1.0, 0) for at in range(5)]
    kept, refused = sort_out(Columns([*good, bad, *good]), {A})
    assert kept == good + good and [item.reason for item in refused] == [reason]


@pytest.mark.parametrize("bad", [Row(A, 2**63, 1.0, 0), Row(A, 1, "x", 0), Row(A, 1.5, 1.0, 0), Row(A, 1, 1.0, 256)])  # type: ignore[arg-type]
def test_columns_hold_only_numbers_that_fit(bad: Row) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        Columns([bad])


@given(st.lists(sound, min_size=1, max_size=20))
def test_a_line_says_exactly_what_its_row_does(rows: list[Row]) -> None:
    maker = LineMaker()
    maker.marked = None
    made = maker.make(Columns(rows))
    for row, line in zip(rows, made.lines, strict=True):
        _, fields, ts = line.split(" ")
        value, quality = fields.split(",")
        assert float(value.removeprefix("value=")).hex() == row.value.hex()
        assert quality == f"quality={row.quality}i" and int(ts) == row.ts_ms


few = st.lists(st.builds(Row, st.sampled_from([A, B]), st.integers(0, 6), st.just(1.0), st.just(0)), min_size=1)


@given(few, few)
def test_a_shared_key_is_found_and_no_other(first: list[Row], second: list[Row]) -> None:
    shared = {row[:2] for row in first} & {row[:2] for row in second}
    assert share_a_key(Columns(first), Columns(second)) is bool(shared)
