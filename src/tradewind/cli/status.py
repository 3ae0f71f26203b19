"""`tradewind status`: health, queues and workers in one view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import cell, status_cell, table
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from rich.console import RenderableType

EXIT = {"ok": 0, "degraded": 1}


def status(ctx: typer.Context) -> int:
    """Health, queues and workers. Exit 0 ok, 1 degraded, 6 down."""
    cli: Session = ctx.obj
    health = cli.station.health()
    found = {"health": health, "queues": _items(cli, "/queues"), "workers": _items(cli, "/workers")}
    cli.out.show(found, lambda: _view(cli.station.url, found))
    return EXIT.get(str(health.get("status")), 6)


def _items(cli: Session, path: str) -> list[dict[str, Any]] | None:
    """None when the station cannot tell: its health says why."""
    try:
        items: list[dict[str, Any]] = cli.station.get(path)["items"]
    except TradewindError:
        return None
    return items


def _said(part: dict[str, Any]) -> str:
    return f"{part.get('detail', '')} → {part['hint']}" if part.get("hint") else str(part.get("detail", ""))


def _view(url: str, found: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from tradewind.cli.queue import queue_table
    from tradewind.cli.worker import worker_table

    health = found["health"]
    head = Text.assemble(url, " ", status_cell(str(health.get("status"))), f" tradewind {health.get('version', '?')}")
    parts = [(name, status_cell(part.get("status", "")), _said(part)) for name, part in health["parts"].items()]
    blocks: list[RenderableType] = [head, Text(), table(("part", "state", "detail"), parts, empty="no parts"), Text()]
    unknown = cell("not known while the station is down")
    blocks += [queue_table(found["queues"]) if found["queues"] is not None else unknown, Text()]
    blocks.append(worker_table(found["workers"]) if found["workers"] is not None else unknown)
    return Group(*blocks)
