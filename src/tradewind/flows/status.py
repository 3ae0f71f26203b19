"""How flows, cycles and nodes stand: read from Redis while it has them, from the record after that."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from tradewind import codec
from tradewind.clock import iso
from tradewind.errors import NotFound
from tradewind.flows.plan import OUTSIDE, Plan, PlannedNode
from tradewind.flows.store import FlowStore, unknown_cycle
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord, reading
from tradewind.tasks.waiting import Wanted, reasons

if TYPE_CHECKING:
    from tradewind.flows.record_query import CycleEntry, FlowRecords

log = structlog.get_logger(__name__)
COUNTS = ("total", "open", "completed", "failed", "skipped", "terminated")
#: States of a node's task in which a worker is what it needs; RETRYING may wait for something else on purpose.
_NO_WORKER_YET = (b"QUEUED",)
_WAITING = {"QUEUED": "queued", "ASSIGNED": "assigned", "RETRYING": "waits to be run again", "PENDING": "waits"}


class FlowStatus:
    def __init__(self, store: FlowStore, records: FlowRecords | None) -> None:
        self.store = store
        self.records = records

    async def flow(self, flow_id: str) -> dict[str, Any]:
        """The seed's flow record, its JSON decoded, with the state of its last cycle. Raises NotFound."""
        raw = await self.store.read(flow_id)
        with reading(f"the flow {flow_id!r}"):
            view = flow_view(raw)
        view["current_cycle_status"] = None
        if view["last_cycle"] >= 0:
            with suppress(NotFound, SpoiltRecord):  # so old that nobody remembers it
                view["current_cycle_status"] = await self.cycle(flow_id, view["last_cycle"])
        return view

    async def cycle(self, flow_id: str, cycle: int) -> dict[str, Any]:
        """The seed's cycle status: its nodes with their states. Raises NotFound."""
        raw = await self._cycle_hash(flow_id, cycle)
        if raw is None:
            return recorded_view(await self._entry(flow_id, cycle), flow_id, cycle)
        with reading(f"cycle {cycle} of the flow {flow_id!r}"):
            nodes = await self._nodes(flow_id, cycle, raw)
            return {**cycle_view(raw), "nodes": nodes, "node_count": len(nodes)}

    async def comprehensive(self, flow_id: str, cycle: int | None = None) -> dict[str, Any]:
        """The seed's comprehensive status: flow, nodes and statistics of one cycle (the last one)."""
        raw = await self.store.read(flow_id)
        if cycle is None:
            with reading(f"the flow {flow_id!r}"):
                cycle = int(raw["last_cycle"])
        view: dict[str, Any] = {"flow_id": flow_id, "cycle": cycle, "flow_status": raw.get("status", "")}
        if cycle < 0:
            return {**view, "cycle_status": None, "nodes": {}, "statistics": statistics([])}
        found = await self.cycle(flow_id, cycle)
        nodes = found.pop("nodes")
        rest: dict[str, Any] = {
            key: found[key]
            for key in ("start_time", "end_time", "trigger", "stopped_by", "reason", "error")
            if key in found
        }
        return {
            **view,
            "cycle_status": found["status"],
            **rest,
            "nodes": nodes,
            "statistics": statistics([node["status"] for node in nodes.values()]),
        }

    async def why(self, flow_id: str, cycle: int, node_id: str) -> dict[str, Any]:
        """Why a node has not ended: which inputs it waits for, or where its task stands. Raises NotFound."""
        raw = await self._cycle_hash(flow_id, cycle)
        if raw is None:
            return await self._why_ended(flow_id, cycle, node_id)
        with reading(f"cycle {cycle} of the flow {flow_id!r}"):
            plan = await self.store.plan(flow_id, raw["version"])
            node = _node(plan, node_id)
            states = await self._nodes(flow_id, cycle, raw, [node_id])
        state = states[node_id]
        keys, client = self.store.plane.keys, self.store.plane.tasks.redis
        with translated():
            arrived = {
                k.decode(errors="replace"): v
                for k, v in (await client.hgetall(keys.cycle_inputs(flow_id, cycle, node_id))).items()
            }
        missing = []
        sources = {source for pairs in node.sources.values() for source, _ in pairs}
        others = await self._nodes(flow_id, cycle, raw, sorted(sources)) if sources else {}
        for edge in node.waits_for():
            if edge in arrived:
                continue
            if edge.startswith(OUTSIDE):
                missing.append({"input": edge.removeprefix(OUTSIDE), "from": None, "source_status": "outside"})
                continue
            source, _, handle = edge.partition("->")
            name = source.partition(":")[0]
            missing.append({"input": handle, "from": source, "source_status": others[name]["status"]})
        return {
            "flow_id": flow_id,
            "cycle": cycle,
            "node_id": node_id,
            "status": state["status"],
            "reason": _reason(state, missing),
            "missing": missing,
            "arrived": sorted(edge for edge in arrived if "->" in edge),
        }

    async def _why_ended(self, flow_id: str, cycle: int, node_id: str) -> dict[str, Any]:
        state = recorded_view(await self._entry(flow_id, cycle), flow_id, cycle)["nodes"].get(node_id)
        if state is None:
            message = f"cycle {cycle} of {flow_id!r} has no node {node_id!r}"
            raise NotFound(message, code="node_not_found", hint="see its nodes")
        return {
            "flow_id": flow_id,
            "cycle": cycle,
            "node_id": node_id,
            "status": state["status"],
            "reason": _reason(state, []),
            "missing": [],
            "arrived": [],
        }

    async def _cycle_hash(self, flow_id: str, cycle: int) -> dict[str, str] | None:
        if cycle < 0:
            return None
        with translated():
            raw = await self.store.plane.tasks.redis.hgetall(self.store.plane.keys.cycle(flow_id, cycle))
        return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in raw.items()} or None

    async def _entry(self, flow_id: str, cycle: int) -> CycleEntry:
        entry = await self.records.cycle(flow_id, cycle) if self.records is not None and cycle >= 0 else None
        if entry is None:
            raise unknown_cycle(flow_id, cycle)
        return entry

    async def _nodes(
        self, flow_id: str, cycle: int, raw: dict[str, str], only: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        plan = await self.store.plan(flow_id, raw["version"])
        names = list(plan.nodes) if only is None else only
        keys, client = self.store.plane.keys, self.store.plane.tasks.redis
        with translated():
            pipe = client.pipeline(transaction=False)
            pipe.hgetall(keys.cycle_done(flow_id, cycle))
            for name in names:
                task_id = f"{flow_id}_{cycle}_{name}"
                pipe.hmget(keys.task(task_id), "status", "start", "worker", "n", "prog", "err", "pri")
                pipe.hget(keys.cycle_inputs(flow_id, cycle, name), "n")
            rows = await pipe.execute()
        done = {k.decode(): v.decode() for k, v in rows[0].items()}
        found, waiting = {}, {}
        for i, name in enumerate(names):
            row = rows[1 + 2 * i]
            found[name] = _node_view(plan.nodes[name], done.get(name), row, rows[2 + 2 * i])
            if name not in done and row[0] in _NO_WORKER_YET:
                waiting[name] = Wanted(plan.nodes[name].spec.type, (row[6] or b"normal").decode())
        why = await reasons(self.store.plane.tasks, waiting.values())
        for name, wanted in waiting.items():
            if reason := why[wanted]:
                found[name]["waiting_for"] = reason
                found[name]["message"] = f"{found[name]['message']}; {reason}"
        return found


def _node(plan: Plan, node_id: str) -> PlannedNode:
    node = plan.nodes.get(node_id)
    if node is None:
        raise NotFound(f"flow {plan.spec.id!r} has no node {node_id!r}", code="node_not_found", hint="see its nodes")
    return node


def _node_view(node: PlannedNode, line: str | None, row: list[bytes | None], arrived: bytes | None) -> dict[str, Any]:
    status, start, worker, attempt, progress, error, _ = ((v or b"").decode(errors="replace") for v in row)
    view: dict[str, Any] = {
        "status": "pending", "error_message": None, "started_at": None, "finished_at": None,
        "worker_id": worker or None, "type": node.spec.type, "component_id": node.component,
        "attempt": int(attempt or 0), "message": "", "progress": codec.decode(progress) if progress else None,
        "waiting_for": None,
    }  # fmt: skip
    if line is not None:
        state, began, ended, done_by, message = line.split(" ", 4)
        view["status"], view["worker_id"] = state, done_by or view["worker_id"]
        view["started_at"] = iso(int(began)) if began != "0" else None
        view["finished_at"] = iso(int(ended))
        view["error_message"], view["message"] = (message or None) if state != "completed" else None, message
        return view
    waits_for = node.waits_for()
    if status == "PROCESSING":
        view["status"], view["message"] = "running", "Executing node"
        view["started_at"] = iso(int(start)) if start else None
    elif status == "RETRYING" and node.listens and error == "waits":
        view["status"], view["message"] = "awaiting_input", f"waits for {', '.join(node.listens)} from outside"
    elif status in _WAITING:
        view["message"] = _WAITING[status] + (f": {error}" if error else "")
    elif node.external and int(arrived or 0) >= len(waits_for) - len(node.external):
        view["status"], view["message"] = "awaiting_input", f"waits for {', '.join(node.external)} from outside"
    else:
        view["message"] = f"waits for {len(waits_for) - int(arrived or 0)} of {len(waits_for)} inputs"
    return view


def _reason(state: dict[str, Any], missing: list[dict[str, Any]]) -> str:
    if state["status"] == "running":
        return f"it runs on {state['worker_id']}"
    if state["status"] not in ("pending", "awaiting_input"):
        return f"it has ended: {state['status']}" + (f" ({state['message']})" if state["message"] else "")
    if state["status"] == "awaiting_input" and not missing:
        return str(state["message"])
    if not missing:
        return f"its inputs are there; its task is {state['message'] or 'about to start'}"
    named = [m["from"] or f"a signal from outside on {m['input']}" for m in missing[:5]]
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return f"waits for {', '.join(named)}{more}"


def statistics(states: Sequence[str]) -> dict[str, int]:
    def count(*names: str) -> int:
        return sum(state in names for state in states)

    failed = count("failed")
    return {
        "total_nodes": len(states),
        "running_nodes": count("running"),
        "completed_nodes": count("completed"),
        "failed_nodes": failed,
        "error_nodes": failed,
        "skipped_nodes": count("skipped"),
        "terminated_nodes": count("terminated"),
        "pending_nodes": count("pending", "awaiting_input"),
    }


def flow_view(raw: dict[str, str]) -> dict[str, Any]:
    return {
        "id": raw["id"],
        "status": raw["status"],
        "config": codec.decode(raw["config"]),
        "structure": codec.decode(raw["structure"]),
        "last_cycle": int(raw["last_cycle"]),
        "next_execution": float(raw.get("next_execution") or 0),
        "created_at": raw["created_at"],
        "updated_at": iso(int(raw.get("updated_ms", 0))),
        "version": raw["version"],
        "missed_slots": int(raw.get("missed", 0)),
        "skipped_slots": int(raw.get("skipped", 0)),
        "failures_in_a_row": int(raw.get("failures", 0)),
    }


def cycle_view(raw: dict[str, str]) -> dict[str, Any]:
    return {
        "flow_id": raw["flow_id"],
        "cycle": int(raw["cycle"]),
        "status": raw["status"],
        "start_time": raw["start_time"],
        "end_time": raw["end_time"] or None,
        "trigger": raw.get("trigger", ""),
        "slot": iso(int(raw["slot_ms"])) if int(raw.get("slot_ms") or 0) else None,
        "counts": {name: int(raw.get(name, 0)) for name in COUNTS},
        "stopped_by": raw.get("stopped_by"),
        "reason": raw.get("reason") or raw.get("stop_reason"),
        "error": raw.get("cause"),
        "version": raw.get("version"),
        "parent": raw.get("parent"),
    }


def readable_cycle(row: dict[bytes, bytes]) -> dict[str, Any] | None:
    """One of many: those that nobody can read hold up nobody."""
    try:
        with reading("a cycle"):
            return cycle_view({name.decode(): value.decode() for name, value in row.items()})
    except SpoiltRecord as error:
        flow_id, cycle = (row.get(name, b"").decode(errors="replace")[:160] for name in (b"flow_id", b"cycle"))
        log.warning("cycle_unreadable", flow=flow_id, cycle=cycle, error=error.message)
        return None


def recorded_view(entry: CycleEntry, flow_id: str, cycle: int) -> dict[str, Any]:
    """A cycle that only SQL has."""
    nodes = {}
    for name, (state, began, ended, message) in (entry.nodes or {}).items():
        nodes[name] = {
            "status": state, "error_message": (message or None) if state != "completed" else None,
            "started_at": iso(began) if began else None, "finished_at": iso(ended) if ended else None,
            "worker_id": None, "message": message,
        }  # fmt: skip
    counts = entry.counts
    return {
        "flow_id": flow_id, "cycle": cycle, "status": entry.status, "start_time": iso(entry.start_ms),
        "end_time": iso(entry.end_ms) if entry.end_ms else None, "trigger": entry.trigger,
        "slot": iso(entry.slot_ms) if entry.slot_ms else None, "counts": counts, "stopped_by": entry.stopped_by or None,
        "reason": None, "error": entry.error or None, "version": None, "parent": None, "nodes": nodes,
        "node_count": len(nodes),
    }  # fmt: skip
