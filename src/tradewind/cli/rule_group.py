"""`tradewind rule-group`: rules that belong together."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tradewind.cli.each import for_each
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell, facts, short, table
from tradewind.errors import Conflict, Invalid

app = Group("Groups of rules.")
Id = Annotated[str, typer.Argument(metavar="ID")]
Ids = Annotated[list[str], typer.Argument(metavar="ID…")]
Name = Annotated[str | None, typer.Option("--name", metavar="TEXT", help="What people call it.")]
About = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="What it is for.")]


@app.command("list")
def list_groups(ctx: typer.Context) -> None:
    """All groups with their rules."""
    cli: Session = ctx.obj
    found = cli.station.get("/rule-groups")
    rows = [(g["id"], g["name"], g["description"], short(", ".join(g["rules"]), 80)) for g in found["items"]]
    cli.out.show(found, lambda: table(("id", "name", "description", "rules"), rows, empty="no groups"))


@app.command()
def show(ctx: typer.Context, group_id: Id) -> None:
    """One group."""
    cli: Session = ctx.obj
    found = cli.station.get(f"/rule-groups/{segment(group_id)}")
    shown = [(name, ", ".join(value) if name == "rules" else value) for name, value in found.items()]
    cli.out.show(found, lambda: facts(shown))


@app.command()
def create(ctx: typer.Context, group_id: Id, name: Name = None, description: About = None) -> None:
    """Make a group."""
    cli: Session = ctx.obj
    try:
        found = cli.station.post("/rule-groups", {"id": group_id, **_said(name, description)})
    except Conflict as error:
        raise Conflict(error.message, code=error.code, hint="`tradewind rule-group update ID` changes it") from None
    cli.out.show(found, lambda: cell(f"{found['id']} created"))


@app.command()
def update(ctx: typer.Context, group_id: Id, name: Name = None, description: About = None) -> None:
    """Change what a group is called."""
    cli: Session = ctx.obj
    path = f"/rule-groups/{segment(group_id)}"
    found = cli.station.put(path, {**cli.station.get(path), **_said(name, description)})
    cli.out.show(found, lambda: cell(f"{found['id']} stored"))


@app.command()
def delete(
    ctx: typer.Context,
    ids: Ids,
    cascade: Annotated[bool, typer.Option("--cascade", help="Remove its rules, too.")] = False,
    ungroup: Annotated[bool, typer.Option("--ungroup", help="Take its rules out of it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Remove groups; one with rules only with --cascade or --ungroup."""
    cli: Session = ctx.obj
    if cascade and ungroup:
        raise Invalid("--cascade and --ungroup exclude each other", code="usage", hint="give one of them")
    if cascade and not yes:
        from tradewind.cli.confirm import confirm

        confirm(cli, f"removes group {', '.join(ids)} with all its rules")
    word = "cascade" if cascade else "ungroup" if ungroup else "refuse"

    def ask(group_id: str) -> dict[str, Any]:
        try:
            cli.station.delete(f"/rule-groups/{segment(group_id)}?rules={word}")
        except Conflict as error:
            hint = "--cascade removes them, too, --ungroup takes them out of it"
            raise Conflict(error.message, code=error.code, hint=hint) from None
        return {"removed": group_id}

    return for_each(cli, ids, ask, lambda answer: f"{answer['removed']} removed")


@app.command()
def enable(ctx: typer.Context, ids: Ids) -> int:
    """Let all rules of groups be judged, each group in one change."""
    return _switch(ctx.obj, ids, "enable")


@app.command()
def disable(ctx: typer.Context, ids: Ids) -> int:
    """Judge the rules of groups no longer; their open alarms are resolved."""
    return _switch(ctx.obj, ids, "disable")


def _switch(cli: Session, ids: list[str], word: str) -> int:
    def ask(group_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = cli.station.post(f"/rule-groups/{segment(group_id)}/{word}")
        return answer

    def say(answer: dict[str, Any]) -> str:
        changed = f": {', '.join(answer['changed'])}" if answer["changed"] else ", as before"
        return f"{answer['id']} {word}d{changed}"

    return for_each(cli, ids, ask, say)


def _said(name: str | None, description: str | None) -> dict[str, str]:
    return {key: text for key, text in (("name", name), ("description", description)) if text is not None}
