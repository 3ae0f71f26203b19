"""What a node task is: its states, which of them may follow which, and the seed's record. Data only."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypedDict

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.ids import ID, TASK_ID, is_id


class NodeStatus(StrEnum):
    REGISTERED = "registered"
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TERMINATED = "terminated"
    SKIPPED = "skipped"


_ENDS = frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.TERMINATED, NodeStatus.SKIPPED})
_GOES_ON = _ENDS | {NodeStatus.PENDING, NodeStatus.RUNNING}

#: Status → what may follow it. News of `running` may come after the end; a retry goes back to `pending`.
TRANSITIONS: dict[NodeStatus, frozenset[NodeStatus]] = {
    NodeStatus.REGISTERED: _GOES_ON | {NodeStatus.REGISTERED},
    NodeStatus.PENDING: _GOES_ON,
    NodeStatus.RUNNING: _GOES_ON,
    NodeStatus.COMPLETED: frozenset(),
    NodeStatus.FAILED: frozenset(),
    NodeStatus.TERMINATED: frozenset(),
    NodeStatus.SKIPPED: frozenset(),
}
TERMINAL = frozenset(status for status, following in TRANSITIONS.items() if not following)
IN_FLIGHT = frozenset(TRANSITIONS) - TERMINAL
#: Spellings of the seed documents that are accepted on input.
ALIASES = {"error": NodeStatus.FAILED}


def parse_node_status(text: str) -> NodeStatus:
    """The status of that name, in any case, seed spellings too. Raises Invalid."""
    name = text.lower()
    try:
        return ALIASES.get(name) or NodeStatus(name)
    except ValueError:
        raise Invalid(f"{text!r} is not a node status", code="bad_status", hint=", ".join(NodeStatus)) from None


def sources_of(status: NodeStatus) -> frozenset[NodeStatus]:
    """The states from which a node may come to this one."""
    return frozenset(old for old, following in TRANSITIONS.items() if status in following)


class NodeTask(msgspec.Struct):
    """The JSON under `node_tasks:{id}`, in the seed's order. Times are ISO, UTC. Strangers may leave fields out."""

    node_task_id: str
    flow_id: str
    cycle: int
    node_id: str
    node_type: str = ""
    worker_id: str = ""
    status: str = NodeStatus.REGISTERED.value
    registered_at: str = ""
    updated_at: str = ""
    message: str = ""
    progress: Any = 0
    config: dict[str, Any] = {}


class NodeState(TypedDict):
    """The hash `trading_flow:node:{id}`, which counts if the record differs; `updated_at`: seconds since the epoch."""

    status: str
    updated_at: float
    error_message: str


class TerminationFlag(TypedDict):
    """`timestamp`: ISO, UTC."""

    reason: str
    timestamp: str


def node_task_id(flow_id: str, cycle: int, node_id: str) -> str:
    """The seed's id. Two places may share one id (A-8), so nothing may be read out of it: see the record's fields."""
    return f"{flow_id}_{cycle}_{node_id}"


def check_task_id(task_id: str) -> str:
    """The id itself. Raises Invalid when it could stand for another key."""
    if TASK_ID.fullmatch(task_id) is None:
        raise Invalid(f"{task_id!r} is not a node task id", code="bad_id", hint="letters, digits, _ and -")
    return task_id


def check_node_task(task: NodeTask) -> None:
    """Raises Invalid with everything that is wrong."""
    problems = [
        Problem("bad_id", name, "letters, digits, _ and -, at most 64 characters")
        for name in ("flow_id", "node_id", "node_type")
        if ID.fullmatch(getattr(task, name)) is None
    ]
    if not is_id(task.worker_id):
        problems.append(Problem("bad_id", "worker_id", "letters, digits, _ and -, at most 64 characters"))
    if task.cycle < 0:
        problems.append(Problem("out_of_range", "cycle", "give a whole number from 0"))
    if problems:
        raise Invalid(f"node task {task.node_task_id!r} cannot be registered", hint="see problems", problems=problems)
    check_task_id(task.node_task_id)
