"""Signals on their way out of a worker: to RabbitMQ, or to whoever watches an exchange inside this process.

Over the broker a signal stays in `…:unsent` until it is confirmed; what a dead worker left there, the leader sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
import structlog

from tradewind.errors import NotFound, TradewindError, Unavailable
from tradewind.flows.node_start import Follow
from tradewind.flows.plan import Plan
from tradewind.flows.store import FlowStore
from tradewind.ids import new_id
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord
from tradewind.redis.scripts import Arg
from tradewind.signals.exchange import Delivery, Exchange, Message, Refused, Unroutable
from tradewind.signals.memory import MemoryExchange
from tradewind.signals.routing import SignalKey, StopKey, node_binding, queue_name, signal_key, stop_key
from tradewind.signals.signal import SignalType, encode, new_signal

log = structlog.get_logger(__name__)
RETRY_S = 0.5
#: A queue at its limit has room again soon.
REFUSED_S = 0.05
#: Batches under way to the broker.
AT_ONCE = 16
_FIELDS = SignalKey.__struct_fields__


def plain_key(k: SignalKey) -> str:
    """The routing key before any shortening: the field of `…:unsent`."""
    return (
        f"flow.{k.flow}.component.{k.component}.cycle.{k.cycle}.from.{k.source}.handle.{k.source_handle}"
        f".to.{k.target}.handle.{k.target_handle}"
    )


def signal_message(key: SignalKey, body: bytes, ttl_ms: int | None, *, mandatory: bool = True) -> Message:
    return Message(
        routing_key=signal_key(
            key.flow, key.component, key.cycle, key.source, key.source_handle, key.target, key.target_handle
        ),
        body=body,
        headers=key.headers(),
        expiration_ms=ttl_ms,
        mandatory=mandatory,
        message_id=new_id(),
    )


def keys_of(plan: Plan, follow: Follow) -> list[tuple[SignalKey, bytes]]:
    """One per target handle (A-43)."""
    node = plan.nodes[follow.node_id]
    return [
        (
            SignalKey(
                follow.flow_id,
                node.component,
                follow.cycle,
                follow.node_id,
                wire.handle,
                wire.target,
                wire.target_handle,
            ),
            follow.outputs[wire.handle],
        )
        for wire in node.out
        if wire.handle in follow.outputs
    ]


#: Tombstones that travel have ids that begin so, to tell them from signals.
TOMBSTONE = "tombstone-"


def tombstone_message(key: SignalKey, kind: str) -> Message:
    """Says that nothing (more) comes over an edge. Straight to the target's queue: nobody else is told, and whatever
    was published to that queue before stands before it."""
    return Message(
        routing_key=queue_name(key.flow, key.cycle, key.target),
        body=b"null",
        headers={**key.headers(), "tombstone": kind},
        message_id=TOMBSTONE + new_id(),
        is_direct=True,
    )


def read_tombstone(delivery: Delivery) -> tuple[SignalKey, str] | None:
    """The edge and the kind (`!skipped`, `!failed`) of a message of `tombstone_message`; None for any other."""
    kind = delivery.headers.get("tombstone")
    if kind not in ("!skipped", "!failed") or delivery.routing_key != delivery.queue:
        return None
    names = SignalKey("", 0, 0, "", "", "", "").headers()
    try:
        values = {field: delivery.headers.get(name) for field, name in zip(_FIELDS, names, strict=True)}
        return msgspec.convert(values, SignalKey), kind
    except msgspec.ValidationError:
        return None


def stop_message(plan: Plan, follow: Follow, reason: str, scope: str) -> Message:
    """The seed's broadcast; whoever missed it finds the stop in the cycle's state."""
    payload = {
        "reason": reason,
        "source_node": follow.node_id,
        "component_id": plan.nodes[follow.node_id].component,
        "scope": scope,
    }
    signal = new_signal(
        payload, type=SignalType.STOP_EXECUTION, source_node=follow.node_id, flow_id=follow.flow_id, cycle=follow.cycle
    )
    return Message(
        routing_key=stop_key(follow.flow_id, follow.cycle),
        body=encode(signal),
        headers=StopKey(follow.flow_id, follow.cycle).headers(),
        mandatory=False,
        message_id=new_id(),
    )


def ttl_of(plan: Plan, default_s: float) -> int:
    spec = plan.spec
    return round((spec.signal_ttl_s or spec.cycle_timeout_s or default_s) * 1000)


class ObserverCourier:
    """Shows committed signals to those who bound a queue in this process; nobody depends on it."""

    def __init__(self, exchange: MemoryExchange) -> None:
        self.exchange = exchange

    async def carry(self, plan: Plan, follows: Sequence[Follow]) -> None:
        if not self.exchange.queue_names():
            return
        messages = []
        for follow in follows:
            messages += [signal_message(key, body, None, mandatory=False) for key, body in keys_of(plan, follow)]
            if follow.stop is not None:
                messages.append(stop_message(plan, follow, *follow.stop))
        try:
            await self.exchange.publish(messages)
        except TradewindError as error:  # an observer's queue is full: that is the observer's loss
            log.warning("observers missed signals", error=error.message, signals=len(messages))


class BrokerCourier:
    """Publishes with confirms; `run` is its job."""

    def __init__(self, exchange: Exchange, store: FlowStore) -> None:
        self.exchange = exchange
        self.store = store
        self._waiting: list[tuple[Message, SignalKey | None]] = []
        self._news = asyncio.Event()

    async def carry(self, plan: Plan, follows: Sequence[Follow]) -> None:
        ttl_ms = ttl_of(plan, self.store.plane.settings.cycle_timeout_s)
        for follow in follows:
            self._waiting += [(signal_message(key, body, ttl_ms), key) for key, body in keys_of(plan, follow)]
            if follow.stop is not None:
                self._waiting.append((stop_message(plan, follow, *follow.stop), None))
        self._news.set()

    async def run(self) -> None:
        """Batches form while `AT_ONCE` others wait for their confirms; no signal waits for another's."""
        slots = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                await slots.acquire()
                self._news.clear()
                batch, self._waiting = self._waiting, []
                sending = group.create_task(self._send(batch), name="signals out")
                sending.add_done_callback(lambda _: slots.release())

    async def _send(self, batch: list[tuple[Message, SignalKey | None]]) -> None:
        while batch:
            try:
                batch = await send(self.exchange, self.store, batch)
                if batch:
                    await asyncio.sleep(REFUSED_S)
            except Unavailable as error:
                log.warning("signals wait for the broker", waiting=len(batch), error=error.message)
                await asyncio.sleep(RETRY_S)


async def send(
    exchange: Exchange, store: FlowStore, batch: Sequence[tuple[Message, SignalKey | None]]
) -> list[tuple[Message, SignalKey | None]]:
    """Publish, then say that they are confirmed; those that the broker refused, to be tried again.

    Raises Unavailable: try all again, arriving twice counts once.
    """
    refused: set[str] = set()
    try:
        await exchange.publish([message for message, _ in batch])
    except Unroutable as error:  # the queues of a cycle that has ended, or that somebody deleted
        lost = {message.message_id for message in error.messages}
        refused = await _restore_lost(exchange, store, [item for item in batch if item[0].message_id in lost])
    except Refused as error:
        log.warning("signals wait for room in their queues", signals=len(error.messages))
        refused = {message.message_id for message in error.messages}
    plane = store.plane
    by_cycle: dict[tuple[str, int], list[str]] = {}
    for message, key in batch:
        if key is not None and message.message_id not in refused:
            by_cycle.setdefault((key.flow, key.cycle), []).append(plain_key(key))
    for (flow_id, cycle), sent in by_cycle.items():
        args: list[Arg] = [f"{flow_id}:{cycle}", *sent]
        await plane.scripts.run(
            "signal_sent",
            [plane.keys.cycle_unsent(flow_id, cycle), plane.keys.flows_unsent(), plane.keys.cycle_sent(flow_id, cycle)],
            args,
        )
    return [item for item in batch if item[0].message_id in refused]


async def _restore_lost(
    exchange: Exchange, store: FlowStore, batch: Sequence[tuple[Message, SignalKey | None]]
) -> set[str]:
    """Signals that found no queue: the ids of those whose cycle runs. Their queues stand again."""
    by_cycle: dict[tuple[str, int], list[tuple[Message, SignalKey]]] = {}
    for message, key in batch:
        if key is not None:
            by_cycle.setdefault((key.flow, key.cycle), []).append((message, key))
    again: set[str] = set()
    for (flow_id, cycle), items in by_cycle.items():
        if await restore_queues(exchange, store, flow_id, cycle, {key.target for _, key in items}):
            again |= {message.message_id for message, _ in items}
        else:
            log.info("signals found no queue; their cycle has ended", flow=flow_id, cycle=cycle, signals=len(items))
    return again


def queues_of(plan: Plan, cycle: int, nodes: Iterable[str]) -> dict[str, list[str]]:
    """The protocol's queue and bindings of each of these nodes in a cycle."""
    flow_id = plan.spec.id
    stop = stop_key(flow_id, cycle)
    return {
        queue_name(flow_id, cycle, name): [node_binding(flow_id, plan.nodes[name].component, cycle, name), stop]
        for name in nodes
    }


async def restore_queues(exchange: Exchange, store: FlowStore, flow_id: str, cycle: int, nodes: Iterable[str]) -> bool:
    """Declare the queues of these nodes again, and send again what was sent to them and has not arrived.

    False: the cycle does not run. Raises Unavailable.
    """
    plane = store.plane
    with translated():
        version, status = await plane.tasks.redis.hmget(plane.keys.cycle(flow_id, cycle), "version", "status")
    if version is None or status != b"running":
        return False
    try:
        plan = await store.plan(flow_id, version.decode(errors="replace"))
    except (NotFound, SpoiltRecord):
        return False
    known = [node for node in nodes if node in plan.nodes]
    await exchange.declare_many(queues_of(plan, cycle, known))
    args: list[Arg] = [*plane.head(), flow_id, cycle, plane.outbox_max, *known]
    again = await plane.scripts.run("signal_resend", [plane.keys.cycle_sent(flow_id, cycle)], args)
    log.warning("queues were lost on the broker and stand again", flow=flow_id, cycle=cycle, nodes=known, again=again)
    return bool(again >= 0)
