"""`tradewind apply`: make a station what the files of a folder say. Checked as a whole, then only what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.group import Session
from tradewind.cli.http import Http, segment
from tradewind.cli.output import plain
from tradewind.errors import Invalid, TradewindError

if TYPE_CHECKING:
    from tradewind.cli.apply_plan import Plan, Wanted

#: A delete waits for running nodes, or for whoever polls a channel.
DELETE_S = 60.0


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
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad rows of point tables out, name them, and apply the rest.")
    ] = False,
) -> int:
    """Check a folder as a whole, show the difference to the station, and apply channels, models, rules and flows."""
    from tradewind.cli.apply_plan import make_plan, read_wanted

    cli: Session = ctx.obj
    wanted = read_wanted(folder)
    left_out = wanted.skip_bad_rows() if skip_bad else []
    if wanted.problems:  # without a station, too
        raise refusal(wanted)
    plan = make_plan(cli.station, wanted, prune=prune, start=start)
    if wanted.problems:
        raise refusal(wanted)
    for problem in left_out:
        cli.out.note(f"left out: {problem.path}: {problem.hint}")
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
        "left_out": [{"code": p.code, "path": p.path, "hint": p.hint} for p in left_out],
    }
    cli.out.show(view, lambda: "\n".join(_told(plan, dry_run)))
    return 0


def refusal(wanted: Wanted) -> Invalid:
    count = len(wanted.problems)
    message = f"{count} problem{'s' if count > 1 else ''} in {wanted.folder}: nothing was applied"
    return Invalid(message, code="bad_folder", hint="correct what is named", problems=wanted.problems)


def carry_out(station: Http, plan: Plan) -> None:
    """What is new before what needs it, and the other way round for what goes: flows need models, these channels.
    An error says how far it came."""
    from tradewind.cli.apply_history import put_history
    from tradewind.cli.apply_parts import channel_parts, model_change
    from tradewind.cli.apply_rules import put_rules

    documents, found = plan.wanted.documents, plan.differences
    done: list[str] = []

    def put_flow(name: str) -> None:
        station.put(f"/flows/{segment(name)}", documents["flows"][name])
        done.append(f"flow {name}")

    def remove_flow(name: str) -> None:
        station.delete(f"/flows/{segment(name)}", wait_s=DELETE_S)
        done.append(f"flow {name} (removed)")

    try:
        for part in channel_parts(documents["channels"], found["channels"]):
            station.put("/channels", {"channels": list(part.values())})
            done += [f"channel {name}" for name in part]
        _each(found["flows"].removed, remove_flow)
        if change := model_change(documents, found):
            answer = station.put("/models", change)
            done += [f"{noun} {name}" for noun in ("template", "model") for name in answer[f"{noun}s"]]
            done += [f"model {name} (removed)" for name in answer["removed"]]
        put_rules(station, plan.wanted.rules, found, done)
        put_history(station, documents["history"], found["history"], done)
        _each([*found["flows"].added, *found["flows"].changed], put_flow)
        if gone := list(found["channels"].removed):
            answer = station.put("/channels", {"remove": gone}, wait_s=DELETE_S)
            done += [f"channel {name} (removed)" for name in gone]
            done += [f"warning: {warning['hint']}" for warning in answer.get("warnings", ())]
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
