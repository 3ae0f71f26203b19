"""What every part of the flow room needs to reach Redis: the task room's plane, and this room's scripts."""

from __future__ import annotations

from tradewind.flows.plan import Plan
from tradewind.redis.scripts import Arg, Scripts
from tradewind.settings import FlowSettings
from tradewind.tasks.plane import Plane

#: The hook of node tasks: how the task room says that one of them ended; also in lua/cycle.lua.
HOOK = "flows"


class FlowPlane:
    def __init__(self, plane: Plane) -> None:
        self.tasks = plane
        self.keys = plane.keys
        self.clock = plane.clock
        self.link = plane.link
        self.settings: FlowSettings = plane.all_settings.flows
        self.signals = plane.all_settings.signals
        self.scripts = Scripts(plane.link, "tradewind.flows", plane.all_settings.redis.max_retries)
        self.is_amqp = self.signals.transport == "amqp"

    def head(self) -> list[Arg]:
        return self.tasks.head()

    def cycle_timeout_s(self, plan: Plan) -> float:
        """How long a cycle may take; one that waits for signals from outside has a day longer."""
        default = self.settings.cycle_timeout_s + (86_400 if plan.waits_for_people else 0)
        return plan.spec.cycle_timeout_s or default

    @property
    def outbox_max(self) -> int:
        return self.settings.outbox_max
