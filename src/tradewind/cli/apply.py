"""`tradewind apply`: make a station what the files of a folder say. Checked as a whole, then only what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.group import Session
from tradewind.cli.http import Http, segment
from tradewind.cli.output import plain
from tradewind.errors import Invalid, TradewindError

if TYPE_CHECKING:
    from tradewind.cli.apply_plan import Plan, Wanted

#: A delete waits for running nodes, or for whoever polls a channel.
DELETE_S = 60.0
PATHS = {"channels": "/channels", "templates": "/model-templates", "models": "/models", "flows": "/flows"}


def apply(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Option("--file", "-f", metavar="DIR", help="A station folder; see `tradewind init`.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, and show what would change.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also remove what the folder does not have, of the kinds that it has.")
    ] = False,
    start: Annotated[bool, typer.Option("--start", help="Start its flows that were never started.")] = False,
) -> int:
    """Check a folder as a whole, show the difference to the station, and apply channels, models and flows."""
    from tradewind.cli.apply_plan import make_plan, read_wanted

    cli: Session = ctx.obj
    wanted = read_wanted(folder)
    if wanted.problems:  # without a station, too
        raise refusal(wanted)
    plan = make_plan(cli.station, wanted, prune=prune, start=start)
    if wanted.problems:
        raise refusal(wanted)
    for warning in wanted.warnings:
        cli.out.note(f"warning: {warning}")
    if not dry_run:
        carry_out(cli.station, plan)
    view = {
        "dry_run": dry_run,
        "changed": bool(plan),
        "changes": plan.view(),
        "started": plan.to_start,
        "warnings": wanted.warnings,
    }
    cli.out.show(view, lambda: "\n".join(_told(plan, dry_run)))
    return 0


def refusal(wanted: Wanted) -> Invalid:
    count = len(wanted.problems)
    message = f"{count} problem{'s' if count > 1 else ''} in {wanted.folder}: nothing was applied"
    return Invalid(message, code="bad_folder", hint="correct what is named", problems=wanted.problems)


def carry_out(station: Http, plan: Plan) -> None:
    """Channels, templates, models, flows; then removals the other way round. An error says how far it came."""
    from tradewind.cli.apply_plan import KINDS, NOUNS

    done: list[str] = []
    try:
        for kind in KINDS:
            found, documents = plan.differences[kind], plan.wanted.documents[kind]

            def put(name: str, kind: str = kind, documents: dict[str, Any] = documents) -> None:
                station.put(f"{PATHS[kind]}/{segment(name)}", documents[name])
                done.append(f"{NOUNS[kind]} {name}")

            _each([*found.added, *found.changed], put)
        for kind in reversed(KINDS):

            def remove(name: str, kind: str = kind) -> None:
                station.delete(f"{PATHS[kind]}/{segment(name)}", wait_s=DELETE_S)
                done.append(f"{NOUNS[kind]} {name} (removed)")

            _each(plan.differences[kind].removed, remove)
        for name in plan.to_start:
            station.post(f"/flows/{segment(name)}/start")
    except TradewindError as error:
        error.add_note(f"applied before that: {', '.join(done) or 'nothing'}; apply again to go on")
        raise


def _each(names: Iterable[str], act: Callable[[str], None]) -> None:
    """One after the other; those that are refused because of others come again after these. Raises the last refusal."""
    left = list(names)
    while left:
        refused: list[tuple[str, Invalid]] = []
        for name in left:
            try:
                act(name)
            except Invalid as error:
                refused.append((name, error))
        if len(refused) == len(left):
            raise refused[0][1]
        left = [name for name, _ in refused]


def _told(plan: Plan, dry_run: bool) -> list[str]:
    from tradewind.cli.apply_plan import KINDS, NOUNS

    lines = [plain(line) for line in plan.lines()]
    kept = [f"{NOUNS[kind]} {name}" for kind in KINDS for name in plan.kept[kind]]
    if kept:
        few = ", ".join(kept[:10]) + (f" and {len(kept) - 10} more" if len(kept) > 10 else "")
        lines.append(f"not in the folder, and kept: {plain(few)}")
    same = sum(found.unchanged for found in plan.differences.values())
    if not plan:
        lines.append(f"no difference ({same} unchanged)")
    else:
        changes = sum(len(f.added) + len(f.changed) + len(f.removed) for f in plan.differences.values())
        lines.append(f"{'would apply' if dry_run else 'applied'}: {changes}; unchanged: {same}")
    if plan.to_start:
        lines.append(f"{'would start' if dry_run else 'started'}: {', '.join(plan.to_start)}")
    return lines
