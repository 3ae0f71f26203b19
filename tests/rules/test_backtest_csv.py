"""Samples for a back-test from CSV: both forms, times, qualities, and every bad row by its line."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tradewind.clock import iso
from tradewind.errors import Invalid
from tradewind.rules.backtest import backtest
from tradewind.rules.backtest_csv import read_csv
from tradewind.rules.spec import Compare, Rule

A, B = "comsrv:1:m:1", "comsrv:1:m:2"
T = 1_704_103_200_000


def problems(text: str, addresses: list[str] | None = None) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        read_csv(text, addresses or [A])
    return [(problem.code, problem.path) for problem in caught.value.problems]


def test_one_source_needs_no_address() -> None:
    found = read_csv(f"ts,value\n{T},1\n{T + 1000},9.5\n", [A])
    assert found.rows == 2 and found.series[A].ts_ms.tolist() == [T, T + 1000]
    assert found.series[A].values.tolist() == [1.0, 9.5]
    report = backtest(Rule("r", conditions=(Compare(A, ">", 5.0),)), found.series)
    assert [(e.edge, e.at_ms) for e in report.events] == [("rise", T + 1000)]


def test_columns_in_any_order_iso_times_qualities_and_others_sources() -> None:
    text = (
        "\ufeffQuality,value,note,address,TS\r\n"
        f"good,1,x,{A},2024-01-01T10:00:00Z\r\n"
        f"BAD,2,x,{B},2024-01-01T18:00:01.500+08:00\r\n"
        f',3,"a\nb",comsrv:9:m:9,garbage\r\n'
        f"1,,x,{A},{T + 2000}\r\n"
    )
    for given in (text, text.encode()):
        found = read_csv(given, [A, B])
        assert found.rows == 4 and found.ignored == 1
        assert found.series[A].ts_ms.tolist() == [T, T + 2000] and found.series[A].is_known.tolist() == [True, False]
        assert found.series[B].ts_ms.tolist() == [T + 1500] and not found.series[B].is_known[0]


def test_rows_in_any_order_equal_times_as_they_stand() -> None:
    found = read_csv(f"ts,value\n{T + 5},3\n{T},1\n{T},2\n", [A]).series[A]
    assert found.ts_ms.tolist() == [T, T, T + 5] and found.values.tolist() == [1.0, 2.0, 3.0]


def test_times_of_one_shape_are_read_like_all_others() -> None:
    for times in ([T, T + 1, T + 999], [T, T + 1000, T + 86_400_000 * 60]):
        for text in (iso, lambda ms: iso(ms).replace(".000", "")):
            cells = [text(ms) for ms in times]
            found = read_csv("ts,value\n" + "".join(f"{cell},1\n" for cell in cells), [A])
            assert found.series[A].ts_ms.tolist() == times


def test_every_bad_row_is_named() -> None:
    text = f"ts,value,quality\n{T},1,good\nlate,1,good\n{T},x,good\n\n{T},inf,\n-5,1,\n{T},1,fine\nnow,y,z\n"
    assert sorted(problems(text), key=lambda found: (int(found[1].split()[1]), found[0])) == [
        ("bad_time", "line 3"), ("bad_value", "line 4"), ("bad_value", "line 6"), ("bad_time", "line 7"),
        ("bad_quality", "line 8"), ("bad_quality", "line 9"), ("bad_time", "line 9"), ("bad_value", "line 9"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "cell", ["2024-13-01T10:00:00Z", "2024-02-30T10:00:00Z", "NaT", "2024-01", "today", "1e12", ""]
)
def test_a_time_that_is_none_is_refused(cell: str) -> None:
    assert problems(f"ts,value\n2024-01-01T10:00:00Z,1\n{cell},1\n") == [("bad_time", "line 3")]


def test_rows_of_another_width_are_named_with_the_other_problems() -> None:
    text = f"ts,value\n{T},1\n{T}\n{T},1,2\nx,1\n"
    assert sorted(problems(text)) == [("bad_row", "line 3"), ("bad_row", "line 4"), ("bad_time", "line 5")]


def test_bad_headers_are_refused() -> None:
    assert problems("") == [("no_column", "line 1"), ("no_column", "line 1")]
    assert problems("ts,ts,value\n") == [("column_twice", "line 1")]
    assert problems("ts,value\n", [A, B]) == [("no_column", "line 1")]
    with pytest.raises(Invalid):
        read_csv(b"ts,value\n\xff,1\n", [A])


def test_very_many_bad_rows_are_counted_and_the_first_named() -> None:
    with pytest.raises(Invalid, match="120000 problems; the first 100 are named") as caught:
        read_csv("ts,value\n" + "x,1\n" * 120_000, [A])
    assert len(caught.value.problems) == 100 and caught.value.problems[-1].path == "line 101"


def test_a_long_file_is_read_in_pieces_without_a_seam() -> None:
    values = np.arange(120_000) / 8
    text = "ts,value\n" + "".join(f"{T + i},{value}\n" for i, value in enumerate(values.tolist()))
    found = read_csv(text, [A])
    assert found.rows == 120_000 and np.array_equal(found.series[A].values, values)
    assert found.series[A].ts_ms[-1] == T + 119_999
    assert problems(text + "x,1\n") == [("bad_time", "line 120002")]


def test_nan_is_unknown() -> None:
    found = read_csv(f"ts,value\n{T},nan\n", [A]).series[A]
    assert math.isnan(found.values[0]) and not found.is_known[0]
