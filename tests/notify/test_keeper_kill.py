"""kill -9 of the keeper at any moment: no message is lost, and what comes twice comes as the same delivery."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from tests import servers
from tests.nodes.web import Web
from tests.notify.notify_room import NotifyRoom, until
from tests.soak import repeats
from tradewind.clock import Clock
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings

FEW = 30


@contextmanager
def keeper_process(url: str, prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "tests.notify.keeper_process", url, prefix]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, preexec_fn=servers.die_with_parent)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def room(redis_7: servers.Server, key_prefix: str) -> AsyncIterator[NotifyRoom]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield NotifyRoom(link, key_prefix, Clock())
    await link.close()


async def test_killed_between_plan_and_delivery_nothing_is_lost(
    room: NotifyRoom, redis_7: servers.Server, key_prefix: str, web: Web
) -> None:
    await room.store.put({"targets": {"ops": {"url": web.address + "/hang"}}, "routes": [{"targets": ["ops"]}]})
    with keeper_process(redis_7.url, key_prefix):
        await room.event("raised")
        await until(lambda: len(web.asked) == 1)  # it is planned, under way, and not answered
        await room.event("raised", "alarm_2")
        await room.planned()
    assert len(await room.store.pending()) == 2
    with keeper_process(redis_7.url, key_prefix):
        await until(lambda: len(web.asked) == 2)
        web.let_go.set()
    first, second = (json.loads(body) for _, _, _, body in web.asked[:2])
    assert first == second
    assert web.asked[0][2]["idempotency-key"] == web.asked[1][2]["idempotency-key"] == first["id"]


async def test_killed_again_and_again_every_message_arrives_and_repeats_have_the_same_key(
    room: NotifyRoom, redis_7: servers.Server, key_prefix: str, web: Web
) -> None:
    web.text("/ops", "")
    web.text("/dev", "")
    targets = {name: {"url": f"{web.address}/{name}", "group_wait_s": 0.03} for name in ("ops", "dev")}
    await room.store.put({"targets": targets, "routes": [{"targets": ["ops", "dev"]}]})
    chance = random.Random(5)

    is_enough, told = asyncio.Event(), itertools.count()

    async def tell() -> int:
        """As long as keepers are killed; how many. Few at a time: a delivery lists a hundred, and counts the rest."""
        while not is_enough.is_set():
            if await room.redis.xlen(room.keys.notify_outbox()) < FEW:
                await room.event("raised", f"alarm_{next(told)}")
            await asyncio.sleep(0.02)
        return next(told)

    telling = asyncio.create_task(tell())
    for _ in range(repeats(3)):
        seen = len(web.asked)
        with keeper_process(redis_7.url, key_prefix):
            await until(lambda seen=seen: len(web.asked) > seen + 4)  # type: ignore[misc]
            await asyncio.sleep(chance.random() * 0.3)
    is_enough.set()
    messages = await telling
    with keeper_process(redis_7.url, key_prefix):
        await room.quiet()
    for path in ("/ops", "/dev"):
        bodies: dict[str, set[bytes]] = defaultdict(set)
        carriers: dict[str, set[str]] = defaultdict(set)
        for _, asked, headers, body in web.asked:
            if asked == path:
                key = headers["idempotency-key"]
                bodies[key].add(body)
                for message in json.loads(body)["messages"]:
                    carriers[message["key"]].add(key)
        assert set(carriers) == {f"alarm_{n}:1" for n in range(messages)}, "all of them"
        assert {len(keys) for keys in carriers.values()} == {1}, "each in one delivery"
        assert {len(found) for found in bodies.values()} == {1}, "a repeat is the same to the byte"
