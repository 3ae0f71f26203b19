"""Calls that leave the station: where they may go, what they take along, and how much of an answer is kept."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from tests.nodes.web import Web, serve
from tradewind.errors import Unavailable
from tradewind.history.influx_http import InfluxHttp, SinkAway
from tradewind.http_guard import AddressRefused, BadAnswer, Guard, GuardedTransport, guard_with, read_answer
from tradewind.settings import InfluxSettings
from tradewind.tasks.gate import HttpGate

BOMB = 300_000_000


@pytest.fixture
def web() -> Iterator[Web]:
    with serve() as web:
        yield web


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """300 MB of blanks in 300 KB."""
    packer, parts = zlib.compressobj(9, wbits=31), []
    for _ in range(BOMB // 1_000_000):
        parts.append(packer.compress(b" " * 1_000_000))
    return b"".join((*parts, packer.flush()))


async def fetch(url: str, most: int = 1000, guard: Guard | None = None) -> bytes:
    transport = GuardedTransport(guard or guard_with(["127.0.0.1"]))
    async with httpx.AsyncClient(transport=transport, trust_env=False) as client, client.stream("GET", url) as answer:
        return await read_answer(answer, most)


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
@pytest.mark.parametrize("packing", ["", "gzip", "x-gzip", "deflate"])
async def test_an_answer_within_its_bound_is_whole(web: Web, size: int, packing: str) -> None:
    data = bytes(i % 251 for i in range(size))
    packed = {"": data, "deflate": zlib.compress(data)}.get(packing, gzip.compress(data))
    web.answers["/"] = (200, {"Content-Encoding": packing} if packing else {}, packed)
    assert await fetch(web.address + "/", 1100) == data


@pytest.mark.parametrize("packing", ["", "gzip"])
async def test_an_answer_beyond_its_bound_is_refused(web: Web, packing: str) -> None:
    data = b"x" * 1001
    headers = {"Content-Encoding": packing} if packing else {}
    web.answers["/"] = (200, headers, gzip.compress(data) if packing else data)
    with pytest.raises(BadAnswer, match="larger than 1000"):
        await fetch(web.address + "/")


@pytest.mark.parametrize(
    ("packing", "data", "says"),
    [
        ("br", b"x", "packed as br"),
        ("gzip", b"no gzip", "unpacked"),
        ("gzip", gzip.compress(b"x" * 99, mtime=0)[:-9], "cut"),
    ],
)
async def test_an_answer_that_cannot_be_unpacked_is_refused(web: Web, packing: str, data: bytes, says: str) -> None:
    web.answers["/"] = (200, {"Content-Encoding": packing}, data)
    with pytest.raises(BadAnswer, match=says):
        await fetch(web.address + "/")


async def test_a_packed_bomb_grows_no_further_than_the_bound(web: Web, bomb: bytes) -> None:
    web.answers["/"] = (200, {"Content-Encoding": "gzip"}, bomb)
    tracemalloc.start()
    try:
        with pytest.raises(BadAnswer, match="larger than 1000000"):
            await fetch(web.address + "/", 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


async def test_the_errors_of_a_call_are_those_of_the_client(web: Web) -> None:
    with pytest.raises(httpx.ConnectError):
        await fetch("http://127.0.0.1:1/")
    transport = GuardedTransport(guard_with(["127.0.0.1"]))
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=0.2) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get(web.address + "/hang")
    with pytest.raises(AddressRefused):
        await fetch(web.address + "/", guard=Guard())


async def test_a_client_of_a_station_keeps_to_bounds_and_asks_no_proxy(
    web: Web, bomb: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    web.json("/api/v1/queues", {})
    gate = HttpGate(web.address)
    try:
        await gate.open()
        web.answers["/api/v1/queues"] = (200, {"Content-Encoding": "gzip"}, bomb)
        with pytest.raises(Unavailable, match="larger than"):
            await gate.open()
    finally:
        await gate.close()


async def test_influx_keeps_to_bounds(web: Web, bomb: bytes) -> None:
    sink = InfluxHttp(InfluxSettings(url=web.address))
    sink.open()
    try:
        web.answers["/write?db=tradewind&precision=ms"] = (400, {"Content-Encoding": "gzip"}, bomb)
        with pytest.raises(SinkAway, match="larger than"):
            await sink.write(b"a b=1")
    finally:
        await sink.close()
