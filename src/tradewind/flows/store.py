"""What may be done to a flow in Redis: register, move between states, open and stop cycles, delete, let signals arrive.

Each is one script. Who calls what: `FlowControl` all of it for users; the leader `open` and `stop`; workers `arrive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tradewind import codec
from tradewind.clock import iso
from tradewind.errors import Conflict, NotFound, Overloaded
from tradewind.flows.plan import Plan, decode_plan, redis_fields
from tradewind.flows.plane import FlowPlane
from tradewind.flows.slots import first_slot
from tradewind.flows.spec import FlowSpec
from tradewind.redis.connection import translated
from tradewind.redis.faults import reading
from tradewind.redis.scripts import Arg
from tradewind.tasks.leader_store import Deposed

FORGET_A_CALL = 5


class Given(msgspec.Struct, frozen=True):
    """A signal that a cycle starts with: `body` is its JSON or a tombstone; `is_counted`: the node waits for it."""

    node: str
    edge: str
    body: bytes
    is_counted: bool = True


class Opening(msgspec.Struct):
    """A cycle to start. slot_ms 0: not of the schedule. due_ms: the schedule's state as read, None: leave it alone."""

    flow_id: str
    version: str
    trigger: str = "manual"
    slot_ms: int = 0
    due_ms: int | None = None
    next_ms: int | None = None
    overlap: str = "allow"
    missed: int = 0
    request: bytes = b""
    timeout_s: float = 0
    parent: str = ""
    run_id: str = ""
    on_failure: str = ""
    only: Sequence[str] | None = None
    given: Sequence[Given] = ()


class Opened(msgspec.Struct, frozen=True):
    """`cycle` is -1 when none was started; `why`: buffered, skipped, waits, moved, version, previous or a state."""

    cycle: int
    why: str = ""
    running: tuple[int, ...] = ()


class StaleVersion(Conflict):
    """The flow was registered anew meanwhile: read it again."""


def unknown_flow(flow_id: str) -> NotFound:
    return NotFound(f"there is no flow {flow_id!r}", code="flow_not_found", hint="see flow list")


class FlowStore:
    def __init__(self, plane: FlowPlane) -> None:
        self.plane = plane
        self._plans: dict[tuple[str, str], Plan] = {}

    # definitions

    async def register(self, plan: Plan, config: bytes, *, is_new: bool = False) -> bool:
        """Create or replace; True when it is new. Raises Conflict."""
        keys, spec, now = self.plane.keys, plan.spec, self.plane.clock.now_ms()
        schedule = spec.schedule
        slot = first_slot(schedule, now)
        is_once = not schedule.interval_ms and not schedule.cron and not schedule.manual
        args: list[Arg] = [
            keys.p, spec.id, config, codec.encode(plan.graph().structure()), plan.version, iso(now), now, int(is_once),
            spec.max_failures, "" if slot is None or is_once else slot, int(is_new), int(plan.has_tails), now,
            codec.encode(spec.triggers) if spec.triggers else b"",
        ]  # fmt: skip
        for field, value in redis_fields(plan).items():
            args += (field, value)
        names = [
            keys.flow(spec.id), keys.flows(), keys.flows_due(), keys.flow_plan(spec.id, plan.version),
            keys.flow_cycles(spec.id), keys.flows_wake(),
        ]  # fmt: skip
        reply = await self.plane.scripts.run("flow_register", names, args)
        if reply[0] == 0:
            raise Conflict(f"the flow {spec.id!r} exists", code="flow_exists", hint="use PUT to replace it")
        if reply[0] == -1:
            other = reply[1].decode()
            raise Conflict(
                f"task ids of {spec.id!r} could not be told from those of the flow {other!r}",
                code="flow_id_ambiguous",
                hint="choose another flow id, or node ids that do not begin with digits and _",
            )
        if reply[0] == -2:
            raise Conflict(f"the flow {spec.id!r} is being deleted", code="flow_deleting", hint="try again soon")
        return bool(reply[0] == 1)

    async def read(self, flow_id: str) -> dict[str, str]:
        """The flow's hash. Raises NotFound."""
        with translated():
            raw = await self.plane.tasks.redis.hgetall(self.plane.keys.flow(flow_id))
        if not raw:
            raise unknown_flow(flow_id)
        return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in raw.items()}

    async def ids(self, after: str = "", limit: int = 1000) -> list[str]:
        low = f"({after}" if after else "-"
        with translated():
            found = await self.plane.tasks.redis.zrange(
                self.plane.keys.flows(), low, "+", bylex=True, offset=0, num=limit
            )
        return [flow_id.decode(errors="replace") for flow_id in found]

    async def plan(self, flow_id: str, version: str = "") -> Plan:
        """The plan of that version ("" the registered one), kept at hand. Raises NotFound, SpoiltRecord."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        if not version:
            with translated():
                stored = await client.hget(keys.flow(flow_id), "version")
            if stored is None:
                raise unknown_flow(flow_id)
            version = stored.decode(errors="replace")
        plan = self._plans.get((flow_id, version))
        if plan is None:
            with translated():
                data = await client.hget(keys.flow_plan(flow_id, version), ":plan")
            if data is None:
                raise unknown_flow(flow_id)
            with reading(f"the plan of the flow {flow_id!r}"):
                plan = decode_plan(data)
            if len(self._plans) >= 1000:
                self._plans.pop(next(iter(self._plans)))
            self._plans[flow_id, version] = plan
        return plan

    def plan_at_hand(self, flow_id: str, version: str) -> Plan | None:
        return self._plans.get((flow_id, version))

    # states

    async def move(
        self, flow_id: str, verb: str, spec: FlowSpec | None = None, version: str = ""
    ) -> tuple[str, list[int]]:
        """start, pause, resume, drain, stop, delete: the state it is in then, and its running cycles.

        Raises NotFound, Conflict when that is not possible from where it is, StaleVersion.
        """
        keys, now = self.plane.keys, self.plane.clock.now_ms()
        slot = first_slot(spec.schedule, now) if spec is not None else None
        args: list[Arg] = [flow_id, verb, "" if slot is None else slot, "" if spec is None else now, version]
        names = [keys.flow(flow_id), keys.flows_due(), keys.flow_running(flow_id), keys.flows_wake()]
        reply = await self.plane.scripts.run("flow_control", names, args)
        if reply[0] == -1:
            raise unknown_flow(flow_id)
        if reply[0] == -3:
            raise StaleVersion(f"the flow {flow_id!r} was registered anew", code="flow_changed", hint="try again")
        status = reply[1].decode()
        if reply[0] == -2:
            raise Conflict(
                f"cannot {verb} the flow {flow_id!r}: it is {status}", code="flow_state", hint=_hint(verb, status)
            )
        return status, [int(n) for n in reply[2:]]

    async def restore(self, flow_id: str, *, last_cycle: int, status: str, created_at: str) -> bool:
        """Give a flow that was registered just now its past: no cycle number comes twice. False: it has moved on."""
        args: list[Arg] = [last_cycle, status, created_at]
        return bool(await self.plane.scripts.run("flow_restore", [self.plane.keys.flow(flow_id)], args))

    async def delete_some(self, flow_id: str) -> tuple[bool, int]:
        """One step of deleting: (all gone, cycles that still run)."""
        keys = self.plane.keys
        names = [
            keys.flow(flow_id),
            keys.flow_cycles(flow_id),
            keys.flow_running(flow_id),
            keys.flows(),
            keys.flows_due(),
        ]
        reply = await self.plane.scripts.run("flow_delete", names, [*self.plane.head(), flow_id, FORGET_A_CALL])
        return reply[0] == 1, int(reply[1]) if reply[0] == -1 else 0

    # cycles

    async def open(self, opening: Opening, leader: tuple[str, int] | None = None) -> Opened:
        """Start a cycle if the schedule and the overlap policy let it. Raises NotFound, Deposed, Overloaded."""
        keys, o, settings = self.plane.keys, opening, self.plane.settings
        flow_id = o.flow_id
        names = [
            keys.flow(flow_id), keys.flow_cycles(flow_id), keys.flow_running(flow_id), keys.flows_due(),
            keys.flows_deadlines(), keys.leader(), keys.epoch(), keys.outbox_count(),
        ]  # fmt: skip
        timeout_ms = int((o.timeout_s or settings.cycle_timeout_s) * 1000)
        args: list[Arg] = [
            *self.plane.head(), flow_id, leader[0] if leader else "", leader[1] if leader else 0, o.version, o.slot_ms,
            "" if o.due_ms is None else o.due_ms, "" if o.next_ms is None else o.next_ms, o.overlap, o.trigger,
            o.request, timeout_ms, settings.keep_cycles, int(self.plane.is_amqp), self.plane.outbox_max,
            o.parent, o.missed, self.plane.tasks.settings.outbox_max, o.run_id, o.on_failure,
            -1 if o.only is None else len(o.only), *(o.only or ()),
        ]  # fmt: skip
        for signal in o.given:
            args += (signal.node, signal.edge, signal.body, int(signal.is_counted))
        reply = await self.plane.scripts.run("cycle_open", names, args)
        verdict = reply[0]
        if verdict == 1:
            return Opened(int(reply[1]))
        if verdict == -1:
            raise Deposed(*(leader or ("", 0)))
        if verdict == -3:
            raise unknown_flow(flow_id)
        if verdict == -5:
            raise Overloaded("the task archive is full", hint="is SQL reachable? see status", retry_after_s=1)
        if verdict == -6:
            return Opened(-1, "previous", tuple(int(n) for n in reply[1:]))
        if verdict == 2:
            return Opened(-1, reply[1].decode())
        return Opened(-1, {0: "moved", -2: "version"}.get(verdict) or f"stopped:{reply[1].decode()}")

    async def stop(self, flow_id: str, cycle: int, what: str, which: str, reason: str) -> bool:
        """what: stopped, timeout (the cycle), component, node. False: it had ended. Raises NotFound."""
        args: list[Arg] = [*self.plane.head(), flow_id, cycle, what, which, reason, self.plane.outbox_max]
        reply = await self.plane.scripts.run("cycle_stop", [self.plane.keys.cycle(flow_id, cycle)], args)
        if reply == -1:
            raise unknown_cycle(flow_id, cycle)
        if reply == -2:
            raise NotFound(f"cycle {cycle} of {flow_id!r} has no {what} {which!r}", code=f"{what}_not_found")
        return bool(reply == 1)


def unknown_cycle(flow_id: str, cycle: int) -> NotFound:
    return NotFound(f"flow {flow_id!r} has no cycle {cycle}", code="cycle_not_found", hint="see its cycles")


def _hint(verb: str, status: str) -> str:
    if verb == "resume":
        return "only a paused flow can be resumed; start it"
    if verb in ("pause", "drain"):
        return "only a flow that runs can be paused or drained"
    return "pause, stop or wait, then try again" if status != "deleting" else "it is being deleted"


def as_dict(raw: list[Any]) -> dict[bytes, bytes]:
    """A flat HGETALL reply of a script."""
    return dict(zip(raw[::2], raw[1::2], strict=True))
