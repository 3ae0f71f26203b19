"""`tradewind apply`: make a station what the files of a folder say. Checked as a whole, then only what differs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import plain
from tradewind.errors import Invalid

if TYPE_CHECKING:
    from tradewind.cli.apply_plan import Plan, Wanted


def apply(
    ctx: typer.Context,
    folder: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="DIR", help="A station folder; see `tradewind init`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, and show what would change.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also remove what the folder does not have, of the kinds that it has.")
    ] = False,
    start: Annotated[bool, typer.Option("--start", help="Start its flows that were never started.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad rows of point tables out, name them, and apply the rest.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Finish an apply that was interrupted.")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Return to what was before an apply that was interrupted.")
    ] = False,
) -> int:
    """Check a folder as a whole, show the difference to the station, and apply channels, models, rules and flows."""
    from tradewind.cli.apply_plan import make_plan, read_wanted
    from tradewind.cli.apply_steps import carry_out, open_release

    cli: Session = ctx.obj
    if resume or rollback:
        if folder is not None or dry_run or prune or start or skip_bad or (resume and rollback):
            raise Invalid("--resume and --rollback stand alone", hint="they need no folder: the station knows the rest")
        return _end(cli, resume=resume)
    if folder is None:
        raise Invalid("which folder is to be applied?", code="usage", hint="give it with -f DIR")
    wanted = read_wanted(folder)
    left_out = wanted.skip_bad_rows() if skip_bad else []
    if wanted.problems:  # without a station, too
        raise refusal(wanted)
    interrupted = open_release(cli.station)
    plan = make_plan(cli.station, wanted, prune=prune, start=start)
    if wanted.problems:
        raise refusal(wanted)
    for problem in left_out:
        cli.out.note(f"left out: {problem.path}: {problem.hint}")
    for warning in wanted.warnings:
        cli.out.note(f"warning: {warning}")
    if interrupted is not None and interrupted["state"] != "preparing":
        cli.out.note(
            f"an earlier apply ({interrupted['note']}, begun {interrupted['started_at']}) was interrupted after "
            f"{interrupted['done']} of {interrupted['total']} steps or more: "
            + ("`tradewind apply --resume` or `--rollback` ends it" if dry_run else "this one takes its place")
        )
    if not dry_run:
        carry_out(cli.station, plan)
        if interrupted is not None and not plan and not plan.to_start:
            cli.station.delete(f"/release/{interrupted['id']}")  # all is as the folder says
    view = {
        "dry_run": dry_run,
        "changed": bool(plan),
        "changes": plan.view(),
        "started": plan.to_start,
        "warnings": wanted.warnings,
        "left_out": [{"code": p.code, "path": p.path, "hint": p.hint} for p in left_out],
        "interrupted": interrupted,
    }
    cli.out.show(view, lambda: "\n".join(_told(plan, dry_run)))
    return 0


def _end(cli: Session, *, resume: bool) -> int:
    """Finish an interrupted release, or undo it. Raises NotFound when there is none."""
    from tradewind.cli import apply_steps

    release = cli.station.get("/release")
    if resume:
        count = apply_steps.resume(cli.station, release)
        told = f"finished: {count} steps" if count else "nothing had been changed yet: apply the folder again"
        cli.out.show({"resumed": count, "release": release}, lambda: told)
        return 0
    undone = apply_steps.roll_back(cli.station, release)
    lines = [f"restored: {len(undone['restored'])}; removed: {len(undone['removed'])}"]
    lines += [f"failed: {plain(what)}" for what in undone["failed"]]
    cli.out.show({**undone, "release": release}, lambda: "\n".join(lines))
    return 1 if undone["failed"] else 0


def refusal(wanted: Wanted) -> Invalid:
    count = len(wanted.problems)
    message = f"{count} problem{'s' if count > 1 else ''} in {wanted.folder}: nothing was applied"
    return Invalid(message, code="bad_folder", hint="correct what is named", problems=wanted.problems)


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
