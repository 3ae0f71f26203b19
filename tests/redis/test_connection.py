from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot
from redis.exceptions import MovedError, ResponseError

from tests.servers import Cluster, Server, free_port, redis_cluster, redis_server
from tradewind.errors import Invalid, Overloaded, Unavailable
from tradewind.redis.connection import RETRYABLE, Link, open_link, server_facts, translated
from tradewind.settings import RedisSettings

Open = Callable[..., Awaitable[Link]]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens links by URL and settings, closes them at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(url: str, **settings: object) -> Link:
            link = await open_link(RedisSettings.model_validate({"url": url, **settings}))
            stack.push_async_callback(link.close)
            return link

        yield open_one


async def test_all_clients_reach_the_same_keys_and_speak_bytes(link: Link, key_prefix: str) -> None:
    await link.wait_ready(5)
    key = f"{{tw}}:{key_prefix}a"
    await link.client.set(key, "1")
    assert await link.client.get(key) == b"1"
    other = link.new_client()
    assert await other.get(key) == b"1"
    await other.aclose()
    with link.new_blocking_client() as blocking:
        assert blocking.get(key) == b"1"
    assert await link.client.eval("return {1, 'a', {}}", 1, key) == [1, b"a", []]


async def test_a_link_without_address_or_folder_is_refused() -> None:
    with pytest.raises(Invalid, match="no Redis"):
        await open_link(RedisSettings())


async def test_waiting_for_a_server_that_is_away_ends_with_its_address(opened: Open) -> None:
    port = free_port()
    link = await opened(f"redis://me:s3cr3t@127.0.0.1:{port}")
    start = time.monotonic()
    with pytest.raises(Unavailable) as error:
        await link.wait_ready(0.5)
    assert time.monotonic() - start < 2
    assert f"127.0.0.1:{port}" in error.value.message and "s3cr3t" not in error.value.message
    assert error.value.hint


async def test_waiting_for_a_server_that_comes_back_succeeds(opened: Open) -> None:
    with redis_server() as server:
        link = await opened(server.url)
        await link.wait_ready(5)
        server.kill()
        with pytest.raises(RETRYABLE):
            await link.client.ping()
        waiting = asyncio.create_task(link.wait_ready(20))
        await asyncio.sleep(0)
        server.start()
        await waiting
        assert await link.client.ping()


async def test_a_wrong_password_is_said_at_once(opened: Open) -> None:
    with redis_server(extra=("--requirepass", "right")) as server:
        for url in (server.url, server.url.replace("//", "//:wrong@")):
            link = await opened(url)
            with pytest.raises(Unavailable) as error:
                await link.wait_ready(30)
            assert error.value.code == "redis_auth"
        link = await opened(server.url, password="right")
        await link.wait_ready(5)


async def test_a_paused_server_times_out_and_the_command_is_sent_only_once(opened: Open) -> None:
    with redis_server() as server:
        link = await opened(server.url, read_timeout_s=0.3, write_timeout_s=0.3)
        await link.client.set("n", 0)
        server.pause()
        start = time.monotonic()
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1"), translated(link):
            await link.client.incr("n")
        assert time.monotonic() - start < 2
        server.resume()
        await link.wait_ready(5)
        assert await link.client.get("n") == b"1"


async def test_blocking_commands_outlast_the_read_timeout(opened: Open, redis_7: Server, key_prefix: str) -> None:
    link = await opened(redis_7.url, read_timeout_s=0.2, write_timeout_s=0.2)
    client = link.new_client()
    assert await client.blpop(key_prefix, timeout=0.6) is None
    await client.aclose()


async def test_more_callers_than_connections_wait_their_turn(opened: Open) -> None:
    with redis_server() as server:
        link = await opened(server.url, pool_size=4, min_idle=4)
        await link.wait_ready(5)
        assert all(await asyncio.gather(*(link.client.ping() for _ in range(300))))
        assert (await link.client.info("clients"))["connected_clients"] <= 4


async def test_a_caller_that_waits_too_long_for_a_connection_is_told_so(opened: Open, redis_7: Server) -> None:
    link = await opened(redis_7.url, pool_size=1, dial_timeout_s=0.1, read_timeout_s=0.1)
    held = await link.client.connection_pool.get_connection()
    with pytest.raises(Overloaded) as error, translated(link):
        await link.client.ping()
    assert error.value.code == "redis_pool"
    await link.client.connection_pool.release(held)
    assert await link.client.ping()


async def test_a_cancelled_waiter_passes_its_turn_on(opened: Open, redis_7: Server) -> None:
    link = await opened(redis_7.url, pool_size=1)
    pool = link.client.connection_pool
    for _ in range(20):
        held = await pool.get_connection()
        waiters = [asyncio.create_task(link.client.ping()) for _ in range(3)]
        await asyncio.sleep(0)
        release = asyncio.create_task(pool.release(held))
        waiters[0].cancel()
        await release
        assert await asyncio.wait_for(asyncio.gather(*waiters[1:]), 2) == [True, True]
        await asyncio.gather(waiters[0], return_exceptions=True)


async def test_a_full_server_is_overloaded(opened: Open) -> None:
    with redis_server(extra=("--maxmemory", "1mb")) as server:
        link = await opened(server.url)
        with pytest.raises(Overloaded), translated(link):
            for number in range(1000):
                await link.client.set(str(number), b"x" * 10_000)
        with pytest.raises(Overloaded), translated(link):
            for number in range(1000):
                pipe = link.client.pipeline(transaction=False)
                pipe.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, f"s{number}", b"x" * 10_000)
                await pipe.execute()


async def test_a_replica_that_takes_no_writes_is_unavailable(opened: Open, redis_7: Server) -> None:
    with redis_server(extra=("--replicaof", f"127.0.0.1 {redis_7.port}")) as server:
        link = await opened(server.url)
        with pytest.raises(Unavailable), translated(link):
            await link.client.set("a", 1)


async def test_a_reader_that_a_fail_over_unblocks_is_told_that_the_server_is_in_trouble(
    opened: Open, redis_7: Server, key_prefix: str
) -> None:
    link = await opened(redis_7.url)
    reader = link.new_client(20)
    try:
        number = await reader.client_id()
        reading = asyncio.create_task(reader.xread({key_prefix: "$"}, block=20_000))
        async with asyncio.timeout(10):
            while not await link.client.execute_command("CLIENT", "UNBLOCK", number, "ERROR"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(Unavailable, match="UNBLOCKED"), translated(link):
            await reading
    finally:
        await reader.aclose()


async def test_the_fault_of_a_command_is_not_translated(opened: Open, redis_7: Server, key_prefix: str) -> None:
    link = await opened(redis_7.url)
    await link.client.set(key_prefix, "a")
    with pytest.raises(ResponseError, match="not an integer"), translated(link):
        await link.client.incr(key_prefix)


async def test_facts_tell_server_and_version(opened: Open, redis_7: Server, valkey: Server) -> None:
    facts = await server_facts((await opened(redis_7.url)).client)
    assert facts.name == "redis" and facts.version.startswith("7.")
    assert facts.maxmemory_policy == "noeviction"
    assert not facts.appendonly and "appendonly" in facts.warnings[0]
    facts = await server_facts((await opened(valkey.url)).client)
    assert facts.name == "valkey" and int(facts.version.split(".")[0]) >= 8


async def test_a_policy_that_evicts_is_reported(opened: Open) -> None:
    with redis_server(appendonly=True, extra=("--maxmemory-policy", "allkeys-lru")) as server:
        facts = await server_facts((await opened(server.url)).client)
        assert facts.appendonly
        assert len(facts.warnings) == 1 and "allkeys-lru" in facts.warnings[0]
    with redis_server(appendonly=True, extra=("--maxmemory-policy", "volatile-lru")) as server:
        assert (await server_facts((await opened(server.url)).client)).warnings == ()


async def test_a_server_older_than_7_is_refused(opened: Open) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            writer.write(b"$22\r\nredis_version:6.2.14\r\n\r\n")

    async with await asyncio.start_server(answer, "127.0.0.1", free_port()) as old:
        link = await opened(f"redis://127.0.0.1:{old.sockets[0].getsockname()[1]}")
        with pytest.raises(Invalid) as error:
            await server_facts(link.client)
        await link.client.connection_pool.disconnect()
    assert error.value.code == "redis_too_old" and "6.2.14" in error.value.message


def give_slot(cluster: Cluster, tag: str, to: Server) -> None:
    with redis.Redis(port=to.port) as client:
        name = client.execute_command("CLUSTER MYID")
    for node in sorted(cluster.nodes, key=lambda node: node is not to):
        with redis.Redis(port=node.port) as client:
            client.execute_command("CLUSTER SETSLOT", key_slot(tag.encode()), "NODE", name)


@pytest.fixture(scope="module")
def own_cluster() -> object:
    with redis_cluster(3) as cluster:
        yield cluster


async def test_the_link_follows_a_slot_that_moves(opened: Open, own_cluster: Cluster) -> None:
    link = await opened(own_cluster.url)
    assert link.cluster
    client, pubsub = link.client, link.new_client()
    with link.new_blocking_client() as blocking:
        await client.set("{tw}", 1)
        await client.delete("{tw}")
        assert blocking.get("{tw}") is None and await pubsub.get("{tw}") is None
        before = own_cluster.node_of("tw")
        give_slot(own_cluster, "tw", next(node for node in own_cluster.nodes if node is not before))
        with pytest.raises(MovedError):
            await client.set("{tw}", 2)
        await link.refresh()
        await client.set("{tw}", 2)
        assert client is link.client
        assert await pubsub.get("{tw}") == b"2"
        with pytest.raises(redis.ConnectionError, match="moved"):
            blocking.get("{tw}")
        assert blocking.get("{tw}") == b"2"
        await client.delete("{tw}")
    await pubsub.aclose()


async def test_the_link_survives_a_restart_of_the_owner(opened: Open, own_cluster: Cluster) -> None:
    link = await opened(own_cluster.url)
    await link.wait_ready(5)
    owner = own_cluster.node_of("tw")
    with link.new_blocking_client() as blocking:
        assert blocking.ping()
        owner.kill()
        with pytest.raises(RETRYABLE):
            await link.client.get("{tw}")
        with pytest.raises(RETRYABLE):
            blocking.get("{tw}")
        owner.start()
        own_cluster.wait_ok()
        await link.wait_ready(10)
        assert await link.client.get("{tw}") is None
        assert blocking.get("{tw}") is None


async def test_a_cluster_of_which_only_a_dead_seed_is_known_is_unavailable(opened: Open) -> None:
    link = await opened(f"redis+cluster://127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match=r"redis\+cluster://"):
        await link.wait_ready(0.3)


async def test_connections_at_hand_serve_whoever_needs_one(opened: Open, redis_7: Server) -> None:
    link = await opened(redis_7.url, pool_size=4)
    pool: Any = link.client.connection_pool
    held = [await pool.borrow() for _ in range(4)]
    for connection in held:
        await pool.give_back(connection)
    again = await asyncio.wait_for(asyncio.gather(*(link.client.ping() for _ in range(8))), 5)
    assert all(again)
    first = await pool.borrow()
    await pool.give_back(first)
    assert await pool.borrow() is first
    await first.disconnect()
    await pool.give_back(first)
    fresh = await pool.borrow()
    assert fresh.is_quiet()
    await pool.release(fresh)
