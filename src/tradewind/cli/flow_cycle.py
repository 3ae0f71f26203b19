"""The commands of `tradewind flow` about cycles: look at them, stop them, answer them."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from tradewind.cli import flow_run
from tradewind.cli.flow_view import cycle_table, log_line, signal_table, status_view, why_view
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell, write_json

PAGE = 50
FULL_PAGE = 1000
#: Between two looks for new lines.
FOLLOW_S = 0.5

FlowId = Annotated[str, typer.Argument(metavar="ID", help="Id of a flow.")]
Cycle = Annotated[int, typer.Argument(metavar="CYCLE", min=0, help="Number of the cycle.")]
Node = Annotated[str, typer.Argument(metavar="NODE", help="Id of a node.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")]
CycleOption = Annotated[int | None, typer.Option("--cycle", metavar="N", min=0, help="Only this cycle.")]
NodeOption = Annotated[str | None, typer.Option("--node", metavar="NODE", help="Only this node.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=FULL_PAGE, help="At most so many.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Go on where a page before ended.")]


def status(
    ctx: typer.Context,
    flow_id: FlowId,
    cycle: Annotated[int | None, typer.Option("--cycle", metavar="N", min=0, help="This one (the last).")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Until the cycle ends; exit 1 if it ended badly.")] = False,
    timeout: flow_run.Timeout = None,
) -> int:
    """A cycle with the states of its nodes."""
    cli: Session = ctx.obj
    if watch:
        return flow_run.follow_cycle(cli, flow_id, cycle, timeout)
    found = cli.station.get(f"/flows/{segment(flow_id)}/status", {"cycle": cycle})
    cli.out.show(found, lambda: status_view(found))
    return 0


def cycles(
    ctx: typer.Context,
    flow_id: FlowId,
    status: Annotated[str | None, typer.Option("--status", help="Only cycles in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = PAGE,
    before: Annotated[int | None, typer.Option("--before", metavar="N", min=0, help="Older than cycle N.")] = None,
) -> None:
    """The cycles of a flow, newest first."""
    cli: Session = ctx.obj
    query = {"status": status, "limit": limit, "before": before}
    found = cli.station.get(f"/flows/{segment(flow_id)}/cycles", query)
    cli.out.show(found, lambda: cycle_table(found["items"]))
    if found.get("next_cursor"):
        cli.out.note(f"more: --before {found['next_cursor']}")


def signals(
    ctx: typer.Context,
    flow_id: FlowId,
    cycle: Cycle,
    node: NodeOption = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
) -> None:
    """What the nodes of a cycle sent to each other."""
    cli: Session = ctx.obj
    query = {"node": node, "limit": limit, "cursor": cursor}
    found = cli.station.get(_cycle_path(flow_id, cycle) + "/signals", query)
    cli.out.show(found, lambda: signal_table(found["items"]))
    if found.get("next_cursor"):
        cli.out.note(f"more: --cursor {found['next_cursor']}")


def why(ctx: typer.Context, flow_id: FlowId, cycle: Cycle, node: Node) -> None:
    """Why a node has not ended: what it waits for."""
    cli: Session = ctx.obj
    found = cli.station.get(_node_path(flow_id, cycle, node) + "/why")
    cli.out.show(found, lambda: why_view(found))


def terminate(ctx: typer.Context, flow_id: FlowId, cycle: Cycle, node: Node, reason: Reason = None) -> None:
    """End one node of a running cycle; those that need it are skipped."""
    _stop(ctx.obj, _node_path(flow_id, cycle, node) + "/terminate", reason, f"node {node}")


def stop_component(
    ctx: typer.Context,
    flow_id: FlowId,
    cycle: Cycle,
    component: Annotated[int, typer.Argument(metavar="COMPONENT", min=0, help="Number of the component.")],
    reason: Reason = None,
) -> None:
    """End one component of a running cycle; the others go on."""
    _stop(ctx.obj, f"{_cycle_path(flow_id, cycle)}/components/{component}/stop", reason, f"component {component}")


def stop_cycle(ctx: typer.Context, flow_id: FlowId, cycle: Cycle, reason: Reason = None) -> None:
    """End a running cycle; the flow itself goes on."""
    _stop(ctx.obj, _cycle_path(flow_id, cycle) + "/stop", reason, f"cycle {cycle}")


def give_input(
    ctx: typer.Context,
    flow_id: FlowId,
    cycle: Cycle,
    node: Node,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What parses as JSON is taken so.")],
    handle: Annotated[str | None, typer.Option("--handle", help="Needed when the node waits on several.")] = None,
) -> None:
    """Give a node the signal that it waits for."""
    from tradewind.cli.task import read_value

    _give(ctx.obj, flow_id, cycle, node, handle, read_value(value))


def approve(
    ctx: typer.Context,
    flow_id: FlowId,
    cycle: Cycle,
    node: Node,
    reject: Annotated[bool, typer.Option("--reject", help="Say no.")] = False,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Goes with the decision.")] = "",
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides (your user name).")] = None,
) -> None:
    """Decide about an approval node: yes, or with --reject no."""
    decision = {"approved": not reject, "note": note, "by": by if by is not None else _user_name()}
    _give(ctx.obj, flow_id, cycle, node, "decision", decision)


def again(
    ctx: typer.Context, flow_id: FlowId, cycle: Cycle, wait: flow_run.Wait = False, timeout: flow_run.Timeout = None
) -> int:
    """A new cycle with what an earlier one was given."""
    cli: Session = ctx.obj
    started = cli.station.post(f"/flows/{segment(flow_id)}/cycles", {"again": cycle})
    return flow_run.follow_started(cli, started, wait or timeout is not None, timeout)


def logs(
    ctx: typer.Context,
    flow_id: FlowId,
    cycle: CycleOption = None,
    node: NodeOption = None,
    level: Annotated[str | None, typer.Option("--level", metavar="L", help="This level and above.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="Only from here: scheduler, node, …")] = None,
    search: Annotated[str | None, typer.Option("--search", metavar="TEXT", help="Only with this text.")] = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
) -> None:
    """The last lines that the flow and its nodes logged; with --follow and --json one object a line."""
    cli: Session = ctx.obj
    path = f"/flows/{segment(flow_id)}/logs"
    query: dict[str, Any] = {
        "cycle": cycle,
        "node": node,
        "level": level,
        "source": source,
        "search": search,
        "limit": limit,
        "cursor": cursor,
    }
    found = cli.station.get(path, {**query, "order": "newest"})
    lines = found["items"] = found["items"][::-1]
    if follow:
        _follow_logs(cli, path, query, lines)
        return
    from rich.text import Text

    cli.out.show(found, lambda: Text("\n").join(log_line(line) for line in lines) if lines else Text("no lines"))
    if found.get("next_cursor"):
        cli.out.note(f"earlier ones: --cursor {found['next_cursor']}")


def add_to(app: Group) -> None:
    for command in (status, cycles, logs, signals, why, terminate, stop_component, stop_cycle, approve, again):
        app.command(command.__name__.replace("_", "-"))(command)
    app.command("input")(give_input)


def _follow_logs(cli: Session, path: str, query: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """The lines, then those that are recorded after them."""
    last = 0
    while True:
        for line in lines:
            last = line["seq"]
            if cli.is_json:
                write_json(line)
            else:
                cli.out.console.print(log_line(line), markup=False, highlight=False, soft_wrap=True)
        page = cli.station.get(path, {**query, "cursor": last, "limit": FULL_PAGE})
        lines = page["items"]
        if not lines:
            time.sleep(FOLLOW_S)


def _give(cli: Session, flow_id: str, cycle: int, node: str, handle: str | None, value: Any) -> None:
    body = {"value": value} if handle is None else {"handle": handle, "value": value}
    found = cli.station.post(_node_path(flow_id, cycle, node) + "/input", body)
    cli.out.show(found, lambda: cell(f"{node}: given"))


def _stop(cli: Session, path: str, reason: str | None, what: str) -> None:
    found = cli.station.post(path, {"reason": reason} if reason is not None else None)
    cli.out.show(found, lambda: cell(f"{what}: asked to stop"))


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return ""


def _cycle_path(flow_id: str, cycle: int) -> str:
    return f"/flows/{segment(flow_id)}/cycles/{cycle}"


def _node_path(flow_id: str, cycle: int, node: str) -> str:
    return f"{_cycle_path(flow_id, cycle)}/nodes/{segment(node)}"
