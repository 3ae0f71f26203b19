"""`tradewind restore`: bring back from the copy in SQL what Redis has lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import cell, table
from tradewind.errors import Conflict, Invalid, TimedOut

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_S = 0.3


def restore(
    ctx: typer.Context,
    source: Annotated[str, typer.Option("--from", metavar="sql", help="Where the copy is.")] = "sql",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is missing.")] = False,
    kind: Annotated[list[str] | None, typer.Option("--kind", metavar="KIND", help="Only these kinds.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also overwrite what Redis has, with the copy.")] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Restore nothing: Redis is as it shall be, what it lacks was removed.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="S", help="How long to wait for its end.")] = 600,
) -> int:
    """Bring definitions, policies, schedules and open alarms back from the copy in SQL. Exit 1 when some stay away."""
    cli: Session = ctx.obj
    if accept and (dry_run or replace or kind):
        raise Invalid("--accept restores nothing", hint="leave the other options out")
    body: dict[str, Any] = {"from": source, "dry_run": dry_run, "replace": replace, "accept": accept}
    if kind:
        body["kinds"] = kind
    answer = cli.station.post("/station/restore", body)
    if accept:
        cli.out.show(answer, lambda: cell("accepted: the copy follows what Redis has now"))
        return 0
    if dry_run:
        cli.out.show(answer, lambda: _plan_table(answer["kinds"]))
        return 0
    state = _wait(cli, answer["id"], time.monotonic() + timeout)
    left = [{"kind": kind, **failed} for kind, result in state["result"].items() for failed in result["failed"]]
    cli.out.show(state, lambda: _result(state, left))
    return 0 if state["state"] == "done" else 1


def _wait(cli: Session, restore_id: str, deadline: float) -> dict[str, Any]:
    """Until it has ended, with a bar on a terminal."""
    import contextlib

    with contextlib.ExitStack() as stack:
        show = _bar(cli, stack)
        while True:
            state: dict[str, Any] | None = cli.station.get("/station/recovery")["restore"]
            if state is None or state["id"] != restore_id:
                raise Conflict(
                    "another restore has begun since", code="restore_runs", hint="see `tradewind restore --dry-run`"
                )
            if state["state"] != "running":
                return state
            show(state)
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"the restore is at {state['kind']}, {state['done']} of {state['total']}", hint="it goes on"
                )
            time.sleep(LOOK_S)


def _bar(cli: Session, stack: Any) -> Any:
    if not cli.out.is_live:
        return lambda state: None
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("restoring {task.description}"), BarColumn(), TimeElapsedColumn())
    progress = stack.enter_context(Progress(*columns, console=cli.out.side, transient=True))
    line = progress.add_task("", total=None)
    return lambda state: progress.update(
        line, description=state["kind"], completed=state["done"], total=state["total"] or None
    )


def _plan_table(kinds: dict[str, Any]) -> RenderableType:
    rows = [(name, k["copied"], k["missing"], ", ".join(k["examples"][:5]) or None) for name, k in kinds.items()]
    return table(("kind", "in the copy", "missing in Redis", "such as"), rows, empty="there is no copy")


def _result(state: dict[str, Any], left: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    rows = [
        (kind, r["restored"], r["kept"], r["ended"] or None, len(r["failed"]) or None)
        for kind, r in state["result"].items()
    ]
    blocks: list[RenderableType] = [table(("kind", "restored", "kept", "ended since", "failed"), rows, empty="nothing")]
    blocks += [cell(f"not restored: {item['kind']} {item['id']}: {item['error']}") for item in left[:50]]
    if len(left) > 50:
        blocks.append(cell(f"and {len(left) - 50} more"))
    words = {
        "done": "done: nothing is missing",
        "incomplete": "not all is back: correct what is named, then restore again",
    }
    blocks += [Text(), cell(words.get(state["state"], f"{state['state']}: {state['error']}"))]
    return Group(*blocks)
