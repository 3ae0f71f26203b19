from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient, Response
from starlette.requests import Request
from structlog.testing import capture_logs

from tests.api.conftest import SmallStation, ask, small_station
from tests.process import free_port
from tradewind.api import create_app
from tradewind.api.routing import Endpoint
from tradewind.errors import Conflict, NotFound, Overloaded, TimedOut, Unavailable
from tradewind.tasks.check import FIELDS

JSON = {"Content-Type": "application/json"}
TASK = b'{"type":"echo","args":[%s]}'


def check(answer: Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error: dict[str, Any] = answer.json()["error"]
    assert error.keys() == {"code", "message", "hint", "problems"}
    assert error["code"] == code, error
    assert error["message"]
    for problem in error["problems"]:
        assert problem.keys() == {"code", "path", "hint"} and all(problem.values())
    return error


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b"", "send strict JSON"),
        (b'{"type":"echo"', "at the end"),
        (b'{"type":\n  echo}', "byte 11 (line 2, column 3)"),
        (b'{"type":"echo",}', "byte 15"),
        (b'{"type":"echo"} x', "byte"),
        (TASK % b"NaN", "byte"),
        (TASK % b"Infinity", "byte"),
        (TASK % b"1e400", ""),
        (TASK % b'"\\ud800"', "surrogate"),
        (TASK % b'"\\ud800\\u0041"', "byte"),
        (TASK % b'"\xed\xa0\x80"', "UTF-8"),
        (TASK % b'"\xff"', "UTF-8"),
        (b"\xff\xfe{\x00}\x00", "byte 0"),
        (b'{"type":"echo","type":"echo"}', "once"),
        (TASK % b'{"a":{"b":1,"b":1}}', "once"),
        (TASK % b"18446744073709551616", "64 bits"),
        (TASK % b"-9223372036854775809", "64 bits"),
        (b'{"type":"echo","delay_s":' + b"9" * 400 + b"}", "64 bits"),
        (TASK % (b"1" * 5000), ""),
        (TASK % (b"[" * 101 + b"]" * 101), "levels"),
        (TASK % (b"[" * 900 + b"]" * 900), "levels"),
        (TASK % (b'{"a":' * 100_000 + b"1" + b"}" * 100_000), "levels"),
        (b"[" * 1_000_000, "levels"),
    ],
)
async def test_what_is_not_strict_json_is_400(
    client: AsyncClient, station: SmallStation, body: bytes, hint: str
) -> None:
    empty = await station.stored_keys()
    for path in ("/api/v1/tasks", "/api/v1/tasks/batch"):
        error = check(await client.post(path, content=body, headers=JSON), 400, "bad_json")
        assert hint in error["hint"] and error["hint"]
    assert await station.stored_keys() == empty


@pytest.mark.parametrize("body", [b"[]", b"5", b"null", b'"text"', b"true"])
async def test_json_that_is_no_object_is_422(client: AsyncClient, body: bytes) -> None:
    for method, path in (
        ("POST", "/api/v1/tasks"),
        ("POST", "/api/v1/tasks/batch"),
        ("POST", "/api/v1/workers"),
        ("PUT", "/api/v1/rate-limits/echo"),
        ("PUT", "/api/v1/schedules/s"),
    ):
        error = check(await client.request(method, path, content=body, headers=JSON), 422, "not_an_object")
        assert error["problems"][0]["path"] == "$"


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"type": "nobody_has_this"}, "unknown_type", "type"),
        ({"type": 5}, "bad_type", "type"),
        ({"type": "send_email"}, "missing_arg", "kwargs.to"),
        ({"type": "send_email", "args": [5, "hi"]}, "wrong_type", "args[0]"),
        ({"args": [1, 2]}, "too_many_args", "args[1]"),
        ({"kwargs": {"nope": 1}}, "unknown_arg", "kwargs.nope"),
        ({"delay_s": -1}, "out_of_range", "delay_s"),
        ({"delay_s": 2**63}, "out_of_range", "delay_s"),
        ({"timeout_s": 0}, "out_of_range", "timeout_s"),
        ({"id": "a b"}, "bad_id", "id"),
        ({"id": "outbox"}, "bad_id", "id"),
        ({"priority": "urgent"}, "bad_priority", "priority"),
        ({"eta": "soon"}, "bad_time", "eta"),
        ({"colour": "red"}, "unknown_field", "colour"),
        ({"args": ["x" * 1_000_001]}, "too_large", "args"),
    ],
)
async def test_a_bad_task_is_422_with_code_path_and_hint_and_nothing_is_stored(
    client: AsyncClient, station: SmallStation, fields: dict[str, Any], code: str, path: str
) -> None:
    empty = await station.stored_keys()
    answer = await client.post("/api/v1/tasks", json={"type": "echo", **fields})
    assert answer.status_code == 422
    found = {(p["code"], p["path"]) for p in answer.json()["error"]["problems"]}
    assert (code, path) in found and all(p["hint"] for p in answer.json()["error"]["problems"])
    assert await station.stored_keys() == empty


async def test_all_problems_are_told_at_once(client: AsyncClient) -> None:
    answer = await client.post("/api/v1/tasks", json={"type": "send_email", "delay_s": -1, "id": "!", "x": 1})
    error = check(answer, 422, "invalid_task")
    assert {p["path"] for p in error["problems"]} == {"x", "kwargs.to", "kwargs.subject", "id", "delay_s"}


@pytest.mark.parametrize("kind", ["", "application/x-www-form-urlencoded"])
async def test_what_curl_sends_by_default_is_read_as_json(client: AsyncClient, kind: str) -> None:
    body = b'{"type": "send_email", "args": ["a@b.c", "hi"]}'
    answer = await client.post("/api/v1/tasks", content=body, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == 201
    check(await client.post("/api/v1/tasks", content=b"a=1", headers={"Content-Type": kind}), 400, "bad_json")


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", "application/json; charset=utf-16", "nonsense"])
async def test_a_body_of_another_type_is_415(client: AsyncClient, kind: str) -> None:
    answer = await client.post("/api/v1/tasks", content=b"{}", headers={"Content-Type": kind} if kind else {})
    assert "application/json" in check(answer, 415, "unsupported_media_type")["hint"]


@pytest.mark.parametrize("kind", ["application/json;charset=UTF-8", "APPLICATION/JSON", "application/merge-patch+json"])
async def test_json_may_be_declared_in_its_variants(client: AsyncClient, kind: str) -> None:
    answer = await client.post("/api/v1/tasks", content=b'{"type":"echo"}', headers={"Content-Type": kind})
    assert answer.status_code == 201


async def ten_megabytes(sent: list[int]) -> AsyncIterator[bytes]:
    yield b'{"type":"echo","args":["'
    for _ in range(160):
        sent.append(65536)
        yield b"x" * 65536
    yield b'"]}'


@pytest.mark.parametrize("declared", [None, "100", "10485787", "nonsense", "9" * 5000])
async def test_a_body_of_ten_megabytes_is_413_whatever_its_length_header_says(
    station: SmallStation, declared: str | None
) -> None:
    empty = await station.stored_keys()
    headers = JSON if declared is None else {**JSON, "Content-Length": declared}
    async with ask(create_app(station)) as client:
        for path in ("/api/v1/tasks", "/api/v1/tasks/batch", "/api/v1/workers"):
            answer = await client.post(path, content=ten_megabytes([]), headers=headers)
            assert "max_body_bytes" in check(answer, 413, "body_too_large")["hint"]
    assert await station.stored_keys() == empty


async def test_an_unknown_route_is_404(client: AsyncClient) -> None:
    for path in ("/nothing", "/api/v1/nothing", "/api/v1/tasks/", "/static/none.js", "/api/v1/tasks/a/b/c"):
        check(await client.get(path), 404, "no_such_route")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/v1/tasks", "GET, HEAD, POST"),
        ("DELETE", "/api/v1/tasks/batch", "GET, HEAD, POST"),
        ("POST", "/api/v1/rate-limits/echo", "DELETE, PUT"),
        ("POST", "/health", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
        ("POST", "/static/app.js", "GET, HEAD"),
        ("BREW", "/api/v1/tasks/x/cancel", "POST"),
    ],
)
async def test_a_wrong_method_is_405_and_names_all_right_ones(
    client: AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path)
    check(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("no", hint="h"), 404),
        (Conflict("no"), 409),
        (Overloaded("no", retry_after_s=2.1), 429),
        (Unavailable("no"), 503),
        (TimedOut("no"), 504),
    ],
)
async def test_each_kind_of_error_has_its_status(station: SmallStation, error: Any, status: int) -> None:
    async with ask(failing(station, lambda: error)) as client:
        answer = await client.get("/broken")
    assert check(answer, status, error.code)["message"] == "no"
    assert answer.headers.get("retry-after") == ("3" if status == 429 else None)


async def test_a_query_that_fastapi_refuses_has_the_same_envelope(station: SmallStation) -> None:
    app = create_app(station)

    async def numbered(number: int) -> int:
        return number

    app.add_api_route("/numbered", numbered)
    async with ask(app) as client:
        assert check(await client.get("/numbered?number=x"), 422, "invalid")["problems"][0]["path"] == "number"


async def test_an_unexpected_error_is_500_with_an_id_that_is_logged_and_no_stack(station: SmallStation) -> None:
    async with ask(failing(station, lambda: RuntimeError("secret inside"))) as client:
        with capture_logs() as logs:
            answer = await client.get("/broken", headers={"X-Request-ID": "r-1"})
    check(answer, 500, "internal")
    (entry,) = [log for log in logs if log["event"] == "request failed"]
    assert entry["error_id"] in answer.json()["error"]["message"]
    assert entry["exc_info"] and entry["path"] == "/broken"
    assert "secret" not in answer.text and "Traceback" not in answer.text
    assert answer.headers["x-request-id"] == "r-1" and answer.headers["x-content-type-options"] == "nosniff"


async def test_what_takes_too_long_is_504(station: SmallStation) -> None:
    async def hang(_request: Request) -> Any:
        await asyncio.Event().wait()

    app = create_app(station)
    app.router.routes.append(Endpoint("GET", "/hangs", hang, "", {}, limit_s=0.05).route())
    async with ask(app) as client:
        check(await client.get("/hangs"), 504, "timed_out")


AWKWARD = [
    None, True, False, 0, -1, 1.5, 2**63, -(2**63), 2**64 - 1, 1e308, -1e308, "", "\x00", "x" * 300, "😀", "0", "NaN",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", [], [[]], [None], [""], {}, {"": None}, {"\x00": 1},
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "valid", "fields"),
    [
        ("POST", "/api/v1/tasks", {"type": "echo"}, sorted(FIELDS)),
        ("POST", "/api/v1/tasks/batch", {"tasks": []}, ["tasks"]),
        (
            "POST",
            "/api/v1/workers",
            {"id": "w", "address": "http://h:1", "types": ["x"]},
            ["id", "name", "address", "capacity", "types", "labels"],
        ),
        ("POST", "/api/v1/workers/w/heartbeat", {}, ["generation"]),
        ("PUT", "/api/v1/rate-limits/echo", {"limit": 1}, ["limit", "window_s"]),
        (
            "PUT",
            "/api/v1/schedules/s",
            {"type": "echo", "every": 60},
            ["type", "every", "cron", "args", "kwargs", "priority", "max_attempts", "timeout_s"],
        ),
    ],
)
async def test_no_value_in_any_field_breaks_the_station(
    client: AsyncClient, method: str, path: str, valid: dict[str, Any], fields: list[str]
) -> None:
    for field in fields:
        for value in AWKWARD:
            answer = await client.request(method, path, json={**valid, field: value})
            assert answer.status_code < 500, f"{field}={value!r}: {answer.text}"
            if answer.status_code >= 400:
                assert answer.json()["error"]["code"]
    for listed in ("tasks", "workers", "rate-limits", "schedules", "queues"):
        assert (await client.get(f"/api/v1/{listed}")).status_code == 200, listed


def failing(station: SmallStation, error: Callable[[], Exception]) -> FastAPI:
    app = create_app(station)

    async def broken(_request: Request) -> None:
        raise error()

    app.router.add_route("/broken", broken)  # type: ignore[arg-type]
    return app


async def test_without_redis_every_route_answers_503_but_the_page_works(tmp_path: Path) -> None:
    async with small_station(f"redis://127.0.0.1:{free_port()}/0", "t:", tmp_path) as station:
        station.plane.scripts._attempts = 1
        async with ask(create_app(station)) as client:
            for path in (
                "tasks",
                "tasks/x",
                "tasks/x?wait=5",
                "queues",
                "workers",
                "rate-limits",
                "schedules",
                "task-types",
            ):
                check(await client.get(f"/api/v1/{path}"), 503, "redis_unavailable")
            check(await client.post("/api/v1/tasks", json={"type": "echo"}), 503, "redis_unavailable")
            down = await client.get("/health")
            assert (down.status_code, down.json()["status"]) == (503, "down")
            for path in ("/", "/static/app.js", "/docs", "/openapi.json"):
                assert (await client.get(path)).status_code == 200
            assert "tradewind_redis_up 0.0" in (await client.get("/metrics")).text


async def test_a_full_queue_is_429_with_retry_after(station: SmallStation) -> None:
    tasks = station.settings.tasks.model_copy(update={"max_queued": 2})
    station.plane.settings = tasks
    async with ask(create_app(station)) as client:
        batch = {"tasks": [{"type": "echo"}] * 3}
        answer = await client.post("/api/v1/tasks/batch", json=batch)
    check(answer, 429, "queue_full")
    assert int(answer.headers["retry-after"]) >= 1
