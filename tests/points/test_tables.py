"""CSV tables: every spelling that spreadsheets produce is read, every bad row is named and stops nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.soak import repeats
from tradewind.points.table_columns import POINT_COLUMNS, BadCell, any_scalar, flag, mapping_columns, number, whole
from tradewind.points.tables import FileProblem, Findings, Table, read_table


def read(folder: Path, text: str | bytes, protocol: str = "") -> tuple[Table, list[tuple[str, int, str]]]:
    """The table, and (code, line, column) of each problem."""
    file = folder / "t.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    findings = Findings()
    columns = mapping_columns(protocol) if protocol else POINT_COLUMNS
    table = read_table(file, "1001/t.csv", columns, findings, is_open=bool(protocol))
    problems = [problem for problem in findings.problems if isinstance(problem, FileProblem)]
    assert len(problems) == len(findings.problems)
    assert all(problem.hint and problem.path.startswith("1001/t.csv") for problem in problems)
    return table, [(problem.code, problem.line, problem.column) for problem in problems]


def rows(table: Table) -> dict[str, dict[str, Any]]:
    return {key: values for key, (_, values) in table.rows.items()}


@pytest.mark.parametrize(
    "text",
    [
        "point_id,name,scale\n1,a,0.1\n2,b,\n",
        "\ufeffpoint_id,name,scale\n1,a,0.1\n2,b,\n",
        "point_id,name,scale\r\n1,a,0.1\r\n2,b,\r\n",
        "point_id,name,scale\r1,a,0.1\r2,b,",
        "point_id;name;scale\n1;a;0.1\n2;b;\n",
        "point_id\tname\tscale\n1\ta\t0.1\n2\tb\n",
        "\n\n# comment\npoint_id,signal_name,scale\n\n1,a,0.1\n,,\n  \n# 9,z,1\n2,b\n\n",
        " Point_ID , Name , Scale \n 1 , a , 0.1 \n2,b,,,,\n",
        '"point_id","name","scale"\n"1","a","0.1"\n"2","b",""\n',
        "point_id,name,scale,x-note,#,alarm_level\n1,a,0.1,hello,!,3\n2,b,,,,\n",
        "scale,name,id\n0.1,a,1\n,b,2",
    ],
)
def test_the_same_rows_in_every_spelling(tmp_path: Path, text: str) -> None:
    table, problems = read(tmp_path, text)
    assert problems == []
    assert rows(table) == {"1": {"id": "1", "name": "a", "scale": 0.1}, "2": {"id": "2", "name": "b"}}


def test_text_in_other_scripts_and_over_two_lines(tmp_path: Path) -> None:
    table, problems = read(tmp_path, 'point_id,name,unit,description\n1,A相电压,°C,"one\ntwo, three"\n2,b,V,x\n')
    assert problems == []
    assert rows(table)["1"]["name"] == "A相电压"
    assert rows(table)["1"]["description"] == "one\ntwo, three"
    assert table.rows["2"][0] == 4


@pytest.mark.parametrize(
    ("row", "code", "column"),
    [
        ("x,a,1,1,V", "bad_id", "point_id"),
        ("-5,a,1,1,V", "bad_id", "point_id"),
        ("1.5,a,1,1,V", "bad_id", "point_id"),
        (",a,1,1,V", "missing_id", "point_id"),
        ("5,a,one,1,V", "not_a_number", "scale"),
        ('5,a,"0,1",1,V', "not_a_number", "scale"),
        ("5,a,1_000,1,V", "not_a_number", "scale"),
        ("5,a,٣,1,V", "not_a_number", "scale"),
        ("5,a,nan,1,V", "not_finite", "scale"),
        ("5,a,1e999,1,V", "not_finite", "scale"),
        ("5,a,1,maybe,V", "not_a_bool", "reverse"),
        ("5,a,1,2,V", "not_a_bool", "reverse"),
        ("5,a,1,1,V,extra", "too_many_cells", ""),
        (f"5,{'n' * 201},1,1,V", "too_long", "name"),
        ('5,"a,1,1,V', "bad_quotes", ""),
        ("1,a,1,1,V", "duplicate_id", "point_id"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_read(tmp_path: Path, row: str, code: str, column: str) -> None:
    table, problems = read(tmp_path, f"point_id,name,scale,reverse,unit\n1,a,1,0,V\n{row}\n3,c,2,yes,V\n4,d,,no,\n")
    assert problems == [(code, 3, column)]
    assert list(table.rows) == ["1", "3", "4"]
    assert table.rows["3"] == (4, {"id": "3", "name": "c", "scale": 2.0, "reverse": True, "unit": "V"})


def test_every_bad_cell_of_a_row_is_named(tmp_path: Path) -> None:
    table, problems = read(tmp_path, "point_id,scale,offset,deadband\n7,a,b,-1\n")
    assert [(code, column) for code, _, column in problems] == [
        ("not_a_number", "scale"),
        ("not_a_number", "offset"),
        ("out_of_range", "deadband"),
    ]
    assert table.rows == {} and table.left_out == {"7"}


def test_a_quotation_mark_that_is_never_closed_costs_its_row_only(tmp_path: Path) -> None:
    body = "".join(f"{index},n\n" for index in range(100))
    table, problems = read(tmp_path, f'point_id,name\n1000,"oops\n{body}1001,"last')
    assert problems == [("bad_quotes", 2, ""), ("bad_quotes", 103, "")]
    assert len(table.rows) == 100


def test_only_rows_that_are_not_utf8_are_lost(tmp_path: Path) -> None:
    data = "point_id,name\n1,电压\n".encode() + b"2,\xb5\xe7\n3,c\n"
    table, problems = read(tmp_path, data)
    assert problems == [("bad_text", 3, "")]
    assert list(table.rows) == ["1", "3"]


def test_utf16_is_named(tmp_path: Path) -> None:
    assert read(tmp_path, "point_id,name\n1,a\n".encode("utf-16"))[1] == [("bad_text", 0, "")]


def test_a_misspelt_column_leaves_out_the_rows_that_use_it(tmp_path: Path) -> None:
    findings = Findings()
    file = tmp_path / "t.csv"
    file.write_text("point_id,scal\n1,0.1\n2,\n")
    table = read_table(file, "t.csv", POINT_COLUMNS, findings)
    (problem,) = findings.problems
    assert problem.path == "t.csv:1:scal"
    assert 'did you mean "scale"?' in problem.hint
    assert list(table.rows) == ["2"]


def test_a_column_that_resembles_nothing_is_named_and_not_used(tmp_path: Path) -> None:
    table, problems = read(tmp_path, "point_id,qqqqqq\n1,z\n")
    assert problems == [("unknown_column", 1, "qqqqqq")]
    assert rows(table) == {"1": {"id": "1"}}


def test_two_names_of_one_column_are_an_error(tmp_path: Path) -> None:
    assert read(tmp_path, "point_id,name,signal_name\n1,a,b\n")[1] == [("doubled_column", 1, "signal_name")]


@pytest.mark.parametrize("text", ["name,scale\na,1\n", "1,a\n2,b\n"])
def test_a_table_without_point_id_is_an_error(tmp_path: Path, text: str) -> None:
    table, problems = read(tmp_path, text)
    assert ("missing_column", 1, "point_id") in problems
    assert table.rows == {}


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_table_is_an_error(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text)[1] == [("empty_table", 0, "")]


def test_a_missing_table_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    findings = Findings()
    assert read_table(tmp_path / "no.csv", "no.csv", POINT_COLUMNS, findings).rows == {}
    assert [problem.code for problem in findings.problems] == ["no_file"]


def test_both_generations_of_modbus_mappings(tmp_path: Path) -> None:
    later = "point_id,slave_id,function_code,register_address,data_type,byte_order,bit_position"
    table, problems = read(tmp_path, f"{later}\n1,1,3,0x10,FLOAT32,abcd,0\n", "modbus_tcp")
    assert problems == []
    assert rows(table)["1"] == {
        "id": "1",
        "slave_id": 1,
        "function_code": 3,
        "register_address": 16,
        "data_type": "float32",
        "byte_order": "ABCD",
        "bit_position": 0,
    }
    seed = "point_id,register_address,function_code,slave_id,data_format,byte_order,register_count"
    table, problems = read(tmp_path, f"{seed}\n1,16.0,3,1,float,ABCD,2\n", "modbus_tcp")
    assert problems == []
    assert rows(table)["1"]["data_type"] == "float32"
    assert rows(table)["1"]["register_address"] == 16 and rows(table)["1"]["register_count"] == 2


def test_mapping_values_are_typed(tmp_path: Path) -> None:
    table, problems = read(
        tmp_path, "point_id,expression,update_interval,initial_value,noise_range\n1,50+t,500,3,0.5\n", "virtual"
    )
    assert (rows(table)["1"], problems) == (
        {"id": "1", "expression": "50+t", "update_interval": 500, "initial_value": 3.0, "noise_range": 0.5},
        [],
    )
    table, problems = read(tmp_path, "point_id,topic,json_path,qos,retain\n1,12,$.a,1,yes\n", "mqtt")
    assert rows(table)["1"] == {"id": "1", "topic": "12", "json_path": "$.a", "qos": 1, "retain": True}
    table, problems = read(tmp_path, "point_id,node_id\n1,ns=2;i=5\n2,i=84\n", "opcua")
    assert rows(table)["1"]["node_id"] == "ns=2;i=5"


def test_columns_of_other_drivers_reach_them(tmp_path: Path) -> None:
    table, problems = read(tmp_path, "point_id,asdu_address,who,ratio,is_it,code\n1,5,me,0.5,true,007\n", "iec104")
    assert problems == []
    assert rows(table)["1"] == {"id": "1", "asdu_address": 5, "who": "me", "ratio": 0.5, "is_it": True, "code": "007"}


def test_a_misspelt_mapping_column_is_named(tmp_path: Path) -> None:
    assert read(tmp_path, "point_id,register_adress\n1,5\n", "modbus_tcp")[1] == [
        ("unknown_column", 1, "register_adress")
    ]


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("-5", -5), ("1.5", 1.5), ("TRUE", True), ("yes", "yes")])
def test_cells_that_only_a_driver_knows(text: str, value: Any) -> None:
    assert any_scalar(text) == value and type(any_scalar(text)) is type(value)


@pytest.mark.parametrize("value", ["1", 1, True, "true", "TRUE", "Yes"])
def test_what_is_true(value: Any) -> None:
    assert flag(value) is True


@pytest.mark.parametrize("value", [True, None, [], {}, "", "--1", "1 0"])
def test_what_is_no_number(value: Any) -> None:
    for parse in (number, whole(0, 10)):
        with pytest.raises(BadCell):
            parse(value)


def test_whole_numbers_keep_their_digits() -> None:
    parse = whole(0, 2**64)
    assert parse("18446744073709551615") == parse(2**64 - 1) == 2**64 - 1
    with pytest.raises(BadCell):
        parse("1.5")


_CELLS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=repeats(80), deadline=None)
@given(st.lists(st.lists(_CELLS, max_size=6), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]], end: str) -> None:
    """Good rows between any rubbish are read, unless they stand inside a quoted cell of it."""
    body = end.join(",".join(row).replace('"', "'") for row in cells)
    text = f"point_id,name,scale{end}777,first,1{end}{body}{end}888,last,2{end}"
    table, _ = read(tmp_path_factory.mktemp("t"), text)
    assert rows(table)["777"] == {"id": "777", "name": "first", "scale": 1.0}
    assert "888" in table.rows or "888" in body


@settings(max_examples=repeats(80), deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    read(tmp_path_factory.mktemp("t"), data)
    read(tmp_path_factory.mktemp("t"), b"point_id,name\n" + data)
