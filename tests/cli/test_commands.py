"""Every command against a real station."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, StationProcess

pytestmark = pytest.mark.usefixtures("station")


def test_submit_and_wait_prints_only_the_result(cli: Cli) -> None:
    ran = cli("task", "submit", "echo", "hi", "--wait")
    assert (ran.code, ran.out, ran.err) == (0, "hi\n", "")
    assert cli("task", "submit", "echo", '{"a": [1, 2]}', "--wait").out == '{"a":[1,2]}\n'
    told = cli("task", "submit", "echo", "5", "--wait", "--json")
    assert (told.json["status"], told.json["result"]) == ("SUCCESS", 5)


def test_waiting_for_a_task_that_ends_badly_is_exit_1(cli: Cli) -> None:
    ran = cli("task", "submit", "fail", "boom", "--wait")
    assert ran.code == 1
    assert "FAILED" in ran.out
    assert "RuntimeError: boom" in ran.out
    assert cli("task", "submit", "fail", "--wait", "--json").json["error"]["type"] == "RuntimeError"


def test_a_high_delayed_keyed_task_keeps_its_options(cli: Cli) -> None:
    options = ("--priority", "high", "--delay", "60", "--idempotency-key", "once", "--tag", "opt", "--timeout", "7")
    first = cli("task", "submit", "echo", "x", *options, "--json").json
    assert (first["status"], first["priority"], first["timeout_s"], first["tags"]) == ("PENDING", "high", 7.0, ["opt"])
    again = cli("task", "submit", "echo", "x", *options, "--json").json
    assert again["id"] == first["id"]
    other = cli("task", "submit", "echo", "y", *options)
    assert other.code == 5
    assert "once" in other.err
    cancelled = cli("task", "cancel", first["id"])
    assert (cancelled.code, cancelled.out) == (0, f"{first['id']} CANCELLED\n")


def test_bad_input_names_each_problem(cli: Cli) -> None:
    ran = cli("task", "submit", "sleep", "soon", "--delay", "-1", "--priority", "urgent", "--json")
    assert ran.code == 2
    assert {p["path"] for p in ran.json["error"]["problems"]} == {"args[0]", "delay_s", "priority"}
    unknown = cli("task", "submit", "no-such-type")
    assert unknown.code == 2
    assert "known types: " in unknown.err


def test_user_code_that_retries_can_be_watched(cli: Cli) -> None:
    task_id = cli("task", "submit", "flaky", "ab", "--json").json["id"]
    ran = cli("task", "watch", task_id)
    assert ran.code == 0
    assert "abab" in ran.out
    assert "SUCCESS attempt 2" in ran.err
    shown = cli("task", "show", task_id)
    assert shown.code == 0
    assert "2" in shown.out


def test_unknown_task_is_exit_4(cli: Cli) -> None:
    assert cli("task", "show", "nope").code == 4
    assert cli("task", "watch", "nope").code == 4
    assert cli("task", "cancel", "nope", "--json").json["error"]["code"] == "task_not_found"


def test_retry_of_a_good_task_is_exit_5(cli: Cli) -> None:
    task_id = cli("task", "submit", "echo", "--wait", "--json").json["id"]
    assert cli("task", "retry", task_id).code == 5


def test_a_file_is_submitted_in_batches_with_defaults(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    lines = [{"args": [number]} for number in range(1499)] + [{"args": ["own"], "tags": ["other"]}]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    ran = cli("task", "submit", "echo", "--file", str(file), "--tag", "bulk", "--json")
    assert ran.code == 0
    assert ran.json["submitted"] == len(set(ran.json["ids"])) == 1500
    for task_id in (ran.json["ids"][0], ran.json["ids"][-1]):
        assert cli("task", "watch", task_id, "--timeout", "20").code == 0
    assert cli("task", "show", ran.json["ids"][-1], "--json").json["tags"] == ["other"]


def test_a_list_pages_and_all_takes_every_page(cli: Cli) -> None:
    ids = {cli("task", "submit", "echo", "--tag", "paged", "--delay", "300", "--json").json["id"] for _ in range(5)}
    first = cli("task", "list", "--tag", "paged", "--limit", "2", "--json").json
    assert len(first["items"]) == 2
    second = cli("task", "list", "--tag", "paged", "--limit", "2", "--cursor", first["next_cursor"], "--json").json
    assert not {task["id"] for task in first["items"]} & {task["id"] for task in second["items"]}
    every = cli("task", "list", "--tag", "paged", "--all", "--status", "pending", "--json").json
    assert {task["id"] for task in every["items"]} == ids
    assert cli("task", "cancel", *ids).code == 0
    assert cli("task", "list", "--status", "bogus").code == 2


def test_dead_letters_are_listed_and_all_brought_back(cli: Cli) -> None:
    task_id = cli("task", "submit", "fail", "again", "--wait", "--json").json["id"]
    assert task_id in {task["id"] for task in cli("task", "dead", "--all", "--json").json["items"]}
    assert task_id in cli("task", "dead", "list", "--type", "fail", "--all").out
    told = cli("task", "retry", "--dead", "--type", "fail", "--json")
    assert told.code == 0
    assert task_id in told.json["retried"]
    assert cli("task", "watch", task_id, "--timeout", "20").code == 1
    assert cli("task", "retry", task_id).code == 0
    assert cli("task", "watch", task_id, "--timeout", "20").code == 1


def test_a_paused_queue_holds_tasks_until_it_is_resumed(cli: Cli) -> None:
    assert cli("queue", "pause", "normal").out == "normal paused\n"
    try:
        held = cli("task", "submit", "echo", "held", "--json").json["id"]
        queues = {queue["name"]: queue for queue in cli("queue", "list", "--json").json["items"]}
        assert queues["normal"]["paused"] is True
        assert "paused" in cli("queue", "list").out
        assert cli("task", "watch", held, "--timeout", "0.3").code == 7
    finally:
        assert cli("queue", "resume", "normal").code == 0
    assert cli("task", "watch", held, "--timeout", "20").code == 0


def test_a_type_can_be_paused_and_a_wrong_queue_is_exit_4(cli: Cli) -> None:
    assert cli("queue", "pause", "--type", "echo").code == 0
    assert any(queue["name"] == "type:echo" for queue in cli("queue", "list", "--json").json["items"])
    assert cli("queue", "resume", "--type", "echo").code == 0
    assert cli("queue", "pause", "middle").code == 4
    assert cli("queue", "pause").code == 2


def test_workers_and_types_are_listed(cli: Cli) -> None:
    worker = cli("worker", "list", "--json").json["items"][0]
    assert "flaky" in worker["types"]
    assert worker["id"] in cli("worker", "list").out
    types = {found["type"]: found for found in cli("type", "list", "--json").json["items"]}
    assert {"echo", "sleep", "fail", "flaky"} <= set(types)
    assert "word: str" in cli("type", "list").out


def test_limits_are_set_listed_and_removed(cli: Cli) -> None:
    assert cli("limit", "set", "sleep", "--limit", "50", "--window", "2").out == "sleep: at most 50 in 2 s\n"
    limits = cli("limit", "list", "--json").json["items"]
    assert [(found["limit"], found["window_s"]) for found in limits if found["type"] == "sleep"] == [(50, 2)]
    assert "sleep" in cli("limit", "list").out
    assert cli("limit", "set", "sleep", "--limit", "0").code == 2
    assert cli("limit", "remove", "sleep").code == 0
    assert cli("limit", "remove", "sleep").code == 4


def test_schedules_are_set_listed_and_removed(cli: Cli) -> None:
    assert cli("schedule", "set", "tick", "echo", "--every", "1h", "--args", '["t"]').code == 0
    assert cli("schedule", "set", "night", "echo", "--cron", "0 3 * * *", "--priority", "high").code == 0
    found = {schedule["name"]: schedule for schedule in cli("schedule", "list", "--json").json["items"]}
    assert found["tick"]["args"] == ["t"]
    assert found["night"]["cron"] == "0 3 * * *"
    shown = cli("schedule", "list").out
    assert "every 1h" in shown
    assert cli("schedule", "set", "bad", "echo").code == 2
    assert cli("schedule", "set", "bad", "echo", "--cron", "nonsense").code == 2
    assert cli("schedule", "remove", "tick").code == 0
    assert cli("schedule", "remove", "night").code == 0
    assert cli("schedule", "remove", "night").code == 4


def test_status_is_one_view_and_exit_0(cli: Cli) -> None:
    ran = cli("status")
    assert ran.code == 0
    for word in ("redis", "normal", "scheduler", "active"):
        assert word in ran.out
    told = cli("status", "--json").json
    assert told["health"]["status"] == "ok"
    assert told["workers"]


def test_doctor_finds_the_store_of_a_running_station(cli: Cli, station: StationProcess) -> None:
    ran = cli("doctor", "--data-dir", str(station.data), "--json")
    assert ran.code == 0, ran.out
    checks = {check["name"]: check for check in ran.json["checks"]}
    names = ("redis", "append-only file", "eviction policy", "leader", "workers", "outbox", "clock", "expiry")
    assert {name: checks[name]["status"] for name in names} == dict.fromkeys(names, "ok"), ran.out
