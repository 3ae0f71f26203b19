from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Canned, Cli
from tradewind.cli.bulk import batches
from tradewind.cli.follow import progress_of
from tradewind.cli.task import read_args
from tradewind.errors import Invalid

TASK: dict[str, Any] = {
    "id": "t1",
    "type": "echo",
    "status": "QUEUED",
    "priority": "normal",
    "attempt": 0,
    "max_attempts": 1,
    "args": ["hi"],
    "kwargs": {},
    "tags": [],
    "result": None,
    "error": None,
    "progress": None,
    "created_at": "2026-11-16T00:00:00.000Z",
    "started_at": None,
    "finished_at": None,
}


def test_words_are_taken_as_json_where_they_parse() -> None:
    assert read_args(["hi", "5", "1.5", "true", "null", "[1]", '"5"', "NaN", "{a"], None) == [
        "hi", 5, 1.5, True, None, [1], "5", "NaN", "{a",
    ]  # fmt: skip


def test_words_and_a_list_together_are_refused() -> None:
    with pytest.raises(Invalid, match="twice"):
        read_args(["hi"], "[1]")


@pytest.mark.parametrize(
    ("option", "text"), [("--args", "[1"), ("--args", '{"a": 1}'), ("--kwargs", "[1]"), ("--kwargs", "x")]
)
def test_bad_json_of_an_option_is_named(cli: Cli, option: str, text: str) -> None:
    ran = cli("task", "submit", "echo", option, text, "--json")
    assert ran.code == 2
    assert ran.json["error"]["problems"][0]["path"] == option


def test_submit_sends_only_what_was_given(cli: Cli, canned: Canned) -> None:
    canned.answer("POST /api/v1/tasks", 201, TASK)
    assert cli("task", "submit", "echo", "hi").out == "t1 QUEUED\n"
    assert canned.asked[-1][1] == {"type": "echo", "args": ["hi"]}
    cli(
        "task", "submit", "echo", "--kwargs", '{"value": 0}', "--priority", "high", "--delay", "2", "--timeout", "3",
        "--max-attempts", "4", "--idempotency-key", "k", "--tag", "a", "--tag", "b", "--label", "gpu",
        "--exclusive", "x",
    )  # fmt: skip
    assert canned.asked[-1][1] == {
        "type": "echo", "kwargs": {"value": 0}, "priority": "high", "delay_s": 2.0, "timeout_s": 3.0, "max_attempts": 4,
        "idempotency_key": "k", "tags": ["a", "b"], "labels": ["gpu"], "exclusive": "x",
    }  # fmt: skip


def test_submit_without_a_type_says_what_to_do(cli: Cli) -> None:
    ran = cli("task", "submit")
    assert ran.code == 2
    assert "tradewind type list" in ran.err


def test_wait_gives_up_with_exit_7_and_the_task_goes_on(cli: Cli, canned: Canned) -> None:
    canned.answer("POST /api/v1/tasks", 201, TASK)
    canned.answer("GET /api/v1/tasks/t1", 200, {**TASK, "status": "PROCESSING"})
    ran = cli("task", "submit", "echo", "--wait-timeout", "0.05")
    assert ran.code == 7
    assert "still PROCESSING" in ran.err
    assert "tradewind task watch t1" in ran.err


def test_several_ids_go_on_after_a_refusal(cli: Cli, canned: Canned) -> None:
    canned.answer("POST /api/v1/tasks/a/cancel", 200, {**TASK, "id": "a", "status": "CANCELLED"})
    canned.refuse("POST /api/v1/tasks/b/cancel", 404, "task_not_found", "there is no task 'b'")
    canned.answer("POST /api/v1/tasks/c/cancel", 202, {**TASK, "id": "c", "status": "PROCESSING"})
    ran = cli("task", "cancel", "a", "b", "c")
    assert ran.code == 4
    assert ran.out == "a CANCELLED\nc PROCESSING, asked to stop\n"
    assert "there is no task 'b'" in ran.err
    told = cli("task", "cancel", "a", "b", "c", "--json").json
    assert [task["id"] for task in told["items"]] == ["a", "c"]
    assert told["errors"][0]["id"] == "b"


def test_a_batch_ends_at_its_count_and_at_its_bytes() -> None:
    small = [(number, {}, 10) for number in range(1, 2501)]
    assert [len(batch) for batch in batches(small)] == [1000, 1000, 500]
    large = [(number, {}, 600_000) for number in range(1, 4)]
    assert [len(batch) for batch in batches(large)] == [1, 1, 1]


def test_a_bad_line_of_a_file_is_named_by_its_number(cli: Cli, canned: Canned, tmp_path: Any) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"type": "echo"}\n\n{"type": \n')
    ran = cli("task", "submit", "--file", str(file), "--json")
    assert ran.code == 2
    assert ran.json["error"]["problems"][0]["path"] == "line 3"
    file.write_text('\n{"type": "echo"}\n{"type": "echo", "delay_s": -1}\n')
    problem = {"code": "out_of_range", "path": "tasks[1].delay_s", "hint": "not below 0"}
    canned.refuse("POST /api/v1/tasks/batch", 422, "invalid_task", "1 problem", "see problems", [problem])
    assert "line 3 delay_s: not below 0" in cli("task", "submit", "--file", str(file)).err


def test_what_was_accepted_before_a_fault_is_told(cli: Cli, canned: Canned, tmp_path: Any) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"type": "echo"}\n' * 1500 + "nonsense\n")
    canned.answer("POST /api/v1/tasks/batch", 201, {"ids": ["x"] * 1000})
    ran = cli("task", "submit", "--file", str(file))
    assert ran.code == 2
    assert "lines 1 to 1000 were accepted (1000 tasks), nothing after them" in ran.err
    told = cli("task", "submit", "--file", str(file), "--json").json["error"]
    assert "lines 1 to 1000 were accepted" in told["hint"]
    canned.refuse("POST /api/v1/tasks/batch", 503, "unavailable", "Redis does not answer")
    assert "not known whether the first batch was accepted" in cli("task", "submit", "--file", str(file)).err


def test_progress_reports_become_a_share_or_words() -> None:
    assert progress_of(0.25) == (1.0, 0.25, "")
    assert progress_of({"done": 3, "total": 8}) == (8.0, 3.0, "3/8")
    assert progress_of({"step": "load"}) == (None, 0, '{"step":"load"}')
    assert progress_of("loading") == (None, 0, "loading")
    assert progress_of(None) == (None, 0, "")


def test_a_list_that_goes_on_says_how(cli: Cli, canned: Canned) -> None:
    canned.answer("GET /api/v1/tasks", 200, {"items": [TASK], "next_cursor": "abc"})
    ran = cli("task", "list", "--status", "queued", "--status", "dead", "--type", "echo", "--limit", "1")
    assert canned.asked[-1][0] == "GET /api/v1/tasks?status=queued%2Cdead&type=echo&limit=1"
    assert "t1" in ran.out
    assert "--cursor abc" in ran.err
    assert cli("task", "list", "--json").json["next_cursor"] == "abc"
