"""`tradewind flow`: register flows, steer them, look at their cycles."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tradewind.cli import flow_cycle, flow_lint, flow_run
from tradewind.cli.each import for_each
from tradewind.cli.flow_view import flow_facts, flow_table
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell
from tradewind.errors import Invalid

app = Group("Register flows, steer them, look at their cycles.")
PAGE = 50
FULL_PAGE = 1000
#: A delete waits for running nodes to end.
DELETE_S = 60.0

FlowId = Annotated[str, typer.Argument(metavar="ID", help="Id of a flow.")]
FlowIds = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of flows.")]
Files = Annotated[list[str], typer.Argument(metavar="FILE…", help="Weather Syntax, YAML or JSON; - is stdin.")]


@app.command()
def register(
    ctx: typer.Context,
    files: Files,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Id of the flow, whatever the file says.")
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Start it as well.")] = False,
) -> int:
    """Create flows or replace them; one without an id has the name of its file."""
    from tradewind.cli.flow_file import read_file

    cli: Session = ctx.obj
    if id is not None and len(files) > 1:
        raise Invalid("--id goes with one file only", hint="name a single file, or write the ids in the files")
    read = {name: read_file(name, id) for name in dict.fromkeys(files)}

    def ask(name: str) -> dict[str, Any]:
        file = read[name]
        try:
            flow: dict[str, Any] = cli.station.post("/flows", file.document)
        except Invalid as error:
            raise file.placed(error) from None
        if start:
            flow = {**flow, "status": cli.station.post(f"/flows/{segment(flow['id'])}/start")["status"]}
        return flow

    return for_each(cli, list(read), ask, lambda flow: f"{flow['id']} {flow['status']}")


@app.command("list")
def list_flows(
    ctx: typer.Context,
    status: Annotated[str | None, typer.Option("--status", help="Only flows in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=FULL_PAGE, help="Flows on one page.")] = PAGE,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on where a page before ended.")] = None,
    all: Annotated[bool, typer.Option("--all", help="All pages.")] = False,
) -> None:
    """All flows, how they stand and when they run next."""
    cli: Session = ctx.obj
    query: dict[str, Any] = {"status": status, "limit": limit, "cursor": cursor}
    if all:
        pages = cli.station.pages("/flows", {**query, "limit": FULL_PAGE})
        found: dict[str, Any] = {"items": [flow for page in pages for flow in page["items"]], "next_cursor": None}
    else:
        found = cli.station.get("/flows", query)
    cli.out.show(found, lambda: flow_table(found["items"]))
    if found.get("next_cursor"):
        cli.out.note(f"more: --cursor {found['next_cursor']}, or --all")


@app.command()
def show(ctx: typer.Context, flow_id: FlowId) -> None:
    """One flow: its state, its nodes and how they are wired."""
    cli: Session = ctx.obj
    flow = cli.station.get(f"/flows/{segment(flow_id)}")
    cli.out.show(flow, lambda: flow_facts(flow))


@app.command()
def start(ctx: typer.Context, flow_ids: FlowIds) -> int:
    """Let flows run by their schedule; one with interval 0 runs once."""
    return _move(ctx.obj, "start", flow_ids)


@app.command()
def stop(ctx: typer.Context, flow_ids: FlowIds) -> int:
    """No new cycles, and the running ones are stopped."""
    return _move(ctx.obj, "stop", flow_ids)


@app.command()
def pause(ctx: typer.Context, flow_ids: FlowIds) -> int:
    """No new cycles; the running ones go on."""
    return _move(ctx.obj, "pause", flow_ids)


@app.command()
def resume(ctx: typer.Context, flow_ids: FlowIds) -> int:
    """Let paused flows run again."""
    return _move(ctx.obj, "resume", flow_ids)


@app.command()
def drain(ctx: typer.Context, flow_ids: FlowIds) -> int:
    """No new cycles; stopped when the running ones have ended."""
    return _move(ctx.obj, "drain", flow_ids)


@app.command()
def delete(
    ctx: typer.Context,
    flow_ids: FlowIds,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Stop flows and remove everything of them: definition, cycles, logs, signals."""
    cli: Session = ctx.obj
    if not yes:
        _confirm(cli, flow_ids)

    def ask(flow_id: str) -> dict[str, Any]:
        cli.station.delete(f"/flows/{segment(flow_id)}", wait_s=DELETE_S)
        return {"deleted": flow_id}

    return for_each(cli, flow_ids, ask, lambda answer: f"{answer['deleted']} deleted")


@app.command()
def webhook(
    ctx: typer.Context,
    flow_id: FlowId,
    payload: Annotated[str | None, typer.Argument(metavar="[JSON]", help="What the event brings.")] = None,
    wait: flow_run.Wait = False,
    timeout: flow_run.Timeout = None,
) -> int:
    """Start a cycle as an event from outside does."""
    from tradewind.cli.task import read_value

    cli: Session = ctx.obj
    body = read_value(payload) if payload is not None else None
    started = cli.station.post(f"/flows/{segment(flow_id)}/webhook", body)
    return flow_run.follow_started(cli, started, wait or timeout is not None, timeout)


def _move(cli: Session, verb: str, flow_ids: list[str]) -> int:
    def ask(flow_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = cli.station.post(f"/flows/{segment(flow_id)}/{verb}")
        return answer

    return for_each(cli, flow_ids, ask, lambda answer: f"{answer['flow_id']} {answer['status']}")


def _confirm(cli: Session, flow_ids: list[str]) -> None:
    """Ask on a terminal. Raises Invalid where nobody can answer, typer.Abort for a no."""
    import sys

    named = ", ".join(flow_ids)
    if cli.is_json or not (sys.stdin.isatty() and cli.out.side.is_terminal):
        raise Invalid(f"deleting {named} cannot be undone", code="not_confirmed", hint="add --yes if it is meant")
    cli.out.side.print(cell(f"deletes {named} with all cycles, logs and signals"))
    typer.confirm("Go on?", abort=True, err=True)


app.command("run")(flow_run.run)
app.command("lint")(flow_lint.lint)
flow_cycle.add_to(app)
