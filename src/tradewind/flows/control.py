"""What users may do with flows: the one service behind the API, the CLI and Python programs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from tradewind import codec
from tradewind.errors import Conflict, Invalid, NotFound, Problem, TimedOut
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.plan import OUTSIDE, Plan, make_plan
from tradewind.flows.spec import NodeType
from tradewind.flows.starting import RunRequest, start_cycle
from tradewind.flows.status import FlowStatus, flow_view, readable_cycle, recorded_view
from tradewind.flows.store import FlowStore, StaleVersion, unknown_cycle, unknown_flow
from tradewind.flows.syntax import invalid_flow
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord, other_types, reading
from tradewind.redis.scripts import Arg
from tradewind.signals.signal import encode, new_signal

if TYPE_CHECKING:
    from tradewind.flows.record_query import FlowRecords

log = structlog.get_logger(__name__)
#: How long a delete waits for running cycles to end; their nodes were asked to stop.
DELETE_S = 30.0
#: Flows whose definitions are read with one call.
READ_COUNT = 40


class FlowControl:
    def __init__(self, store: FlowStore, types: KnownTypes, records: FlowRecords | None) -> None:
        self.store = store
        self.types = types
        self.records = records
        self.status = FlowStatus(store, records)

    # definitions

    async def validate(self, document: object, flow_id: str | None = None) -> list[Problem]:
        return (await self.types.check(document, flow_id))[1]

    async def register(
        self, document: object, flow_id: str | None = None, *, is_new: bool = False
    ) -> tuple[dict[str, Any], bool]:
        """Create or replace; the flow as `get` shows it, and whether it is new. Raises Invalid, Conflict."""
        spec, problems, types = await self.types.check(document, flow_id)
        if spec is None:
            raise invalid_flow(flow_id or "", problems)
        plane = self.store.plane
        plan = make_plan(spec, types, int(plane.tasks.settings.default_timeout_s * 1000))
        created = await self.store.register(plan, codec.encode(spec.config), is_new=is_new)
        return await self.get(spec.id), created

    async def get(self, flow_id: str) -> dict[str, Any]:
        return flow_view(await self.store.read(flow_id))

    async def page(
        self, *, after: str = "", limit: int = 100, status: str = ""
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Short views in the order of their ids, and where to go on, None at the end."""
        found: list[str] = []
        keys, client = self.store.plane.keys, self.store.plane.tasks.redis
        is_more = True
        while is_more and len(found) <= limit:
            many = 500 if status else min(500, limit - len(found) + 1)
            ids = await self.store.ids(after, many)
            with translated():
                pipe = client.pipeline(transaction=False)
                for flow_id in ids:
                    pipe.hget(keys.flow(flow_id), "status")
                states = other_types(await pipe.execute(raise_on_error=False)) if ids else []
            found += [
                i
                for i, state in zip(ids, states, strict=True)
                if isinstance(state, bytes) and status in ("", state.decode(errors="replace"))
            ]
            is_more = len(ids) == many
            after = ids[-1] if ids else after
        views = await self._short_views(found[:limit])
        return views, found[limit - 1] if len(found) > limit else None

    async def _short_views(self, ids: list[str]) -> list[dict[str, Any]]:
        """A few at a time: their definitions may be long."""
        keys, client = self.store.plane.keys, self.store.plane.tasks.redis
        views = []
        for start in range(0, len(ids), READ_COUNT):
            part = ids[start : start + READ_COUNT]
            with translated():
                pipe = client.pipeline(transaction=False)
                for flow_id in part:
                    pipe.hgetall(keys.flow(flow_id))
                    pipe.scard(keys.flow_running(flow_id))
                rows = other_types(await pipe.execute(raise_on_error=False))
            for i in range(len(part)):
                if not (isinstance(rows[2 * i], dict) and isinstance(rows[2 * i + 1], int)):
                    log.warning("flow_unreadable", flow=part[i][:160], error="a key of it is of another type")
                    continue
                raw = {k.decode(errors="replace"): v.decode(errors="replace") for k, v in rows[2 * i].items()}
                try:
                    with reading(f"the flow {part[i]!r}"):
                        if raw:  # else it went away meanwhile
                            views.append(_short_view(raw, rows[2 * i + 1]))
                except SpoiltRecord as error:
                    log.warning("flow_unreadable", flow=part[i][:160], error=error.message)
        return views

    async def check_known(self, flow_id: str) -> None:
        """Raises NotFound."""
        with translated():
            if not await self.store.plane.tasks.redis.exists(self.store.plane.keys.flow(flow_id)):
                raise unknown_flow(flow_id)

    async def node_types(self) -> list[NodeType]:
        return [kind for _, kind in sorted((await self.types.all()).items())]

    # states

    async def start(self, flow_id: str) -> dict[str, Any]:
        return await self._begin(flow_id, "start")

    async def resume(self, flow_id: str) -> dict[str, Any]:
        return await self._begin(flow_id, "resume")

    async def _begin(self, flow_id: str, verb: str) -> dict[str, Any]:
        for _ in range(5):
            plan = await self.store.plan(flow_id)
            try:
                status, _ = await self.store.move(flow_id, verb, plan.spec, plan.version)
                return {"flow_id": flow_id, "status": status}
            except StaleVersion:
                continue
        raise StaleVersion(f"the flow {flow_id!r} keeps changing", code="flow_changed", hint="try again")

    async def pause(self, flow_id: str) -> dict[str, Any]:
        """No new cycles; running ones go on."""
        status, _ = await self.store.move(flow_id, "pause")
        return {"flow_id": flow_id, "status": status}

    async def drain(self, flow_id: str) -> dict[str, Any]:
        """No new cycles; when the running ones have ended, it is stopped."""
        status, _ = await self.store.move(flow_id, "drain")
        return {"flow_id": flow_id, "status": status}

    async def stop(self, flow_id: str, reason: str = "the flow was stopped") -> dict[str, Any]:
        """No new cycles, and the running ones are stopped: waiting nodes end now, running ones are asked to."""
        status, running = await self.store.move(flow_id, "stop")
        for cycle in running:
            await self.store.stop(flow_id, cycle, "stopped", "", reason)
        return {"flow_id": flow_id, "status": status}

    async def delete(self, flow_id: str, wait_s: float = DELETE_S) -> None:
        """Stop it, wait for its running nodes to end, remove everything of it. Raises NotFound, TimedOut.

        If the wait is too short the flow stays `deleting` and the call can be repeated.
        """
        _, running = await self.store.move(flow_id, "delete")
        for cycle in running:
            await self.store.stop(flow_id, cycle, "stopped", "", "the flow is being deleted")
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            is_gone, left = await self.store.delete_some(flow_id)
            if is_gone and not await self._has_queues(flow_id):
                return
            if left or is_gone:
                if asyncio.get_running_loop().time() > deadline:
                    what = "nodes that do not stop" if left else "queues on the broker"
                    message = f"the flow {flow_id!r} still has {what}"
                    raise TimedOut(message, code="flow_deleting", hint="they go as soon as they can; look again")
                await asyncio.sleep(0.05)

    async def _has_queues(self, flow_id: str) -> bool:
        """Whether the leader has yet to delete queues of that flow."""
        if not self.store.plane.is_amqp:
            return False
        with translated():
            names = await self.store.plane.tasks.redis.hkeys(self.store.plane.keys.flows_queues())
        return any(name.decode(errors="replace").rpartition(":")[0] == flow_id for name in names)

    # cycles

    async def run(
        self, flow_id: str, request: RunRequest | None = None, *, trigger: str = "manual", run_id: str = ""
    ) -> int:
        """Start a cycle now; its number. Raises NotFound, Conflict, Invalid."""
        if request is not None and request.signals and trigger in ("manual", "webhook"):
            await self._check_signals(flow_id, request.signals)
        return await start_cycle(self.store, flow_id, request or RunRequest(), trigger=trigger, run_id=run_id)

    async def _check_signals(self, flow_id: str, signals: dict[str, Any]) -> None:
        plan = await self.store.plan(flow_id)
        problems: list[Problem] = []
        for name, value in signals.items():
            node_id, _, handle = name.partition(".")
            if (node := plan.nodes.get(node_id)) is not None:
                found = self.types.registry.check_input(node.spec.type, node.spec.config, handle, value)
                problems += [Problem(p.code, f"signals.{name}{p.path.removeprefix('value')}", p.hint) for p in found]
        if problems:
            raise Invalid(
                "signals are refused by their nodes", code=problems[0].code, hint="see problems", problems=problems
            )

    async def run_again(self, flow_id: str, cycle: int) -> int:
        """A new cycle with what the earlier one was given."""
        keys = self.store.plane.keys
        with translated():
            found = await self.store.plane.tasks.redis.hmget(keys.cycle(flow_id, cycle), "status", "request")
        if found[0] is None:
            raise unknown_cycle(flow_id, cycle)
        request = msgspec.json.decode(found[1], type=RunRequest) if found[1] else RunRequest()
        return await self.run(flow_id, request, trigger="again")

    async def webhook(self, flow_id: str, payload: Any) -> int:
        """An event from outside starts a cycle; `payload` goes to the handles that the flow's webhook triggers name."""
        plan = await self.store.plan(flow_id)
        triggers = [t for t in plan.spec.triggers if t.get("type") == "webhook"]
        if not plan.spec.webhook and not triggers:
            raise Conflict(
                f"the flow {flow_id!r} takes no webhook", code="no_webhook", hint='register it with "webhook": true'
            )
        return await self.fire(flow_id, "webhook", payload)

    async def fire(
        self,
        flow_id: str,
        trigger: str,
        payload: Any,
        *,
        run_id: str = "",
        only_running: bool = False,
        fired: int | None = None,
        others: Mapping[int, Any] | None = None,
    ) -> int:
        """An event (webhook, point, alarm) starts a cycle. The seam for the rooms that watch the world.

        `only_running`: not unless the flow was started. `fired`: the number of the flow's trigger that it comes from,
        None: of all of that type; `others`: what the other triggers of that type have to say, by number; one that has
        nothing to say gives null to its handle. Raises NotFound, Conflict.
        """
        plan = await self.store.plan(flow_id)
        if only_running and (status := (await self.store.read(flow_id))["status"]) != "running":
            raise Conflict(f"the flow {flow_id!r} is {status}", code="flow_state", hint="start it")
        signals = trigger_signals(plan, trigger, payload, fired, others or {})
        return await self.run(flow_id, RunRequest(signals), trigger=trigger, run_id=run_id)

    async def cycles(
        self, flow_id: str, *, status: str = "", before: int | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Newest first: what Redis keeps, then what only the record has."""
        await self.check_known(flow_id)
        keys, client = self.store.plane.keys, self.store.plane.tasks.redis
        high = f"({before}" if before is not None else "+inf"
        many = -1 if status else limit  # those of one status may stand anywhere
        with translated():
            numbers = await client.zrange(
                keys.flow_cycles(flow_id), high, "-inf", byscore=True, desc=True, offset=0, num=many
            )
            pipe = client.pipeline(transaction=False)
            numbers = [n for n in numbers if n.isdigit() and len(n) < 16]
            for n in numbers:
                pipe.hgetall(keys.cycle(flow_id, int(n)))
            rows = other_types(await pipe.execute(raise_on_error=False)) if numbers else []
        kept = [view for row in rows if row and isinstance(row, dict) and (view := readable_cycle(row)) is not None]
        found = [view for view in kept if not status or view["status"] == status][:limit]
        if self.records is not None and len(found) < limit:
            oldest = min((view["cycle"] for view in kept), default=before)
            page = await self.records.cycles(flow_id, status=status or None, before=oldest, limit=limit - len(found))
            found += [_entry_view(entry) for entry in page.items]
        return found

    async def cycle_state(self, flow_id: str, cycle: int) -> str:
        """Its status alone. Raises NotFound."""
        with translated():
            found = await self.store.plane.tasks.redis.hget(self.store.plane.keys.cycle(flow_id, cycle), "status")
        if found is not None:
            return str(found.decode(errors="replace"))
        entry = await self.records.cycle(flow_id, cycle) if self.records is not None else None
        if entry is None:
            raise unknown_cycle(flow_id, cycle)
        return entry.status

    async def stop_cycle(self, flow_id: str, cycle: int, reason: str = "stopped by an operator") -> bool:
        """False: it had ended; also of the next two. Running nodes are asked to stop and may take a while."""
        return await self._stop(flow_id, cycle, "stopped", "", reason)

    async def stop_component(
        self, flow_id: str, cycle: int, component: int, reason: str = "stopped by an operator"
    ) -> bool:
        return await self._stop(flow_id, cycle, "component", str(component), reason)

    async def terminate(
        self, flow_id: str, cycle: int, node_id: str, reason: str = "terminated by an operator"
    ) -> bool:
        return await self._stop(flow_id, cycle, "node", node_id, reason)

    async def _stop(self, flow_id: str, cycle: int, what: str, which: str, reason: str) -> bool:
        try:
            return await self.store.stop(flow_id, cycle, what, which, reason)
        except NotFound as error:
            if error.code == "cycle_not_found":
                await self.cycle_state(flow_id, cycle)  # one that only the record has, has ended
                return False
            raise

    async def give_input(
        self, flow_id: str, cycle: int, node_id: str, handle: str, value: Any, *, by: str = "operator"
    ) -> bool:
        """A signal from outside for a handle that waits for one (an approval, say). False: it had one already.

        Raises NotFound, Conflict when the cycle has ended, Invalid when the node has no such handle.
        """
        keys = self.store.plane.keys
        with translated():
            version = await self.store.plane.tasks.redis.hget(keys.cycle(flow_id, cycle), "version")
        if version is None:
            raise unknown_cycle(flow_id, cycle)
        plan = await self.store.plan(flow_id, version.decode(errors="replace"))
        node = plan.nodes.get(node_id)
        if node is None:
            raise NotFound(f"flow {flow_id!r} has no node {node_id!r}", code="node_not_found")
        outside = [*node.external, *node.listens]
        handle = handle or (outside[0] if len(outside) == 1 else "")
        edges = node.edges_of(handle)
        if not edges:
            known = ", ".join([*outside, *node.sources]) or "none"
            hint = f"its handles that wait for a signal: {known}"
            problem = Problem("unknown_handle", "handle", hint)
            raise Invalid(f"node {node_id!r} waits for nothing on {handle!r}", hint=hint, problems=[problem])
        problems = self.types.registry.check_input(node.spec.type, node.spec.config, handle, value)
        if problems:
            text = f"node {node_id!r} refuses the value for {handle!r}: {problems[0].hint}"
            raise Invalid(text, code=problems[0].code, hint="it goes on waiting; see problems", problems=problems)
        source = ("*", "*") if edges[0].startswith(OUTSIDE) else (by, "input")
        body = encode(new_signal(value, source_node=source[0], source_handle=source[1], flow_id=flow_id, cycle=cycle))
        plane = self.store.plane
        args: list[Arg] = [
            *plane.head(), "", "", 0, plane.outbox_max, flow_id, cycle, node_id, body, 1, len(edges), *edges,
        ]  # fmt: skip
        verdicts, _ = await plane.scripts.run("signal_arrive", [keys.cycle(flow_id, cycle)] * 3, args)
        if verdicts[0] == 0:
            raise Conflict(f"cycle {cycle} of {flow_id!r} has ended", code="cycle_ended")
        return bool(verdicts[0] == 1)


def trigger_signals(
    plan: Plan, trigger: str, payload: Any, fired: int | None, others: Mapping[int, Any]
) -> dict[str, Any]:
    """`node.handle` → value of a cycle that an event starts; see `FlowControl.fire`."""
    signals: dict[str, Any] = {}
    to = ""
    for i, spec in enumerate(plan.spec.triggers):
        if spec.get("type") == trigger and spec.get("to"):
            signals[str(spec["to"])] = payload if fired is None else others.get(i)
            to = str(spec["to"]) if i == fired else to
    if to:
        signals[to] = payload  # also when others name the same handle
    elif payload is not None and (fired is not None or not signals):
        for name, node in plan.nodes.items():
            for handle in node.external:
                signals.setdefault(f"{name}.{handle}", payload)
    return signals


def _short_view(raw: dict[str, str], running: int) -> dict[str, Any]:
    config = codec.decode(raw["config"])
    return {
        "id": raw["id"],
        "status": raw["status"],
        "interval": config.get("interval"),
        "schedule": config.get("schedule"),
        "description": config.get("description", ""),
        "node_count": len(config["nodes"]),
        "last_cycle": int(raw["last_cycle"]),
        "running_cycles": running,
        "next_execution": float(raw.get("next_execution") or 0),
        "created_at": raw["created_at"],
        "missed_slots": int(raw.get("missed", 0)),
    }


def _entry_view(entry: Any) -> dict[str, Any]:
    view = recorded_view(entry, entry.flow_id, entry.cycle)
    del view["nodes"], view["node_count"]
    return view
