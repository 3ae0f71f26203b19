"""The alarm of `tradewind demo`: the breaker of the micro-grid opens, a rule raises an alarm, somebody acknowledges
it; at the end the breaker closes and the alarm resolves by itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tradewind.cli.http import Http, segment
from tradewind.cli.output import status_cell, table

if TYPE_CHECKING:
    from rich.console import RenderableType

RULE = "breaker_open"
BREAKER = "comsrv:1004:c:30001"
WHO, NOTE = "demo", "a drill; the breaker closes when the demo ends"
#: How long each step may take.
PATIENCE_S = 15.0
#: Between two looks.
LOOK_S = 0.1
ENDED = ("Resolved", "Closed")
#: Of alarms that are shown while it runs.
SHOWN = 5


def start(http: Http) -> dict[str, Any] | None:
    """Open the breaker, wait for the alarm, acknowledge it. The alarm then, or None when none came in time."""
    _switch(http, 0)
    end = time.monotonic() + PATIENCE_S
    while not (found := http.get("/alarms", {"rule_id": RULE, "status": "open"})["items"]):
        if time.monotonic() > end:
            return None
        time.sleep(LOOK_S)
    alarm: dict[str, Any] = http.post(f"/alarms/{segment(found[0]['id'])}/acknowledge", {"who": WHO, "note": NOTE})
    return alarm


def stop(http: Http, alarm: dict[str, Any] | None) -> dict[str, Any]:
    """Close the breaker and wait until the alarm has resolved; what there is to say about it."""
    _switch(http, 1)
    if alarm is None:
        return judge(None)
    end = time.monotonic() + PATIENCE_S
    while True:
        found = http.get(f"/alarms/{segment(alarm['id'])}")
        if found["status"] in ENDED or time.monotonic() > end:
            return judge(found)
        time.sleep(LOOK_S)


def judge(alarm: dict[str, Any] | None) -> dict[str, Any]:
    """It must have been raised, acknowledged, and have ended; whoever looks at the page may have done more with it."""
    if alarm is None:
        return {"ok": False, "id": None, "title": None, "events": [], "wrong": [f"no alarm of {RULE}"]}
    events = [entry["event"] for entry in alarm["journal"]]
    is_ok = events[:2] == ["raised", "acknowledged"] and alarm["status"] in ENDED
    wrong = [] if is_ok else [f"{alarm['id']} {alarm['status']}: {', '.join(events)}"]
    return {"ok": is_ok, "id": alarm["id"], "title": alarm["title"], "events": events, "wrong": wrong}


def _switch(http: Http, value: int) -> None:
    """Send the command and wait for its end; one that fails shows as an alarm that does not come or does not go."""
    sent = http.post("/commands", {"address": BREAKER, "value": value, "who": WHO, "reason": "a drill"})
    http.get(f"/commands/{segment(sent['id'])}", {"wait": PATIENCE_S}, wait_s=PATIENCE_S)


def told(alarm: dict[str, Any] | None) -> str:
    if alarm is None:
        return f"no alarm of the rule {RULE} came"
    return (
        f"alarm: {alarm['level']}, {alarm['title']}: {alarm['status']} by {alarm['acknowledged_by']} ({alarm['note']})"
    )


def alarm_table(snapshot: dict[str, Any]) -> RenderableType:
    part = snapshot["alarms"]
    rows = [
        (a["level"], status_cell(a["status"]), a["source_point"], a["title"], a["acknowledged_by"])
        for a in (part["data"] or [])[:SHOWN]
    ]
    empty = "no open alarms" if part["state"] == "current" else "not known now whether alarms are open"
    return table(("alarm", "status", "source", "title", "acknowledged by"), rows, empty=empty)


def summary(verdict: dict[str, Any]) -> str:
    return f"alarm {', '.join(verdict['events'])}" if verdict["events"] else "no alarm"
