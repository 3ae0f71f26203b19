from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.api.conftest import SmallStation, ask, small_station
from tradewind.api import create_app
from tradewind.api.door import is_loopback
from tradewind.web import PAGE_CSP


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8400", "[::1]", "[::1]:8400"])
async def test_loopback_names_are_served(client: AsyncClient, host: str) -> None:
    assert (await client.get("/health", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8400", "localhost.evil.example", "127.0.0.1.nip.io", "", "localhost:", "a b"]
)
async def test_another_host_is_421_also_for_the_page_and_the_stream(client: AsyncClient, host: str) -> None:
    for path in ("/", "/api/v1/tasks", "/api/v1/events", "/metrics", "/static/app.js"):
        answer = await client.get(path, headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
async def test_a_station_on_any_address_serves_only_its_names(
    redis_7: Any, key_prefix: str, tmp_path: Path, host: str
) -> None:
    names = ["Station.example.com", "[2001:db8::1]"]
    async with (
        small_station(redis_7.url, key_prefix, tmp_path, host=host, insecure=True, allowed_hosts=names) as station,
        ask(create_app(station)) as client,
    ):
        for name in ("station.example.com:8400", "STATION.example.com", "[2001:DB8::1]:8400", "127.0.0.1", "localhost"):
            assert (await client.get("/health", headers={"Host": name})).status_code == 200, name
        assert (await client.get("/health", headers={"Host": "192.0.2.7"})).status_code == (
            200 if host[0] == "1" else 421
        )
        for name in ("evil.example", "0.0.0.0", "[::]", "x.station.example.com", "station.example.com.evil.example"):
            for path in ("/", "/api/v1/events", "/api/v1/points/live", "/health"):
                answer = await client.get(path, headers={"Host": name})
                assert (answer.status_code, answer.json()["error"]["code"]) == (421, "wrong_host"), name
        # The page of another site that has made its name lead here: its origin agrees with its host.
        headers = {"Host": "evil.example:8400", "Origin": "http://evil.example:8400", "Sec-Fetch-Site": "same-origin"}
        assert (await client.post("/api/v1/queues/high/pause", headers=headers)).status_code == 421
        assert not any(queue.is_paused for queue in await station.control.queues())


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"evil.example")],
        [(b"host", b"127.0.0.1:8400"), (b"origin", b"https://evil.example")],
        [(b"host", b"127.0.0.1:8400"), (b"sec-fetch-site", b"cross-site")],
    ],
)
async def test_a_websocket_of_another_site_or_host_is_closed(
    station: SmallStation, headers: list[tuple[bytes, bytes]]
) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await create_app(station)({"type": "websocket", "path": "/", "headers": headers}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LocalHost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com", "")))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8400"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(
    client: AsyncClient, station: SmallStation, headers: dict[str, str]
) -> None:
    answer = await client.post("/api/v1/queues/high/pause", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")
    assert not any(queue.is_paused for queue in await station.control.queues())


async def test_the_own_page_and_programs_may_write(client: AsyncClient) -> None:
    for headers in ({}, {"Origin": "http://127.0.0.1:8400"}, {"Sec-Fetch-Site": "same-origin"}):
        assert (await client.post("/api/v1/queues/high/resume", headers=headers)).status_code == 200


async def test_the_request_id_comes_back_or_is_made(client: AsyncClient) -> None:
    given = await client.get("/health", headers={"X-Request-ID": "abc-1.2:3"})
    assert given.headers["x-request-id"] == "abc-1.2:3"
    for bad in ("a b", "x" * 129, "é"):
        answer = await client.get("/nothing", headers=[(b"X-Request-ID", bad.encode())])
        assert answer.headers["x-request-id"] not in (bad, "")


async def test_the_page_is_served_under_a_strict_policy(client: AsyncClient) -> None:
    page = await client.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    script = await client.get("/static/app.js")
    assert script.headers["content-type"].startswith("text/javascript")
    for answer in (page, script):
        assert answer.headers["content-security-policy"] == PAGE_CSP
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
    assert (await client.get("/static/app.js", headers={"If-None-Match": script.headers["etag"]})).status_code == 304


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/__init__.py", "/static/..%2f__init__.py", "/static/"]
)
async def test_nothing_outside_the_folder_is_served(client: AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_data_is_not_kept_by_caches(client: AsyncClient) -> None:
    answer = await client.get("/api/v1/queues")
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
