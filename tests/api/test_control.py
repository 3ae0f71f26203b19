"""Queues, workers, rate limits, schedules, health and figures over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient
from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import SmallStation, ask
from tradewind.api import create_app

HTTP_WORKER = {"id": "mailer", "address": "http://127.0.0.1:9000/", "capacity": 4, "types": ["send_email", "sms"]}


async def test_queues_are_listed_paused_and_resumed(client: AsyncClient) -> None:
    await client.post("/api/v1/tasks", json={"type": "echo", "priority": "high"})
    items = {item["name"]: item for item in (await client.get("/api/v1/queues")).json()["items"]}
    assert items["high"] == {"name": "high", "length": 1, "parked": 0, "paused": False}
    assert {"high", "normal", "delayed", "dead"} <= items.keys()
    for name in ("high", "normal", "type:echo"):
        paused = await client.post(f"/api/v1/queues/{name}/pause")
        assert (paused.status_code, paused.json()["name"], paused.json()["paused"]) == (200, name, True)
        resumed = await client.post(f"/api/v1/queues/{name}/resume")
        assert (resumed.status_code, resumed.json()["paused"]) == (200, False)


@pytest.mark.parametrize("name", ["delayed", "nothing", "type:", "type:a%20b", "HIGH"])
async def test_an_unknown_queue_is_404(client: AsyncClient, name: str) -> None:
    for verb in ("pause", "resume"):
        answer = await client.post(f"/api/v1/queues/{name}/{verb}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "queue_not_found")


async def test_rate_limits_are_set_listed_and_removed(client: AsyncClient) -> None:
    put = await client.put("/api/v1/rate-limits/echo", json={"limit": 100})
    assert (put.status_code, put.json()) == (200, {"type": "echo", "limit": 100, "window_s": 1, "used": 0})
    await client.put("/api/v1/rate-limits/echo", json={"limit": 5, "window_s": 60})
    items = (await client.get("/api/v1/rate-limits")).json()["items"]
    assert items == [{"type": "echo", "limit": 5, "window_s": 60, "used": 0}]
    assert (await client.delete("/api/v1/rate-limits/echo")).status_code == 204
    assert (await client.delete("/api/v1/rate-limits/echo")).status_code == 404
    assert (await client.get("/api/v1/rate-limits")).json() == {"items": []}


@pytest.mark.parametrize(
    "body", [{}, {"limit": 0}, {"limit": "5"}, {"limit": True}, {"limit": 1, "window_s": 0}, {"limit": 1, "per": 2}]
)
async def test_a_bad_rate_limit_is_422(client: AsyncClient, body: dict[str, Any]) -> None:
    answer = await client.put("/api/v1/rate-limits/echo", json=body)
    assert answer.status_code == 422 and answer.json()["error"]["problems"][0]["path"]
    assert (await client.get("/api/v1/rate-limits")).json() == {"items": []}


async def test_an_http_service_registers_beats_and_leaves(client: AsyncClient, station: SmallStation) -> None:
    registered = await client.post("/api/v1/workers", json={**HTTP_WORKER, "labels": ["eu"]})
    assert registered.status_code == 201 and registered.json()["heartbeat_s"] == 10
    generation = registered.json()["generation"]
    worker = next(w for w in (await client.get("/api/v1/workers")).json()["items"] if w["id"] == "mailer")
    assert worker.keys() == {
        "id", "name", "status", "capacity", "load", "queued", "running", "types", "labels", "address",
        "last_heartbeat", "started_at",
    }  # fmt: skip
    assert (worker["address"], worker["types"], worker["labels"]) == (
        "http://127.0.0.1:9000", ["send_email", "sms"], ["eu"],
    )  # fmt: skip
    lease_ms = await station.plane.link.client.zscore(station.plane.keys.workers(), "mailer")
    assert lease_ms - station.plane.clock.now_ms() > 20_000  # three heartbeats, not one
    beat = await client.post("/api/v1/workers/mailer/heartbeat", json={"generation": generation})
    assert beat.status_code == 200
    old = await client.post("/api/v1/workers/mailer/heartbeat", json={"generation": "another"})
    assert (old.status_code, old.json()["error"]["code"]) == (409, "worker_lost")
    await client.post("/api/v1/tasks", json={"type": "sms", "id": "mine"})  # goes to it directly
    assert (await client.get("/api/v1/tasks/mine")).json()["worker_id"] == "mailer"
    assert (await client.delete(f"/api/v1/workers/mailer?generation={generation}")).status_code == 204
    assert (await client.get("/api/v1/tasks/mine")).json()["status"] == "QUEUED"
    assert "mailer" not in {w["id"] for w in (await client.get("/api/v1/workers")).json()["items"]}
    assert (await client.delete(f"/api/v1/workers/mailer?generation={generation}")).status_code == 409


async def test_the_id_of_a_live_worker_elsewhere_is_not_taken_over(client: AsyncClient) -> None:
    answer = await client.post("/api/v1/workers", json={**HTTP_WORKER, "id": "by-hand"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "worker_id_taken")
    for _ in range(2):  # the same service may start again
        assert (await client.post("/api/v1/workers", json=HTTP_WORKER)).status_code == 201


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "a b"),
        ("id", None),
        ("capacity", 0),
        ("capacity", True),
        ("types", []),
        ("types", ["a b"]),
        ("types", "echo"),
        ("labels", ["a,b"]),
        ("name", 5),
        ("address", None),
        ("address", "ftp://host:21"),
        ("address", "http://host"),
        ("address", "http://:80"),
        ("address", "http://host:99999"),
        ("address", "http://user:pw@host:80"),
        ("address", "http://host:80/path"),
        ("address", "http://host:80?x=1"),
        ("address", "http://ho st:80"),
    ],
)
async def test_a_bad_worker_is_422(client: AsyncClient, field: str, value: Any) -> None:
    answer = await client.post("/api/v1/workers", json={**HTTP_WORKER, field: value})
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["error"]["problems"]] == [field]


async def test_schedules_are_set_shown_listed_and_removed(client: AsyncClient) -> None:
    put = await client.put("/api/v1/schedules/tick", json={"type": "echo", "args": ["hi"], "every": "30s"})
    assert put.status_code == 200, put.text
    shown = (await client.get("/api/v1/schedules/tick")).json()
    assert shown == put.json() and shown["every_s"] == 30 and shown["next_at"].endswith("Z")
    cron = await client.put(
        "/api/v1/schedules/mail", json={"type": "send_email", "args": ["a", "b"], "cron": "0 8 * * 1"}
    )
    assert (cron.json()["cron"], cron.json()["max_attempts"]) == ("0 8 * * 1", 3)
    names = [item["name"] for item in (await client.get("/api/v1/schedules")).json()["items"]]
    assert names == ["mail", "tick"]
    assert (await client.delete("/api/v1/schedules/tick")).status_code == 204
    for method in ("GET", "DELETE"):
        assert (await client.request(method, "/api/v1/schedules/tick")).status_code == 404


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"type": "echo"}, "every"),
        ({"type": "echo", "every": 5, "cron": "* * * * *"}, "every"),
        ({"type": "echo", "every": [5]}, "every"),
        ({"type": "echo", "every": "often"}, "every"),
        ({"type": "echo", "every": -5}, "every"),
        ({"type": "echo", "cron": "61 * * * *"}, "cron"),
        ({"type": "echo", "cron": 5}, "cron"),
        ({"type": "nobody", "every": 5}, "type"),
        ({"type": "send_email", "args": ["a"], "every": 5}, "kwargs.subject"),
        ({"type": "echo", "every": 5, "delay_s": 3}, "delay_s"),
    ],
)
async def test_a_bad_schedule_is_422(client: AsyncClient, body: dict[str, Any], path: str) -> None:
    answer = await client.put("/api/v1/schedules/s", json=body)
    assert answer.status_code == 422, answer.text
    assert path in {problem["path"] for problem in answer.json()["error"]["problems"]}
    assert (await client.get("/api/v1/schedules")).json() == {"items": []}


@pytest.mark.parametrize(("reported", "code"), [("ok", 200), ("degraded", 200), ("down", 503)])
async def test_health_has_a_status_for_load_balancers(station: SmallStation, reported: str, code: int) -> None:
    station.reported = reported
    async with ask(create_app(station)) as client:
        answer = await client.get("/health")
        assert answer.status_code == code
        assert answer.json() == {
            "status": reported,
            "version": "1.2.3",
            "parts": {"redis": {"status": reported, "detail": "answers"}},
        }
        assert (await client.head("/health")).status_code == code


async def test_metrics_are_prometheus_text_of_this_app_only(client: AsyncClient, station: SmallStation) -> None:
    await client.post("/api/v1/tasks", json={"type": "echo"})
    await client.get("/api/v1/tasks/some-id-of-many")
    await client.get("/secret-path")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["tradewind_queue_length", "normal"] == 1
    assert found["tradewind_queue_parked", "normal"] == 0
    assert found["tradewind_tasks_total", "submitted"] == 1
    assert found["tradewind_tasks_total", "success"] == 0
    assert found[("tradewind_workers",)] == 1
    assert found[("tradewind_worker_capacity",)] == 0 == found[("tradewind_worker_load",)]
    assert found[("tradewind_outbox_waiting",)] == 0 == found[("tradewind_leader_present",)]
    assert found[("tradewind_redis_up",)] == 1
    assert found[("tradewind_redis_memory_bytes",)] > 0 and found[("tradewind_redis_clients",)] > 0
    assert 0 <= found[("tradewind_redis_hit_ratio",)] <= 1
    assert found["tradewind_http_requests_total", "POST", "/api/v1/tasks", "201"] == 1
    assert found["tradewind_http_requests_total", "GET", "/api/v1/tasks/{id}", "404"] == 1
    assert found["tradewind_http_requests_total", "GET", "other", "404"] == 1
    assert found["tradewind_http_request_seconds_count", "POST", "/api/v1/tasks"] == 1
    assert ("process_resident_memory_bytes",) in found
    assert "secret-path" not in answer.text and "some-id" not in answer.text
    async with ask(create_app(station)) as other:  # a second app neither collides nor shares
        assert "tradewind_http_requests_total{" not in (await other.get("/metrics")).text


async def test_every_route_is_described_and_every_reference_resolves(station: SmallStation) -> None:
    app = create_app(station)
    async with ask(app) as client:
        described = (await client.get("/openapi.json")).json()
    paths = described["paths"]
    for route in app.routes:
        path, methods = getattr(route, "path", ""), getattr(route, "methods", None) or set()
        if path.startswith("/api/") or path in ("/health", "/metrics"):
            for method in methods - {"HEAD"}:
                assert method.lower() in paths[path], f"{method} {path}"
    schemas = described["components"]["schemas"]

    def follow(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].removeprefix("#/components/schemas/") in schemas
            for inner in value.values():
                follow(inner)
        elif isinstance(value, list):
            for inner in value:
                follow(inner)

    follow(paths)
    follow(schemas)
    ids = [operation["operationId"] for item in paths.values() for operation in item.values()]
    assert len(ids) == len(set(ids))
    assert schemas["TaskRequest"]["example"]["type"] == "echo"


async def test_the_described_examples_are_true(client: AsyncClient) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    task = await client.post("/api/v1/tasks", json=schemas["TaskRequest"]["example"])
    assert task.status_code == 201
    assert task.json().keys() == schemas["Task"]["properties"].keys() == schemas["Task"]["example"].keys()
    assert (await client.post("/api/v1/workers", json=schemas["WorkerRequest"]["example"])).status_code == 201
    workers = (await client.get("/api/v1/workers")).json()["items"]
    assert all(worker.keys() == schemas["Worker"]["properties"].keys() for worker in workers)
    assert (await client.put("/api/v1/rate-limits/x", json=schemas["RateLimitRequest"]["example"])).status_code == 200
    schedule = await client.put("/api/v1/schedules/x", json=schemas["ScheduleRequest"]["example"])
    assert schedule.json().keys() == schemas["Schedule"]["properties"].keys()
