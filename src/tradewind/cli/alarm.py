"""`tradewind alarm`: what is wrong, and who sees to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tradewind.cli.alarm_view import alarm_line, alarm_table, alarm_view, period_view, statistics_view
from tradewind.cli.command import user
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell, exit_code, plain, write_json
from tradewind.documents import write_file
from tradewind.errors import Conflict, Invalid, NotFound, TradewindError

app = Group("Alarms: what is wrong, and who sees to it.")
PAGE = 1000
#: Alarms that one request acts on.
TOGETHER = 1000
Ids = Annotated[list[str], typer.Argument(metavar="ID…")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for the journal.")]
Who = Annotated[str | None, typer.Option("--who", metavar="NAME", help="On whose behalf (you).")]
Status = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="S", help="New, Acknowledged, …, open, all; repeatable. Without it: open."),
]
Level = Annotated[list[str] | None, typer.Option("--level", metavar="L", help="Critical, High, …; repeatable.")]
Category = Annotated[list[str] | None, typer.Option("--category", metavar="C", help="Repeatable.")]
Source = Annotated[str | None, typer.Option("--source", metavar="S", help="Of this source; may end in *.")]
Rule = Annotated[str | None, typer.Option("--rule", metavar="ID", help="Of this rule.")]
Since = Annotated[
    str | None, typer.Option("--from", metavar="T", help="Not before: ISO, milliseconds, or so long ago: 24h.")
]
Until = Annotated[str | None, typer.Option("--to", metavar="T", help="Not after.")]
Archived = Annotated[bool, typer.Option("--archived", help="Also those that have left Redis, from SQL.")]


@app.command("list")
def list_alarms(
    ctx: typer.Context,
    status: Status = None,
    level: Level = None,
    category: Category = None,
    source: Source = None,
    rule: Rule = None,
    since: Since = None,
    until: Until = None,
    archived: Archived = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 100,
) -> None:
    """The newest alarms first; without --status those that are open, with --archived all."""
    cli: Session = ctx.obj
    query = _query(status or (["all"] if archived else ["open"]), level, category, source, rule, since, until, archived)
    items: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None and len(items) <= limit:  # one more than is shown, to know whether there is one
        wanted = {**query, "limit": min(limit + 1 - len(items), PAGE), "cursor": cursor or None}
        page = cli.station.get("/alarms", wanted)
        items += page["items"]
        cursor = page["next_cursor"]
    shown, has_more = items[:limit], len(items) > limit
    cli.out.show({"items": shown, "has_more": has_more}, lambda: alarm_table(shown))
    if has_more:
        cli.out.note(f"{limit} shown, there are more: give --limit")


@app.command()
def show(ctx: typer.Context, alarm_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """One alarm with its journal, and what can be done with it."""
    cli: Session = ctx.obj
    found = cli.station.get(f"/alarms/{segment(alarm_id)}")
    cli.out.show(found, lambda: alarm_view(found))


@app.command("raise")
def raise_alarm(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What it is about.")],
    title: Annotated[str, typer.Argument(metavar="TITLE")],
    level: Annotated[str, typer.Option("--level", metavar="L", help="Critical, High, Medium, Low, Info.")] = "Medium",
    category: Annotated[str | None, typer.Option("--category", metavar="C")] = None,
    description: Annotated[str | None, typer.Option("--description", metavar="TEXT")] = None,
    rule: Annotated[str | None, typer.Option("--rule", metavar="ID", help="A name for who raises it.")] = None,
) -> None:
    """Raise an alarm by hand, or from a script; one that is open is counted up."""
    cli: Session = ctx.obj
    body = {"source": source, "title": title, "level": level, "category": category, "description": description}
    body["rule_id"] = rule
    found = cli.station.post("/alarms", {name: value for name, value in body.items() if value is not None})
    cli.out.show(found, lambda: cell(f"{found['id']} {found['status']} {found['count']}"))


@app.command()
def ack(ctx: typer.Context, ids: Ids, note: Note = "", who: Who = None) -> int:
    """Acknowledge alarms: somebody sees to them."""
    return _act(ctx.obj, "acknowledge", ids, note, who)


@app.command()
def resolve(ctx: typer.Context, ids: Ids, note: Note = "", who: Who = None) -> int:
    """Resolve alarms: what was wrong is not any more."""
    return _act(ctx.obj, "resolve", ids, note, who)


@app.command()
def suppress(ctx: typer.Context, ids: Ids, note: Note = "", who: Who = None) -> int:
    """Keep alarms quiet until they are unshelved."""
    return _act(ctx.obj, "suppress", ids, note, who)


@app.command()
def shelve(
    ctx: typer.Context,
    ids: Ids,
    length: Annotated[str, typer.Option("--for", metavar="TIME", help="For so long: 30s, 10m, 2h, 1d.")],
    note: Note = "",
    who: Who = None,
) -> int:
    """Keep alarms quiet for a time; then those that are still open are announced again."""
    from tradewind.tasks.periodic import parse_every

    try:
        duration_ms = parse_every(length)
    except Invalid:
        hint = "give 30s, 10m, 2h or 1d; alarms.shelve_max_s is the longest"
        raise Invalid(f"--for: an alarm cannot be shelved for {length!r}", code="bad_duration", hint=hint) from None
    return _act(ctx.obj, "shelve", ids, note, who, {"duration_s": duration_ms / 1000})


@app.command()
def unshelve(ctx: typer.Context, ids: Ids, note: Note = "", who: Who = None) -> int:
    """End shelving or suppression now."""
    return _act(ctx.obj, "unshelve", ids, note, who)


@app.command()
def escalate(ctx: typer.Context, ids: Ids, note: Note = "", who: Who = None) -> int:
    """Escalate alarms: whoever comes next is told."""
    return _act(ctx.obj, "escalate", ids, note, who)


@app.command()
def close(ctx: typer.Context, ids: Ids, note: Note = "", who: Who = None) -> int:
    """Close alarms that are resolved."""
    return _act(ctx.obj, "close", ids, note, who)


@app.command()
def stats(
    ctx: typer.Context,
    since: Since = None,
    until: Until = None,
    talkers: Annotated[int, typer.Option("--talkers", min=1, max=100, help="Of those that raise most.")] = 10,
) -> None:
    """How many there are, how fast they are handled, what raises most; with --from or --to of that time."""
    cli: Session = ctx.obj
    query = {"talkers": talkers, "from": since, "to": until}
    found = cli.station.get("/alarms/statistics", {name: value for name, value in query.items() if value is not None})
    is_period = since is not None or until is not None
    cli.out.show(found, lambda: period_view(found) if is_period else statistics_view(found))


@app.command()
def export(
    ctx: typer.Context,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is stdout, and the default.")
    ] = "-",
    status: Status = None,
    level: Level = None,
    category: Category = None,
    source: Source = None,
    rule: Rule = None,
    since: Since = None,
    until: Until = None,
    archived: Archived = False,
) -> None:
    """Alarms as CSV, all of them unless filters say otherwise; with --json on stdout as a document."""
    import sys

    cli: Session = ctx.obj
    query = _query(status or ["all"], level, category, source, rule, since, until, archived)
    if cli.is_json and output == "-":
        pages = cli.station.pages("/alarms", {**query, "limit": PAGE})
        write_json({"items": [each for page in pages for each in page["items"]], "next_cursor": None})
        return
    text = cli.station.text("/alarms/export", query)
    if output == "-":
        for piece in text:
            sys.stdout.write(piece)
        return
    size = 0

    def encoded() -> Iterator[bytes]:
        nonlocal size
        for piece in text:
            size += len(piece)
            yield piece.encode()

    write_file(output, encoded())
    cli.out.show({"file": output, "characters": size}, lambda: f"wrote {plain(output)}")


@app.command()
def watch(
    ctx: typer.Context,
    level: Level = None,
    category: Category = None,
    source: Source = None,
    rule: Rule = None,
    seconds: Annotated[float | None, typer.Option("--seconds", metavar="N", min=0.1, help="End after so long.")] = None,
    count: Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="End after so many lines.")] = None,
) -> None:
    """A line for each transition from now on, until Ctrl-C; with --json a JSON document a line."""
    import time

    cli: Session = ctx.obj
    end = time.monotonic() + seconds if seconds is not None else None
    query = _query(["all"], level, category, source, rule, None, None)
    for seen, event in enumerate(cli.station.events("/alarms/live", query, until=end), 1):
        if cli.is_json:
            write_json(event)
        elif "alarm" in event:
            cli.out.console.print(alarm_line(event), highlight=False, soft_wrap=True)
        else:
            cli.out.note(_missing(event.get("count")))
        if seen == count:
            return


def _missing(count: int | None) -> str:
    if count is None:
        return "transitions may be missing here: the station could not hear of them for a while"
    return f"{count} transitions were lost: this terminal reads too slowly"


def _query(
    status: list[str],
    level: list[str] | None,
    category: list[str] | None,
    source: str | None,
    rule: str | None,
    since: str | None,
    until: str | None,
    archived: bool = False,
) -> dict[str, Any]:
    """What is given and empty goes along: the station refuses it, for it would let everything pass."""
    query: dict[str, Any] = {"level": level, "category": category, "source": source, "rule_id": rule}
    query |= {"from": since, "to": until, "status": None if "all" in status else status}
    query |= {"archived": "true" if archived else None}
    return {name: value for name, value in query.items() if value is not None and value != []}


def _act(
    cli: Session, action: str, ids: list[str], note: str, who: str | None, more: dict[str, Any] | None = None
) -> int:
    """One that is refused does not stop the others; the exit code is that of the first refusal."""
    body = {"note": note, "who": user() if who is None else who, **(more or {})}
    if len(ids) == 1:
        found = cli.station.post(f"/alarms/{segment(ids[0])}/{action}", body)
        cli.out.show({"items": [found], "errors": []}, lambda: cell(f"{found['id']} {found['status']}"))
        return 0
    items: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for start in range(0, len(ids), TOGETHER):
        answer = cli.station.post(f"/alarms/{action}", {**body, "ids": ids[start : start + TOGETHER]})
        items += answer["items"]
        errors += answer["errors"]
    if items or cli.is_json:
        shown = "\n".join(plain(f"{item['id']} {item['status']}") for item in items)
        cli.out.show({"items": items, "errors": errors}, lambda: shown)
    refusals = [_refusal(each["error"]) for each in errors]
    if not cli.is_json:
        for refusal in refusals:
            cli.out.error(refusal)
    return exit_code(refusals[0]) if refusals else 0


def _refusal(error: dict[str, Any]) -> TradewindError:
    kinds: dict[str, type[TradewindError]] = {"alarm_not_found": NotFound, "alarm_state": Conflict}
    kind = kinds.get(error["code"], Invalid)
    return kind(error["message"], code=error["code"], hint=error["hint"])
