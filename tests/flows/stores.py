"""Every state store in turn, each with a fake clock and a place of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from tradewind.clock import FakeClock
from tradewind.flows.memory_state_store import InMemoryStateStore
from tradewind.flows.redis_state_store import RedisStateStore
from tradewind.flows.state_store import StateStore
from tradewind.redis.connection import open_link
from tradewind.redis.keys import Keys
from tradewind.settings import RedisSettings

KINDS = ["memory", "redis_7", "valkey", "cluster3"]


@contextlib.asynccontextmanager
async def open_store(request: pytest.FixtureRequest, prefix: str, clock: FakeClock) -> AsyncIterator[StateStore]:
    if request.param == "memory":
        yield InMemoryStateStore(clock)
        return
    link = await open_link(RedisSettings(url=request.getfixturevalue(request.param).url))
    try:
        store = RedisStateStore(link, Keys(prefix, cluster=link.cluster), clock)
        await store.initialize()
        yield store
        await store.close()
    finally:
        await link.close()
