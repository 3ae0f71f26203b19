from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.api.conftest import Eventually, SmallStation, ask, small_station
from tradewind.api import create_app
from tradewind.tasks.record import Status

SHAPE = {
    "id", "type", "status", "priority", "attempt", "result", "error", "progress", "worker_id", "created_at",
    "started_at", "finished_at",
}  # fmt: skip
SUBMIT = {
    "type": "echo", "args": ["hi"], "kwargs": {}, "priority": "high", "delay_s": 0, "timeout_s": 30, "max_attempts": 3,
    "idempotency_key": "k", "tags": ["a"],
}  # fmt: skip


@pytest.fixture
async def everywhere(any_redis: Any, key_prefix: str, tmp_path: Path) -> AsyncIterator[SmallStation]:
    async with small_station(any_redis.url, key_prefix, tmp_path) as station:
        yield station


async def test_a_task_goes_from_submit_to_its_result(everywhere: SmallStation) -> None:
    worker = await everywhere.offer(capacity=5)
    async with ask(create_app(everywhere)) as client:
        answer = await client.post("/api/v1/tasks", json=SUBMIT)
        assert answer.status_code == 201
        view = answer.json()
        assert view.keys() >= SHAPE
        assert view["status"] == "ASSIGNED" and view["priority"] == "high" and view["tags"] == ["a"]
        again = await client.post("/api/v1/tasks", json=SUBMIT)
        assert (again.status_code, again.json()["id"]) == (200, view["id"])
        assert await everywhere.finish(worker) == view["id"]
        shown = (await client.get(f"/api/v1/tasks/{view['id']}")).json()
        assert (shown["status"], shown["result"]) == ("SUCCESS", 7)
        assert shown["created_at"] == view["created_at"]
        assert (await client.get(f"/api/v1/tasks/{view['id']}")).json() == shown  # now from the cache


async def test_without_a_free_worker_a_task_is_queued(client: AsyncClient) -> None:
    view = (await client.post("/api/v1/tasks", json={"type": "echo"})).json()
    assert (view["status"], view["priority"], view["attempt"]) == ("QUEUED", "normal", 0)


async def test_a_key_used_for_another_request_conflicts(client: AsyncClient) -> None:
    await client.post("/api/v1/tasks", json=SUBMIT)
    answer = await client.post("/api/v1/tasks", json={**SUBMIT, "args": ["ho"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_mismatch")


async def test_a_key_whose_task_is_forgotten_conflicts(client: AsyncClient, station: SmallStation) -> None:
    task_id = (await client.post("/api/v1/tasks", json=SUBMIT)).json()["id"]
    keys = station.plane.keys
    await station.plane.redis.delete(keys.task(task_id), keys.body(task_id))
    answer = await client.post("/api/v1/tasks", json=SUBMIT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "already_forgotten")


async def test_a_batch_is_accepted_in_order_or_not_at_all(client: AsyncClient, station: SmallStation) -> None:
    empty = await station.stored_keys()
    tasks: list[Any] = [{"type": "echo", "args": [n], "id": f"t{n}"} for n in range(3)]
    bad = await client.post("/api/v1/tasks/batch", json={"tasks": [*tasks, {"type": "echo", "delay_s": -1}, 5]})
    assert bad.status_code == 422
    assert {(p["code"], p["path"]) for p in bad.json()["error"]["problems"]} == {
        ("out_of_range", "tasks[3].delay_s"),
        ("not_an_object", "tasks[4]"),
    }
    assert await station.stored_keys() == empty
    good = await client.post("/api/v1/tasks/batch", json={"tasks": tasks})
    assert (good.status_code, good.json()) == (201, {"ids": ["t0", "t1", "t2"]})


async def test_tasks_are_listed_by_status_type_and_tag_page_by_page(client: AsyncClient) -> None:
    tasks = [{"type": "echo", "id": f"t{n}", "tags": ["even"] if n % 2 == 0 else []} for n in range(5)]
    tasks.append({"type": "send_email", "args": ["a@b.c", "hi"], "id": "mail", "delay_s": 60})
    await client.post("/api/v1/tasks/batch", json={"tasks": tasks})

    async def ids(query: str) -> set[str]:
        return {item["id"] for item in (await client.get(f"/api/v1/tasks{query}")).json()["items"]}

    assert await ids("") == {"mail", "t0", "t1", "t2", "t3", "t4"}
    assert await ids("?status=pending,success") == {"mail"}
    assert await ids("?status=DELAYED&status=running") == {"mail"}  # the seed's words
    assert await ids("?type=echo&tag=even") == {"t0", "t2", "t4"}
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = (await client.get("/api/v1/tasks", params={"limit": 2, "cursor": cursor})).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert sorted(seen) == ["mail", "t0", "t1", "t2", "t3", "t4"]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("status=WEIRD", "status"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("limit=nan", "limit"),
        ("limit=1.5", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=%00", "cursor"),
        ("cursor=WyJ4Il0", "cursor"),
        ("type=a%20b", "type"),
        ("tag=%F0%9F%8D%8B", "tag"),
        ("stauts=DEAD", "stauts"),
    ],
)
async def test_a_bad_query_is_refused_with_its_path(client: AsyncClient, query: str, path: str) -> None:
    answer = await client.get(f"/api/v1/tasks?{query}")
    assert answer.status_code == 422, answer.text
    (problem,) = answer.json()["error"]["problems"]
    assert problem["path"] == path and problem["code"] and problem["hint"]


async def test_cancel_answers_by_what_the_task_was_doing(client: AsyncClient, station: SmallStation) -> None:
    await client.post("/api/v1/tasks", json={"type": "echo", "id": "waits"})
    for _ in range(2):  # cancelling twice is cancelling once
        answer = await client.post("/api/v1/tasks/waits/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLED")
    worker = await station.offer(capacity=5, worker_id="busy")
    await client.post("/api/v1/tasks/batch", json={"tasks": [{"type": "echo", "id": "runs"}]})
    await station.plane.link.client.delete(station.plane.keys.queue("normal"))  # the tombstone
    await client.post("/api/v1/tasks", json={"type": "echo", "id": "runs2"})
    (taken,) = await worker.take(1)
    asked = await client.post(f"/api/v1/tasks/{taken.id}/cancel")
    assert (asked.status_code, asked.json()["status"]) == (202, "PROCESSING")


async def test_cancel_of_an_ended_task_names_its_state(client: AsyncClient, station: SmallStation) -> None:
    worker = await station.offer(capacity=5, worker_id="free")
    await client.post("/api/v1/tasks", json={"type": "echo", "id": "done"})
    await station.finish(worker)
    answer = await client.post("/api/v1/tasks/done/cancel")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "already_ended" and "SUCCESS" in answer.json()["error"]["message"]


async def test_dead_letters_are_listed_and_brought_back(client: AsyncClient, station: SmallStation) -> None:
    worker = await station.offer(capacity=5, worker_id="free")
    await client.post("/api/v1/tasks", json={"type": "echo", "id": "bad"})
    early = await client.post("/api/v1/tasks/bad/retry")
    assert (early.status_code, early.json()["error"]["code"]) == (409, "not_retryable")
    await station.finish(worker, Status.DEAD, b'{"error":{"type":"E","message":"broken"}}')
    (dead,) = (await client.get("/api/v1/tasks/dead")).json()["items"]
    assert (dead["id"], dead["status"], dead["error"]["message"]) == ("bad", "DEAD", "broken")
    again = await client.post("/api/v1/tasks/bad/retry")
    assert (again.status_code, again.json()["status"], again.json()["error"]) == (200, "QUEUED", None)


async def test_an_archived_task_is_shown(client: AsyncClient, station: SmallStation) -> None:
    worker = await station.offer(capacity=5, worker_id="free")
    await client.post("/api/v1/tasks", json={"type": "echo", "id": "old"})
    await station.finish(worker)
    await station.archive.write([await station.tasks.get("old")])
    keys = station.plane.keys
    await station.plane.link.client.delete(keys.task("old"), keys.body("old"), keys.cache("old"), keys.outbox())
    assert (await client.get("/api/v1/tasks/old")).json()["result"] == 7
    assert [t["id"] for t in (await client.get("/api/v1/tasks?status=success")).json()["items"]] == ["old"]


@pytest.mark.parametrize("method,tail", [("GET", ""), ("GET", "?wait=1"), ("POST", "/cancel"), ("POST", "/retry")])
async def test_an_unknown_task_is_404_and_a_bad_id_422(client: AsyncClient, method: str, tail: str) -> None:
    unknown = await client.request(method, f"/api/v1/tasks/nobody{tail}")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "task_not_found")
    for bad in ("a%20b", "x" * 161, "outbox", "%F0%9F%8D%8B", "a%00b"):
        answer = await client.request(method, f"/api/v1/tasks/{bad}{tail}")
        assert (answer.status_code, answer.json()["error"]["problems"][0]["path"]) == (422, "id")


async def test_a_long_poll_answers_as_soon_as_the_task_has_ended(
    everywhere: SmallStation, eventually: Eventually
) -> None:
    async def is_listened_for() -> bool:
        return bool(await everywhere.plane.redis.pubsub_channels(everywhere.plane.keys.reply("*")))

    worker = await everywhere.offer(capacity=5)
    async with ask(create_app(everywhere)) as client:
        await client.post("/api/v1/tasks", json={"type": "echo", "id": "slow"})
        polls = [asyncio.create_task(client.get("/api/v1/tasks/slow?wait=20")) for _ in range(3)]
        await eventually(is_listened_for)
        await everywhere.finish(worker)
        ended = time.monotonic()
        assert [(await poll).json()["result"] for poll in polls] == [7, 7, 7]
        assert time.monotonic() - ended < 0.5  # sooner than the look that guards against a lost message


async def test_the_subscription_ends_with_the_last_long_poll(station: SmallStation, eventually: Eventually) -> None:
    async def channels() -> list[bytes]:
        found: list[bytes] = await station.plane.redis.pubsub_channels(station.plane.keys.reply("*"))
        return found

    async def is_silent() -> bool:
        return not await channels()

    worker = await station.offer(capacity=5)
    async with ask(create_app(station)) as client:
        await client.post("/api/v1/tasks", json={"type": "echo", "id": "never"})
        short, long = (asyncio.create_task(client.get(f"/api/v1/tasks/never?wait={wait}")) for wait in (0.5, 20))
        await eventually(channels)
        assert (await short).json()["status"] == "ASSIGNED"
        assert len(await channels()) == 1, "one for all polls, and one of them is still there"
        await station.finish(worker)
        assert (await long).json()["result"] == 7
        await eventually(is_silent)


async def test_a_long_poll_gives_up_after_its_time(client: AsyncClient) -> None:
    await client.post("/api/v1/tasks", json={"type": "echo", "id": "never"})
    assert (await client.get("/api/v1/tasks/never?wait=0.2")).json()["status"] == "QUEUED"
    assert (await client.get("/api/v1/tasks/never?wait=61")).json()["error"]["problems"][0]["path"] == "wait"


async def test_a_type_that_a_worker_offers_later_is_known_at_once(client: AsyncClient, station: SmallStation) -> None:
    body = {"type": "brand_new"}
    assert (await client.post("/api/v1/tasks", json=body)).json()["error"]["code"] == "unknown_type"
    await station.plane.link.client.sadd(station.plane.keys.worker_type("brand_new"), "by-hand")  # as the seed does
    assert (await client.post("/api/v1/tasks", json=body)).status_code == 201


async def test_types_are_listed_with_their_parameters(client: AsyncClient) -> None:
    items = (await client.get("/api/v1/task-types")).json()["items"]
    assert [item["type"] for item in items] == ["echo", "send_email"]
    assert items[1]["params"][0] == {"name": "to", "types": ["str"], "required": True, "keyword_only": False}
    assert items[0]["doc"] == "Return what it is given." and items[1]["max_attempts"] == 3
