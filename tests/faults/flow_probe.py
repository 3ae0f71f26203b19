"""What a fault test asks of flows from outside: register, run, wait for the end, look into Redis and the broker."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import aio_pika

from tests.faults.station_process import LEASES, Entry, RoleProcess, Site
from tests.flows.flow_nodes import flow
from tradewind.errors import Unavailable
from tradewind.flows.control import FlowControl
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.plane import FlowPlane
from tradewind.flows.starting import cycle_outputs
from tradewind.flows.store import FlowStore
from tradewind.redis.connection import open_link
from tradewind.settings import FlowSettings, RedisSettings, Settings, SignalSettings
from tradewind.tasks.plane import Plane

T = TypeVar("T")


class Ended:
    """A cycle as its status tells it, and the ledger's lines of it."""

    def __init__(self, flow_id: str, cycle: int, view: dict[str, Any], outputs: dict[str, Any], site: Site) -> None:
        self.flow_id, self.cycle, self.view, self.outputs = flow_id, cycle, view, outputs
        self.status: str = view["status"]
        self.states = {name: node["status"] for name, node in view["nodes"].items()}
        head = f"{flow_id}_{cycle}_"
        self.ledger = [entry for entry in site.ledger() if entry.id.startswith(head)]

    def begins(self) -> dict[str, list[Entry]]:
        """Node id → its starts, in order."""
        found: dict[str, list[Entry]] = {}
        head = f"{self.flow_id}_{self.cycle}_"
        for entry in self.ledger:
            if entry.kind == "begin":
                found.setdefault(entry.id.removeprefix(head), []).append(entry)
        return found


class FlowProbe:
    def __init__(self, site: Site, plane: Plane, broker_url: str) -> None:
        self.site, self.plane, self.broker_url = site, plane, broker_url
        self.redis, self.keys = plane.redis, plane.keys
        self.store = FlowStore(FlowPlane(plane))
        self.flows = FlowControl(self.store, KnownTypes(self.store.plane, NodeRegistry()), None)

    # doing

    async def register(self, nodes: dict[str, Any], *edges: str, **more: Any) -> str:
        """`"a.out>b.in"` is an edge; a node is its type, or (type, config, other fields). Ids are made anew."""
        document = flow(nodes, *edges, **{"id": f"f-{secrets.token_hex(4)}", **more})
        await self.patient(lambda: self.flows.register(document))
        return str(document["id"])

    async def run(self, flow_id: str) -> int:
        return await self.patient(lambda: self.flows.run(flow_id))

    async def patient(self, ask: Callable[[], Awaitable[T]], timeout_s: float = 20.0) -> T:
        """Ask again while a server is away."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                return await ask()
            except Unavailable:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.1)

    # looking

    async def until(self, look: Callable[[], Awaitable[T]], what: str, timeout_s: float) -> T:
        """What `look` gives once that is true."""
        end = time.monotonic() + timeout_s
        while True:
            found = await self.patient(look)
            if found:
                return found
            if time.monotonic() > end:
                raise TimeoutError(f"{what} did not happen within {timeout_s:g} s\n{self.site.logs()}")
            await asyncio.sleep(0.02)

    async def in_ledger(self, has_come: Callable[[list[Entry]], bool], what: str, timeout_s: float = 15.0) -> None:
        async def look() -> bool:
            return has_come(self.site.ledger())

        await self.until(look, what, timeout_s)

    async def end(self, flow_id: str, cycle: int, timeout_s: float = 25.0) -> Ended:
        end = time.monotonic() + timeout_s
        while await self.patient(lambda: self.flows.cycle_state(flow_id, cycle)) == "running":
            if time.monotonic() > end:
                view = await self.flows.status.cycle(flow_id, cycle)
                open_nodes = {n: v for n, v in view["nodes"].items() if v["status"] in ("pending", "running")}
                raise TimeoutError(f"cycle {cycle} runs on after {timeout_s:g} s: {open_nodes}\n{self.site.logs()}")
            await asyncio.sleep(0.02)
        view = await self.patient(lambda: self.flows.status.cycle(flow_id, cycle))
        outputs = await self.patient(lambda: cycle_outputs(self.store, flow_id, cycle))
        return Ended(flow_id, cycle, view, outputs, self.site)

    async def done(self, flow_id: str, cycle: int) -> set[str]:
        """The nodes that have ended for good."""
        raw = await self.patient(lambda: self.redis.hkeys(self.keys.cycle_done(flow_id, cycle)))
        return {name.decode() for name in raw}

    async def leader(self) -> str:
        return ((await self.redis.get(self.keys.leader())) or b"").decode()

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

    async def no_queues(self, flow_id: str, cycle: int, nodes: list[str], timeout_s: float = 10.0) -> None:
        if not self.broker_url:
            return

        async def look() -> bool:
            return not await self.queues(flow_id, cycle, nodes)

        await self.until(look, "the end of the queues", timeout_s)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the record has."""
        with contextlib.closing(sqlite3.connect(next(self.site.data_dir.glob("*.db")))) as connection:
            return connection.execute(sql, values).fetchall()

    async def keys_of(self, flow_id: str) -> set[str]:
        """Every key that has the flow's id in its name."""
        return {key.decode() async for key in self.redis.scan_iter(match=f"*{flow_id}*", count=1000)}


@contextlib.asynccontextmanager
async def flow_probe(site: Site, broker_url: str = "", redis_url: str = "", **flows: Any) -> AsyncIterator[FlowProbe]:
    """`broker_url`: flows of this probe use the broker. `flows`: settings of that room."""
    redis = RedisSettings(url=redis_url or site.redis_url)
    signals = SignalSettings(transport="amqp" if broker_url else "local")
    link = await open_link(redis)
    try:
        plane = Plane(link, Settings(redis=redis, signals=signals, flows=FlowSettings(**flows)))
        yield FlowProbe(site, plane, broker_url)
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def flow_site(
    make_site: Callable[..., Site], redis_url: str, broker_url: str = "", schedulers: str = "a", **settings: Any
) -> AsyncIterator[tuple[FlowProbe, dict[str, RoleProcess]]]:
    """The probe, and the processes by name: schedulers a …, workers w1 and w2. Ready when it is given out."""
    how: dict[str, Any] = {"signals_transport": "amqp", "amqp_url": broker_url} if broker_url else {}
    how |= {"imports": "flow_fault_nodes", "worker_concurrency": 10, **LEASES, **settings}
    site = make_site(redis_url, **how)
    roles = {name: site.start("scheduler", scheduler_id=name) for name in schedulers}
    roles |= {name: site.start("worker", worker_id=name) for name in ("w1", "w2")}
    for name in ("w1", "w2"):
        roles[name].says("worker registered")
    async with flow_probe(site, broker_url) as there:
        await there.until(there.leader, "a leader", 15)
        yield there, roles


class Places:
    """Where a flow of fifty nodes is disturbed: ten in a chain, 38 side by side, their join, and one after it."""

    CHAIN, FAN = 10, 38
    NODES = CHAIN + FAN + 2

    def __init__(self, chain_ms: float = 40, fan_ms: float = 150) -> None:
        nodes: dict[str, Any] = {f"c{n}": ("f_step", {"ms": chain_ms}) for n in range(self.CHAIN)}
        edges = [f"c{n}.out>c{n + 1}.x" for n in range(self.CHAIN - 1)]
        for n in range(self.FAN):
            nodes[f"f{n}"] = ("f_step", {"ms": fan_ms})
            edges += [f"c{self.CHAIN - 1}.out>f{n}.x", f"f{n}.out>join.all"]
        nodes |= {"join": "f_join", "tail": "f_step"}
        self.nodes, self.edges = nodes, [*edges, "join.out>tail.x"]

    @property
    def result(self) -> float:
        return float(self.FAN * (self.CHAIN + 1) + 1)


def open_runs(entries: list[Entry], head: str) -> dict[str, Entry]:
    """Runs that have begun and not ended, of tasks whose id begins so: task id → its begin."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.id.startswith(head):
            found[entry.id] = entry
            if entry.kind == "end":
                del found[entry.id]
    return found
