"""A worker's part in flows: runs nodes, commits how they ended, hands on what their successors need.

`NodeExecutor` is the executor of tasks with this room's hook, `FlowHost.finish` their commit. Signals leave inside the
commit (`local`) or over the broker after it (`amqp`), where `Courier` carries them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import structlog

from tradewind import codec
from tradewind.errors import NotFound, Unavailable
from tradewind.flows.call import Arrived, NodeCall, NodeResult, Suspend
from tradewind.flows.node_errors import NodeStopExecutionException
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.node_run import run_node
from tradewind.flows.node_start import Follow, NodeStarts
from tradewind.flows.plan import OUTSIDE, Plan
from tradewind.flows.running_node import RunningNode
from tradewind.flows.store import FlowStore
from tradewind.redis.scripts import Arg
from tradewind.signals.signal import Signal, encode
from tradewind.tasks import running
from tradewind.tasks.executor import BadArguments, encoded, retry_ms, user_threads
from tradewind.tasks.record import Request, Status
from tradewind.tasks.running import Abort, Running
from tradewind.tasks.store import TaskStore
from tradewind.tasks.user_error import text_of
from tradewind.tasks.worker_store import Ending, Taken, WorkerStore

log = structlog.get_logger(__name__)
_signals = msgspec.json.Decoder(Signal)
_STRIDE = 8


class Courier(Protocol):
    """Carries what commits have let out: to the broker, or to those who watch an exchange in this process."""

    async def carry(self, plan: Plan, follows: Sequence[Follow]) -> None: ...


class NodeExecutor:
    def __init__(self, store: FlowStore, registry: NodeRegistry, worker_id: str, threads: int) -> None:
        self.store = store
        self.registry = registry
        self.worker_id = worker_id
        self.running: dict[str, RunningNode] = {}
        self._starts = NodeStarts(store, worker_id)
        self._threads = user_threads(threads)

    async def run(self, taken: Taken, request: Request, state: Running) -> bytes:
        """One attempt of a node. The outputs as JSON; what the commit needs goes to `state.follow`."""
        kwargs = request.kwargs
        try:
            flow_id, cycle, node_id = kwargs["flow_id"], kwargs["cycle"], kwargs["node_id"]
        except KeyError as error:
            raise BadArguments(f"{taken.type!r} is a node type: it runs inside a flow") from error
        follow = state.follow = Follow(flow_id, cycle, node_id)
        version, raw = taken.extra or await self._starts.start(taken.token, follow)
        follow.version = version
        plan = self.store.plan_at_hand(flow_id, version) or await self.store.plan(flow_id, version)
        node = plan.nodes[node_id]
        node_class = self.registry.get(taken.type)
        if node_class is None:
            raise BadArguments(f"this worker has no node type {taken.type!r}")
        host = follow.node = self.running[taken.id] = RunningNode(
            self.store, follow, state, taken.attempt - taken.stalls
        )
        spec = node.spec
        arrived, left = read_inputs(raw)
        follow.seen = [OUTSIDE + a.target_handle for a in arrived if a.target_handle in node.listens]
        call = NodeCall(
            flow_id, cycle, node.component, node_id, taken.type, taken.id, taken.attempt, spec.config, spec.inputs,
            arrived, tuple(node.sources), left.get("state"), left.get("children", []),
        )  # fmt: skip
        running.enter(state)
        try:
            result = await run_node(call, node_class, host, self._threads)
        except Suspend as pause:
            follow.suspend = _suspended(pause)
            return b"null"
        except NodeStopExecutionException as stop:
            follow.terminated = text_of(stop) or "stopped"
            return b"null"
        finally:
            self.running.pop(taken.id, None)
        return _outputs(follow, result, self.store.plane.signals.max_bytes)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _suspended(pause: Suspend) -> tuple[int, bytes]:
    """For how many ms, and what it leaves. Raises Abort for a state or a delay that cannot be kept."""
    delay_ms = retry_ms(pause.delay_s)
    if delay_ms is None:
        raise Abort("the node suspended itself for a time that is no number of seconds")
    return delay_ms, encoded(pause.state)


def _outputs(follow: Follow, result: NodeResult, max_bytes: int) -> bytes:
    """What the node sent, as JSON. Raises Abort when that is too much, Invalid for what is not JSON."""
    payloads: dict[str, Any] = {}
    for handle, signal in result.outputs.items():
        follow.outputs[handle] = encode(signal)
        payloads[handle] = signal.payload
    if result.stop is not None:
        follow.stop = (result.stop.reason, result.stop.scope)
    if (size := sum(map(len, follow.outputs.values()))) > max_bytes:
        raise Abort(f"the node sends {size} bytes of JSON; at most {max_bytes} are carried (signals.max_bytes)")
    return codec.encode(payloads)


def read_inputs(raw: list[Any]) -> tuple[list[Arrived], dict[str, Any]]:
    """The hash `…:in:{node}` as a flat list: what has arrived, and what a suspended node left."""
    arrived: list[Arrived] = []
    left: dict[str, Any] = {}
    for i in range(0, len(raw), 2):
        name = raw[i].decode()
        source, arrow, handle = name.partition("->")
        if arrow:
            node, _, source_handle = source.partition(":")
            value = raw[i + 1]
            if value[:1] == b"!":
                arrived.append(Arrived(node, source_handle, handle, None, value[1:].decode()))
            else:
                arrived.append(Arrived(node, source_handle, handle, _signals.decode(value)))
        elif name == "state":
            left["state"] = codec.decode(raw[i + 1]) if raw[i + 1] else None
        elif name.startswith("kid "):
            _, flow_id, cycle = name.split(" ")
            child = {"flow": flow_id, "cycle": int(cycle), "status": raw[i + 1].decode()}
            left.setdefault("children", []).append(child)
    if len(arrived) > 1:
        arrived.sort(key=lambda a: (a.target_handle, a.source_node, a.source_handle))
    return arrived, left


class FlowHost:
    """The finisher of node tasks for one worker, and the jobs that go with it."""

    def __init__(self, store: FlowStore, executor: NodeExecutor, couriers: Sequence[Courier] = ()) -> None:
        self.plane = store.plane
        self.store = store
        self.executor = executor
        self.couriers = list(couriers)

    async def finish(
        self, worker: WorkerStore, endings: Sequence[Ending], capacity: int
    ) -> tuple[list[int], list[Taken]]:
        """Commit; what became ready and is this worker's comes back to be started. Raises Unavailable.

        A task that never came to be a node here (its request could not be read, say) ends in the task room; the leader
        brings that into its cycle.
        """
        stray = [ending for ending in endings if ending.follow is None]
        if stray:
            own = [ending for ending in endings if ending.follow is not None]
            verdicts = dict(zip((e.id for e in stray), await worker.finish(stray), strict=True))
            known, given = await self._commit(worker, own, capacity) if own else ([], [])
            verdicts |= zip((e.id for e in own), known, strict=True)
            return [verdicts[ending.id] for ending in endings], given
        return await self._commit(worker, endings, capacity)

    async def _commit(
        self, worker: WorkerStore, endings: Sequence[Ending], capacity: int
    ) -> tuple[list[int], list[Taken]]:
        keys = self.plane.keys
        args: list[Arg] = [*self.plane.head(), worker.id, worker.generation, capacity, self.plane.outbox_max]
        for ending in endings:
            args += _commit_args(ending)
        names = [
            keys.worker(worker.id), keys.worker_inflight(worker.id), keys.worker_queue(worker.id), keys.delayed(),
            keys.marked(),
        ]  # fmt: skip
        verdicts, given = await self.plane.scripts.run("node_commit", names, args)
        if self.couriers:
            await self._carry(endings, verdicts)
        return verdicts, taken_nodes(worker, given)

    async def _carry(self, endings: Sequence[Ending], verdicts: Sequence[int]) -> None:
        by_plan: dict[tuple[str, str], list[Follow]] = {}
        for ending, verdict in zip(endings, verdicts, strict=True):
            follow: Follow | None = ending.follow
            if verdict and follow is not None and (follow.outputs or follow.stop) and ending.status is Status.SUCCESS:
                by_plan.setdefault((follow.flow_id, follow.version), []).append(follow)
        for (flow_id, version), follows in by_plan.items():
            try:
                plan = await self.store.plan(flow_id, version)
            except (NotFound, Unavailable) as error:
                log.warning("signals wait: their plan is out of reach", flow=flow_id, error=error.message)
                continue
            for courier in self.couriers:
                await courier.carry(plan, follows)

    async def watch(self) -> None:
        """Every second: logs and progress of nodes that run, and terminate flags that somebody set by hand."""
        while True:
            await asyncio.sleep(1.0)
            running = list(self.executor.running.values())
            if not running:
                continue
            try:
                await self._look_after(running)
            except Unavailable as error:
                log.warning("running nodes cannot be looked after", error=error.message)

    async def _look_after(self, running: list[RunningNode]) -> None:
        keys, client = self.plane.keys, self.plane.tasks.redis
        flags = await client.mget([keys.node_terminate(node.state.id) for node in running])
        stop = [node.state.id for node, flag in zip(running, flags, strict=True) if flag]
        if stop:
            await self._cancel(stop)
        for node in running:
            await node.flush()

    async def _cancel(self, task_ids: list[str]) -> None:
        await TaskStore(self.plane.tasks, None).cancel(task_ids)


def _commit_args(ending: Ending) -> list[Arg]:
    follow: Follow = ending.follow
    status, delay_ms, error, outcome = ending.status.value, ending.delay_ms, ending.error, ending.outcome
    state: bytes = b""
    if follow.suspend is not None:
        status, error = "SUSPENDED", "waits"
        delay_ms, state = follow.suspend
    elif follow.terminated:
        status, error = "CANCELLED", follow.terminated
        outcome = codec.encode({"error": {"type": "Stopped", "message": error}})
    elif status != "SUCCESS" and not error:
        error = _message(outcome)
    is_sent = status == "SUCCESS"
    return [
        ending.id, ending.token, ending.type, status, ending.request, outcome, delay_ms, error, follow.flow_id,
        follow.cycle, follow.node_id,
        msgspec.msgpack.encode(_texts(follow.outputs)) if is_sent and follow.outputs else b"",
        msgspec.msgpack.encode(follow.stop) if is_sent and follow.stop else b"", state,
        follow.node.take_logs() if follow.node is not None else b"",
        msgspec.msgpack.encode(follow.seen) if follow.suspend is not None and follow.seen else b"",
    ]  # fmt: skip


def _texts(outputs: Mapping[str, bytes]) -> dict[str, str]:
    return {handle: body.decode() for handle, body in outputs.items()}


def _message(outcome: bytes) -> str:
    error = codec.decode(outcome).get("error") or {}
    return f"{error.get('type', '')}: {error.get('message', '')}"[:500].strip(": ")


def taken_nodes(worker: WorkerStore, reply: list[Any]) -> list[Taken]:
    """The nodes that a script gave to this worker (see lua/cycle.lua)."""
    found = []
    for i in range(1, len(reply), _STRIDE):
        taken = worker.taken(reply, i)
        taken.extra = (reply[i + 6].decode(), reply[i + 7])
        found.append(taken)
    return found
