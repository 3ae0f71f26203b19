"""`tradewind doctor`: looks at the store itself (not over HTTP) and says what is wrong and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import status_cell, table
from tradewind.cli.station import Config, DataDir

if TYPE_CHECKING:
    from tradewind.cli.check import Check


def doctor(ctx: typer.Context, config: Config = None, data_dir: DataDir = None) -> int:
    """Check Redis, its keys, clocks, roles, channels, rules, alarms and history. Exit 1 when something fails or
    cannot be looked at."""
    import asyncio

    from tradewind.cli.examine import examine
    from tradewind.settings import load_settings

    cli: Session = ctx.obj
    overrides: dict[str, Path] = {"data_dir": data_dir} if data_dir is not None else {}
    checks = asyncio.run(examine(load_settings(config, overrides)))
    worst = worst_of(checks)
    found: dict[str, Any] = {"status": worst, "checks": [check.__dict__ for check in checks]}
    rows = [(check.name, status_cell(check.status), check.detail, check.hint) for check in checks]
    cli.out.show(found, lambda: table(("check", "state", "found", "what to do"), rows, empty="nothing was checked"))
    return 1 if worst in ("fail", "unknown") else 0


def worst_of(checks: list[Check]) -> str:
    from tradewind.cli.check import STATES

    return max((check.status for check in checks), key=STATES.index, default="ok")
