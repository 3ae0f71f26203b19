from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tradewind.cli.config_file import NOTES, template
from tradewind.settings import Settings, load_settings, setting_names


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_show_says_where_each_setting_comes_from(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tradewind.toml").write_text('[api]\nport = 8500\n[redis]\nurl = "redis://:secret@h:1/0"\n')
    monkeypatch.setenv("TRADEWIND_WORKER_CONCURRENCY", "7")
    found = cli("config", "show", "--json").json
    assert found["settings"]["api"]["port"] == 8500
    assert found["sources"]["api.port"] == "tradewind.toml"
    assert found["sources"]["worker.concurrency"] == "environment TRADEWIND_WORKER_CONCURRENCY"
    assert found["sources"]["api.host"] == "default"
    shown = cli("config", "show").out
    assert "secret" not in shown
    assert "redis://:***@h:1/0" in shown


def test_init_writes_a_file_that_changes_nothing(cli: Cli) -> None:
    assert cli("config", "init").code == 0
    assert load_settings() == Settings()
    again = cli("config", "init")
    assert again.code == 5
    assert "--force" in again.err
    assert cli("config", "init", "--force").code == 0


def test_every_line_of_the_template_may_be_uncommented() -> None:
    lines = [line.removeprefix("# ") if " = " in line else line for line in template().splitlines()[2:]]
    data = tomllib.loads("\n".join(lines))
    assert Settings(**data) == Settings()


def test_every_setting_is_explained() -> None:
    assert set(NOTES) == set(setting_names())
