"""`tradewind schedule`: tasks that are submitted by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell, json_text, short, table
from tradewind.errors import Invalid

if TYPE_CHECKING:
    from rich.console import RenderableType

app = Group("Periodic tasks.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


@app.command("list")
def list_schedules(ctx: typer.Context) -> None:
    """All periodic tasks and when they are due."""
    cli: Session = ctx.obj
    found = cli.station.get("/schedules")
    cli.out.show(found, lambda: _table(found["items"]))


@app.command("set")
def set_schedule(
    ctx: typer.Context,
    name: Name,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Task type.")],
    every: Annotated[str | None, typer.Option("--every", metavar="30s|5m|1h", help="Interval.")] = None,
    cron: Annotated[str | None, typer.Option("--cron", metavar='"M H D M W"', help="Cron line, UTC.")] = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="Arguments as a JSON list.")] = None,
    kwargs: Annotated[str | None, typer.Option("--kwargs", metavar="JSON", help="Named arguments, an object.")] = None,
    priority: Annotated[str | None, typer.Option("--priority", metavar="high|normal")] = None,
) -> None:
    """Submit a task at an interval or by a cron line; one of the same name is replaced."""
    from tradewind.cli.task import read_json

    cli: Session = ctx.obj
    if (every is None) == (cron is None):
        raise Invalid("give one of --every and --cron", hint='such as --every 30s, or --cron "*/5 * * * *"')
    given = {
        "type": type,
        "every": every,
        "cron": cron,
        "args": read_json("--args", args, list),
        "kwargs": read_json("--kwargs", kwargs, dict),
        "priority": priority,
    }
    body = {key: value for key, value in given.items() if value is not None}
    found = cli.station.put(f"/schedules/{segment(name)}", body)
    cli.out.show(found, lambda: cell(f"{name}: {type} {every or cron}"))


@app.command()
def remove(ctx: typer.Context, name: Name) -> None:
    """Remove a periodic task; what it has submitted stays."""
    cli: Session = ctx.obj
    cli.station.delete(f"/schedules/{segment(name)}")
    cli.out.show({"removed": name}, lambda: cell(f"{name}: removed"))


def _table(schedules: list[dict[str, Any]]) -> RenderableType:
    from tradewind.cli.times import relative
    from tradewind.clock import now_ms

    now = now_ms()
    rows = [
        (
            s["name"],
            s["type"],
            _when(s),
            relative(s.get("next_at"), now),
            s.get("priority"),
            short(json_text(s["args"])) if s.get("args") else None,
            short(json_text(s["kwargs"])) if s.get("kwargs") else None,
        )
        for s in schedules
    ]
    headings = ("schedule", "type", "when", "next", "priority", "args", "kwargs")
    return table(headings, rows, empty="no schedules")


def _when(schedule: dict[str, Any]) -> str:
    if schedule.get("cron"):
        return str(schedule["cron"])
    from tradewind.cli.times import span

    return f"every {span(schedule['every_s'])}"
