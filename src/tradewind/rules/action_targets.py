"""Whether there is what an action wants to start. Rules do not know flows: their keys tell."""

from __future__ import annotations

from tradewind.errors import NotFound
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.rules.spec import Action, StartFlow, SubmitTask
from tradewind.tasks.control import TaskControl
from tradewind.tasks.plane import Plane


async def must_have_flow(plane: PointPlane, flow_id: str) -> None:
    """Raises NotFound, Unavailable."""
    with translated(plane.link):
        is_there = await plane.redis.exists(plane.keys.flow(flow_id))
    if not is_there:
        raise NotFound(f"there is no flow {flow_id!r}", code="flow_not_found", hint="register it, or name another one")


async def must_have_target(plane: PointPlane, action: Action) -> None:
    """That of a flow or a task; other actions are not looked at. Raises NotFound, Unavailable."""
    if isinstance(action, StartFlow):
        await must_have_flow(plane, action.flow_id)
    elif isinstance(action, SubmitTask):
        control = TaskControl(Plane(plane.link, plane.all_settings, plane.clock))
        if action.task_type not in await control.types() and not await control.has_type(action.task_type):
            message = f"no worker has offered the task type {action.task_type!r}"
            raise NotFound(message, code="unknown_type", hint="start a worker that has it, or name another one")
