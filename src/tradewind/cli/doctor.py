"""`tradewind doctor`: looks at the store itself (not over HTTP) and says what is wrong and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import status_cell, table
from tradewind.cli.station import Config, DataDir

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tradewind.cli.check import Check
    from tradewind.redis.index_sweep import IndexFault

#: Repairs that people see one by one; `--json` has them all.
SHOWN = 200


Repair = Annotated[
    bool, typer.Option("--repair", help="Bring indexes back to what the records say, print what was changed.")
]


def doctor(ctx: typer.Context, config: Config = None, data_dir: DataDir = None, repair: Repair = False) -> int:
    """Check Redis, its keys, clocks, roles, channels, rules, alarms and history. Exit 1 when something fails or
    cannot be looked at."""
    import asyncio

    from tradewind.cli.examine import examine
    from tradewind.settings import load_settings

    cli: Session = ctx.obj
    overrides: dict[str, Path] = {"data_dir": data_dir} if data_dir is not None else {}
    repaired: list[IndexFault] | None = [] if repair else None
    checks = asyncio.run(examine(load_settings(config, overrides), repaired))
    worst = worst_of(checks)
    found: dict[str, Any] = {"status": worst, "checks": [check.__dict__ for check in checks]}
    if repaired is not None:
        found["repaired"] = [{"key": fault.key, "what": fault.what} for fault in repaired]
    cli.out.show(found, lambda: _shown(checks, repaired))
    return 1 if worst in ("fail", "unknown") else 0


def _shown(checks: list[Check], repaired: list[IndexFault] | None) -> RenderableType:
    from rich.console import Group

    rows = [(check.name, status_cell(check.status), check.detail, check.hint) for check in checks]
    found = table(("check", "state", "found", "what to do"), rows, empty="nothing was checked")
    if repaired is None:
        return found
    done = [(fault.key, fault.what) for fault in repaired[:SHOWN]]
    done += [("", f"and {len(repaired) - SHOWN} more")] if len(repaired) > SHOWN else []
    return Group(table(("repaired", "what was wrong"), done, empty="nothing was to be repaired"), "", found)


def worst_of(checks: list[Check]) -> str:
    from tradewind.cli.check import STATES

    return max((check.status for check in checks), key=STATES.index, default="ok")
