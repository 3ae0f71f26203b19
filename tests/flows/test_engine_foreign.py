"""Nodes on foreign workers that publish their outputs themselves: nothing that the broker holds is skipped."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from tests import servers
from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage
from tests.process import die_with_parent, wait_for
from tradewind.errors import NotFound

pytestmark = pytest.mark.parametrize("transport", ["amqp"], indirect=True)
PROGRAM = Path(__file__).parent / "foreign_worker.py"
MakeStation = Callable[..., Awaitable[Engine]]


@pytest.fixture
def address(rabbitmq: Any, tmp_path: Path) -> Iterator[str]:
    """Where a foreign worker listens."""
    said = tmp_path / "foreign-worker"
    with open(said, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), rabbitmq.url],
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
    try:
        wait_for(lambda: said.read_text().strip().isdigit(), "the worker's port", 20)
        yield f"http://127.0.0.1:{said.read_text().strip()}"
    finally:
        process.kill()
        process.wait()


async def _join(station: Engine, address: str) -> None:
    """As the Redis protocol says that a worker registers."""
    key = station.keys.worker("robot")
    fields = {
        "id": "robot", "name": "robot", "address": address, "capacity": 100, "current_load": 0,
        "supported_types": json.dumps(["far"]), "last_heartbeat": int(time.time()),
    }  # fmt: skip
    await station.redis.hset(key, mapping=fields)
    await station.redis.pexpire(key, 600_000)
    await station.redis.sadd(station.keys.worker_type("far"), "robot")
    await station.redis.sadd(station.keys.worker_types(), "far")


@pytest.mark.parametrize("prefetch", [1, 20])
async def test_what_a_foreign_worker_published_before_its_success_arrives(
    make_station: MakeStation, address: str, prefetch: int
) -> None:
    """Its queues hold many messages when it answers; each successor still gets its own."""
    station = await make_station(signals__prefetch=prefetch)
    await _join(station, address)
    publish = [[f"from.far.handle.out.to.{name}.handle.x", f"for {name}"] for name in ("b", "c")]
    config = {"fill": 10, "publish": publish}
    flow_id = await station.register(
        {"far": ("far", config), "b": "e_note", "c": "e_note"}, "far.out>b.x", "far.out>c.x"
    )
    for _ in range(3):
        cycles = await asyncio.gather(*(station.run(flow_id) for _ in range(15)))
        ended = await asyncio.gather(*(station.end(flow_id, cycle, 40) for cycle in cycles))
        skipped = [(e.cycle, e.states) for e in ended if set(e.states.values()) != {"completed"}]
        assert not skipped, f"{len(skipped)} of {len(ended)}: {skipped[:3]}"
    assert stage.got(flow_id, "b") == ["for b"] * 45
    assert stage.got(flow_id, "c") == ["for c"] * 45


async def test_a_foreign_worker_that_published_nothing_skips_its_successors_at_once(
    station: Engine, address: str
) -> None:
    await _join(station, address)
    nodes = {"far": "far", "b": "e_note", "c": "e_note", "either": ("e_gather", {}, {"trigger_rule": "all_done"})}
    flow_id = await station.register(nodes, "far.out>b.x", "b.a>c.x", "far.out>either.data")
    began = time.monotonic()
    cycles = [await station.run(flow_id) for _ in range(15)]
    ended = [await station.end(flow_id, cycle) for cycle in cycles]
    took = time.monotonic() - began
    for one in ended:
        assert one.states == {"far": "completed", "b": "skipped", "c": "skipped", "either": "completed"}
        assert one.nodes["b"]["error_message"].startswith("upstream_skipped")
        assert one.status == "completed"
    assert took < 5, took


async def test_a_part_may_be_published_and_a_part_be_answered(station: Engine, address: str) -> None:
    await _join(station, address)
    config = {
        "fill": 10,
        "publish": [["from.far.handle.one.to.b.handle.x", "published"], ["from.far.handle.both.to.d.handle.x", 1]],
        "answer": {"outputs": {"two": "answered", "both": 2}},
    }
    nodes = {"far": ("far", config), "b": "e_note", "c": "e_note", "d": "e_note", "n": "e_note"}
    edges = ("far.one>b.x", "far.two>c.x", "far.both>d.x", "far.none>n.x")
    flow_id = await station.register(nodes, *edges)
    cycles = await asyncio.gather(*(station.run(flow_id) for _ in range(15)))
    for cycle in cycles:
        ended = await station.end(flow_id, cycle)
        assert ended.states == {n: "skipped" if n == "n" else "completed" for n in nodes}
    assert stage.got(flow_id, "b") == ["published"] * 15
    assert stage.got(flow_id, "c") == ["answered"] * 15
    assert stage.got(flow_id, "d") == [1] * 15  # what came first counts


async def test_what_was_published_before_a_failure_counts_too(station: Engine, address: str) -> None:
    await _join(station, address)
    config = {"fill": 10, "publish": [["from.far.handle.out.to.b.handle.x", 5]], "code": 422}
    flow_id = await station.register(
        {"far": ("far", config), "b": "e_note", "c": "e_note"}, "far.out>b.x", "far.no>c.x"
    )
    cycles = await asyncio.gather(*(station.run(flow_id) for _ in range(15)))
    for cycle in cycles:
        ended = await station.end(flow_id, cycle)
        assert ended.states == {"far": "failed", "b": "completed", "c": "skipped"}
        assert ended.status == "failed"


async def test_a_stop_published_before_a_success_comes_before_its_tombstones(station: Engine, address: str) -> None:
    await _join(station, address)
    config = {"fill": 10, "publish": [["STOP", {"reason": "closed", "source_node": "far"}]]}
    nodes = {"far": ("far", config), "b": "e_note", "all": ("e_gather", {}, {"trigger_rule": "all_done"})}
    flow_id = await station.register(nodes, "far.out>b.x", "far.out>all.data")
    cycles = await asyncio.gather(*(station.run(flow_id) for _ in range(15)))
    for cycle in cycles:
        ended = await station.end(flow_id, cycle)
        far = ended.states["far"]  # its own stop may come before its answer
        assert far in ("completed", "terminated")
        assert ended.states == {"far": far, "b": "terminated", "all": "terminated"}
        assert ended.view["stopped_by"] == "far"
    assert stage.got(flow_id, "all") == []


async def test_what_a_lost_consumer_holds_comes_before_a_tombstone(
    station: Engine, address: str, rabbitmq: servers.Server
) -> None:
    """The queue's former consumer has the signal in hand and has not been missed by the broker yet."""
    await _join(station, address)
    config = {"publish": [["from.far.handle.out.to.b.handle.x", "held"]]}
    nodes = {"slow": "e_block", "far": ("far", config), "b": "e_note"}
    flow_id = await station.register(nodes, "slow.a>far.go", "far.out>b.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    former = await aio_pika.connect(rabbitmq.url, timeout=10)
    held: asyncio.Queue[Any] = asyncio.Queue()
    try:
        channel = await former.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.get_queue(f"queue.flow.{flow_id}.cycle.{cycle}.node.b")
        await queue.consume(held.put, arguments={"x-priority": 10})
        await _reconnect(station)
        stage.gate(flow_id).set()
        await asyncio.wait_for(held.get(), 20)
        await station.node_is(flow_id, cycle, "far", "completed")
        seen = await until(lambda: _tombstone_waits(station, flow_id, cycle), "the tombstone")
        assert seen
        assert (await station.states(flow_id, cycle))["b"] == "pending"
    finally:
        await former.close()
    ended = await station.end(flow_id, cycle, 30)
    assert (ended.states["b"], ended.got("b")) == ("completed", "held")


async def _reconnect(station: Engine) -> None:
    """The station's connections to the broker break; its consumers are back when this returns."""
    exchange: Any = station.station.exchange
    old = exchange._link
    await old.close()

    async def is_back() -> bool:
        return exchange._link is not old and not exchange._link.lost.is_set() and exchange._ready.is_set()

    await until(is_back, "the broker")


async def _tombstone_waits(station: Engine, flow_id: str, cycle: int) -> bool:
    """It has been sent and confirmed, and has not arrived."""
    keys = station.keys
    return bool(await station.redis.scard(keys.cycle_sent(flow_id, cycle)))


async def _delete_queue(url: str, name: str) -> None:
    async with await aio_pika.connect(url, timeout=10) as connection:
        await (await connection.channel()).queue_delete(name)


async def test_a_queue_deleted_in_mid_cycle_stands_again(station: Engine, rabbitmq: servers.Server) -> None:
    """Nothing is in it yet: what is sent later finds no queue, or nobody who consumes it."""
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    for at_once in (True, False):
        cycle = await station.run(flow_id)
        queue = f"queue.flow.{flow_id}.cycle.{cycle}.node.d"
        await station.node_is(flow_id, cycle, "slow", "running")
        await until(lambda q=queue: _is_consumed(station, q), "its consumer")  # type: ignore[misc]
        await _delete_queue(rabbitmq.url, queue)
        if not at_once:
            await until(lambda q=queue: _is_consumed(station, q), "the queue and its consumer again")  # type: ignore[misc]
        stage.gate(flow_id).set()
        ended = await station.end(flow_id, cycle)
        assert ended.states == {"slow": "completed", "d": "completed"}
        stage.gate(flow_id).clear()
    await station.no_queues(flow_id, cycle, ["slow", "d"])


async def _is_consumed(station: Engine, queue: str) -> bool:
    try:
        return await station.station.exchange.consumers(queue) > 0
    except NotFound:
        return False


async def test_what_a_deleted_queue_held_is_sent_again(station: Engine, rabbitmq: servers.Server) -> None:
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    name = f"queue.flow.{flow_id}.cycle.{cycle}.node.d"
    held: asyncio.Queue[Any] = asyncio.Queue()
    async with await aio_pika.connect(rabbitmq.url, timeout=10) as thief:
        channel = await thief.channel()
        queue = await channel.get_queue(name)
        await queue.consume(held.put, arguments={"x-priority": 10})
        stage.gate(flow_id).set()
        await asyncio.wait_for(held.get(), 20)
        await until(lambda: _tombstone_waits(station, flow_id, cycle), "its confirmation")
        await _delete_queue(rabbitmq.url, name)
        ended = await station.end(flow_id, cycle)
    assert ended.states == {"slow": "completed", "d": "completed"}
    assert stage.ran(flow_id) == ["slow", "d"]

    async def told() -> bool:
        assert station.flows.records is not None
        logs = (await station.flows.records.logs(flow_id, cycle=cycle)).items
        return any("declared again, 1 signals are sent again" in entry.message for entry in logs)

    await until(told, "the log")


async def test_an_exchange_deleted_in_mid_cycle_is_bound_again(station: Engine, rabbitmq: servers.Server) -> None:
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    async with await aio_pika.connect(rabbitmq.url, timeout=10) as connection:
        await (await connection.channel()).exchange_delete("signals_exchange")
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.states == {"slow": "completed", "d": "completed"}
