"""`tradewind rule`: judge live values and act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.each import for_each
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import plain, short, status_cell, table
from tradewind.errors import Conflict, Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.cli.definition_file import Definition

app = Group("Rules: judge live values, raise alarms, act.")
PAGE = 1000
STATES = ("active", "inactive", "waiting", "stopped", "disabled", "faulty")
Id = Annotated[str, typer.Argument(metavar="ID")]
Ids = Annotated[list[str], typer.Argument(metavar="ID…")]
Files = Annotated[list[str], typer.Argument(metavar="FILE…", help="YAML or JSON; - is stdin.")]


@app.command("list")
def list_rules(
    ctx: typer.Context,
    group: Annotated[str | None, typer.Option("--group", metavar="ID", help="Of this group.")] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="ADDRESS", help="That read this address.")] = None,
    search: Annotated[str | None, typer.Option("--search", metavar="TEXT", help="In id, name, description.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="S", help="active, inactive, waiting, stopped, disabled, faulty.")
    ] = None,
) -> None:
    """All rules by priority, with how they stand and what they did."""
    cli: Session = ctx.obj
    if state is not None and state not in STATES:
        raise Invalid(f"--state {state}: there is no such state", code="unknown_state", hint=", ".join(STATES))
    query = {"limit": PAGE, "group_id": group, "source": source, "search": search}
    items = [each for page in cli.station.pages("/rules", query) for each in page["items"]]
    items = [each for each in items if state is None or each["state"] == state]
    from tradewind.cli.times import clock_time

    rows = [
        (r["id"], r["name"], status_cell(r["state"]), r["priority"], r["group_id"], len(r["conditions"]),
         short(", ".join(action["type"] for action in r["actions"]), 50), r["figures"]["triggered"],
         r["figures"]["failed"], clock_time(r["figures"]["fired_at"]))
        for r in items
    ]  # fmt: skip
    headings = ("id", "name", "state", "priority", "group", "conditions", "actions", "fired", "failed", "last fired")
    numbers = ("priority", "conditions", "fired", "failed")
    found = {"items": items, "next_cursor": None}
    cli.out.show(found, lambda: table(headings, rows, empty="no rules", right=numbers))


@app.command()
def show(ctx: typer.Context, rule_id: Id) -> None:
    """One rule: its definition, how it stands, what it did."""
    cli: Session = ctx.obj
    rule = cli.station.get(f"/rules/{segment(rule_id)}")
    from tradewind.cli.rule_view import rule_view

    cli.out.show(rule, lambda: rule_view(rule))


@app.command()
def create(ctx: typer.Context, files: Files) -> int:
    """Define rules and groups that are new. A file has lists `rules` and `groups`, is a list of rules, or one rule."""
    from tradewind.cli.rule_file import read_files

    cli: Session = ctx.obj
    found = read_files(files)

    def ask(name: str) -> dict[str, Any]:
        one = found[name]
        try:
            path = "/rule-groups" if one.kind == "groups" else "/rules"
            answer: dict[str, Any] = cli.station.post(path, one.document)
        except Invalid as error:
            raise one.placed(error) from None
        except Conflict as error:
            raise Conflict(error.message, code=error.code, hint="`tradewind rule update FILE` replaces it") from None
        _warn(cli, answer.get("warnings", []), [one])
        return {"kind": one.kind.removesuffix("s"), **answer}

    return for_each(cli, list(found), ask, lambda answer: f"{answer['kind']} {answer['id']} created")


@app.command()
def update(ctx: typer.Context, files: Files) -> None:
    """Define or replace rules and groups, also from what `list --json` or `export` printed. All or none."""
    from tradewind.cli.rule_file import placed, read_files

    cli: Session = ctx.obj
    found = read_files(files)
    change = {kind: [one.document for one in found.values() if one.kind == kind] for kind in ("groups", "rules")}
    try:
        answer = cli.station.put("/rules", {kind: documents for kind, documents in change.items() if documents})
    except Invalid as error:
        raise placed(error, list(found.values())) from None
    items = [{"kind": kind.removesuffix("s"), "id": name} for kind in change for name in answer[kind]]
    shown = [f"{item['kind']} {item['id']} stored" for item in items]
    _warn(cli, answer["warnings"], list(found.values()))
    cli.out.show({"items": items, "errors": [], "warnings": answer["warnings"]}, lambda: "\n".join(map(plain, shown)))


@app.command()
def delete(
    ctx: typer.Context,
    ids: Ids,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Remove rules with their timers and their history; their open alarms are resolved."""
    cli: Session = ctx.obj
    if not yes:
        from tradewind.cli.confirm import confirm

        confirm(cli, f"removes rule {', '.join(ids)} with its history")

    from tradewind.cli.rule_removal import remove_rules

    refused = remove_rules(cli.station, list(dict.fromkeys(ids)))

    def answer(rule_id: str) -> dict[str, Any]:
        if rule_id in refused:
            raise refused[rule_id]
        return {"removed": rule_id}

    return for_each(cli, list(dict.fromkeys(ids)), answer, lambda answer: f"{answer['removed']} removed")


@app.command()
def export(
    ctx: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Only these.")] = None,
    group: Annotated[str | None, typer.Option("--group", metavar="ID", help="Only those of this group.")] = None,
) -> None:
    """Rules with their groups as YAML, for `create`, `update` and `tradewind apply`; all of them unless named."""
    import sys

    from tradewind.cli.rule_export import as_yaml, exported

    cli: Session = ctx.obj
    found = exported(cli.station, ids or (), group)
    if cli.is_json:
        cli.out.show(found, str)
    else:
        sys.stdout.write(as_yaml(found))


@app.command()
def enable(ctx: typer.Context, ids: Ids) -> int:
    """Let rules be judged; also one that was stopped because it fed itself."""
    return _switch(ctx.obj, ids, "enable")


@app.command()
def disable(ctx: typer.Context, ids: Ids) -> int:
    """Judge rules no longer; their open alarms are resolved."""
    return _switch(ctx.obj, ids, "disable")


@app.command("test")
def try_out(
    ctx: typer.Context,
    rule_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A rule of the station.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Instead: the rule of a file, not stored.")
    ] = None,
) -> None:
    """What a rule says of the plant now, and what it would do. Nothing is done."""
    cli: Session = ctx.obj
    from tradewind.cli.rule_file import read_one

    name, one = read_one(rule_id, file)
    try:
        found = cli.station.post(f"/rules/{segment(name)}/test", {"rule": one.document} if one else None)
    except Invalid as error:
        raise one.placed(error) if one else error from None
    from tradewind.cli.rule_view import tested_view

    cli.out.show(found, lambda: tested_view(found))


@app.command()
def backtest(
    ctx: typer.Context,
    rule_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A rule of the station.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Instead: the rule of a file, not stored.")
    ] = None,
    csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="Samples: ts,address,value[,quality]; - is stdin.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Instead: of the history, from then: 24h, ISO, ms.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="T", help="Until then (now; of a file, its last sample).")
    ] = None,
    stale: Annotated[
        str | None, typer.Option("--stale", metavar="30s", help="A source that is silent for so long is stale.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, max=10_000, help="List at most so many edges.")] = 100,
) -> None:
    """When a rule would have fired, over a CSV file or over the history. Nothing is done."""
    from tradewind.cli.rule_backtest import BACKTEST_S, report_view, samples_of
    from tradewind.cli.rule_file import read_one

    cli: Session = ctx.obj
    name, one = read_one(rule_id, file)
    body = {**samples_of(csv, since, until, stale), "max_events": limit, **({"rule": one.document} if one else {})}
    try:
        found = cli.station.post(f"/rules/{segment(name)}/backtest", body, wait_s=BACKTEST_S)
    except Invalid as error:
        raise one.placed(error) if one and error.code == "bad_rule" else error from None
    cli.out.show(found, lambda: report_view(found))


@app.command()
def history(
    ctx: typer.Context,
    rule_id: Id,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 50,
    since: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Not before: ISO, milliseconds, or so long ago: 24h.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="T", help="Not after.")] = None,
) -> None:
    """What a rule did, newest first; kept for a week."""
    cli: Session = ctx.obj
    query = {"limit": limit, "from": since, "to": until}
    found = cli.station.get(f"/rules/{segment(rule_id)}/history", query)
    from tradewind.cli.times import clock_time
    from tradewind.clock import iso

    rows = [
        (clock_time(iso(e["timestamp"])), "rise" if e["triggered"] else "fall", e.get("cause"),
         short(", ".join(f"{name}={each['actual_value']}" for name, each in e["conditions_result"].items()), 60),
         ", ".join(e["actions_executed"]), status_cell("ok" if e["success"] else "fail"), e["duration_ms"],
         e["error_message"])
        for e in found["items"]
    ]  # fmt: skip
    headings = ("at", "edge", "cause", "values", "done", "success", "ms", "error")
    nothing = "it did nothing in that time" if since or until else "it did nothing yet"
    cli.out.show(found, lambda: table(headings, rows, empty=nothing, right=("ms",)))


def _warn(cli: Session, warnings: Sequence[dict[str, str]], found: Sequence[Definition]) -> None:
    """On stderr: the rules are stored all the same."""
    from tradewind.cli.rule_file import place_of

    for each in warnings:
        cli.out.note(f"warning: {place_of(each['path'], found)}: {each['hint']} [{each['code']}]")


def _switch(cli: Session, ids: list[str], word: str) -> int:
    def ask(rule_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = cli.station.post(f"/rules/{segment(rule_id)}/{word}")
        return answer

    return for_each(cli, ids, ask, lambda answer: f"{answer['id']} {word}d")
