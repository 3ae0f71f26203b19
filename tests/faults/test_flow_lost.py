"""Several parts of a station lost at once, at the moments that hurt most: before a cycle is let go, before a signal is
sent, while a flow is being deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests import servers
from tests.faults.flow_probe import Places, flow_site, open_runs
from tests.faults.station_process import Site

TRANSPORTS = ["local", "amqp"]


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_cycle_outlives_its_leader_and_all_its_workers(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    places = Places()
    with servers.redis_server(appendonly=True) as redis:
        async with flow_site(make_site, redis.url, broker, schedulers="ab") as (there, roles):
            flow_id = await there.register(places.nodes, *places.edges)
            roles[await there.leader()].kill()
            held = await there.run(flow_id)  # nobody leads: over the broker it has no queues yet
            ended = await there.end(flow_id, held)
            assert (ended.status, ended.outputs["tail"]["out"]) == ("completed", places.result)
            assert all(len(found) == 1 for found in ended.begins().values())

            cycle = await there.run(flow_id)
            await there.in_ledger(lambda e: any(x.id == f"{flow_id}_{cycle}_f2" for x in e), "the fan")
            for name in ("w1", "w2"):
                roles[name].kill()
            roles[await there.leader()].kill()
            done, at = await there.done(flow_id, cycle), time.monotonic()
            cut = open_runs(there.site.ledger(), f"{flow_id}_{cycle}_").keys()
            for role in ("scheduler", "worker", "worker"):
                there.site.start(role)
            ended = await there.end(flow_id, cycle, 30)
            assert (ended.status, ended.outputs["tail"]["out"]) == ("completed", places.result)
            for name, found in ended.begins().items():
                assert name not in done or found[-1].at < at, f"{name} had ended and ran again"
            assert cut
            await there.no_queues(flow_id, cycle, list(places.nodes))


@pytest.mark.slow
async def test_signals_that_a_dead_worker_could_not_send_are_sent(
    make_site: Callable[..., Site], rabbitmq: servers.Server
) -> None:
    with servers.redis_server(appendonly=True) as redis:
        async with flow_site(make_site, redis.url, rabbitmq.url) as (there, roles):
            nodes: dict[str, Any] = {f"s{i}": ("f_step", {"ms": 1500}) for i in range(12)} | {"join": "f_join"}
            flow_id = await there.register(nodes, *(f"s{i}.out>join.all" for i in range(12)))
            cycle = await there.run(flow_id)
            await there.in_ledger(lambda e: len(open_runs(e, flow_id)) == 12, "the start of all")
            rabbitmq.kill()

            async def are_done() -> bool:
                return len(await there.done(flow_id, cycle)) == 12

            await there.until(are_done, "the end of the sources", 15)
            unsent = await there.redis.hlen(there.keys.cycle_unsent(flow_id, cycle))
            for name in ("w1", "w2"):
                roles[name].kill()
            assert unsent == 12, "the signals have left although there is no broker"
            heir = there.site.start("worker", worker_id="w3")  # it opens no exchange before there is a broker
            rabbitmq.start()  # from this thread: it dies with the one that started it
            heir.says("worker registered")
            ended = await there.end(flow_id, cycle, 30)
            assert (ended.status, ended.outputs["join"]["out"]) == ("completed", 12)
            assert all(len(found) == 1 for found in ended.begins().values())
            assert not await there.redis.zcard(there.keys.flows_unsent())
            await there.no_queues(flow_id, cycle, list(nodes))


@pytest.mark.slow
async def test_a_worker_that_takes_over_while_the_broker_is_away_consumes_when_it_is_back(
    make_site: Callable[..., Site], rabbitmq: servers.Server
) -> None:
    with servers.redis_server(appendonly=True) as redis:
        async with flow_site(make_site, redis.url, rabbitmq.url) as (there, roles):
            nodes: dict[str, Any] = {f"s{i}": ("f_step", {"ms": 1500}) for i in range(6)} | {"join": "f_join"}
            flow_id = await there.register(nodes, *(f"s{i}.out>join.all" for i in range(6)))
            cycle = await there.run(flow_id)
            await there.in_ledger(lambda e: len(open_runs(e, flow_id)) == 6, "the start of all")
            host = (await there.redis.hget(there.keys.flows_hosts(), f"{flow_id}:{cycle}")).decode()
            heir = roles["w2" if host == "w1" else "w1"]
            rabbitmq.kill()
            roles[host].kill()
            await asyncio.to_thread(heir.says, "signals cannot be consumed now", 30)
            rabbitmq.start()
            ended = await there.end(flow_id, cycle, 25)
            assert (ended.status, ended.outputs["join"]["out"]) == ("completed", 6)
            assert all(begin.pid == roles[host].pid for found in ended.begins().values() for begin in found[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_stopping_and_deleting_do_not_wait_for_dead_workers(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    nodes: dict[str, Any] = {"a": ("f_step", {"ms": 60_000}), "b": "f_next"}
    with servers.redis_server() as redis:
        async with flow_site(make_site, redis.url, broker) as (there, roles):
            doomed = await there.register(nodes, "a.out>b.x")
            halted = await there.register(nodes, "a.out>b.x")
            late = await there.register(nodes, "a.out>b.x", cycle_timeout=3)
            for flow_id in (doomed, halted, late):
                assert await there.run(flow_id) == 0
            await there.in_ledger(lambda e: len(e) == 3, "their start")
            for name in ("w1", "w2"):
                roles[name].kill()
            since = time.monotonic()
            await there.flows.stop(halted)
            await there.flows.delete(doomed, 15)
            assert not [key for key in await there.keys_of(doomed) if not key.startswith("task:")]
            ended = await there.end(halted, 0, 15)
            assert (ended.status, ended.states) == ("stopped", {"a": "terminated", "b": "terminated"})
            ended = await there.end(late, 0, 15)
            assert (ended.status, ended.states) == ("timeout", {"a": "terminated", "b": "terminated"})
            assert time.monotonic() - since < 15


async def test_a_worker_leaves_without_a_node_that_hears_of_no_stop(make_site: Callable[..., Site]) -> None:
    """Nobody can interrupt a thread; its process must not wait for it."""
    with servers.redis_server() as redis:
        async with flow_site(make_site, redis.url, worker_grace_s=1) as (there, roles):
            flow_id = await there.register({"a": ("f_deaf", {})})
            assert await there.run(flow_id) == 0
            await there.in_ledger(lambda entries: len(entries) == 1, "its start")
            busy = next(role for role in roles.values() if role.pid == there.site.ledger()[0].pid)
            busy.terminate()
            assert busy.wait(20) == 0
