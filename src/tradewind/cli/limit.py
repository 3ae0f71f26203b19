"""`tradewind limit`: how many tasks of a type may start in a stretch of time."""

from __future__ import annotations

from typing import Annotated

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell, table

app = Group("Rate limits of task types.")

Type = Annotated[str, typer.Argument(metavar="TYPE", help="Task type.")]


@app.command("list")
def list_limits(ctx: typer.Context) -> None:
    """All limits, and how much of each is used."""
    cli: Session = ctx.obj
    found = cli.station.get("/rate-limits")
    rows = [(r["type"], r["limit"], f"{r['window_s']}s", r["used"]) for r in found["items"]]
    headings, right = ("type", "limit", "window", "used"), ("limit", "window", "used")
    cli.out.show(found, lambda: table(headings, rows, empty="no rate limits", right=right))


@app.command("set")
def set_limit(
    ctx: typer.Context,
    type: Type,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Tasks that may start in one window.")],
    window: Annotated[int, typer.Option("--window", metavar="S", help="Whole seconds.")] = 1,
) -> None:
    """Let at most N tasks of a type start in any S seconds."""
    cli: Session = ctx.obj
    found = cli.station.put(f"/rate-limits/{segment(type)}", {"limit": limit, "window_s": window})
    cli.out.show(found, lambda: cell(f"{type}: at most {limit} in {window} s"))


@app.command()
def remove(ctx: typer.Context, type: Type) -> None:
    """Remove the limit of a type."""
    cli: Session = ctx.obj
    cli.station.delete(f"/rate-limits/{segment(type)}")
    cli.out.show({"removed": type}, lambda: cell(f"{type}: no limit"))
