"""CSV in: both forms, and every bad row by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.memory_sink import MemorySink
from tradewind.errors import Invalid, Problem
from tradewind.history import upload as uploading
from tradewind.history.import_csv import read_csv
from tradewind.history.keeping import DAY_MS, Keeping, always
from tradewind.history.policy import read_policy
from tradewind.history.sample import Row
from tradewind.history.sink import SinkAway
from tradewind.history.sqlite import SqliteSink
from tradewind.history.upload import sound_rows, upload

A, B = "comsrv:1:m:1", "modsrv:tank:measurement:volume"


def read(text: str) -> tuple[list[Row], list[Problem]]:
    problems: list[Problem] = []
    return list(read_csv(text.splitlines(keepends=True), problems.append)), problems


def test_the_long_form_in_any_order_of_columns() -> None:
    lines = (
        "\ufeffvalue,Time,series,Quality",
        f"1.5,1000,{A},good",
        "",
        f"2,1970-01-01T00:00:02Z,{B},1",
        f"-3e2,3000,{A},",
    )
    assert read("\r\n".join(lines)) == ([Row(A, 1000, 1.5, 0), Row(B, 2000, 2.0, 1), Row(A, 3000, -300.0, 0)], [])


def test_the_wide_form_leaves_empty_cells_out() -> None:
    assert read(f"ts,{A},{B}\n1000,1,\n2000,,2\n3000,3,4\n") == (
        [Row(A, 1000, 1.0), Row(B, 2000, 2.0), Row(A, 3000, 3.0), Row(B, 3000, 4.0)],
        [],
    )


def test_comments_are_skipped_and_counted_as_lines() -> None:
    rows, problems = read(f"# june\nts,address,value\n# noon\n1000,{A},1\nx,{A},1\n")
    assert rows == [Row(A, 1000, 1.0)] and [problem.path for problem in problems] == ["line 5"]


def test_quoted_cells() -> None:
    assert read(f'"ts","address","value"\n"1000","{A}","1.5"\n') == ([Row(A, 1000, 1.5)], [])


def test_every_bad_row_is_named_with_its_line_and_costs_no_other() -> None:
    lines = [
        "ts,address,value,quality",
        f"1000,{A},1,0",
        f"noon,{A},1,0",
        "1000,tank,1,0",
        f"1000,{A},warm,0",
        f"1000,{A},nan,0",
        f"1000,{A},1e999,0",
        f"1000,{A},,0",
        f"1000,{A},1,perfect",
        f"1000,{A},1",
        f"-5,{A},1,0",
        f'1000,"{A},1,0',
        f"99999999999999,{A},1,0",
        f"2000,{A},2,0",
    ]
    rows, problems = read("\n".join(lines))
    assert rows == [Row(A, 1000, 1.0), Row(A, 2000, 2.0)]
    assert [problem.path for problem in problems] == [f"line {number}" for number in range(3, 14)]
    assert all(problem.code == "bad_row" and problem.hint for problem in problems)


def test_a_bad_cell_of_the_wide_form_costs_its_whole_line() -> None:
    rows, problems = read(f"ts,{A},{B}\n1000,1,x\n2000,1,2\n")
    assert rows == [Row(A, 2000, 1.0), Row(B, 2000, 2.0)]
    assert [problem.path for problem in problems] == ["line 2"]


@pytest.mark.parametrize(
    "text", ["", "\n", "a,b,c\n", "ts\n1\n", "ts,address\n", f"ts,{A},{A}\n", "ts,address,value,colour\n", "ts,tank\n"]
)
def test_without_a_header_nothing_is_read(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(text)
    assert caught.value.code == "bad_header"
    assert caught.value.problems[0].path == "line 1"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ts,address,value,colour\n", "'colour'"),
        ('ts,"address,value\n', "quote"),
        ("\udcff\udcfet\x00s\x00,\x00a\x00\n", "UTF-8"),
        ('\udc80"\x01,\n', "UTF-8"),
        ("when;what;value\n", "ts"),
    ],
)
def test_a_bad_header_says_what_is_wrong_with_it(text: str, word: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(text)
    assert caught.value.code == "bad_header" and word in caught.value.message


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_marks_between_columns_are_known_by_the_header(mark: str) -> None:
    """As spreadsheets write them where the comma is in the numbers; which must not be taken for something else."""
    lines = ["ts,address,value,quality", f"1000,{A},1.5,good", f'2000,"{B}",-2,1']
    text = "\n".join(lines).replace(",", mark)
    assert read(text) == ([Row(A, 1000, 1.5), Row(B, 2000, -2.0, 1)], [])
    rows, problems = read(f"{text}\n3000{mark}{A}{mark}1,5{mark}0\n3000{mark}{A}{mark}1{mark}0{mark}\n")
    assert len(rows) == 2 and ["decimal point" in problem.hint for problem in problems] == [True, False]
    assert read(f"ts{mark}{A}{mark}{B}\n1000{mark}1{mark}\n") == ([Row(A, 1000, 1.0)], [])


def test_seconds_are_not_taken_for_milliseconds() -> None:
    """They would be stored in 1970."""
    rows, problems = read(f"ts,address,value\n1790000000,{A},1\n1790000000000,{A},1\n")
    assert rows == [Row(A, 1_790_000_000_000, 1.0)]
    assert [problem.path for problem in problems] == ["line 2"] and "seconds" in problems[0].hint


def test_bad_rows_are_all_named_before_anything_is_written() -> None:
    rows = [Row(A, 1, 1.0), Row("tank", 1, 1.0), Row(A, -1, 1.0), Row(A, 1, float("nan")), Row(A, 1, 1.0, 3)]
    problems: list[Problem] = []
    assert sound_rows(rows, problems.append) == rows[:1]
    assert [problem.path for problem in problems] == ["rows[1]", "rows[2]", "rows[3]", "rows[4]"]


async def test_a_sink_that_goes_away_in_the_middle_is_told_with_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "PART", 10)
    sink = MemorySink()
    await sink.open()
    writes = 0
    write = sink.write

    async def tired(rows: list[Row]) -> object:
        nonlocal writes
        writes += 1
        if writes == 3:
            raise SinkAway("gone")
        return await write(rows)

    monkeypatch.setattr(sink, "write", tired)
    rows = [Row(A, at, float(at)) for at in range(50)]
    with pytest.raises(SinkAway) as caught:
        await upload(sink, rows)
    assert "20 of 50 rows are stored for certain" in caught.value.hint
    assert (await upload(sink, rows)).stored == 50


async def test_rows_older_than_retention_are_counted_by_class_and_the_others_stored(tmp_path: Path) -> None:
    now, brief, other = 1_790_035_200_000, "comsrv:1:m:1", "comsrv:2:m:1"
    classes = {"classes": {"brief": {"raw_days": 2}}, "policies": [{"match": "comsrv:1:*", "class": "brief"}]}
    keeping = Keeping((10, 0, 0), read_policy(classes))
    rows = [Row(name, now - hour * 3_600_000, 1.0) for name in (brief, other) for hour in range(1, 24 * 20)]
    memory = MemorySink()  # has no rollups: what is too old would simply go again
    done = await upload(memory, rows, keeping, now)
    assert memory.rows() == done.stored == 48 + 240 and done.rollups_only == 0
    assert len(done.refused) == len(rows) - done.stored and {reason for _, reason in done.refused} == {"too_old"}
    assert [(each.series_class, each.raw_days, each.rows, each.kept_from) for each in done.too_old] == [
        ("brief", 2, 431, now - 2 * DAY_MS),
        ("default", 10, 239, now - 10 * DAY_MS),
    ]
    async with SqliteSink(tmp_path, keeping=always(keeping), now=lambda: now) as sink:
        first = await upload(sink, rows, keeping, now)  # nothing is there yet, so all of it gets its rollups
        assert (first.stored, first.refused, first.too_old, first.rollups_only) == (len(rows), [], [], 431 + 239)
        while (await sink.retain(now)).rows:
            pass
        again = await upload(sink, rows, keeping, now)
        assert [(each.series_class, each.kept_from) for each in again.too_old] == [
            ("brief", now - 2 * DAY_MS),
            ("default", now - 10 * DAY_MS),
        ]
        assert again.stored == 48 + 240 and again.rollups_only == 0
        hours = await sink.buckets([brief, other], now - 20 * DAY_MS, now, 3_600_000, ["count"], 1000)
        assert [len(hours[brief]), len(hours[other])] == [479, 479]
