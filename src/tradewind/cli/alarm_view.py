"""How alarms look on a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tradewind.cli.output import cell, facts, short, status_cell, table
from tradewind.cli.times import clock_time, local, span
from tradewind.clock import iso

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_STYLES = {"Critical": "bold red", "High": "red", "Medium": "yellow", "Low": "blue", "Info": "green"}


def level_cell(level: str) -> Text:
    return cell(level, _STYLES.get(level, ""))


def alarm_table(alarms: list[dict[str, Any]]) -> RenderableType:
    rows = [
        (a["id"], clock_time(a["created_at"]), level_cell(a["level"]), status_cell(a["status"]), a["source_point"],
         short(a["title"], 60), a["actual_value"], a["count"], a["rule_id"], a["acknowledged_by"])
        for a in alarms
    ]  # fmt: skip
    headings = ("id", "since", "level", "status", "source", "title", "value", "count", "rule", "acknowledged by")
    return table(headings, rows, empty="no alarms", right=("value", "count"))


def alarm_view(alarm: dict[str, Any]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    now_ms = round(time.time() * 1000)
    pairs: list[tuple[str, Any]] = [
        ("alarm", alarm["id"]),
        ("title", alarm["title"]),
        ("description", alarm["description"]),
        ("level", level_cell(alarm["level"])),
        ("status", status_cell(alarm["status"])),
        ("category", alarm["category"]),
        ("source", alarm["source_point"]),
        ("rule", alarm["rule_id"]),
        ("value", alarm["actual_value"]),
        ("threshold", alarm["threshold_value"]),
        ("count", alarm["count"]),
        ("raised", local(alarm["created_at"], now_ms)),
        ("last seen", local(iso(alarm["last_seen"]), now_ms)),
        ("acknowledged", _by(alarm["acknowledged_at"], alarm["acknowledged_by"], now_ms)),
        ("shelved until", local(iso(alarm["shelved_until"]), now_ms) if alarm["shelved_until"] else None),
        ("suppressed by", alarm["cause"] or alarm["held_by"]),
        ("resolved", local(alarm["resolved_at"], now_ms)),
        ("tags", ", ".join(alarm["tags"])),
        ("data", short(alarm["data"], 200) if alarm["data"] else None),
        ("can be", ", ".join(alarm["allowed"]) or "nothing any more"),
    ]
    journal = [
        (e["version"], clock_time(e["at"]), e["event"], e["from"], status_cell(e["to"]), e["who"], e["note"])
        for e in alarm["journal"]
    ]
    headings = ("version", "at", "event", "from", "to", "who", "note")
    return Lines(
        facts([(name, value) for name, value in pairs if value not in (None, "")]),
        Text(),
        table(headings, journal, empty="no journal", right=("version",)),
    )


def alarm_line(event: dict[str, Any]) -> Text:
    from rich.text import Text

    alarm = event["alarm"]
    parts = [
        cell(clock_time(iso(event["at"]))),
        level_cell(alarm["level"]),
        cell(event["event"]),
        status_cell(alarm["status"]),
        cell(alarm["source_point"]),
        cell(alarm["title"]),
        cell(alarm["id"]),
    ]
    return Text("  ").join(parts)


def statistics_view(found: dict[str, Any]) -> RenderableType:
    since = iso(found["since_ms"]) if found["since_ms"] else "-"
    flood = f"since {iso(found['flood_since_ms'])}" if found["is_flood"] else "no"
    lost = {"messages before anybody was told": found["outbox_dropped"]}
    lost |= {f"transitions before {_reader(name)}": count for name, count in found["journal_dropped"].items()}
    pairs = [
        ("open", _levels(found["open"])),
        ("standing", f"{found['standing']} for more than a day"),
        ("raised", f"{found['raised']} since {since}"),
        *_handled(found),
        ("recent", found["recent"]),
        ("flood", f"{flood}; {found['floods']} so far, {_share(found['flood_share'])} of the time"),
        ("waiting", f"{found['journal_waiting']} transitions, {found['outbox_waiting']} messages"),
        *[("dropped", f"{count} {what}") for what, count in lost.items() if count],
    ]
    return _with_talkers(pairs, found["talkers"])


def period_view(found: dict[str, Any]) -> RenderableType:
    pairs: list[tuple[str, Any]] = [
        ("from", iso(found["from_ms"])),
        ("to", iso(found["to_ms"])),
        ("raised", f"{found['raised']}: {_levels(found['raised_by_level'])}" if found["raised"] else "0"),
        *_handled(found),
    ]
    until_ms = found["recorded_until_ms"]
    if until_ms is not None and until_ms <= found["to_ms"]:
        pairs.append(("not yet", f"what happened since {iso(until_ms)} is on its way to SQL"))
    return _with_talkers(pairs, found["talkers"])


def _handled(found: dict[str, Any]) -> list[tuple[str, Any]]:
    def mean(value: float | None) -> str:
        return "-" if value is None else span(value)

    return [
        ("acknowledged", f"{found['acknowledged']}, after {mean(found['acknowledge_s'])} on average"),
        ("resolved", f"{found['resolved']} ({_share(found['resolve_rate'])}), after {mean(found['resolve_s'])}"),
    ]


def _with_talkers(pairs: list[tuple[str, Any]], talkers: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    rows = [(each["rule_id"], each["source"], each["raised"]) for each in talkers]
    return Lines(
        facts(pairs),
        Text(),
        table(("raises most", "source", "times"), rows, empty="nothing was raised", right=("times",)),
    )


def _levels(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {level}" for level, count in counts.items() if count) or "none"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _reader(name: str) -> str:
    return "they were in SQL" if name == "sql" else f"{name} had them"


def _by(at: str | None, who: str | None, now_ms: int) -> str | None:
    return f"{local(at, now_ms)} by {who or '-'}" if at else None
