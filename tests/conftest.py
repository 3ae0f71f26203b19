"""Shared servers, one of each per test process, started when first asked for; each test has its own key prefix."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpcore2
import pytest
import redis
import typer

from tests import servers
from tests.process import code_path
from tradewind.collector import tune
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings

os.environ["PYTHONPATH"] = code_path()  # children run the code under test
_nodes: list[servers.Server] = []


@contextlib.contextmanager
def _shared(*nodes: servers.Server) -> Iterator[None]:
    _nodes.extend(nodes)
    yield
    for node in nodes:
        _nodes.remove(node)


@pytest.fixture(scope="module", autouse=True)
def _shared_servers_begin_empty() -> None:
    """Keys that tests of other modules left would make every look at all keys slow."""
    for node in _nodes:
        with redis.Redis(port=node.port) as client:
            client.flushall()


@pytest.fixture(scope="session")
def redis_7() -> Iterator[servers.Server]:
    with servers.redis_server() as server, _shared(server):
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[servers.Server]:
    with servers.valkey_server() as server, _shared(server):
        yield server


@pytest.fixture(scope="session")
def cluster3() -> Iterator[servers.Cluster]:
    with servers.redis_cluster(3) as cluster, _shared(*cluster.nodes):
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[servers.Server]:
    with servers.postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def _broker() -> Iterator[servers.Server]:
    with servers.rabbitmq_server() as server:
        yield server


@pytest.fixture
def rabbitmq(_broker: servers.Server) -> servers.Server:
    """Takes some seconds and about 150 MB: tests share it and use names of their own, see tests/signals.

    A test may kill or pause it and must leave it running, with `signals_exchange` as it was.
    """
    if not _broker.is_running:  # the test that killed it has failed
        _broker.kill()
        _broker.start()
    return _broker


@pytest.fixture(scope="session", params=["redis_7", "valkey", "cluster3"])
def any_redis(request: pytest.FixtureRequest) -> Any:
    """Redis 7.0, Valkey and a cluster in turn; tests that kill or pause a server start one of their own."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def key_prefix() -> str:
    return f"t{secrets.token_hex(5)}:"


@pytest.fixture
async def link(any_redis: servers.Server | servers.Cluster) -> AsyncIterator[Link]:
    link = await open_link(RedisSettings(url=any_redis.url))
    yield link
    await link.close()


@pytest.fixture(autouse=True)
def _logs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is run inside this process must not send the logs of later tests to its own, closed, stream."""
    monkeypatch.setattr("tradewind.logs.configure_logging", lambda settings: None)


@pytest.fixture(scope="session", autouse=True)
def _slow_starts_happen_once() -> Iterator[None]:
    """Each call of the command line builds all its commands anew, each HTTP client reads all certificates anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", functools.cache(typer.main.get_command))
        patch.setattr("httpcore2.default_ssl_context", functools.cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="module")
def tuned() -> Iterator[None]:
    """The collector as it is in a station."""
    before = gc.get_threshold()
    tune()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
