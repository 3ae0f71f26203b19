"""Packed connections: the same bytes as redis-py's own, a bounded send, and no stale connection handed out."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.connection import Connection

from tests import servers
from tradewind.redis.connection import Link, open_link
from tradewind.redis.packing import pack
from tradewind.settings import RedisSettings

_args = st.lists(
    st.text(st.characters(blacklist_categories=("Cs",)))
    | st.binary()
    | st.integers()
    | st.floats(allow_nan=True, allow_infinity=True),
    max_size=8,
)


def theirs(*args: Any) -> bytes:
    return b"".join(Connection().pack_command(*args))


@pytest.mark.parametrize(
    "args",
    [
        ("PING",),
        ("GET", "a"),
        ("SET", "a", b"\x00\xff\r\n"),
        ("SET", "ключ", "значение \U0001f600"),
        ("SET", "", ""),
        ("HSET", "k", "f", 0, "g", -1, "h", 2**70),
        ("ZADD", "k", 1.5, "m", 1e20, "n", -0.0, "o", 0.1 + 0.2, "p"),
        ("CONFIG GET", "maxmemory"),
        ("CLIENT NO-EVICT", "ON"),
        ("EVALSHA", "a" * 40, 2, "k1", "k2", "x" * 100_000),
        ("MGET", *[f"key:{n}" for n in range(1000)]),
    ],
)
def test_commands_look_as_redis_py_packs_them(args: tuple[Any, ...]) -> None:
    assert pack(args) == theirs(*args)


@given(args=_args)
def test_any_arguments_look_as_redis_py_packs_them(args: list[Any]) -> None:
    assert pack(("CMD", *args)) == theirs("CMD", *args)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, object()])
def test_what_is_no_argument_is_refused(value: Any) -> None:
    with pytest.raises((redis.DataError, TypeError)):
        pack(("SET", "a", value))


async def test_every_way_to_send_works_on_every_server(link: Link, key_prefix: str) -> None:
    key = f"{{tw}}:{key_prefix}a"
    client = link.client
    assert await client.set(key, b"\x00 \xff")
    assert await client.get(key) == b"\x00 \xff"
    async with client.pipeline(transaction=True) as pipe:
        pipe.set(key, 5).incr(key).get(key)
        assert await pipe.execute() == [True, 6, b"6"]
    async with client.pipeline(transaction=False) as pipe:
        for _ in range(500):
            pipe.incr(key)
        assert (await pipe.execute())[-1] == 506
    assert await client.config_get("maxmemory") == {"maxmemory": "0"}


async def test_a_server_that_does_not_read_ends_the_send_in_time() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]

    listener = await asyncio.start_server(deaf, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    link = await open_link(RedisSettings(url=f"redis://127.0.0.1:{port}", read_timeout_s=0.3, write_timeout_s=0.3))
    connection = await link.client.connection_pool.get_connection()
    began = time.monotonic()
    with pytest.raises(redis.TimeoutError, match="writing"):
        await connection.send_packed_command([pack(("SET", "a", "x" * 60_000_000))])
    assert 0.2 < time.monotonic() - began < 5
    assert not connection.is_connected
    await link.client.connection_pool.release(connection)
    await link.close()
    listener.close()


async def test_connections_that_a_restart_cut_are_replaced_without_an_error() -> None:
    with servers.redis_server(appendonly=True) as server:
        link = await open_link(RedisSettings(url=server.url, min_idle=5))
        await link.wait_ready(5)
        await link.client.set("a", "1")
        pool: Any = link.client.connection_pool
        pooled = list(pool._available_connections)
        assert len(pooled) >= 5 and all(connection.is_quiet() for connection in pooled)
        server.stop()
        server.start()
        async with asyncio.timeout(10):
            while any(connection.is_quiet() for connection in pooled):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await asyncio.gather(*(link.client.get("a") for _ in range(10))) == [b"1"] * 10
        await link.close()


async def test_a_connection_with_an_unread_reply_is_not_handed_out(redis_7: servers.Server) -> None:
    link = await open_link(RedisSettings(url=redis_7.url))
    pool = link.client.connection_pool
    connection = await pool.get_connection()
    await connection.send_packed_command([pack(("ECHO", "stray"))])
    async with asyncio.timeout(5):
        while connection.is_quiet():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await pool.release(connection)
    assert await link.client.execute_command("ECHO", "mine") == b"mine"
    await link.close()
