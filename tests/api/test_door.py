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


async def test_a_station_on_all_addresses_serves_any_host(redis_7: Any, key_prefix: str, tmp_path: Path) -> None:
    async with (
        small_station(redis_7.url, key_prefix, tmp_path, host="0.0.0.0", insecure=True) as station,
        ask(create_app(station)) as client,
    ):
        assert (await client.get("/health", headers={"Host": "station.example"})).status_code == 200


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
