"""Flows, cycles and nodes as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tradewind.cli.output import cell, facts, json_text, plain, short, status_cell, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

#: Whose nodes are shown where there is no room for all.
_FIRST = ("failed", "running", "awaiting_input", "terminated", "pending", "completed", "skipped")
_COUNTED = ("completed", "running", "failed", "skipped", "terminated", "pending")
_LEVELS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red", "DEBUG": "bright_black"}


def flow_table(flows: list[dict[str, Any]]) -> RenderableType:
    from tradewind.cli.times import relative
    from tradewind.clock import now_ms

    now = now_ms()
    rows = [
        (
            f["id"],
            status_cell(f["status"]),
            when(f),
            f.get("node_count"),
            cycle_number(f.get("last_cycle")),
            f.get("running_cycles"),
            relative(moment(f.get("next_execution")), now),
            short(f.get("description") or "", 40),
        )
        for f in flows
    ]
    headings = ("flow", "status", "when", "nodes", "last cycle", "running", "next", "about")
    return table(headings, rows, empty="no flows", right=("nodes", "last cycle", "running"))


def flow_facts(flow: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from tradewind.cli.times import local
    from tradewind.clock import now_ms

    now, config = now_ms(), flow.get("config") or {}
    nodes, edges = config.get("nodes") or [], config.get("edges") or []
    pairs: list[tuple[str, Any]] = [
        ("id", flow["id"]),
        ("status", status_cell(flow["status"])),
        ("about", config.get("description")),
        ("when", when(config)),
        ("nodes", len(nodes)),
        ("components", (flow.get("structure") or {}).get("component_count")),
        ("last cycle", cycle_number(flow.get("last_cycle"))),
        ("next", local(moment(flow.get("next_execution")), now)),
        ("created", local(flow.get("created_at"), now)),
        ("updated", local(flow.get("updated_at"), now)),
        ("missed slots", flow.get("missed_slots") or None),
        ("failures in a row", flow.get("failures_in_a_row") or None),
    ]
    feeds: dict[str, list[str]] = {}
    for edge in edges:
        feeds.setdefault(edge["source"], []).append(f"{_end(edge, 'source')} → {edge['target']}.{_end(edge, 'target')}")
    rows = [
        (n["id"], n["type"], short(n["config"]) if n.get("config") else None, "\n".join(feeds.get(n["id"], [])))
        for n in nodes
    ]
    shown = facts((name, value) for name, value in pairs if value not in (None, ""))
    body = _lines_table(("node", "type", "config", "feeds"), rows)
    return Group(shown, Text(), body)


def _end(edge: dict[str, Any], side: str) -> str:
    return str(edge.get(f"{side}_handle") or edge.get(f"{side}Handle") or "?")


def _lines_table(headings: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> RenderableType:
    """As `table`, but a cell may hold several lines."""
    from rich.text import Text

    made = [
        tuple(Text(plain(item)) if isinstance(item, str) and "\n" in item else item for item in row) for row in rows
    ]
    return table(headings, made, empty="no nodes")


def cycle_table(cycles: list[dict[str, Any]]) -> RenderableType:
    from tradewind.cli.times import between, relative
    from tradewind.clock import now_ms

    now = now_ms()
    rows = [
        (
            str(c["cycle"]),
            status_cell(c["status"]),
            c.get("trigger"),
            relative(c.get("start_time"), now),
            between(c.get("start_time"), c.get("end_time"), now),
            counts(c.get("counts") or {}),
            short(c.get("error") or (f"stopped by {c['stopped_by']}" if c.get("stopped_by") else ""), 60),
        )
        for c in cycles
    ]
    headings = ("cycle", "status", "trigger", "started", "took", "nodes", "note")
    return table(headings, rows, empty="no such cycles", right=("cycle", "took"))


def status_view(status: dict[str, Any], limit: int | None = None) -> RenderableType:
    """The comprehensive status: one line about the cycle, a table of its nodes (`limit`: the most telling ones)."""
    from rich.console import Group
    from rich.text import Text

    if status["cycle"] < 0:
        return Text.assemble(plain(status["flow_id"]), "  ", status_cell(status["flow_status"]), "  no cycle yet")
    return Group(headline(status), Text(), node_table(status["nodes"], limit))


def headline(status: dict[str, Any]) -> Text:
    from rich.text import Text

    from tradewind.cli.times import between
    from tradewind.clock import now_ms

    took = between(status.get("start_time"), status.get("end_time"), now_ms()) or ""
    line = Text.assemble(
        plain(f"{status['flow_id']} cycle {status['cycle']}  "),
        status_cell(status["cycle_status"]),
        plain(f"  {took}  {statistics(status['statistics'])}".rstrip()),
    )
    if status.get("stopped_by"):
        line.append(plain(f"  stopped by {status['stopped_by']}" + _because(status)))
    elif status.get("error"):
        line.append(plain(f"  {status['error']}"), "red")
    return line


def _because(status: dict[str, Any]) -> str:
    return f": {status['reason']}" if status.get("reason") else ""


def node_table(nodes: dict[str, dict[str, Any]], limit: int | None = None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from tradewind.cli.times import between
    from tradewind.clock import now_ms

    now, chosen = now_ms(), list(nodes.items())
    if limit is not None and len(chosen) > limit:
        rank = {state: i for i, state in enumerate(_FIRST)}
        chosen = sorted(chosen, key=lambda item: rank.get(item[1]["status"], len(rank)))[:limit]
    rows = [
        (
            name,
            n.get("type"),
            status_cell(n["status"]),
            between(n.get("started_at"), n.get("finished_at"), now),
            n.get("attempt") if (n.get("attempt") or 0) > 1 else None,
            n.get("worker_id"),
            node_note(n),
        )
        for name, n in chosen
    ]
    made = table(
        ("node", "type", "status", "took", "attempt", "worker", "note"),
        rows,
        empty="no nodes",
        right=("took", "attempt"),
    )
    left = len(nodes) - len(chosen)
    return Group(made, Text(f"… and {left} more", "bright_black")) if left else made


def node_note(node: dict[str, Any]) -> Text:
    if node.get("error_message"):
        return cell(short(node["error_message"], 120), "red" if node["status"] == "failed" else "")
    if node.get("progress") is not None and node["status"] == "running":
        from tradewind.cli.follow import progress_of

        total, done, words = progress_of(node["progress"])
        return cell(words or (f"{done / total:.0%}" if total else None))
    return cell(short(node.get("message") or "", 120) if node["status"] in ("pending", "awaiting_input") else None)


def log_line(entry: dict[str, Any]) -> Text:
    from rich.text import Text

    from tradewind.cli.times import clock_time

    level = str(entry.get("log_level") or entry.get("level") or "INFO")
    who = entry.get("node_id") or entry.get("log_source") or entry.get("source") or "flow"
    return Text.assemble(
        (f"{clock_time(entry.get('created_at'))} ", "bright_black"),
        (f"{plain(level):<8}", _LEVELS.get(level, "")),
        plain(f" #{entry.get('cycle')} {who}: {entry['message']}"),
    )


def signal_table(signals: list[dict[str, Any]]) -> RenderableType:
    rows = [
        (
            f"{s['source_node']}.{s['source_handle']}",
            f"{s['target_node']}.{s['target_handle']}" if s.get("target_node") else None,
            s.get("type"),
            short(s.get("payload"), 80),
        )
        for s in signals
    ]
    return table(("from", "to", "type", "payload"), rows, empty="no signals")


def why_view(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    head = Text.assemble(plain(f"{found['node_id']}  "), status_cell(found["status"]), plain(f"  {found['reason']}"))
    rows = [
        (m["input"], m.get("from") or "outside", status_cell(m["source_status"])) for m in found.get("missing") or []
    ]
    if not rows:
        return head
    return Group(head, Text(), table(("input", "from", "status"), rows, empty=""))


def outputs_table(outputs: dict[str, dict[str, Any]]) -> RenderableType:
    rows = [(f"{node}.{name}", json_text(value)) for node, sent in outputs.items() for name, value in sent.items()]
    return table(("output", "value"), rows, empty="no outputs")


def when(flow: dict[str, Any]) -> str:
    """`once`, `every 30s`, `cron …`, `manual`."""
    schedule = flow.get("schedule") or {}
    if schedule.get("manual"):
        return "manual"
    given = schedule.get("cron") or (schedule.get("interval") if flow.get("interval") is None else flow["interval"])
    if given is None or given == 0 or schedule.get("once"):
        return "once"
    if isinstance(given, (int, float)):
        from tradewind.cli.times import span

        return f"every {span(given)}"
    return f"cron {given}" if " " in str(given) else f"every {given}"


def moment(value: Any) -> str | None:
    """ISO text of seconds since the epoch, of ISO text, or of nothing (0)."""
    if isinstance(value, (int, float)):
        from tradewind.clock import iso

        return iso(int(value * 1000)) if value > 0 else None
    return str(value) if value else None


def cycle_number(last: int | None) -> str | None:
    """A flow that never ran has -1."""
    return str(last) if last is not None and last >= 0 else None


def counts(found: dict[str, int]) -> str:
    named = [
        f"{found[name]} {name}" for name in ("completed", "failed", "skipped", "terminated", "open") if found.get(name)
    ]
    return ", ".join(named) or "-"


def statistics(found: dict[str, int]) -> str:
    named = [f"{found[f'{name}_nodes']} {name}" for name in _COUNTED if found.get(f"{name}_nodes")]
    return f"{found.get('total_nodes', 0)} nodes" + (f": {', '.join(named)}" if named else "")
