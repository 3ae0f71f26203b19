"""`tradewind worker`: who works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.output import short, status_cell, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = Group("Workers that are registered now.")


@app.command("list")
def list_workers(ctx: typer.Context) -> None:
    """Every worker with its load, its types and its last sign of life."""
    cli: Session = ctx.obj
    found = cli.station.get("/workers")
    cli.out.show(found, lambda: worker_table(found["items"]))


def worker_table(workers: list[dict[str, Any]]) -> RenderableType:
    from tradewind.cli.times import relative
    from tradewind.clock import now_ms

    now = now_ms()
    rows = [
        (
            w["id"],
            w.get("name") if w.get("name") != w["id"] else None,
            status_cell(w["status"]),
            f"{w['running']}/{w['capacity']}",
            w["queued"],
            short(", ".join(w.get("types") or []), 50),
            ", ".join(w.get("labels") or []),
            w.get("address"),
            relative(w.get("last_heartbeat"), now),
        )
        for w in workers
    ]
    headings = ("worker", "name", "status", "running", "queued", "types", "labels", "address", "heartbeat")
    return table(headings, rows, empty="no workers: start one with `tradewind run worker`", right=("running", "queued"))
