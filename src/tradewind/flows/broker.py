"""The leader's part in signals over RabbitMQ: queues exist before a cycle's first node starts, and go after its end.

Every step can be repeated: what a lost leader left undone stands in Redis (`flows:held`, `flows:queues`,
`flows:hosts`, `flows:unsent`) and is done by the next one.
"""

from __future__ import annotations

import asyncio
import random
import time

import structlog

from tradewind.errors import NotFound, Unavailable
from tradewind.flows.courier import queues_of, send, signal_message, tombstone_message, ttl_of
from tradewind.flows.plan import Plan
from tradewind.flows.scheduler import read_cycle_name
from tradewind.flows.store import FlowStore
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord, other_types
from tradewind.redis.scripts import Arg
from tradewind.signals.exchange import Exchange, Message
from tradewind.signals.routing import SignalKey, parse_key, queue_name

log = structlog.get_logger(__name__)
#: Signals that a worker has not confirmed for so long are sent again.
RESEND_MS = 2000
LOOK_S = 1.0
LEAVE_S = 0.5
BATCH = 200
#: So many queues are declared or deleted at a time; a cycle waits for no more than those before it.
DECLARE = 200


class BrokerKeeper:
    """`news` is set whenever a cycle was opened or has ended."""

    def __init__(self, store: FlowStore, exchange: Exchange) -> None:
        self.store = store
        self.plane = store.plane
        self.exchange = exchange
        self.news = asyncio.Event()
        #: Cycles that have ended but have queues, and when that was seen.
        self._ended: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.prepare()
                await self.clean()
                await self.rehost()
                await self.resend()
            except Unavailable as error:
                log.warning("cycles wait for the broker", error=error.message)
                await asyncio.sleep(0.5)
            try:
                async with asyncio.timeout(LEAVE_S if self._ended else LOOK_S):
                    await self.news.wait()
            except TimeoutError:
                pass
            self.news.clear()

    async def prepare(self) -> None:
        """Declare the queues of cycles that were opened, give each a host, let them go."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        while True:
            with translated():
                raw = await client.zrange(keys.flows_held(), 0, BATCH - 1)
                if odd := [name for name in raw if read_cycle_name(name) is None]:
                    await client.zrem(keys.flows_held(), *odd)
            if not raw:
                return
            held = [name.decode() for name in raw if read_cycle_name(name) is not None]
            workers = await self._workers()
            while held:
                some: list[str] = []
                nodes: dict[str, str] = {}
                queues: dict[str, list[str]] = {}
                while held and len(queues) < DECLARE:
                    some.append(name := held.pop(0))
                    flow_id, _, cycle = name.rpartition(":")
                    plan = await self._plan(flow_id, int(cycle))
                    if plan is not None:
                        nodes[name] = " ".join(plan.nodes)
                        queues |= queues_of(plan, int(cycle), plan.nodes)
                await self._let_go(some, nodes, queues, workers)

    async def _let_go(
        self, names: list[str], nodes: dict[str, str], queues: dict[str, list[str]], workers: list[str]
    ) -> None:
        keys = self.plane.keys
        if nodes:
            with translated():
                left = await self.plane.tasks.redis.hmget(keys.flows_queues(), list(nodes))
            # Of a deleted flow of the same name: what waits in them is not for this cycle.
            stale = [(name, old.decode(errors="replace")) for name, old in zip(nodes, left, strict=True) if old]
            if stale:
                await self.exchange.delete_queues(queue for name, old in stale for queue in _queue_names(name, old))
            with translated():
                await self.plane.tasks.redis.hset(keys.flows_queues(), mapping=nodes)
            await self.exchange.declare_many(queues)
            if workers:
                await self._host({name: random.choice(workers) for name in nodes})
        for name in names:
            flow_id, _, cycle = name.rpartition(":")
            args: list[Arg] = [*self.plane.head(), flow_id, cycle, self.plane.outbox_max]
            await self.plane.scripts.run("cycle_release", [keys.flows_held()], args)

    async def clean(self) -> None:
        """Delete the queues of cycles that have ended, once their hosts have had time to leave: the broker answers a
        consumer that comes too late by closing the channel of all others of that worker."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        with translated():
            found = await client.hgetall(keys.flows_queues())
            declared = {k.decode(): v.decode(errors="replace") for k, v in found.items() if read_cycle_name(k)}
            pipe = client.pipeline(transaction=False)
            for name in declared:
                flow_id, _, cycle = name.rpartition(":")
                pipe.sismember(keys.flow_running(flow_id), cycle)
            running = await pipe.execute() if declared else []
        over = {name for name, is_running in zip(declared, running, strict=True) if not is_running}
        now, new = time.monotonic(), over - self._ended.keys()
        self._ended = {name: self._ended.get(name, now) for name in over}
        if new:
            with translated():
                hosts = await client.hmget(keys.flows_hosts(), *new)
                await client.hdel(keys.flows_hosts(), *new)
                for worker in {host.decode(errors="replace") for host in hosts if host}:
                    await client.publish(keys.control(worker), "host:")
        ended = [name for name, since in self._ended.items() if now - since >= LEAVE_S]
        while ended:
            some: list[str] = []
            queues: list[str] = []
            pipe = client.pipeline(transaction=True)
            while ended and len(queues) < DECLARE:
                some.append(name := ended.pop(0))
                flow_id, _, cycle = name.rpartition(":")
                queues += _queue_names(name, declared[name])
                pipe.delete(keys.cycle_unsent(flow_id, int(cycle)), keys.cycle_sent(flow_id, int(cycle)))
            pipe.hdel(keys.flows_queues(), *some)
            pipe.zrem(keys.flows_unsent(), *some)
            await self.exchange.delete_queues(queues)
            with translated():
                await pipe.execute()

    async def rehost(self) -> None:
        """Give the cycles of lost workers to others."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        with translated():
            found = await client.hgetall(keys.flows_hosts())
            hosts = {k.decode(): v.decode(errors="replace") for k, v in found.items() if read_cycle_name(k)}
            declared = [name for name in await client.hkeys(keys.flows_queues()) if read_cycle_name(name)]
        workers = await self._workers()
        if not workers:
            return
        names = {raw.decode() for raw in declared} - self._ended.keys()
        lost = [name for name in names if hosts.get(name) not in workers]
        if lost:
            await self._host({name: random.choice(workers) for name in lost})

    async def resend(self) -> None:
        """Publish what has no worker to send it (score 0), and what a worker committed but did not see confirmed."""
        keys, client, now = self.plane.keys, self.plane.tasks.redis, self.plane.clock.now_ms()
        with translated():
            names = await client.zrange(
                keys.flows_unsent(), "-inf", now - RESEND_MS, byscore=True, offset=0, num=BATCH, withscores=True
            )
        batch: list[tuple[Message, SignalKey | None]] = []
        for raw, since in names:
            known = read_cycle_name(raw)
            if known is None:
                with translated():
                    await client.zrem(keys.flows_unsent(), raw)
                continue
            flow_id, cycle = known
            plan = await self._plan(flow_id, cycle)
            with translated():
                sent = await client.smembers(
                    keys.cycle_sent(flow_id, cycle)
                )  # first: what is added later is sent twice
                left = await client.hgetall(keys.cycle_unsent(flow_id, cycle))
                if plan is None:
                    await client.zrem(keys.flows_unsent(), raw)
                    continue
            some = [(field, body) for field, body in left.items() if field not in sent]
            if not some:
                names_of = [keys.cycle_unsent(flow_id, cycle), keys.flows_unsent(), keys.cycle_sent(flow_id, cycle)]
                await self.plane.scripts.run("signal_sent", names_of, [raw])  # off the list, unless there is more now
                continue
            ttl_ms = ttl_of(plan, self.plane.settings.cycle_timeout_s)
            if since:
                log.warning("signals are sent again", flow=flow_id, cycle=cycle, signals=len(some))
            for field, body in some:
                key = parse_key(field.decode(errors="replace"))
                if isinstance(key, SignalKey):
                    is_tombstone = body.startswith(b"!")
                    message = (
                        tombstone_message(key, body.decode(errors="replace"))
                        if is_tombstone
                        else signal_message(key, body, ttl_ms)
                    )
                    batch.append((message, key))
        if batch:
            await send(self.exchange, self.store, batch)

    async def _host(self, hosts: dict[str, str]) -> None:
        """Cycle → the worker that shall consume its queues."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        with translated():
            await client.hset(keys.flows_hosts(), mapping=hosts)
            for worker in set(hosts.values()):
                await client.publish(keys.control(worker), "host:")

    async def _workers(self) -> list[str]:
        """Live workers of this product (HTTP services cannot consume)."""
        keys, client, now = self.plane.keys, self.plane.tasks.redis, self.plane.clock.now_ms()
        with translated():
            ids = [w.decode(errors="replace") for w in await client.zrange(keys.workers(), now, "+inf", byscore=True)]
            pipe = client.pipeline(transaction=False)
            for worker in ids:
                pipe.hmget(keys.worker(worker), "signals", "status")
            rows = other_types(await pipe.execute(raise_on_error=False)) if ids else []
        return [worker for worker, row in zip(ids, rows, strict=True) if row == [b"1", b"active"]]

    async def _plan(self, flow_id: str, cycle: int) -> Plan | None:
        with translated():
            version = await self.plane.tasks.redis.hget(self.plane.keys.cycle(flow_id, cycle), "version")
        try:
            return await self.store.plan(flow_id, version.decode(errors="replace")) if version else None
        except (NotFound, SpoiltRecord):
            return None


def _queue_names(name: str, nodes: str) -> list[str]:
    flow_id, _, cycle = name.rpartition(":")
    return [queue_name(flow_id, int(cycle), node) for node in nodes.split()]
