"""The life of an alarm: statuses, which of them follow which, what an operator can do. Pure; `alarm_act.lua` obeys."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    NEW = "New"
    ACKNOWLEDGED = "Acknowledged"
    ESCALATED = "Escalated"
    SUPPRESSED = "Suppressed"
    RESOLVED = "Resolved"
    CLOSED = "Closed"

    @property
    def is_open(self) -> bool:
        return self not in (Status.RESOLVED, Status.CLOSED)


class Action(StrEnum):
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"
    SUPPRESS = "suppress"
    SHELVE = "shelve"
    UNSHELVE = "unshelve"
    ESCALATE = "escalate"
    CLOSE = "close"


OPEN = tuple(status for status in Status if status.is_open)

#: From each status to which others. A resolved alarm never opens again: the next raise makes a new one.
NEXT: dict[Status, tuple[Status, ...]] = {
    Status.NEW: (Status.ACKNOWLEDGED, Status.ESCALATED, Status.SUPPRESSED, Status.RESOLVED),
    Status.ACKNOWLEDGED: (Status.ESCALATED, Status.SUPPRESSED, Status.RESOLVED),
    Status.ESCALATED: (Status.ACKNOWLEDGED, Status.SUPPRESSED, Status.RESOLVED),
    Status.SUPPRESSED: (Status.NEW, Status.RESOLVED, Status.CLOSED),
    Status.RESOLVED: (Status.CLOSED,),
    Status.CLOSED: (),
}

_LEADS_TO = {
    Action.ACKNOWLEDGE: Status.ACKNOWLEDGED,
    Action.RESOLVE: Status.RESOLVED,
    Action.SUPPRESS: Status.SUPPRESSED,
    Action.SHELVE: Status.SUPPRESSED,
    Action.UNSHELVE: Status.NEW,
    Action.ESCALATE: Status.ESCALATED,
    Action.CLOSE: Status.CLOSED,
}


def allowed(status: Status) -> tuple[Action, ...]:
    """Actions that are not refused in that status, also those that change nothing there because it is so already.

    A resolved alarm may still be acknowledged; its status stays. Nothing is shelved where unshelving changes nothing.
    """
    found = [action for action, to in _LEADS_TO.items() if to is status or to in NEXT[status]]
    if status is Status.RESOLVED:
        found.append(Action.ACKNOWLEDGE)
    if status.is_open and Action.UNSHELVE not in found:
        found.append(Action.UNSHELVE)
    return tuple(sorted(found))
