"""`station`: a whole station per test, with signals inside Redis and over RabbitMQ in turn."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.engine import Engine, open_engine
from tests.flows.engine_nodes import stage

#: The embedded server's kind for the embedded transport; `cluster` is for tests that ask for it.
SERVERS = {"local": "valkey", "amqp": "redis_7", "cluster-local": "cluster3", "cluster-amqp": "cluster3"}


@pytest.fixture(params=["local", "amqp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def make_station(
    request: pytest.FixtureRequest, transport: str, key_prefix: str, tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[Engine]]]:
    """`await make_station(worker__concurrency=1)`: one with settings of its own."""
    server, transport = request.getfixturevalue(SERVERS[transport]), transport.removeprefix("cluster-")
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    stage.clear()
    async with contextlib.AsyncExitStack() as stack:

        async def make(**overrides: Any) -> Engine:
            return await stack.enter_async_context(
                open_engine(server.url, broker, tmp_path, key_prefix, transport, **overrides)
            )

        yield make


@pytest.fixture
async def station(make_station: Callable[..., Awaitable[Engine]]) -> Engine:
    return await make_station()
