"""`tradewind queue`: how much waits, and holding it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell, status_cell, table
from tradewind.errors import Invalid

if TYPE_CHECKING:
    from rich.console import RenderableType

app = Group("Queues: how much waits; pause and resume.")

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="high or normal.")]
Type = Annotated[str | None, typer.Option("--type", help="A task type instead of a queue.")]


@app.command("list")
def list_queues(ctx: typer.Context) -> None:
    """Length of each queue, and what is paused."""
    cli: Session = ctx.obj
    found = cli.station.get("/queues")
    cli.out.show(found, lambda: queue_table(found["items"]))


@app.command()
def pause(ctx: typer.Context, name: Name = None, type: Type = None) -> None:
    """Start nothing more from a queue, or of a type; what runs goes on."""
    _switch(ctx.obj, "pause", name, type)


@app.command()
def resume(ctx: typer.Context, name: Name = None, type: Type = None) -> None:
    """Start tasks again after a pause."""
    _switch(ctx.obj, "resume", name, type)


def _switch(cli: Session, verb: str, name: str | None, type: str | None) -> None:
    if (name is None) == (type is None):
        raise Invalid("give the name of a queue, or --type", hint=f"`tradewind queue {verb} normal` or `--type echo`")
    queue = f"type:{type}" if type is not None else str(name)
    found = cli.station.post(f"/queues/{segment(queue)}/{verb}")
    cli.out.show(found, lambda: cell(f"{queue} {verb}d"))


def queue_table(queues: list[dict[str, Any]]) -> RenderableType:
    rows = [
        (q["name"], q["length"], q.get("parked") or None, status_cell("paused" if q.get("paused") else ""))
        for q in queues
    ]
    return table(("queue", "length", "parked", "state"), rows, empty="no queues", right=("length", "parked"))
