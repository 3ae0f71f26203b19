"""What `up` and `run` refuse before they open anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "station.example"])
def test_a_host_that_others_reach_needs_insecure(cli: Cli, host: str) -> None:
    ran = cli("up", "--host", host)
    assert ran.code == 2
    assert f"refusing to listen on {host}: there is no authentication yet" in ran.err
    assert "--insecure" in ran.err


def test_a_host_that_others_reach_needs_the_names_under_which_they_do(cli: Cli) -> None:
    ran = cli("up", "--host", "0.0.0.0", "--insecure")
    assert ran.code == 2
    assert "refusing to listen on 0.0.0.0 without the names" in ran.err and "TRADEWIND_API_ALLOWED_HOSTS" in ran.err


@pytest.mark.parametrize("name", ["http://a.example", "a.example:8400", "*", "*.a.example", "a b", ""])
def test_an_allowed_host_is_a_plain_name(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TRADEWIND_API_ALLOWED_HOSTS", f'["{name}"]')
    ran = cli("up", "--host", "0.0.0.0", "--insecure")
    assert ran.code == 2 and "api.allowed_hosts" in ran.err


def test_also_when_the_host_comes_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_API_HOST", "0.0.0.0")
    assert cli("up", "--json").json["error"]["code"] == "insecure_host"


def test_an_unknown_role_gets_the_list_of_roles(cli: Cli) -> None:
    ran = cli("run", "worker", "cook")
    assert ran.code == 2
    assert "unknown role: cook" in ran.err
    assert "scheduler, worker, comsrv, modsrv, rulesrv, alarmsrv, hissrv, api" in ran.err


def test_roles_apart_need_a_shared_redis(cli: Cli) -> None:
    ran = cli("run", "worker")
    assert ran.code == 2
    assert "belongs to one process" in ran.err
    assert "TRADEWIND_REDIS_URL" in ran.err


def test_a_missing_module_is_named_with_the_working_directory(cli: Cli, tmp_path: Path) -> None:
    ran = cli("up", "--import", "no_such_module")
    assert ran.code == 2
    assert "'no_such_module'" in ran.err
    assert str(tmp_path) in ran.err


def test_a_module_that_breaks_is_told_apart_from_a_missing_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "breaks_at_import.py").write_text("import sys\n\nraise ValueError('bad setting')\n")
    ran = cli("up", "--import", "breaks_at_import")
    assert ran.code == 2
    assert "ValueError: bad setting" in ran.err
    assert "breaks_at_import.py:3" in ran.err
    (tmp_path / "needs_another.py").write_text("import not_installed_anywhere\n")
    ran = cli("up", "--import", "needs_another")
    assert "cannot be imported" in ran.err
    assert "not_installed_anywhere" in ran.err


def test_wrong_settings_are_listed_all_at_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[api]\nport = 99999\n[worker]\nthreads = 0\n")
    ran = cli("up", "--config", "bad.toml", "--json")
    assert ran.code == 2
    assert [p["path"] for p in ran.json["error"]["problems"]] == ["worker.threads", "api.port"]
