"""Definitions of channels in Redis, on every server: versions, conflicts, the notice of a change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests import servers
from tradewind.errors import Conflict, Invalid, NotFound, Unavailable
from tradewind.points.channel_store import (
    BATCH,
    NEW,
    ChannelChange,
    ChannelStore,
    channel_document,
    validate_channel,
    version_of,
)
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.redis.connection import Link, open_link
from tradewind.redis.keys import Keys
from tradewind.settings import RedisSettings


@pytest.fixture
def keys(link: Link, key_prefix: str) -> Keys:
    return Keys(key_prefix, cluster=link.cluster)


@pytest.fixture
def store(link: Link, keys: Keys) -> ChannelStore:
    return ChannelStore(link, keys)


def channel(number: int = 1001, **fields: object) -> ChannelSpec:
    points = (PointSpec(Kind.MEASUREMENT, "1", scale=0.1, mapping={"expression": "t"}), PointSpec(Kind.SIGNAL, "1"))
    return ChannelSpec(id=str(number), points=points, **fields)  # type: ignore[arg-type]


async def test_what_is_put_is_got(store: ChannelStore, link: Link, keys: Keys) -> None:
    assert await store.put([channel(), channel(7)]) == ["1001", "7"]
    assert await store.get("1001") == channel()
    assert await store.get_many(["7", "8"]) == [channel(7), None]
    assert await store.get_many([]) == []
    assert [one.id for one in await store.list()] == ["7", "1001"]
    assert await store.versions() == {"1001": version_of(channel()), "7": version_of(channel(7))}
    stored = await link.client.hget(keys.channels(), "1001")  # type: ignore[misc]
    assert b'"scale":0.1' in stored and b'"offset"' not in stored
    with pytest.raises(NotFound, match="no channel 8"):
        await store.get("8")


async def test_only_a_change_changes(store: ChannelStore) -> None:
    await store.put([channel(1), channel(2)])
    assert await store.put([channel(1), channel(2)]) == []
    assert await store.put([channel(1, name="x"), channel(2)]) == ["1"]
    assert (await store.get("1")).name == "x"


async def test_removal(store: ChannelStore) -> None:
    await store.put([channel(1), channel(2), channel(3)])
    assert await store.remove(["1", "3", "4"]) == ["1", "3"]
    word = await store.word()
    assert await store.remove(["1"]) == []
    assert await store.remove([]) == []
    assert await store.word() == word, "nothing has changed: nobody reads all of it again"
    assert list(await store.versions()) == ["2"]
    assert [one.id for one in await store.list()] == ["2"]


async def test_an_expected_version_guards_against_others(store: ChannelStore) -> None:
    first, second, third = channel(), channel(name="second"), channel(name="third")
    await store.put([first], expected=NEW)
    with pytest.raises(Conflict, match="exists"):
        await store.put([second], expected=NEW)
    await store.put([second], expected=version_of(first))
    with pytest.raises(Conflict, match=version_of(second)):
        await store.put([third], expected=version_of(first))
    await store.put([second], expected=version_of(first))  # a repeat after a lost reply
    with pytest.raises(Conflict):
        await store.remove(["1001"], expected=version_of(first))
    assert await store.remove(["1001"], expected=version_of(second)) == ["1001"]
    with pytest.raises(Conflict, match="does not exist"):
        await store.put([third], expected=version_of(second))
    with pytest.raises(ValueError, match="one channel"):
        await store.put([first, second], expected=NEW)


async def test_many_channels_go_in_batches(store: ChannelStore) -> None:
    count = 2 * BATCH + 3
    assert len(await store.put([channel(n) for n in range(count)])) == count
    assert [int(one.id) for one in await store.list()] == list(range(count))


async def test_a_definition_that_cannot_be_read_hides_no_other(store: ChannelStore, link: Link, keys: Keys) -> None:
    await store.put([channel(1)])
    await link.client.hset(keys.channels(), "2", '{"id": 5}')  # type: ignore[misc]
    assert [one.id for one in await store.list()] == ["1"]
    with pytest.raises(Invalid, match="channel 2 cannot be read"):
        await store.get("2")


async def test_a_document_goes_in_and_comes_out(store: ChannelStore) -> None:
    document = {
        "id": "5",
        "protocol": "virtual",
        "parameters": {"seed": 1},
        "points": [{"kind": "a", "id": "1", "max": 5.0, "mapping": {"initial_value": 2.0}}],
    }
    await store.put([validate_channel(document)])
    assert channel_document(await store.get("5")) == document


@contextlib.asynccontextmanager
async def watching(store: ChannelStore) -> AsyncIterator[AsyncIterator[ChannelChange]]:
    watch = store.watch(every_s=0.01)
    try:
        yield watch
    finally:
        await watch.aclose()  # type: ignore[attr-defined]


async def test_a_watch_tells_what_there_is_and_what_changes(store: ChannelStore) -> None:
    await store.put([channel(1), channel(2)])
    async with asyncio.timeout(20), watching(store) as watch:
        first = await anext(watch)
        assert (sorted(first.changed), first.removed) == (["1", "2"], ())
        await store.put([channel(1), channel(2, name="x"), channel(3)])
        change = await anext(watch)
        assert (sorted(change.changed), change.removed) == (["2", "3"], ())
        await store.remove(["1"])
        assert await anext(watch) == ChannelChange((), ("1",))
        await store.put([channel(3)])  # the same as before
        await store.put([channel(3, name="y")])
        assert await anext(watch) == ChannelChange(("3",), ())


async def test_a_watch_of_nothing_says_so_at_once(store: ChannelStore) -> None:
    async with asyncio.timeout(20), watching(store) as watch:
        assert await anext(watch) == ChannelChange((), ())


async def test_a_watch_outlives_a_restart_of_redis(key_prefix: str) -> None:
    with servers.redis_server(appendonly=True) as server:
        link = await open_link(RedisSettings(url=server.url, max_retries=0))
        store = ChannelStore(link, Keys(key_prefix), retries=0)
        async with asyncio.timeout(60), watching(store) as watch:
            await store.put([channel(1)])
            assert (await anext(watch)).changed == ("1",)
            server.kill()
            with pytest.raises(Unavailable):
                await store.list()
            waiting = asyncio.ensure_future(anext(watch))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting), 0.3)
            server.start()
            await link.wait_ready(20)
            await store.put([channel(2)])
            change = await waiting
            assert "2" in change.changed
        await link.close()
