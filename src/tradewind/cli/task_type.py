"""`tradewind type`: what can be submitted."""

from __future__ import annotations

from typing import Any

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.output import table

app = Group("Task types that workers offer.")


@app.command("list")
def list_types(ctx: typer.Context) -> None:
    """Every task type with its parameters."""
    cli: Session = ctx.obj
    found = cli.station.get("/task-types")
    rows = [(t["type"], ", ".join(_parameter(p) for p in t.get("params") or []), t.get("doc")) for t in found["items"]]
    empty = "no task types: start a worker with `tradewind up --import yourmodule`"
    cli.out.show(found, lambda: table(("type", "parameters", "about"), rows, empty=empty))


def _parameter(param: dict[str, Any]) -> str:
    kind = "|".join(param.get("types") or [])
    text = f"{param['name']}: {kind}" if kind else str(param["name"])
    return text if param.get("required", True) else f"[{text}]"
