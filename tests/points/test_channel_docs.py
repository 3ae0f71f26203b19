"""docs/channels.md is so: its files load, its bad file has the problems shown, its tables name every column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tradewind import codec
from tradewind.points.channel_check import validate_channel
from tradewind.points.channel_file import load_folder
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.spec import ChannelSpec
from tradewind.points.table_columns import POINT_COLUMNS, mapping_columns

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "channels.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture
def station(tmp_path: Path) -> Path:
    """The folder `station` with every file of the page that names itself in its first line."""
    for _, text in BLOCKS:
        name = re.match(r"# (\S+\.(?:csv|yaml))\n", text)
        if name:
            file = tmp_path / "station" / name[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return tmp_path / "station"


def test_the_files_load(station: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(station.parent)
    (program,) = [text for kind, text in BLOCKS if kind == "python"]
    exec(compile(program, "channels.md", "exec"), {})
    assert capsys.readouterr().out == "{'1001': 6, '1002': 2}\n"


def test_the_bad_file_has_the_problems_shown(station: Path) -> None:
    (station / "bad" / "telemetry.csv").replace(station / "1001" / "telemetry.csv")
    loaded = load_folder(station, check=DriverRegistry().check)
    said = [f"{problem.path} {problem.hint}" for problem in loaded.problems]
    (shown,) = [text for kind, text in BLOCKS if kind == "text"]
    for line in shown.splitlines():
        assert " ".join(line.split()) in said


def test_the_document_is_valid() -> None:
    (document,) = [text for kind, text in BLOCKS if kind == "json"]
    assert len(validate_channel(codec.decode(document), check=DriverRegistry().check).points) == 2


def test_the_tables_name_every_column_and_field() -> None:
    def cells(title: str, last: int) -> set[str]:
        rows = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0].splitlines()
        found = [row.split("|")[1:last] for row in rows if row.startswith("| `")]
        return {word for row in found for cell in row for word in re.findall(r"`(\w+)`", cell)}

    assert cells("Point tables", 3) == set(POINT_COLUMNS)
    assert cells("channels.yaml", 2) == {*ChannelSpec.__struct_fields__, "table_config", "logging"}
    protocols = ("modbus_tcp", "virtual", "mqtt", "opcua")
    named = {name for protocol in protocols for name in mapping_columns(protocol)} - {"point_id", "id"}
    assert cells("Mapping tables", 3) - {"virtual", "mqtt", "opcua"} == named
