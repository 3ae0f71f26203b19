"""What `tradewind doctor` looks at in the flow room."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tradewind.cli.check import Check, bounded
from tradewind.flows.plane import HOOK
from tradewind.redis.connection import translated
from tradewind.tasks.plane import Plane

#: A slot or a cycle that is so late means that nobody leads, or that the leader cannot keep up.
LATE_MS = 5000
MAX_FLOWS = 10_000


async def flows(plane: Plane) -> list[Check]:
    keys, client = plane.keys, plane.redis
    with translated(plane.link):
        ids = await client.zrange(keys.flows(), 0, MAX_FLOWS - 1)
        pipe = client.pipeline(transaction=False)
        for flow_id in ids:
            pipe.hget(keys.flow(flow_id.decode()), "status")
        states = Counter((state or b"lost").decode() for state in await pipe.execute()) if ids else Counter()
        seconds, _ = await client.time()
        late = f"({seconds * 1000 - LATE_MS}"
        pipe = client.pipeline(transaction=False)
        pipe.zcount(keys.flows_due(), "-inf", late)
        pipe.zcount(keys.flows_deadlines(), "-inf", late)
        pipe.llen(keys.task_ended(HOOK))
        pipe.zcount(keys.flows_held(), "-inf", late)
        pipe.zcount(keys.flows_unsent(), "-inf", late)
        pipe.xlen(keys.flow_outbox())
        due, overdue, unsettled, held, unsent, outbox = await pipe.execute()
    shown = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "none"
    checks = [Check("flows", "warn" if states["lost"] else "ok", shown)]
    checks += _waiting("flow slots", due, "slots wait to be started", "is there a leader? see `tradewind status`")
    checks += _waiting("flow cycles", overdue, "cycles are past their deadline", "is there a leader?")
    checks += _waiting("node endings", unsettled, "ends of nodes are not in their cycles yet", "is there a leader?")
    checks += _waiting("signals", held + unsent, "cycles wait for the broker", "is RabbitMQ reachable?")
    settings = plane.all_settings.flows
    checks.append(bounded("flow records", outbox, settings.outbox_max, "is SQL reachable? see `tradewind status`"))
    return checks


def _waiting(name: str, count: Any, what: str, hint: str) -> list[Check]:
    return [Check(name, "warn", f"{count} {what}", hint)] if count else []
