"""Ends that must come at once or not hang: failures upstream, more waiting nodes than slots, deletion while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests import servers
from tests.faults.flow_probe import FlowProbe, flow_site
from tests.faults.station_process import Site

TRANSPORTS = ["local", "amqp"]
SKIP_MS = 100  # promised: descendants of a failed node have ended so long after it


async def _finished_ms(there: FlowProbe, flow_id: str, cycle: int) -> dict[str, int]:
    raw = await there.redis.hgetall(there.keys.cycle_done(flow_id, cycle))
    return {name.decode(): int(line.split(b" ")[2]) for name, line in raw.items()}


async def _all_skipped_at_once(there: FlowProbe) -> None:
    nodes: dict[str, Any] = {f"n{i}": {0: "f_step", 3: "f_fail"}.get(i, "f_next") for i in range(200)}
    nodes |= {"other": ("f_step", {"ms": 500}), "last": "f_next"}
    # Both wait for more than the failed one: for a slow node, and for somebody outside.
    nodes |= {"slow": ("f_step", {"ms": 500}), "both": "f_two", "asks": ("f_two", {}, {"external": ["y"]})}
    edges = [f"n{i}.out>n{i + 1}.x" for i in range(199)] + ["other.out>last.x"]
    edges += ["n3.out>both.x", "slow.out>both.y", "n3.out>asks.x"]
    flow_id = await there.register(nodes, *edges)
    ended = await there.end(flow_id, await there.run(flow_id))
    assert ended.status == "failed"
    assert Counter(ended.states.values()) == {"completed": 6, "failed": 1, "skipped": 198}
    assert (ended.states["n3"], ended.states["last"]) == ("failed", "completed")
    assert "n3" in ended.view["nodes"]["n199"]["error_message"]
    at = await _finished_ms(there, flow_id, ended.cycle)
    took = max(at[name] for name, state in ended.states.items() if state == "skipped") - at["n3"]
    assert 0 <= took <= SKIP_MS, f"the last descendant ended {took} ms after the failure"
    await there.no_queues(flow_id, ended.cycle, list(nodes))


async def _no_deadlock(there: FlowProbe) -> None:
    """Four slots; 240 nodes wait for a slow one, each with its other input long there."""
    nodes: dict[str, Any] = {"slow": ("f_step", {"ms": 700}), "join": "f_join"}
    edges = []
    for i in range(60):
        nodes |= {f"p{i}": "f_step", f"q{i}": "f_two"}
        edges += [f"p{i}.out>q{i}.x", f"slow.out>q{i}.y", f"q{i}.out>join.all"]
    flows = [await there.register(nodes, *edges) for _ in range(4)]
    cycles = [await there.run(flow_id) for flow_id in flows]
    for flow_id, cycle in zip(flows, cycles, strict=True):
        ended = await there.end(flow_id, cycle, 40)
        assert ended.status == "completed"
        assert ended.outputs["join"]["out"] == 60 * 2
        assert all(len(found) == 1 for found in ended.begins().values())
        assert len(ended.begins()) == len(nodes)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_failures_skip_at_once_and_waiting_nodes_hold_no_slot(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    with servers.redis_server() as redis:
        async with flow_site(make_site, redis.url, broker, worker_concurrency=2) as (there, _):
            await _all_skipped_at_once(there)
            await _no_deadlock(there)


async def _traces(there: FlowProbe, flow_id: str) -> list[str]:
    """Everything in Redis that still knows the flow, without the finished tasks, which expire by themselves."""
    found, word = [], flow_id.encode()
    async for key in there.redis.scan_iter(count=1000):
        kind = (await there.redis.type(key)).decode()
        if key.startswith(b"task:") and word in key:
            if not 0 < await there.redis.pttl(key) <= 24 * 3_600_000:
                found.append(f"{key!r} does not expire")
            continue
        if key in (b"task:outbox", b"flow:outbox"):  # on the way to the record
            continue
        values: list[Any] = [key]
        if kind == "string":
            values.append(await there.redis.get(key))
        elif kind == "hash":
            values += [part for pair in (await there.redis.hgetall(key)).items() for part in pair]
        elif kind == "set":
            values += await there.redis.smembers(key)
        elif kind == "zset":
            values += await there.redis.zrange(key, 0, -1)
        elif kind == "list":
            values += await there.redis.lrange(key, 0, -1)
        found += [f"{kind} {key!r}: {value!r}"[:200] for value in values if word in value]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_flow_deleted_while_it_runs_leaves_nothing(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    nodes: dict[str, Any] = {f"n{i}": ("f_step", {"ms": 10 if i < 2 else 60_000}) for i in range(6)}
    edges = [f"n{i}.out>n{i + 1}.x" for i in range(5)]
    with servers.redis_server() as redis:
        async with flow_site(make_site, redis.url, broker) as (there, _):
            flow_id = await there.register(nodes, *edges)
            cycles = [await there.run(flow_id) for _ in range(12)]
            tasks = {f"{flow_id}_{cycle}_n2" for cycle in cycles}
            await there.in_ledger(lambda e: tasks <= {x.id for x in e}, "the start of every n2")
            await there.until(lambda: _logged(there, flow_id), "a row of the record", 10)
            await there.flows.delete(flow_id)

            async def is_gone() -> bool:
                return not await _traces(there, flow_id)

            try:
                await there.until(is_gone, "the end of its traces", 10)
            except TimeoutError as error:
                raise AssertionError("\n".join(await _traces(there, flow_id))) from error
            for cycle in cycles:
                await there.no_queues(flow_id, cycle, list(nodes))

            async def is_forgotten() -> bool:
                return not any(
                    there.rows(f"SELECT 1 FROM {table} WHERE flow_id = ? LIMIT 1", flow_id)
                    for table in ("flow_logs", "flow_signals", "flow_cycles")
                )

            await there.until(is_forgotten, "the end of its rows", 10)
            archived = there.rows("SELECT id FROM tasks WHERE id LIKE ?", f"{flow_id}%")
            assert archived, "the task archive stays"
            for n in (1, 2, 3):  # at once again under the same name: nothing of the one before comes into it
                await there.register(
                    {"first": "f_step", f"n{n}": ("f_step", {"ms": 20 * n})}, f"first.out>n{n}.x", id=flow_id
                )
                ended = await there.end(flow_id, await there.run(flow_id))
                assert (ended.status, ended.cycle, ended.outputs[f"n{n}"]["out"]) == ("completed", 0, 2)
                await there.flows.delete(flow_id)
            for n in (1, 2, 3):
                await there.no_queues(flow_id, 0, ["first", f"n{n}"])


async def _logged(there: FlowProbe, flow_id: str) -> bool:
    return bool(there.rows("SELECT 1 FROM flow_logs WHERE flow_id = ? LIMIT 1", flow_id))
