"""A whole station in this process for tests of the flow engine: real Redis, real RabbitMQ, a key prefix of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aio_pika

from tests.flows.engine_nodes import stage
from tests.flows.flow_nodes import flow
from tradewind.flows.starting import RunRequest
from tradewind.redis.connection import Link
from tradewind.settings import load_settings
from tradewind.station import Station, open_station

PATIENCE_S = 20.0


async def until(look: Callable[[], Awaitable[Any]], what: str = "it", timeout_s: float = PATIENCE_S) -> Any:
    """What `look` gives once that is true."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = await look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {timeout_s:g} s")
        await asyncio.sleep(0.004)


class Engine:
    """`redis`: the bare client. Flow ids are made anew for each test."""

    def __init__(self, station: Station, transport: str, prefix: str, broker_url: str) -> None:
        self.station = station
        self.flows = station.flows
        self.transport = transport
        self.is_amqp = transport == "amqp"
        self.broker_url = broker_url
        self.link: Link = station.link
        self.keys = station.plane.keys
        self.prefix = prefix
        self._made = 0

    @property
    def redis(self) -> Any:  # its answers are typed for every mode at once
        return self.link.client

    @property
    def worker_id(self) -> str:
        return self.station.workers[0].id

    def new_id(self, word: str = "f") -> str:
        self._made += 1
        return f"{word}{self._made}-{secrets.token_hex(4)}"

    # doing

    async def register(self, nodes: dict[str, Any], *edges: str, **more: Any) -> str:
        """`"a.out>b.in"` is an edge; a node is its type, or (type, config, other fields)."""
        document = flow(nodes, *edges, **{"id": self.new_id(), **more})
        await self.flows.register(document)
        return str(document["id"])

    async def run(self, flow_id: str, **request: Any) -> int:
        return await self.flows.run(flow_id, RunRequest(**request) if request else None)

    async def go(self, nodes: dict[str, Any], *edges: str, **more: Any) -> Ended:
        """Register, run once, wait for the end."""
        flow_id = await self.register(nodes, *edges, **more)
        return await self.end(flow_id, await self.run(flow_id))

    # looking

    async def text(self, key: str, field: str) -> str | None:
        value = await self.redis.hget(key, field)
        return value.decode() if value is not None else None

    async def hash(self, key: str) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in (await self.redis.hgetall(key)).items()}

    async def end(self, flow_id: str, cycle: int, timeout_s: float = PATIENCE_S) -> Ended:
        key = self.keys.cycle(flow_id, cycle)
        deadline = time.monotonic() + timeout_s
        while await self.redis.hget(key, "status") == b"running":
            if time.monotonic() > deadline:
                raise AssertionError(f"cycle {cycle} runs on: {await self.flows.status.cycle(flow_id, cycle)}")
            await asyncio.sleep(0.003)
        return Ended(flow_id, cycle, await self.flows.status.cycle(flow_id, cycle))

    async def states(self, flow_id: str, cycle: int) -> dict[str, str]:
        found = await self.flows.status.cycle(flow_id, cycle)
        return {name: node["status"] for name, node in found["nodes"].items()}

    async def node_is(self, flow_id: str, cycle: int, node_id: str, *states: str) -> None:
        async def look() -> bool:
            return (await self.states(flow_id, cycle))[node_id] in states

        await until(look, f"{node_id} being {' or '.join(states)}")

    async def running(self, flow_id: str, *nodes: str) -> None:
        """Wait until these nodes have begun."""

        async def look() -> bool:
            return set(nodes) <= set(stage.ran(flow_id))

        await until(look, f"the start of {', '.join(nodes)}")

    async def flow_is(self, flow_id: str, *states: str) -> None:
        async def look() -> bool:
            return await self.text(self.keys.flow(flow_id), "status") in states

        await until(look, f"the flow being {' or '.join(states)}")

    async def last_cycle(self, flow_id: str) -> int:
        return int(await self.text(self.keys.flow(flow_id), "last_cycle") or -1)

    async def cycle_begins(self, flow_id: str, cycle: int, timeout_s: float = PATIENCE_S) -> None:
        async def look() -> bool:
            return await self.last_cycle(flow_id) >= cycle

        await until(look, f"cycle {cycle}", timeout_s)

    async def all_keys(self, part: str = "") -> set[str]:
        """Every key of this station, without the prefix."""
        found: set[str] = set()
        async for key in self.redis.scan_iter(match=f"{self.keys.p.replace('{', '[{]')}*", count=1000):
            name = key.decode().removeprefix(self.keys.p)
            if part in name:
                found.add(name)
        return found

    async def queues(self, flow_id: str, cycle: int, nodes: list[str]) -> list[str]:
        """Which of a cycle's queues stand on the broker."""
        found = []
        async with await aio_pika.connect(self.broker_url, timeout=10) as connection:
            for node in nodes:
                name = f"queue.flow.{flow_id}.cycle.{cycle}.node.{node}"
                channel = await connection.channel()
                with contextlib.suppress(aio_pika.exceptions.ChannelNotFoundEntity):
                    await channel.declare_queue(name, passive=True)
                    found.append(name)
        return found

    async def no_queues(self, flow_id: str, cycle: int, nodes: list[str]) -> None:
        if self.is_amqp:

            async def look() -> bool:
                return not await self.queues(flow_id, cycle, nodes)

            await until(look, "the end of the queues")


class Ended:
    """A cycle as its status tells it."""

    def __init__(self, flow_id: str, cycle: int, view: dict[str, Any]) -> None:
        self.flow_id = flow_id
        self.cycle = cycle
        self.view = view
        self.status: str = view["status"]
        self.counts: dict[str, int] = view["counts"]
        self.nodes: dict[str, dict[str, Any]] = view["nodes"]

    @property
    def states(self) -> dict[str, str]:
        return {name: node["status"] for name, node in self.nodes.items()}

    def got(self, node_id: str) -> Any:
        """What the node was given in its only run."""
        values = stage.got(self.flow_id, node_id)
        assert len(values) == 1, (values, self.nodes[node_id])
        return values[0]


@contextlib.asynccontextmanager
async def open_engine(
    redis_url: str, broker_url: str, folder: Path, prefix: str, transport: str, **overrides: Any
) -> AsyncIterator[Engine]:
    """Scheduler and worker, ready. Overrides: `worker__concurrency=1` is `worker.concurrency`."""
    told = {
        "data_dir": folder,
        "key_prefix": prefix,
        "redis.url": redis_url,
        "signals.transport": transport,
        "amqp.url": broker_url if transport == "amqp" else "",
        "worker.grace_s": 0.2,
        "worker.concurrency": 20,
        **{name.replace("__", "."): value for name, value in overrides.items()},
    }
    async with open_station(load_settings(overrides=told), frozenset({"scheduler", "worker"})) as station:
        stop = asyncio.Event()
        running = asyncio.create_task(station.run(stop), name="station")
        try:
            engine = Engine(station, transport, prefix, broker_url)
            await until(lambda: _is_ready(station, running), "the station's start")
            yield engine
        finally:
            stage.open_all()
            stop.set()
            await running


async def _is_ready(station: Station, running: asyncio.Task[None]) -> bool:
    if running.done():
        running.result()
    is_here = bool(station.workers) and all(worker.is_registered for worker in station.workers)
    return is_here and await station.control.leader() is not None
