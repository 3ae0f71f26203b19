"""`tradewind init`: what it writes is whole and valid, and it overwrites nothing."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli
from tradewind.cli.apply_plan import read_wanted
from tradewind.settings import load_settings


def test_the_starter_is_a_valid_station(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plant"
    ran = cli("init", str(folder))
    assert ran.code == 0
    assert "tradewind apply -f . --start" in ran.out
    wanted = read_wanted(folder)
    assert (wanted.problems, wanted.warnings) == ([], [])
    assert {kind: list(found) for kind, found in wanted.documents.items()} == {
        "channels": ["1001"],
        "templates": [],
        "models": ["room"],
        "groups": [],
        "rules": ["too_cold"],
        "notifications": [],
        "history": [],
        "flows": ["thermostat"],
    }
    assert {point["kind"] for point in wanted.documents["channels"]["1001"]["points"]} == {"m", "s", "c", "a"}
    assert cli("flow", "lint", str(folder / "flows" / "thermostat.yaml")).code == 0


def test_its_settings_can_be_loaded(cli: Cli, tmp_path: Path) -> None:
    cli("init", str(tmp_path))
    assert load_settings(tmp_path / "tradewind.toml").api.port == 8400


def test_every_file_says_what_it_is_for(cli: Cli, tmp_path: Path) -> None:
    written = cli("init", str(tmp_path), "--json").json["written"]
    assert {"tradewind.toml", "channels.yaml", "models.yaml", "rules.yaml", "README.md", "1001/telemetry.csv"} <= set(
        written
    )
    for name in (
        "tradewind.toml",
        "channels.yaml",
        "models.yaml",
        "rules.yaml",
        "flows/thermostat.yaml",
        "1001/telemetry.csv",
    ):
        assert (tmp_path / name).read_text().startswith("# "), name


def test_nothing_is_overwritten(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("mine")
    ran = cli("init", str(tmp_path))
    assert ran.code == 5
    assert "has models.yaml already" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["models.yaml"]
    assert (tmp_path / "models.yaml").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cli("init", str(tmp_path / "file" / "plant")).code == 6
