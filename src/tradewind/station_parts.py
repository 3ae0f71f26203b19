"""The roles of a station in words: who leads one, what its absence means, since when it is stuck. No I/O."""

from __future__ import annotations

from tradewind import clock
from tradewind.health_part import Part
from tradewind.tasks.progress import Report

#: What does not happen while nobody has a role.
CONSEQUENCES = {
    "scheduler": "tasks wait, no cycle starts, commands expire only where a comsrv runs, nothing is archived",
    "worker": "tasks and nodes of flows wait",
    "comsrv": "devices are not polled and commands wait",
    "modsrv": "outputs of models stand still",
    "rulesrv": "no rule is judged and no alarm raised",
    "alarmsrv": "alarms do not escalate, faults raise none, nobody is notified, the journal is not stored",
    "hissrv": "nothing is recorded; the change feed keeps it, up to points.feed_max_bytes",
}


def missing(role: str, what: str) -> Part:
    """Nobody has the role, and it is needed."""
    return Part("down", f"{what}: {CONSEQUENCES[role]}", f"start one: `tradewind up` or `tradewind run {role}`")


def unneeded(what: str) -> Part:
    return Part("off", f"no process has this role, and nothing needs it: {what}")


def leading(leader: str, what: str, report: Report | None, now_ms: int) -> Part:
    """Somebody holds the lead: whether its parts go on. `report` None: it has not said anything yet."""
    said = f"leader {leader}" + (f", {what}" if what else "")
    stuck = report.stuck() if report is not None else {}
    if stuck:
        since = clock.iso(now_ms - max(stuck.values()))
        hint = "look at the log of that process; when it is ended, another one takes over"
        return Part("down", f"{said}; stuck since {since}: {', '.join(sorted(stuck))}", hint)
    if report is not None and report.trouble:
        met = [f"{part}: {text} ({age // 1000} s ago)" for part, (text, age) in sorted(report.trouble.items())]
        return Part("degraded", f"{said}; {'; '.join(met)}", "it tries again by itself")
    return Part("ok", said)
