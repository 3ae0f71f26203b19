"""A station folder: YAML and tables of both generations, what is wrong with them by file and line, 100,000 rows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tradewind.errors import Problem
from tradewind.points.channel_file import Loaded, load_folder
from tradewind.points.channel_store import channel_document
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.spec import ChannelSpec, Kind, PointSpec

CHANNELS = """\
channels:
  - id: 1001
    name: PCS
    protocol: modbus_tcp
    parameters: {host: 10.0.0.5}
"""
LATER = {
    "channels.yaml": CHANNELS,
    "1001/telemetry.csv": (
        "point_id,signal_name,scale,offset,unit,reverse,data_type\n10001,power,0.1,0,kW,0,int16\n10002,u,1,,V,,\n"
    ),
    "1001/signal.csv": "point_id,signal_name,reverse\n1,door,true\n",
    "1001/control.csv": (
        "point_id,signal_name,reverse,control_type,on_value,off_value,pulse_duration_ms\n1,start,0,momentary,1,0,500\n"
    ),
    "1001/adjustment.csv": (
        "point_id,signal_name,min_value,max_value,step,data_type,scale,offset,unit\n1,limit,0,100,0.5,uint16,0.1,0,%\n"
    ),
    "1001/mapping/telemetry_mapping.csv": (
        "point_id,slave_id,function_code,register_address,data_type,byte_order\n"
        "10001,1,3,0,int16,AB\n"
        "10002,1,3,1,float32,ABCD\n"
    ),
    "1001/mapping/signal_mapping.csv": "point_id,slave_id,function_code,register_address,bit_position\n1,1,2,5,0\n",
    "1001/mapping/control_mapping.csv": "point_id,slave_id,function_code,register_address\n1,1,5,9\n",
    "1001/mapping/adjustment_mapping.csv": (
        "point_id,slave_id,function_code,register_address,data_type\n1,1,6,30,uint16\n"
    ),
}
SEED_DATE = {
    "channels.yaml": """\
version: "1.0"
service: {name: comsrv}
channels:
  - id: 1001
    name: PCS
    protocol: ModbusTcp
    parameters: {host: 10.0.0.5, timeout_ms: 700}
    logging: {enabled: true}
    table_config:
      four_telemetry_route: config/pcs
      four_telemetry_files: {telemetry_file: telemetry.csv, signal_file: signal.csv}
      protocol_mapping_route: config/pcs
      protocol_mapping_files: {telemetry_mapping: mapping_telemetry.csv, signal_mapping: mapping_signal.csv}
""",
    "config/pcs/telemetry.csv": (
        "point_id,name,description,unit,data_type,scale,offset\n10001,power,all of it,kW,float,0.1,-5\n"
    ),
    "config/pcs/signal.csv": "point_id,name,description,normal_state,alarm_level\n1,door,x,1,3\n",
    "config/pcs/mapping_telemetry.csv": (
        "point_id,register_address,function_code,slave_id,data_format,byte_order,register_count\n"
        "10001,0,3,1,float32,ABCD,2\n"
    ),
    "config/pcs/mapping_signal.csv": "point_id,register_address,function_code,slave_id\n1,8,2,1\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def found(loaded: Loaded) -> list[tuple[str, str]]:
    assert all(problem.hint for problem in loaded.problems)
    return [(problem.code, problem.path) for problem in loaded.problems]


def test_the_later_files(tmp_path: Path) -> None:
    loaded = load_folder(write(tmp_path, LATER))
    assert loaded.problems == ()
    (channel,) = loaded.channels
    assert channel == ChannelSpec(
        id="1001",
        name="PCS",
        protocol="modbus_tcp",
        parameters={"host": "10.0.0.5"},
        points=(
            PointSpec(
                Kind.MEASUREMENT,
                "10001",
                name="power",
                unit="kW",
                scale=0.1,
                data_type="int16",
                mapping={
                    "slave_id": 1,
                    "function_code": 3,
                    "register_address": 0,
                    "data_type": "int16",
                    "byte_order": "AB",
                },
            ),
            PointSpec(
                Kind.MEASUREMENT,
                "10002",
                name="u",
                unit="V",
                mapping={
                    "slave_id": 1,
                    "function_code": 3,
                    "register_address": 1,
                    "data_type": "float32",
                    "byte_order": "ABCD",
                },
            ),
            PointSpec(
                Kind.SIGNAL,
                "1",
                name="door",
                reverse=True,
                data_type="bool",
                mapping={"slave_id": 1, "function_code": 2, "register_address": 5, "bit_position": 0},
            ),
            PointSpec(
                Kind.CONTROL,
                "1",
                name="start",
                control_type="momentary",
                pulse_ms=500,
                data_type="bool",
                mapping={"slave_id": 1, "function_code": 5, "register_address": 9},
            ),
            PointSpec(
                Kind.ADJUSTMENT,
                "1",
                name="limit",
                unit="%",
                min=0,
                max=100,
                step=0.5,
                scale=0.1,
                data_type="uint16",
                mapping={"slave_id": 1, "function_code": 6, "register_address": 30, "data_type": "uint16"},
            ),
        ),
    )


def test_the_files_of_the_seeds_date(tmp_path: Path) -> None:
    loaded = load_folder(write(tmp_path, SEED_DATE))
    assert loaded.problems == ()
    (channel,) = loaded.channels
    assert (channel.protocol, channel.timeout_ms, channel.parameters) == ("modbus_tcp", 700, {"host": "10.0.0.5"})
    power, door = channel.points
    assert (power.offset, power.description, power.mapping["register_count"]) == (-5, "all of it", 2)
    assert (door.normal_state, door.mapping["register_address"]) == (1, 8)


def test_mapping_files_beside_the_tables(tmp_path: Path) -> None:
    files = {name.replace("mapping/telemetry_mapping", "mapping_telemetry"): text for name, text in LATER.items()}
    assert load_folder(write(tmp_path, files)).problems == ()
    write(tmp_path, LATER)
    loaded = load_folder(tmp_path)
    assert found(loaded) == [("two_tables", "1001/mapping_telemetry.csv")]
    assert len(loaded.channels[0].points) == 5


def test_many_files_one_channel_each_and_inline_points(tmp_path: Path) -> None:
    files = {
        "channels/b.yaml": "id: 20\nprotocol: virtual\npoints:\n  - {kind: m, id: 1, mapping: {expression: t}}\n",
        "channels/a.yml": "channels:\n  - {id: 3, protocol: http}\n  - {id: 100, protocol: virtual}\n",
        "channels/100/telemetry.csv": "point_id\n7\n",
        "channels/notes.txt": "not mine",
    }
    loaded = load_folder(write(tmp_path, files))
    assert loaded.problems == ()
    assert [(channel.id, len(channel.points)) for channel in loaded.channels] == [("3", 0), ("20", 1), ("100", 1)]


def test_every_problem_has_its_place_and_stops_nothing_else(tmp_path: Path) -> None:
    files = {
        "channels.yaml": CHANNELS
        + """\
  - id: 1001
    protocol: virtual
  - id: 1002
    protocol: virtual
    poll_interval_ms: fast
    points: [{kind: m, id: 1}]
  - id: 1003
    protocol: virtual
    points:
      - {kind: m, id: 1}
      - kind: m
        id: 2
        scal: 5
  - id: 1004
    protocol: virtual
sites: 5
""",
        "1001/telemetry.csv": "point_id,name,scale\n1,a,\n2,b,x\n3,c,0\n4,d,\n4,e,\n5,f,\n",
        "1001/mapping/telemetry_mapping.csv": "point_id,register_address\n1,1\n2,2\n3,3\n4,99999\n6,6\n",
        "1001/mapping/signal_mapping.csv": "point_id,register_address\n1,1\n",
        "1001/control.csv": "point_id\n1\n",
        "1009/telemetry.csv": "point_id\n1\n",
        "channels/bad.yaml": "channels: [\n",
    }
    loaded = load_folder(write(tmp_path, files))
    assert found(loaded) == [
        ("unknown_field", "channels.yaml:21:sites"),
        ("out_of_range", "1001/mapping/telemetry_mapping.csv:5:register_address"),
        ("not_a_number", "1001/telemetry.csv:3:scale"),
        ("duplicate_id", "1001/telemetry.csv:6:point_id"),
        ("bad_scale", "1001/telemetry.csv:4:scale"),
        ("missing_mapping", "1001/telemetry.csv:7:point_id"),
        ("mapping_without_point", "1001/mapping/telemetry_mapping.csv:6:point_id"),
        ("mapping_without_points", "1001/mapping/signal_mapping.csv"),
        ("missing_mapping_table", "1001/control.csv"),
        ("duplicate_id", "channels.yaml:6:id"),
        ("not_a_number", "channels.yaml:10:poll_interval_ms"),
        ("unknown_field", "channels.yaml:18:points[1].scal"),
        ("no_points", "channels.yaml:19:points"),
        ("bad_yaml", "channels/bad.yaml:2"),
        ("tables_without_channel", "1009/"),
    ]
    assert [(channel.id, [point.id for point in channel.points]) for channel in loaded.channels] == [
        ("1001", ["1"]),
        ("1003", ["1"]),
        ("1004", []),
    ]


def test_what_the_driver_finds_is_named_by_line(tmp_path: Path) -> None:
    def check(channel: ChannelSpec) -> list[Problem]:
        if channel.id == "2":
            return [Problem("no_host", "parameters.host", "name it")]
        return [
            Problem("bad_register", "points[1].mapping.register_address", "x"),
            Problem("bad_unit", "points[0].name", "x"),
            Problem("bad_inline", "points[3].mapping.expression", "x"),
        ]

    more = (
        "    points:\n      - {kind: m, id: 9}\n"
        "  - id: 2\n    protocol: modbus_tcp\n    parameters: {port: 5}\n    points: [{kind: m, id: 1}]\n"
    )
    # inline points come first
    files = {**LATER, "channels.yaml": CHANNELS + more}
    loaded = load_folder(write(tmp_path, files), check=check)
    assert found(loaded) == [
        ("bad_register", "1001/mapping/telemetry_mapping.csv:2:register_address"),
        ("bad_unit", "channels.yaml:7:points[0].name"),
        ("bad_inline", "1001/mapping/signal_mapping.csv:2:expression"),
        ("no_host", "channels.yaml:10:parameters.host"),
    ]
    assert [(point.kind, point.id) for point in loaded.channels[0].points] == [("m", "10002"), ("c", "1"), ("a", "1")]
    assert len(loaded.channels) == 1


def test_the_drivers_that_ship_are_asked(tmp_path: Path) -> None:
    check = DriverRegistry().check
    assert load_folder(write(tmp_path, LATER), check=check).problems == ()
    write(tmp_path, {"channels.yaml": CHANNELS.replace("host: 10.0.0.5", "port: 502")})
    assert [path for _, path in found(load_folder(tmp_path, check=check))] == ["channels.yaml:5:parameters.host"]
    write(tmp_path, {"channels.yaml": CHANNELS.replace("modbus_tcp", "modbus_tpc")})
    loaded = load_folder(tmp_path, check=check)
    assert found(loaded) == [("unknown_protocol", "channels.yaml:4:protocol")]
    assert 'did you mean "modbus_tcp"?' in loaded.problems[0].hint
    write(tmp_path, LATER)
    write(tmp_path, {"1001/mapping/control_mapping.csv": "point_id,function_code,register_address\n1,2,9\n"})
    loaded = load_folder(tmp_path, check=check)
    assert [path for _, path in found(loaded)] == ["1001/mapping/control_mapping.csv:2:function_code"]
    assert len(loaded.channels[0].points) == 4


def test_a_point_in_yaml_and_in_a_table_is_a_duplicate(tmp_path: Path) -> None:
    files = {**LATER, "channels.yaml": CHANNELS + "    points: [{kind: m, id: 10001}]\n"}
    loaded = load_folder(write(tmp_path, files))
    assert found(loaded) == [("duplicate_id", "1001/telemetry.csv:2:point_id")]
    assert len(loaded.channels[0].points) == 5


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ("{four_telemetry_files: {telemetry_file: ../../etc/passwd}}", "outside_folder"),
        ("{four_telemetry_route: /etc, four_telemetry_files: {telemetry_file: passwd}}", "outside_folder"),
        ("{four_telemetry_files: {telemetry_file: none.csv}}", "missing_file"),
        ("{four_telemetry_file: {}}", "unknown_field"),
        ("5", "not_an_object"),
    ],
)
def test_table_config_stays_in_the_folder(tmp_path: Path, config: str, code: str) -> None:
    points = "    points: [{kind: m, id: 1}]\n"
    files = {"channels.yaml": f"channels:\n  - id: 1\n    protocol: virtual\n    table_config: {config}\n{points}"}
    assert [problem for problem, _ in found(load_folder(write(tmp_path, files)))] == [code]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("", []),
        ("channels:\n", []),
        ("channels: []\n", []),
        ("channels: 5\n", ["no_channels"]),
        ("- id: 1\n", ["no_channels"]),
        ("channels: [5]\n", ["not_an_object"]),
        ("channels: [{name: x}]\n", ["missing_field", "missing_field"]),
    ],
)
def test_odd_files(tmp_path: Path, text: str, codes: list[str]) -> None:
    loaded = load_folder(write(tmp_path, {"channels.yaml": text}))
    assert [code for code, _ in found(loaded)] == codes
    assert loaded.channels == ()


def test_no_folder_and_no_files(tmp_path: Path) -> None:
    assert load_folder(tmp_path) == Loaded((), ())
    assert [code for code, _ in found(load_folder(tmp_path / "none"))] == ["missing_folder"]


def test_a_hundred_thousand_rows_with_one_bad_one(tmp_path: Path) -> None:
    count = 100_000
    rows = [f"{n},point {n},0.1,-40,kW,0,int16,0.5,第{n}个点" for n in range(count)]
    rows[77_776] = "77776,bad,zero point one,0,kW,0,int16,0.5,x"
    mapping = "\n".join(f"{n},1,3,{n % 65536},int16,ABCD,0" for n in range(count))
    files = {
        "channels.yaml": CHANNELS,
        "1001/telemetry.csv": "point_id,signal_name,scale,offset,unit,reverse,data_type,deadband,description\n"
        + "\n".join(rows),
        "1001/mapping/telemetry_mapping.csv": (
            "point_id,slave_id,function_code,register_address,data_type,byte_order,bit_position\n"
        )
        + mapping,
    }
    write(tmp_path, files)
    start = time.process_time()
    loaded = load_folder(tmp_path)
    took_s = time.process_time() - start
    assert found(loaded) == [("not_a_number", "1001/telemetry.csv:77778:scale")]
    (channel,) = loaded.channels
    assert len(channel.points) == count - 1
    assert channel.points[-1].mapping["register_address"] == (count - 1) % 65536
    assert len(channel_document(channel)["points"]) == count - 1
    assert took_s < 30, "a few seconds on a quiet machine"
