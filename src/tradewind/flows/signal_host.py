"""A worker that consumes the queues of cycles: each signal arrives in Redis, then it is acknowledged.

What becomes ready by it is this worker's to run, as far as it has room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from tradewind import codec
from tradewind.clock import now_ms
from tradewind.errors import Invalid, NotFound, Unavailable
from tradewind.flows.courier import TOMBSTONE, read_tombstone, restore_queues
from tradewind.flows.host import taken_nodes
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.plan import OUTSIDE, Plan, edge_key
from tradewind.flows.scheduler import read_cycle_name
from tradewind.flows.store import FlowStore
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord
from tradewind.redis.scripts import Arg
from tradewind.signals.exchange import Consumer, Delivery, Exchange
from tradewind.signals.routing import SignalKey, StopKey, queue_name, read_key
from tradewind.signals.signal import Signal, decode, encode
from tradewind.tasks.worker_store import Taken, WorkerStore

log = structlog.get_logger(__name__)
LOOK_S = 1.0
#: Cycles, and queues of each, that are taken up side by side.
AT_ONCE = 50
#: So long a tombstone waits for other consumers of its queue to go: a lost one is noticed by the broker within 30 s.
OTHERS_S = 60.0
#: Refused messages that are told in the log, of each cycle; all are counted.
TOLD = 20


class SignalHost:
    """`worker`: the worker's store of now and how many slots it has; `start`: what begins to run taken nodes;
    `registry`: asked whether a value from outside is fit for its node."""

    def __init__(
        self,
        exchange: Exchange,
        store: FlowStore,
        worker: Callable[[], tuple[WorkerStore, int]],
        start: Callable[[list[Taken]], Awaitable[None]],
        registry: NodeRegistry,
    ) -> None:
        self.registry = registry
        self.exchange = exchange
        self.store = store
        self.plane = store.plane
        self.news = asyncio.Event()
        self._worker = worker
        self._start = start
        self._hosted: dict[str, list[Consumer]] = {}
        #: By queue; and since when (monotonic seconds) a tombstone waits for what others hold of it.
        self._consumers: dict[str, Consumer] = {}
        self._waits: dict[str, float] = {}
        #: By cycle: how many messages were refused.
        self._refused: dict[str, int] = {}

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self.look()
                except Unavailable as error:
                    log.warning("signals cannot be consumed now", error=error.message)
                    await asyncio.sleep(0.5)
                try:
                    async with asyncio.timeout(LOOK_S):
                        await self.news.wait()
                except TimeoutError:
                    pass
                self.news.clear()
        finally:
            for name in list(self._hosted):
                await self._leave(name)

    async def look(self) -> None:
        """Consume the queues of the cycles that are ours, and no others."""
        me = self._worker()[0].id.encode()
        with translated():
            hosts = await self.plane.tasks.redis.hgetall(self.plane.keys.flows_hosts())
        mine = {name.decode() for name, worker in hosts.items() if worker == me and read_cycle_name(name) is not None}
        lost = {name: [c.queue for c in consumers if c.is_ended] for name, consumers in self._hosted.items()}
        lost = {name: queues for name, queues in lost.items() if queues}
        for name in (set(self._hosted) - mine) | lost.keys():  # lost: a new flow may have the name of a deleted one
            await self._leave(name)
        for name in lost.keys() & mine:
            await self._restore(name, lost[name])
        new = sorted(mine - set(self._hosted))
        for start in range(0, len(new), AT_ONCE):
            results = await asyncio.gather(
                *(self._host(name) for name in new[start : start + AT_ONCE]), return_exceptions=True
            )
            _raise_first(results)

    async def _host(self, name: str) -> None:
        flow_id, _, number = name.rpartition(":")
        cycle = int(number)
        with translated():
            cycle_key = self.plane.keys.cycle(flow_id, cycle)
            version, status = await self.plane.tasks.redis.hmget(cycle_key, "version", "status")
        if version is None or status != b"running":
            return
        try:
            plan = await self.store.plan(flow_id, version.decode(errors="replace"))
        except (NotFound, SpoiltRecord):
            return
        self._hosted[name] = []
        prefetch = self.plane.signals.prefetch

        async def handle(delivery: Delivery) -> None:
            await self.arrive(plan, cycle, delivery)

        async def consume(node: str) -> None:
            queue = queue_name(flow_id, cycle, node)
            try:
                consumer = await self.exchange.consume(queue, handle, prefetch)
            except NotFound:
                if not await self._restore(name, [queue]):  # the cycle has ended meanwhile
                    return
                consumer = await self.exchange.consume(queue, handle, prefetch)
            self._hosted[name].append(consumer)
            self._consumers[queue] = consumer

        nodes = list(plan.nodes)
        try:
            for start in range(0, len(nodes), AT_ONCE):
                calls = (consume(node) for node in nodes[start : start + AT_ONCE])
                _raise_first(await asyncio.gather(*calls, return_exceptions=True))
        except BaseException:
            await self._leave(name)  # half a cycle is none: all of it is tried again
            raise

    async def _leave(self, name: str) -> None:
        self._refused.pop(name, None)
        for consumer in self._hosted.pop(name, []):
            self._consumers.pop(consumer.queue, None)
            self._waits.pop(consumer.queue, None)
            await consumer.cancel()

    async def _restore(self, name: str, queues: list[str]) -> bool:
        """Queues of a cycle that we consume are gone: they stand again afterwards, unless the cycle has ended."""
        flow_id, _, cycle = name.rpartition(":")
        head = len(queue_name(flow_id, int(cycle), "x")) - 1
        nodes = [queue[head:] for queue in queues]
        return await restore_queues(self.exchange, self.store, flow_id, int(cycle), nodes)

    async def arrive(self, plan: Plan, cycle: int, delivery: Delivery) -> None:
        """Let a message arrive. What is for no node or handle of this cycle is dropped with a warning."""
        if (tombstone := read_tombstone(delivery)) is not None:
            await self._await_turn(delivery)
            await self._arrive_tombstone(plan, cycle, *tombstone)
            return
        key = read_key(delivery.routing_key, delivery.headers)
        most = self.plane.signals.max_bytes
        if len(delivery.body) > most:
            why = f"it has {len(delivery.body)} bytes, at most {most} are taken (signals.max_bytes)"
            await self._refuse(plan, cycle, delivery, why)
            return
        try:
            signal = decode(delivery.body, message_id=delivery.message_id)
        except Invalid as error:
            await self._refuse(plan, cycle, delivery, error.message)
            return
        if isinstance(key, StopKey):
            await self._stop(plan, cycle, signal)
            return
        found, why = self._targets(plan, cycle, key, signal)
        if not found:
            await self._refuse(plan, cycle, delivery, why or "it is for no handle of this cycle")
            return
        await self._let_arrive(plan.spec.id, cycle, found)

    async def _refuse(self, plan: Plan, cycle: int, delivery: Delivery, why: str) -> None:
        """Drop a message. All are counted; the first ones of a cycle are told in its log, since their sender knows only
        that the broker took them."""
        name = f"{plan.spec.id}:{cycle}"
        self._refused[name] = many = self._refused.get(name, 0) + 1
        keys, client = self.plane.keys, self.plane.tasks.redis
        with translated():
            pipe = client.pipeline(transaction=False)
            pipe.hincrby(keys.metric_signals(), "refused", 1)
            if many <= TOLD:
                log.warning("signal_refused", key=delivery.routing_key, queue=delivery.queue, error=why)
                message = f"A message for {delivery.routing_key[:300]} is refused: {why[:500]}"
                line = {
                    "k": "log", "flow": plan.spec.id, "cycle": cycle, "node": None, "level": "WARNING",
                    "source": "scheduler", "message": message, "meta": None, "at": now_ms(),
                }  # fmt: skip
                data = b"[" + codec.encode(line) + b"]"
                pipe.xadd(keys.flow_outbox(), {"d": data}, maxlen=self.plane.outbox_max, approximate=True)
            await pipe.execute()

    async def _await_turn(self, delivery: Delivery) -> None:
        """Return when everything that was published to the queue before this tombstone has arrived; else raise
        Unavailable, and the tombstone goes back to its place behind that.

        Before it may be: what this worker handles side by side (prefetch above 1) or gave back, and what another
        consumer holds: one that was lost or has left, whose messages come back when the broker notices.
        """
        queue = delivery.queue
        consumer = self._consumers.get(queue)
        if consumer is None:
            raise Unavailable(f"{queue} is only just consumed", hint="the tombstone comes again")
        if any(not name.startswith(TOMBSTONE) for name in consumer.unsettled):
            raise Unavailable(f"signals of {queue} are on their way", hint="the tombstone comes again behind them")
        if consumer.others:
            since = self._waits.setdefault(queue, time.monotonic())
            if await self.exchange.consumers(queue) <= 1 or time.monotonic() - since > OTHERS_S:
                consumer.others = 0  # what they held is in the queue again, before this tombstone once it is back there
            raise Unavailable(f"another consumer of {queue} may hold signals", hint="the tombstone comes again")

    async def _arrive_tombstone(self, plan: Plan, cycle: int, key: SignalKey, kind: str) -> None:
        node = plan.nodes.get(key.target)
        if node is None or (key.flow, key.cycle) != (plan.spec.id, cycle):
            return
        edge = edge_key(key.source, key.source_handle, key.target_handle)
        if edge in node.waits_for():
            await self._let_arrive(plan.spec.id, cycle, [(node.id, kind.encode(), False, [edge])])

    async def _let_arrive(self, flow_id: str, cycle: int, found: list[tuple[str, bytes, bool, list[str]]]) -> None:
        worker, capacity = self._worker()
        keys = self.plane.keys
        args: list[Arg] = [*self.plane.head(), worker.id, worker.generation, capacity, self.plane.outbox_max]
        for node_id, body, is_foreign, edges in found:
            args += [flow_id, cycle, node_id, body, int(is_foreign), len(edges), *edges]
        names = [keys.worker(worker.id), keys.worker_inflight(worker.id), keys.worker_queue(worker.id)]
        _, given = await self.plane.scripts.run("signal_arrive", names, args)
        taken = taken_nodes(worker, given)
        if taken:
            await self._start(taken)

    def _targets(
        self, plan: Plan, cycle: int, key: SignalKey | None, signal: Signal
    ) -> tuple[list[tuple[str, bytes, bool, list[str]]], str]:
        """Node, body, whether the record lacks it, and the inputs that it may stand for; and why a part is left out."""
        why = ""
        if key is None or key.cycle != cycle or key.flow != plan.spec.id or key.target not in plan.nodes:
            return [], why
        node = plan.nodes[key.target]
        payloads: dict[str, Any] = {key.target_handle: signal.payload}
        if key.target_handle == "*":  # the seed's way to feed several handles: unpacked by key
            inside = signal.payload if isinstance(signal.payload, dict) else {}
            payloads = {h: inside[h] for h in [*node.sources, *node.external, *node.listens] if h in inside}
        found = []
        for handle, payload in payloads.items():
            edges = node.edges_of(handle, key.source, key.source_handle)
            if edges and edges[0].startswith(OUTSIDE):
                problems = self.registry.check_input(node.spec.type, node.spec.config, handle, payload)
                if problems:
                    why = f"node {node.id!r} refuses the value for {handle!r}: {problems[0].hint}"
                    continue
            if edges:
                told = Signal(
                    signal.id,
                    signal.type,
                    payload,
                    signal.timestamp,
                    key.source,
                    key.source_handle,
                    plan.spec.id,
                    cycle,
                )
                source = plan.nodes.get(key.source)
                is_ours = source is not None and any(
                    (w.handle, w.target, w.target_handle) == (key.source_handle, key.target, handle) for w in source.out
                )
                found.append((node.id, encode(told), not is_ours, edges))
        return found, why

    async def _stop(self, plan: Plan, cycle: int, signal: Signal) -> None:
        """STOP_EXECUTION: of one component if it names one, else of the cycle. Ours has been stored before: no news."""
        payload = signal.payload if isinstance(signal.payload, dict) else {}
        component = payload.get("component_id")
        is_one = isinstance(component, int) and payload.get("scope", "component") == "component"
        source = str(payload.get("source_node") or signal.source_node or "outside")[:64]
        which = f"{component if is_one else 'all'}:{source}"
        try:
            reason = str(payload.get("reason") or "STOP_EXECUTION")[:500]
            await self.store.stop(plan.spec.id, cycle, "signal", which, reason)
        except NotFound:
            pass


def _raise_first(results: list[Any]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result
