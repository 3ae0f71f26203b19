"""What rules name beside themselves (rules, flows, task types, channels, models, targets), and what of it is not there.

A rule may be stored before what it names: that is worth a warning, not a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tradewind.errors import Problem, Unavailable
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.store import NotifyStore
from tradewind.points.plane import PointPlane
from tradewind.redis.text import text_of
from tradewind.rules.spec import (
    BUILT_IN,
    Action,
    AlarmOpen,
    Condition,
    CreateAlarm,
    Formula,
    Group,
    Rule,
    Schedule,
    SendControl,
    SendNotification,
    SetValue,
    StartFlow,
    SubmitTask,
)
from tradewind.tasks.control import TaskControl
from tradewind.tasks.plane import Plane

#: Looked up with one command each, so many at once.
PIECE = 5_000
_HINTS = {
    "rule": "there is no rule {!r}: create it, or name another one",
    "flow": "there is no flow {!r}: register it, or name another one",
    "type": "no worker has offered the task type {!r}: start one that has it, or name another one",
    "channel": "there is no channel {!r}, and nobody has written values for it: declare it, or name another one",
    "model": "there is no model {!r}: create it, or name another one",
    "target": "the notification policy has no target {!r}: add it, or name another one",
}


class Reference(NamedTuple):
    """`kind`: rule, flow, type (of a task), channel, model or target."""

    kind: str
    name: str
    path: str


async def find_dangling(plane: PointPlane, rules: Sequence[Rule]) -> list[tuple[int, Problem]]:
    """What they name that is not there, with the place of the rule in the list. The cost is that of the names, not of
    the rules. Raises Unavailable."""
    named = [(at, reference) for at, rule in enumerate(rules) for reference in references_of(rule)]
    wanted: dict[str, dict[str, None]] = {}
    for _, reference in named:
        wanted.setdefault(reference.kind, {})[reference.name] = None
    absent = {kind: set(names) - await _present(plane, kind, list(names)) for kind, names in wanted.items()}
    absent["rule"] = absent.get("rule", set()) - {rule.id for rule in rules}
    return [
        (at, Problem(f"unknown_{kind}", path, _HINTS[kind].format(name)))
        for at, (kind, name, path) in named
        if name in absent[kind]
    ]


def references_of(rule: Rule) -> Iterator[Reference]:
    for i, name in enumerate(rule.inhibited_by):
        if name not in BUILT_IN:
            yield Reference("rule", name, f"inhibited_by[{i}]")
    for i, condition in enumerate(rule.conditions):
        yield from _of_condition(condition, f"conditions[{i}]")
    for i, action in enumerate(rule.actions):
        yield from _of_action(action, f"actions[{i}].parameters")


def _of_condition(condition: Condition, path: str) -> Iterator[Reference]:
    match condition:
        case Group():
            for i, inner in enumerate(condition.conditions):
                yield from _of_condition(inner, f"{path}.not" if condition.negated else f"{path}.conditions[{i}]")
        case AlarmOpen():
            if condition.rule_id not in BUILT_IN:
                yield Reference("rule", condition.rule_id, f"{path}.rule_id")
        case Formula():
            for name, address in condition.inputs.items():
                yield _of_address(address, f"{path}.inputs.{name}")
        case Schedule():
            return
        case _:
            yield _of_address(condition.source, f"{path}.source")


def _of_action(action: Action, path: str) -> Iterator[Reference]:
    match action:
        case CreateAlarm():
            yield from (Reference("target", name, f"{path}.notify[{i}]") for i, name in enumerate(action.notify or ()))
        case SendNotification():
            names = enumerate(action.recipients)
            yield from (Reference("target", name, f"{path}.recipients[{i}]") for i, name in names)
        case SendControl(address=""):
            yield Reference("channel", action.channel_id, f"{path}.channel_id")
        case SendControl():
            yield _of_address(action.address, path)
        case StartFlow():
            yield Reference("flow", action.flow_id, f"{path}.flow_id")
        case SubmitTask():
            yield Reference("type", action.task_type, f"{path}.type")
        case SetValue():
            yield Reference("model", action.model, f"{path}.model")


def _of_address(address: str, path: str) -> Reference:
    service, name, *_ = address.split(":")
    return Reference("channel" if service == "comsrv" else "model", name, path)


async def _present(plane: PointPlane, kind: str, names: list[str]) -> set[str]:
    keys = plane.keys
    match kind:
        case "target":
            try:
                policy = await NotifyStore(NotifyPlane(plane.link, plane.all_settings)).policy()
            except Unavailable as error:
                if error.code != "bad_policy":  # that is told elsewhere
                    raise
                return set(names)
            return set(policy.targets)
        case "type":
            control = TaskControl(Plane(plane.link, plane.all_settings, plane.clock))
            offered = set(await control.types())
            others = [name for name in names if name not in offered]
            return offered | await _asked(plane, others, lambda name: ("EXISTS", keys.worker_type(name)))
        case "channel":
            declared = await _asked(plane, names, lambda name: ("HEXISTS", keys.channels(), name))
            if len(declared) == len(names):
                return declared
            (pushed,) = await plane.home.ask([("SMEMBERS", keys.channels_pushed())])
            return declared | {text_of(member).partition(":")[0] for member in pushed}
        case "model":
            return await _asked(plane, names, lambda name: ("HEXISTS", keys.models(), name))
        case "flow":
            return await _asked(plane, names, lambda name: ("EXISTS", keys.flow(name)))
    return await _asked(plane, names, lambda name: ("SISMEMBER", keys.rules(), name))


async def _asked(plane: PointPlane, names: list[str], command: Any) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(names), PIECE):
        piece = names[start : start + PIECE]
        replies = await plane.home.ask([command(name) for name in piece])
        found |= {name for name, reply in zip(piece, replies, strict=True) if reply}
    return found
