"""Notifications over HTTP: the policy without its secrets, a test of a target, the log of deliveries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient

from tests import servers
from tests.api.conftest import Eventually, SmallStation, ask, small_station
from tests.api.flow_station import Flows
from tradewind.api import create_app
from tradewind.settings import NotifySettings

POLICY: dict[str, Any] = {
    "targets": {"office": {"url": "https://hooks.example.com/in/secret-word", "headers": {"X-Key": "hidden"}}},
    "routes": [{"min_level": "High", "targets": ["office"]}],
    "quiet_hours": {"from": "22:00", "to": "06:00", "timezone": "Europe/Berlin"},
}


async def test_the_policy_is_kept_without_showing_its_secrets(api: Flows) -> None:
    assert (await api.get("/notifications/policy"))["targets"] == {}
    stored = await api.ask("PUT", "/notifications/policy", json=POLICY)
    assert stored["version"] == 1 and stored["routes"][0]["targets"] == ["office"]
    text = (await api.client.get("/api/v1/notifications/policy")).text
    assert "secret-word" not in text and "hidden" not in text
    again = await api.ask("PUT", "/notifications/policy", json=stored)  # what was read can be sent back
    assert again == stored
    url = "https://hooks.example.com/in/other-word"
    other = {**POLICY, "targets": {"office": {**POLICY["targets"]["office"], "url": url}}}
    for document, is_new in ((POLICY, False), (stored, False), (other, True)):
        assert (await api.post("/notifications/policy/validate", document))["changed"] is is_new
    assert await api.error("PUT", "/notifications/policy", 409, json={**POLICY, "version": 7}) == "version_conflict"


async def test_a_bad_policy_is_422_with_every_problem(api: Flows) -> None:
    bad = {"targets": {"a": {"url": "nonsense"}}, "routes": [{"targets": ["b"], "min_level": "Loud"}]}
    error = (await api.ask("PUT", "/notifications/policy", 422, json=bad))["error"]
    assert error["code"] == "bad_policy" and len(error["problems"]) >= 2
    told = await api.post("/notifications/policy/validate", bad)
    assert (told["valid"], told["problems"], told["policy"]) == (False, error["problems"], None)
    told = await api.post("/notifications/policy/validate", POLICY)
    assert (told["valid"], told["problems"], told["changed"]) == (True, [], True)
    assert "secret-word" not in str(told)
    assert (await api.get("/notifications/policy"))["targets"] == {}


class Hook:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/in"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
async def open_station(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[SmallStation]:
    """One that may call webhooks on this machine, and does not wait to gather messages."""
    notify = NotifySettings(allow_private=True, group_wait_s=0)
    async with small_station(redis_7.url, key_prefix, tmp_path, notify=notify) as station:
        yield station


@pytest.fixture
async def open_client(open_station: SmallStation) -> AsyncIterator[AsyncClient]:
    async with ask(create_app(open_station)) as client:
        yield client


async def test_a_target_is_tested_and_an_alarm_is_delivered_and_logged(
    open_station: SmallStation, open_client: AsyncClient, hook: Hook, eventually: Eventually
) -> None:
    api = Flows(open_client)
    policy = {"targets": {"hook": {"url": hook.url}}, "routes": [{"targets": ["hook"]}]}
    await api.ask("PUT", "/notifications/policy", json=policy)
    tested = await api.post("/notifications/test", {"target": "hook"})
    assert (tested["target"], tested["ok"], tested["error"]) == ("hook", True, "") and len(hook.bodies) == 1
    assert await api.error("POST", "/notifications/test", 404, json={"target": "none"}) == "unknown_target"
    assert await api.error("POST", "/notifications/test", 422, json={}) == "missing_field"
    assert (await api.get("/notifications/log"))["items"] == []
    stop = asyncio.Event()
    keeping = asyncio.create_task(open_station.rules.keep(stop))
    try:
        await api.post("/alarms", {"source": "pump", "title": "leaks", "level": "High"}, 201)

        async def is_sent() -> bool:
            return bool((await api.get("/notifications/log", status="sent"))["items"])

        await eventually(is_sent)
    finally:
        stop.set()
        await asyncio.wait_for(keeping, 20)
    (delivery,) = (await api.get("/notifications/log", target="hook"))["items"]
    assert (delivery["status"], delivery["count"], delivery["attempts"]) == ("sent", 1, 1)
    assert b"leaks" in hook.bodies[-1]
    assert (await api.get("/notifications/log", status="given_up"))["items"] == []
    await api.ask("GET", "/notifications/log", 422, params={"status": "lost"})


async def test_a_webhook_into_this_machine_is_refused(api: Flows, hook: Hook) -> None:
    policy = {"targets": {"hook": {"url": hook.url}}, "routes": []}
    answer = await api.client.put("/api/v1/notifications/policy", json=policy)
    if answer.status_code == 200:  # told when it is stored, or when it is used
        assert (await api.post("/notifications/test", {"target": "hook"}))["ok"] is False
    else:
        assert answer.status_code == 422
    assert hook.bodies == []
