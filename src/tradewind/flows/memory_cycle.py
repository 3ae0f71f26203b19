"""A whole cycle in memory, with the rules of the real engine and without its servers; `testing.py` is its door.

One node runs at a time, in topological order. Time is virtual: a node that suspends itself, and the backoff before a
retry, take no real time, though the nodes see it pass.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.errors import Conflict, NotFound
from tradewind.flows.call import Arrived, NodeCall, NodeResult, Suspend
from tradewind.flows.graph import Graph, analyse
from tradewind.flows.memory_outcome import FlowOutcome, LogLine, NodeRun, VirtualTime, read_signals
from tradewind.flows.node_base import Node
from tradewind.flows.node_errors import NodeStopExecutionException
from tradewind.flows.node_run import run_node
from tradewind.flows.spec import Edge, FlowSpec, NodeSpec, TriggerRule
from tradewind.flows.trigger import decide
from tradewind.signals.signal import Signal, new_signal
from tradewind.tasks.retry import MAX_ASKED
from tradewind.tasks.running import Abort, Retry

MAX_DEPTH = 20


@dataclass
class Family:
    """What a cycle shares with the cycles that it starts."""

    classes: Mapping[str, type[Node]]
    flows: Mapping[str, FlowSpec]
    outcomes: dict[tuple[str, int], FlowOutcome] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class _Child:
    flow: str
    cycle: int
    status: str
    end: float


class _Host:
    """The NodeHost of one node."""

    is_cancelled = False

    def __init__(self, cycle: MemoryCycle, node_id: str) -> None:
        self._cycle, self._node_id = cycle, node_id

    def log(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None:
        self._cycle.logs.append(LogLine(level, message, self._node_id, metadata))

    def progress(self, value: Any, message: str = "") -> None:
        self._cycle.nodes[self._node_id].progress.append((value, message) if message else value)

    async def start_cycle(self, flow_id: str, signals: dict[str, Any], key: str = "") -> int:
        return await self._cycle.start_child(self._node_id, flow_id, signals)

    async def cycle_outputs(self, flow_id: str, cycle: int) -> dict[str, dict[str, Any]]:
        outcome = self._cycle.family.outcomes.get((flow_id, cycle))
        if outcome is None:
            raise NotFound(f"flow {flow_id!r} has no cycle {cycle}")
        return outcome.outputs


class MemoryCycle:
    """One cycle. `signals`: by (node, handle), what comes from outside."""

    def __init__(
        self, spec: FlowSpec, family: Family, signals: Mapping[tuple[str, str], Any], clock: VirtualTime, depth: int = 0
    ) -> None:
        self.spec = spec
        self.family = family
        self.clock = clock
        self.depth = depth
        self.number = family.counts.get(spec.id, 0)
        family.counts[spec.id] = self.number + 1
        self.nodes = {node.id: NodeRun() for node in spec.nodes}
        self.logs: list[LogLine] = []
        self._specs = {node.id: node for node in spec.nodes}
        self._graph: Graph = analyse(list(self._specs), [(e.source, e.target) for e in spec.edges])
        self._place = {node_id: place for place, node_id in enumerate(self._graph.order)}
        self._out: dict[str, list[Edge]] = {node_id: [] for node_id in self._specs}
        self._fed: dict[str, dict[str, None]] = {node_id: {} for node_id in self._specs}
        self._open = dict.fromkeys(self._specs, 0)
        self._arrived: dict[str, list[Arrived]] = {node_id: [] for node_id in self._specs}
        self._ready: list[tuple[int, str]] = []
        self._asleep: list[tuple[float, int, str]] = []
        self._states: dict[str, Any] = {}
        self._children: dict[str, list[_Child]] = {}
        self._fresh_children: dict[str, bool] = {}
        self._stopped_by = ""
        self._cause = ""
        for edge in spec.edges:
            self._out[edge.source].append(edge)
            self._fed[edge.target][edge.target_handle] = None
            self._open[edge.target] += 1
        self._await_signals(signals)

    def _await_signals(self, signals: Mapping[tuple[str, str], Any]) -> None:
        given: dict[str, set[str]] = {}
        for node_id, handle in signals:
            given.setdefault(node_id, set()).add(handle)
        for node in self.spec.nodes:
            present = {*self._fed[node.id], *node.inputs, *node.config, *given.get(node.id, ())}
            handles = self.family.classes[node.type].describe().inputs
            wanted = set(node.external) | {h.name for h in handles if h.external and h.required}
            self._open[node.id] += len(wanted - present)
        for (node_id, handle), value in signals.items():
            signal = value if isinstance(value, Signal) else new_signal(value, timestamp=self.clock.now())
            self._arrived[node_id].append(Arrived("", "", handle, signal))

    async def run(self) -> FlowOutcome:
        began = self.clock.now()
        deadline = began + self.spec.cycle_timeout_s if self.spec.cycle_timeout_s else float("inf")
        is_late = False
        self._ready = [(self._place[n], n) for n, count in self._open.items() if count == 0]
        heapq.heapify(self._ready)
        while (self._ready or self._asleep) and not is_late:
            if self._ready:
                await self._meet(heapq.heappop(self._ready)[1])
            else:
                wake, _, node_id = heapq.heappop(self._asleep)
                self.clock.advance(min(wake, deadline) - self.clock.now())
                if wake <= deadline and self.nodes[node_id].status == "pending":
                    await self._work(node_id)
            is_late = self.clock.now() >= deadline
        waiting = {n for n, run in self.nodes.items() if run.status == "pending"}
        if waiting and deadline < float("inf"):
            self.clock.advance(deadline - self.clock.now())
            is_late = True
        for node_id in waiting:
            run = self.nodes[node_id]
            if is_late:
                run.status, run.error = "terminated", "the cycle took longer than its timeout"
            elif not any(e.target == node_id and e.source in waiting for e in self.spec.edges):
                run.status = "awaiting_input"
        has_failed = any(run.status == "failed" for run in self.nodes.values())
        status = "failed" if has_failed else "completed"
        if waiting:
            status = "timeout" if is_late else "running"
        took_s = round(self.clock.now() - began, 3)
        outcome = FlowOutcome(status, self.nodes, self.logs, self._stopped_by, self._cause, took_s)
        self.family.outcomes[self.spec.id, self.number] = outcome
        return outcome

    async def _meet(self, node_id: str) -> None:
        """All inputs of a node have come: it runs, or it is skipped."""
        if self.nodes[node_id].status != "pending":
            return
        node = self._specs[node_id]
        optional = {h.name for h in self.family.classes[node.type].describe().inputs if not h.required}
        values = failed = skipped = absent = 0
        for item in self._arrived[node_id]:
            if item.signal is not None:
                values += 1
            elif item.target_handle in optional:
                absent += 1
            elif item.tombstone == "failed":
                failed += 1
            else:
                skipped += 1
        if decide(node.trigger_rule, values, failed, skipped, absent) == "run":
            await self._work(node_id)
        elif failed:
            self._end(node_id, "skipped", f"upstream_failed: {self._cause or 'an input failed'}", "failed")
        else:
            self._end(node_id, "skipped", "upstream_skipped: no value came over an input", "skipped")

    async def _work(self, node_id: str) -> None:
        node, run = self._specs[node_id], self.nodes[node_id]
        node_class = self.family.classes[node.type]
        offered = node_class.describe()
        retries = offered.retries if node.retries is None else node.retries
        while True:
            run.attempts += 1
            call = self._call(node, run.attempts)
            delay_s = node.backoff_s * 2 ** (run.attempts - 1)
            most = retries
            try:
                async with asyncio.timeout(node.timeout_s or offered.timeout_s or None):
                    result = await run_node(call, node_class, _Host(self, node_id), now=self.clock.now)
                self._complete(node_id, result)
                return
            except Suspend as error:
                run.attempts -= 1
                self._sleep(node_id, error)
                return
            except NodeStopExecutionException as error:
                self._end(node_id, "terminated", str(error), "failed")
                return
            except Retry as error:
                why, may_retry = f"Retry: {error}", True
                most = retries if retries or error.only_if_left else MAX_ASKED - 1
                delay_s = delay_s if error.delay is None else error.delay
            except TimeoutError as error:
                why, may_retry = f"Timeout: {str(error) or 'it took longer than its timeout'}", True
            except Exception as error:  # noqa: BLE001 — the fence around user code; the outcome shows it
                why, may_retry = f"{type(error).__name__}: {error}", not isinstance(error, Abort)
            if not may_retry or run.attempts > most:
                self._fail(node_id, why)
                return
            self.clock.advance(delay_s)

    def _call(self, node: NodeSpec, attempt: int) -> NodeCall:
        now = self.clock.now()
        return NodeCall(
            flow_id=self.spec.id,
            cycle=self.number,
            component_id=self._graph.component_of[node.id],
            node_id=node.id,
            type=node.type,
            task_id=f"{self.spec.id}_{self.number}_{node.id}",
            attempt=attempt,
            config=copy.deepcopy(node.config),
            given=copy.deepcopy(node.inputs),
            arrived=copy.deepcopy(self._arrived[node.id]),  # a node may change what it gets; nobody else sees that
            connected=tuple(self._fed[node.id]),
            state=self._states.get(node.id),
            children=[
                {"flow": c.flow, "cycle": c.cycle, "status": c.status if c.end <= now else "running"}
                for c in self._children.get(node.id, [])
            ],
        )

    def _sleep(self, node_id: str, asked: Suspend) -> None:
        now = self.clock.now()
        wake = now + asked.delay_s
        running = [child.end for child in self._children.get(node_id, []) if child.end > now]
        fresh = self._fresh_children.pop(node_id, False)
        if running or fresh:
            wake = min(wake, max([now, *running]))
        self._states[node_id] = asked.state
        heapq.heappush(self._asleep, (wake, self._place[node_id], node_id))

    def _complete(self, node_id: str, result: NodeResult) -> None:
        self.nodes[node_id].outputs = {handle: signal.payload for handle, signal in result.outputs.items()}
        self._end(node_id, "completed", "", "skipped", result.outputs)
        if result.stop is not None:
            self._stopped_by = node_id
            text = f"Stopped by {node_id}: {result.stop.reason}"
            self._halt(node_id, result.stop.scope == "flow", "terminated", text)

    def _fail(self, node_id: str, why: str) -> None:
        self._cause = self._cause or f"{node_id}: {why}"
        self._end(node_id, "failed", why, "failed")
        if self.spec.on_failure != "isolate":
            self._halt(node_id, self.spec.on_failure == "stop_flow", "skipped", f"stopped: {self._cause}")

    def _end(
        self, node_id: str, status: str, error: str, tombstone: str, outputs: Mapping[str, Signal] | None = None
    ) -> None:
        run = self.nodes[node_id]
        run.status, run.error = status, error
        for edge in self._out[node_id]:
            signal = (outputs or {}).get(edge.source_handle)
            stone = "" if signal is not None else tombstone
            self._arrived[edge.target].append(Arrived(node_id, edge.source_handle, edge.target_handle, signal, stone))
            self._open[edge.target] -= 1
            if self._open[edge.target] == 0 or (stone == "failed" and self._is_needed(edge)):
                heapq.heappush(self._ready, (self._place[edge.target], edge.target))

    def _is_needed(self, edge: Edge) -> bool:
        """Whether the target cannot run without a value over it, whatever else comes."""
        node = self._specs[edge.target]
        handles = self.family.classes[node.type].describe().inputs
        is_optional = any(h.name == edge.target_handle and not h.required for h in handles)
        return not is_optional and node.trigger_rule in (TriggerRule.ALL_SUCCESS, TriggerRule.NONE_FAILED)

    def _halt(self, node_id: str, is_all: bool, status: str, error: str) -> None:
        """What is left of the node's component, or of the flow, does not run."""
        component = self._graph.component_of[node_id]
        for other, run in self.nodes.items():
            if run.status == "pending" and (is_all or self._graph.component_of[other] == component):
                run.status, run.error = status, error

    async def start_child(self, node_id: str, flow_id: str, signals: Mapping[str, Any]) -> int:
        """Run a cycle of another flow at once; in virtual time it runs beside its parent."""
        spec = self.family.flows.get(flow_id)
        if spec is None:
            raise NotFound(f"there is no flow {flow_id!r}", hint="give it to run_flow as flows={…}")
        if self.depth >= MAX_DEPTH:
            raise Conflict(f"flow {flow_id!r} would be the {MAX_DEPTH + 1}th flow inside of another")
        clock = VirtualTime(self.clock.ahead_s)
        child = MemoryCycle(spec, self.family, read_signals(spec, signals, self.family.classes), clock, self.depth + 1)
        outcome = await child.run()
        self._children.setdefault(node_id, []).append(
            _Child(flow_id, child.number, outcome.status, clock.now() if outcome.status != "running" else float("inf"))
        )
        self._fresh_children[node_id] = True
        return child.number
