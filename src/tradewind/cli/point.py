"""`tradewind point`: values as they are now, as they change, and values that are sent to the station."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.output import cell, plain, status_cell, table, write_json
from tradewind.errors import Invalid, Problem

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

app = Group("Points: values as they are, as they change, and values sent to the station.")

Addresses = Annotated[
    list[str] | None, typer.Argument(metavar="ADDRESS…", help="Such as comsrv:1001:m:10001.", show_default=False)
]
Channels = Annotated[list[str] | None, typer.Option("--channel", metavar="ID", help="A whole channel; repeatable.")]
Models = Annotated[list[str] | None, typer.Option("--model", metavar="NAME", help="A whole model; repeatable.")]


@app.command()
def get(ctx: typer.Context, addresses: Addresses = None, channel: Channels = None, model: Models = None) -> None:
    """The newest values, with their quality and age."""
    cli: Session = ctx.obj
    found = cli.station.get("/points", _query(addresses, channel, model))
    cli.out.show(found, lambda: point_table(found["items"]))


@app.command()
def find(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A part of an address or of a name.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 100,
) -> None:
    """Points with that text in their address or name, with their values."""
    cli: Session = ctx.obj
    found = cli.station.get("/points", {"search": text, "limit": limit})
    cli.out.show(found, lambda: point_table(found["items"]))
    if found["total"] > len(found["items"]):
        cli.out.note(f"{len(found['items'])} of {found['total']} shown: say more, or give --limit")


@app.command()
def watch(
    ctx: typer.Context,
    addresses: Addresses = None,
    channel: Channels = None,
    model: Models = None,
    seconds: Annotated[float | None, typer.Option("--seconds", metavar="N", min=0.1, help="End after so long.")] = None,
    count: Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="End after so many lines.")] = None,
) -> None:
    """The values, then a line for each that changes, until Ctrl-C; with --json a JSON document a line."""
    cli: Session = ctx.obj
    end = time.monotonic() + seconds if seconds is not None else None
    left = count
    for event in cli.station.events("/points/live", _query(addresses, channel, model), until=end):
        if "items" not in event:
            cli.out.note(f"values are not known since {event['since']}: the station cannot read them")
            continue
        for point in event["items"]:
            if cli.is_json:
                write_json(point)
            else:
                cli.out.console.print(_line(point), highlight=False, soft_wrap=True)
            if left is not None:
                left -= 1
                if left == 0:
                    return


@app.command()
def write(
    ctx: typer.Context,
    values: Annotated[list[str], typer.Argument(metavar="ADDRESS=VALUE…", help="comsrv:1001:m:10001=25.1")],
    ts: Annotated[
        str | None, typer.Option("--ts", metavar="T", help="Of when: milliseconds since 1970, or ISO. Now if absent.")
    ] = None,
) -> None:
    """Send values as a device would that pushes them. To change something at a device use `command send`, to show
    another value than a device's `point substitute`."""
    cli: Session = ctx.obj
    body: dict[str, Any] = {"channels": read_values(values)}
    if ts is not None:
        body["ts"] = read_ts(ts)
    found = cli.station.post("/points", body)
    cli.out.show(found, lambda: cell(f"{found['accepted']} accepted"))


@app.command(context_settings={"ignore_unknown_options": True})  # so that a value may begin with a minus
def substitute(
    ctx: typer.Context,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="comsrv:1001:m:10001, or 1001:m:10001.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="A number; for signals 0 or 1.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")],
    length: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="For so long: 30s, 10m, 2h, 1d.", show_default=False)
    ] = None,
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="On whose behalf (you).")] = None,
) -> None:
    """Show a value instead of the device's, for a limited time; its quality is `substituted`."""
    from tradewind.cli.command import SOURCE, number, user

    cli: Session = ctx.obj
    body: dict[str, Any] = {"address": whole_address(address), "value": number(value), "reason": reason}
    body |= {"who": user() if who is None else who, "source": SOURCE}
    if length is not None:
        body["for_s"] = _seconds(length)
    found = cli.station.post("/points/substitutions", body)
    cli.out.show(found, lambda: cell(f"{found['address']} = {number_text(found['value'])} until {found['until']}"))


@app.command()
def release(
    ctx: typer.Context,
    addresses: Annotated[list[str], typer.Argument(metavar="ADDRESS…")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "",
) -> int:
    """Show what the device says again."""
    from tradewind.cli.command import user
    from tradewind.cli.each import for_each

    cli: Session = ctx.obj

    def ask(address: str) -> dict[str, Any]:
        body = {"address": whole_address(address), "who": user(), "reason": reason}
        answer: dict[str, Any] = cli.station.post("/points/substitutions/release", body)
        return {"address": body["address"], **answer}

    def told(answer: dict[str, Any]) -> str:
        return f"{answer['address']} {'released' if answer['released'] else 'was not substituted'}"

    return for_each(cli, addresses, ask, told)


@app.command()
def substitutions(ctx: typer.Context) -> None:
    """Points that show what people say instead of their devices."""
    from tradewind.cli.times import clock_time

    cli: Session = ctx.obj
    found = cli.station.get("/points/substitutions")
    rows = [
        (s["address"], number_text(s["value"]), number_text(s["device"]["value"]), status_cell(s["device"]["quality"]),
         clock_time(s["since"]), clock_time(s["until"]), s["who"] or s["source"], s["reason"])
        for s in found["items"]
    ]  # fmt: skip
    headings = ("address", "value", "device says", "quality", "since", "until", "by", "reason")
    right = ("value", "device says")
    cli.out.show(found, lambda: table(headings, rows, empty="no point is substituted", right=right))


def whole_address(text: str) -> str:
    """`1001:m:10001` is short for `comsrv:1001:m:10001`."""
    return f"comsrv:{text}" if text.count(":") == 2 else text


def _seconds(text: str) -> float:
    from tradewind.tasks.periodic import parse_every

    try:
        return parse_every(text) / 1000
    except Invalid:
        hint = "give 30s, 10m, 2h or 1d; points.substitute_max_s is the longest"
        raise Invalid(f"--for: {text!r} is no length of time", code="bad_duration", hint=hint) from None


def read_values(words: list[str]) -> dict[str, dict[str, dict[str, float]]]:
    """channel → kind → point → value. Raises Invalid naming every word that is wrong."""
    from tradewind.points.address import Address

    found: dict[str, dict[str, dict[str, float]]] = {}
    problems = []
    for word in words:
        text, equals, value = word.partition("=")
        try:
            address = Address.parse(text)
            number = finite(value)
        except Invalid as error:
            problems.append(Problem(error.code, text, error.hint))
            continue
        except ValueError:
            code, hint = (
                ("not_a_number", f"{value!r} is no finite number") if equals else ("no_value", "write ADDRESS=VALUE")
            )
            problems.append(Problem(code, text, hint))
            continue
        if not address.is_point:
            problems.append(Problem("not_a_point", text, "models compute their values; write to comsrv:…"))
            continue
        found.setdefault(address.entity, {}).setdefault(address.kind, {})[address.field] = number
    if problems:
        raise Invalid("not every value can be sent", code="bad_points", hint="nothing was sent", problems=problems)
    return found


def finite(text: str) -> float:
    """Raises ValueError; the station cannot be sent what JSON cannot say."""
    from tradewind.numerals import read_number

    return read_number(text)


def read_ts(text: str) -> int:
    """Milliseconds. An ISO time without a zone is local. Raises Invalid."""
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    try:
        return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        hint = "give milliseconds since 1970, or such as 2026-11-16T08:00:00Z"
        raise Invalid(f"{text!r} is no time", code="bad_timestamp", hint=hint) from None


def number_text(value: float | None) -> str:
    """As short as it can be said."""
    return "-" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def point_table(points: list[dict[str, Any]]) -> RenderableType:
    from tradewind.cli.times import span

    is_named = any("name" in point for point in points)
    is_commanded = any(point.get("command") for point in points)
    headings = ["address", *(["name"] if is_named else []), "value", "unit", "quality", "age"]
    headings += ["last command"] if is_commanded else []
    rows = []
    for point in points:
        age = span(point["age_ms"] / 1000) if point["age_ms"] is not None else None
        named = [point.get("name")] if is_named else []
        row = [point["address"], *named, number_text(point["value"]), point["unit"], quality_cell(point), age]
        rows.append([*row, *([last_command(point)] if is_commanded else [])])
    return table(headings, rows, empty="no points", right=("value", "age"))


#: What is said instead of, or beside, the quality.
_STATES = {"no_value": "no value yet", "undeclared": "undeclared", "pushed": "undeclared", "stale": "stale"}


def quality_cell(point: dict[str, Any]) -> Text:
    state = _STATES.get(point.get("state", ""), "")
    word: str = point["quality"]
    if state and point["value"] is None:
        return status_cell(state)
    found = status_cell(word)
    said = point.get("substitution")
    if said:
        state = f"{said['who'] or said['source']}: {said['reason']}; device {number_text(said['device']['value'])}"
    return found.append(f" ({plain(state)})") if state else found


def last_command(point: dict[str, Any]) -> str:
    """How the last command to a point ended, and whether its state is unknown since."""
    command = point.get("command")
    if not command:
        return ""
    told = f"{number_text(command['value'])}: {command['status']} {command['result']}".rstrip()
    return f"{told}, state unknown since" if command["unsure"] else told


def _line(point: dict[str, Any]) -> Text:
    from rich.text import Text

    at = datetime.fromtimestamp(point["ts"] / 1000).astimezone() if point["ts"] else None
    when = f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}" if at else "-"
    told = f"{number_text(point['value'])} {plain(point['unit'])}".rstrip()
    return Text.assemble(f"{when}  {plain(point['address'])}  {told}  ", quality_cell(point))


def _query(addresses: list[str] | None, channel: list[str] | None, model: list[str] | None) -> dict[str, Any]:
    query = {"address": addresses or None, "channel": channel or None, "model": model or None}
    if not any(query.values()):
        raise Invalid(
            "no point is named", code="nothing_asked", hint="name addresses, or --channel ID, or --model NAME"
        )
    return query
