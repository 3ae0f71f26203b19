"""Starting a cycle outside of the schedule: run now, partial runs, runs again, children of a node.

What a run is given: `signals` maps `node.handle` to a value. It arrives on that handle as if it came over its edge, or
from outside where the handle has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tradewind import codec
from tradewind.errors import Conflict, Invalid, NotFound, Problem
from tradewind.flows.plan import OUTSIDE, Plan, PlannedNode
from tradewind.flows.store import FlowStore, Given, Opening, unknown_cycle
from tradewind.ids import new_id
from tradewind.redis.connection import translated
from tradewind.signals.signal import encode, new_signal

#: What a partial run takes in, seen from its node.
MODES = ("single", "upstream", "downstream", "component")


class RunRequest(msgspec.Struct, omit_defaults=True):
    """`node` and `mode`: run only that part. `from_cycle`: where signals of the left-out nodes come from."""

    signals: dict[str, Any] = {}
    node: str = ""
    mode: str = ""
    from_cycle: int | None = None


async def start_cycle(
    store: FlowStore, flow_id: str, request: RunRequest, *, trigger: str = "manual", parent: str = "", run_id: str = ""
) -> int:
    """Start now, whatever else runs; the cycle's number. Raises NotFound, Conflict, Invalid."""
    for _ in range(5):
        plan = await store.plan(flow_id)
        only = _chosen(plan, request)
        stored = await _stored(store, plan, flow_id, request, only)
        given = given_signals(plan, flow_id, request.signals)
        taken = {(g.node, g.edge) for g in given}
        given += [g for g in stored if (g.node, g.edge) not in taken]
        spec = plan.spec
        opening = Opening(
            flow_id=flow_id,
            version=plan.version,
            trigger=trigger if only is None else "partial",
            request=codec.encode(request),
            timeout_s=store.plane.cycle_timeout_s(plan),
            parent=parent,
            run_id=run_id or new_id(),
            on_failure="" if spec.on_failure == "isolate" else spec.on_failure,
            only=only,
            given=given,
        )
        opened = await store.open(opening)
        if opened.cycle >= 0:
            return opened.cycle
        if opened.why != "version":
            raise Conflict(f"cannot run {flow_id!r}: it is {opened.why.partition(':')[2]}", code="flow_state")
    raise Conflict(f"the flow {flow_id!r} keeps changing", code="flow_changed", hint="try again")


async def start_child(store: FlowStore, flow_id: str, signals: dict[str, Any], parent: str, key: str) -> int:
    if flow_id == parent.partition(":")[0]:
        raise Conflict(f"the flow {flow_id!r} cannot start itself", code="flow_recursion", hint="name another flow")
    return await start_cycle(store, flow_id, RunRequest(signals), trigger="subflow", parent=parent, run_id=key)


def given_signals(plan: Plan, flow_id: str, signals: Mapping[str, Any]) -> list[Given]:
    """Raises Invalid with every name that is not `node.handle` of the flow."""
    problems: list[Problem] = []
    given: list[Given] = []
    for name, value in signals.items():
        node_id, _, handle = name.partition(".")
        node = plan.nodes.get(node_id)
        if node is None or not handle:
            problems.append(
                Problem("unknown_node", f"signals.{name}", f"name it node.handle; nodes: {_some(plan.nodes)}")
            )
            continue
        body = encode(new_signal(value, source_node="*", source_handle="*", flow_id=flow_id))
        edges = node.edges_of(handle)
        given += [Given(node_id, edge, body) for edge in edges]
        if not edges:  # a handle without an edge: nothing waits for it, but it is read
            given.append(Given(node_id, OUTSIDE + handle, body, is_counted=False))
    if problems:
        raise Invalid("the signals do not fit the flow", hint="see problems", problems=problems)
    return given


def _chosen(plan: Plan, request: RunRequest) -> list[str] | None:
    if not request.node and not request.mode:
        return None
    if request.node not in plan.nodes:
        raise NotFound(f"flow {plan.spec.id!r} has no node {request.node!r}", code="node_not_found")
    graph = plan.graph()
    mode = request.mode or "single"
    if mode == "single":
        return [request.node]
    if mode == "upstream":
        return [*graph.upstream(request.node), request.node]
    if mode == "downstream":
        return [request.node, *graph.downstream(request.node)]
    if mode == "component":
        return list(graph.components[graph.component_of[request.node]].nodes)
    raise Invalid(f"{mode!r} is no kind of partial run", hint=f"give one of {', '.join(MODES)}")


async def _stored(
    store: FlowStore, plan: Plan, flow_id: str, request: RunRequest, only: Sequence[str] | None
) -> list[Given]:
    """What the chosen nodes get over edges from left-out ones: as in the named cycle, or as last kept."""
    if only is None:
        return []
    chosen = set(only)
    wanted = [(plan.nodes[name], edge) for name in only for edge in _from_outside(plan.nodes[name], chosen)]
    keys, client, cycle = store.plane.keys, store.plane.tasks.redis, request.from_cycle
    with translated():
        if cycle is None:
            known = await client.zrange(keys.flow_cycles(flow_id), 0, -1, desc=True)
            cycles = [int(n) for n in known if n.isdigit() and len(n) < 16]
        elif cycle >= 0 and await client.exists(keys.cycle(flow_id, cycle)):
            cycles = [cycle]
        else:
            raise unknown_cycle(flow_id, cycle)
        pipe = client.pipeline(transaction=False)
        for cycle in cycles:
            for node, edge in wanted:
                pipe.hget(keys.cycle_inputs(flow_id, cycle, node.id), edge)
        bodies = await pipe.execute()
    found = []
    for i, (node, edge) in enumerate(wanted):
        body = next((b for b in bodies[i :: len(wanted)] if b is not None), b"!skipped")
        found.append(Given(node.id, edge, body))
    return found


def _from_outside(node: PlannedNode, chosen: set[str]) -> list[str]:
    return [f"{s}:{h}->{handle}" for handle, pairs in node.sources.items() for s, h in pairs if s not in chosen]


async def cycle_outputs(store: FlowStore, flow_id: str, cycle: int) -> dict[str, dict[str, Any]]:
    """node id → handle → value of what the nodes of a cycle sent, as far as Redis still has it."""
    keys, client = store.plane.keys, store.plane.tasks.redis
    with translated():
        version, parent = await client.hmget(keys.cycle(flow_id, cycle), "version", "parent")
        if version is None:
            raise unknown_cycle(flow_id, cycle)
        if parent is not None:
            kept = await client.hgetall(keys.cycle_outputs(flow_id, cycle))
            return {name.decode(): _payloads(data) for name, data in kept.items()}
        plan = await store.plan(flow_id, version.decode(errors="replace"))
        bodies = await client.mget([keys.body(f"{flow_id}_{cycle}_{name}") for name in plan.nodes])
    found: dict[str, dict[str, Any]] = {}
    for name, body in zip(plan.nodes, bodies, strict=True):
        outcome = (body or b"").partition(b"\n")[2]
        if outcome:
            result = codec.decode(outcome).get("result")
            if isinstance(result, dict):
                found[name] = result
    return found


def _payloads(data: bytes) -> dict[str, Any]:
    return {handle: signal["payload"] for handle, signal in codec.decode(data).items()}


def _some(names: Mapping[str, Any]) -> str:
    shown = list(names)[:10]
    return ", ".join(shown) + (" …" if len(names) > 10 else "")
