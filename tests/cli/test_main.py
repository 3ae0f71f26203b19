from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.cli.conftest import Canned, Cli, run_process
from tradewind import __version__
from tradewind.cli.main import global_options_first


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (["task", "list", "--json"], ["--json", "task", "list"]),
        (["task", "list", "--url", "http://h:1", "--json"], ["--json", "--url", "http://h:1", "task", "list"]),
        (["status", "--url=http://h:1"], ["--url=http://h:1", "status"]),
        (["task", "submit", "echo", "--", "--json"], ["task", "submit", "echo", "--", "--json"]),
        (["status", "--url"], ["--url", "status"]),
    ],
)
def test_global_options_may_stand_anywhere_before_two_dashes(given: list[str], parsed: list[str]) -> None:
    assert global_options_first(given) == parsed


def test_version_for_people_and_programs(cli: Cli) -> None:
    assert cli("--version").out == f"tradewind {__version__}\n"
    assert cli("--version", "--json").json == {"version": __version__}


def test_usage_error_is_exit_2_with_the_usage_on_stderr(cli: Cli) -> None:
    ran = cli("task", "show")
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: tradewind task show" in ran.err


def test_usage_error_with_json_is_the_envelope_on_stdout(cli: Cli) -> None:
    ran = cli("task", "show", "--json")
    assert ran.code == 2
    assert ran.json["error"]["code"] == "usage"
    assert "tradewind task show --help" in ran.json["error"]["hint"]


def test_help_of_every_command_names_the_global_options(cli: Cli) -> None:
    for command in (["task", "list"], ["queue", "pause"], ["up"], ["doctor"]):
        ran = cli(*command, "--help")
        assert ran.code == 0
        assert "--json" in ran.out


def test_no_station_is_exit_6_and_says_how_to_start_one(cli: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: every connection is refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        ran = cli("status", "--url", url)
        assert ran.code == 6
        assert f"no station answers at {url}" in ran.err
        assert "tradewind up" in ran.err
        assert cli("status", "--url", url, "--json").json["error"]["code"] == "station_unreachable"


def test_a_url_that_is_none_is_exit_2(cli: Cli) -> None:
    ran = cli("status", "--url", "localhost:8400")
    assert ran.code == 2
    assert "http://127.0.0.1:8400" in ran.err


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (404, "task_not_found", 4),
        (409, "conflict", 5),
        (422, "invalid", 2),
        (400, "bad_json", 2),
        (413, "too_large", 2),
        (429, "overloaded", 6),
        (503, "unavailable", 6),
        (504, "timed_out", 7),
        (500, "internal", 1),
    ],
)
def test_each_refusal_of_the_station_has_its_exit_code(
    cli: Cli, canned: Canned, status: int, code: str, exit_code: int
) -> None:
    canned.refuse("GET /api/v1/tasks/abc", status, code, "it happened", "do this")
    ran = cli("task", "show", "abc")
    assert (ran.code, ran.out) == (exit_code, "")
    assert "error: it happened" in ran.err
    assert f"at: GET {canned.url}/api/v1/tasks/abc" in ran.err
    assert "hint: do this" in ran.err
    told = cli("task", "show", "abc", "--json")
    assert (told.code, told.err) == (exit_code, "")
    assert told.json["error"]["code"] == code
    assert told.json["error"]["hint"] == "do this"


def test_each_problem_has_its_line(cli: Cli, canned: Canned) -> None:
    problems = [
        {"code": "unknown_arg", "path": "kwargs.x", "hint": "it takes: value"},
        {"code": "out_of_range", "path": "delay_s", "hint": "give a value from 0"},
    ]
    canned.refuse("POST /api/v1/tasks", 422, "invalid_task", "the task is not valid", "see problems", problems)
    ran = cli("task", "submit", "echo", "--delay", "-1")
    assert "  - kwargs.x: it takes: value [unknown_arg]\n" in ran.err
    assert "  - delay_s: give a value from 0 [out_of_range]\n" in ran.err
    assert cli("task", "submit", "echo", "--json").json["error"]["problems"] == problems


def test_another_program_on_the_port_is_told_apart(cli: Cli, canned: Canned) -> None:
    canned.answer("GET /health", 200, b"<html>hello</html>")
    ran = cli("status")
    assert ran.code == 6
    assert "not a Tradewind station" in ran.err
    canned.answer("GET /api/v1/queues", 404, b"<html>no</html>")
    assert "not a Tradewind station" in cli("queue", "list").err


def test_terminal_codes_in_answers_are_made_visible(cli: Cli, canned: Canned) -> None:
    canned.refuse("GET /api/v1/tasks/abc", 404, "x", "evil \x1b[2J [red]text[/red]")
    ran = cli("task", "show", "abc")
    assert "\x1b" not in ran.err
    assert "evil \\x1b[2J [red]text[/red]" in ran.err


def test_a_proxy_in_the_environment_is_not_asked_for_loopback(
    cli: Cli, canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    canned.answer("GET /api/v1/queues", 200, {"items": []})
    assert cli("queue", "list").code == 0


def test_a_path_part_stays_one_part(cli: Cli, canned: Canned) -> None:
    canned.refuse("POST /api/v1/queues/a%2F..%2Fb/pause", 404, "queue_not_found", "there is no queue")
    assert cli("queue", "pause", "a/../b").code == 4


def test_output_that_nobody_reads_is_no_traceback() -> None:
    command = f"{sys.executable} -m tradewind.cli --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr


def test_as_a_process_it_writes_plain_text_without_a_terminal() -> None:
    ran = run_process("config", "show")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "api.port" in ran.out
