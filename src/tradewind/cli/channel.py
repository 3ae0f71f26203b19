"""`tradewind channel`: the connections to devices, how they are doing, and their points."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.each import for_each
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import facts, short, status_cell, table
from tradewind.errors import Invalid, NotFound, Problem

if TYPE_CHECKING:
    from rich.console import RenderableType

app = Group("Channels: the connections to devices, and their points.")
PAGE = 1000
#: A removal waits until whoever polls the channel has let the device go.
REMOVE_S = 30.0

Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Numbers of channels.")]


@app.command("list")
def list_channels(
    ctx: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", help="online, offline, unattended, disabled or pushed.")
    ] = None,
) -> None:
    """All channels: what they are, and whether they are online."""
    cli: Session = ctx.obj
    items = _all(cli, state)
    rows = [
        (c["id"], c["name"], c["protocol"], status_cell(c["state"]), _counts(c["counts"]), c["version"]) for c in items
    ]
    headings = ("id", "name", "protocol", "state", "points", "version")
    cli.out.show({"items": items, "next_cursor": None}, lambda: table(headings, rows, empty="no channels"))


@app.command()
def status(
    ctx: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Only these channels.")] = None,
) -> int:
    """How channels are doing; exit 1 if one that is enabled is not online."""
    cli: Session = ctx.obj
    items = _all(cli, None)
    if ids:
        known = {channel["id"]: channel for channel in items}
        missing = [name for name in ids if name not in known]
        if missing:
            message = f"there is no channel {', '.join(missing)}"
            raise NotFound(message, code="unknown_channel", hint="see `tradewind channel list`")
        items = [known[name] for name in ids]
    headings = ("id", "name", "state", "since", "heard", "polls", "failures", "missed", "lost", "poll ms", "error")
    numbers = ("polls", "failures", "missed", "lost", "poll ms")
    rows = [
        (c["id"], c["name"], status_cell(c["state"]), _ago(s["since_ms"]), _ago(s["last_ms"]), s["polls"],
         s["failures"], s["missed"], s["dropped"] + s["refused"], f"{s['poll_ms']:.1f}", short(s["error"], 80))
        for c in items for s in [c["status"]]
    ]  # fmt: skip
    cli.out.show({"items": items}, lambda: table(headings, rows, empty="no channels", right=numbers))
    return int(any(channel["state"] in ("offline", "unattended") for channel in items))


@app.command()
def show(ctx: typer.Context, channel_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """One channel with the values of its points."""
    cli: Session = ctx.obj
    path = f"/channels/{segment(channel_id)}"
    channel = cli.station.get(path)
    points = [item for page in cli.station.pages(f"{path}/points", {}) for item in page["items"]]
    cli.out.show({**channel, "points": points}, lambda: _view(channel, points))


@app.command()
def reload(ctx: typer.Context, ids: Ids) -> int:
    """Let whoever polls the channels connect to their devices anew."""
    cli: Session = ctx.obj

    def ask(name: str) -> dict[str, Any]:
        answer: dict[str, Any] = cli.station.post(f"/channels/{segment(name)}/reload")
        return answer

    return for_each(cli, ids, ask, lambda answer: f"{answer['id']} {answer['status']}")


@app.command()
def put(
    ctx: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="YAML or JSON; - is stdin.")],
) -> int:
    """Declare or replace channels whose points stand in the file; for folders with tables see `apply`."""
    from tradewind.cli.definition_file import read_definitions

    cli: Session = ctx.obj
    found = {}
    for file in dict.fromkeys(files):
        for definition in read_definitions(file, ("channels",)):
            name = str(definition.document.get("id") or "")
            if not name:
                problem = Problem("missing_field", "id", "give the channel a number")
                raise definition.placed(Invalid("no id", code="bad_channel", hint=problem.hint, problems=[problem]))
            found[name] = definition

    def ask(name: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = cli.station.put(f"/channels/{segment(name)}", found[name].document)
        except Invalid as error:
            raise found[name].placed(error) from None
        return answer

    return for_each(cli, list(found), ask, lambda answer: f"{answer['id']} {answer['state']} {answer['version']}")


@app.command()
def remove(
    ctx: typer.Context, ids: Ids, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> int:
    """Remove channels and the values of their points."""
    cli: Session = ctx.obj
    if not yes:
        from tradewind.cli.confirm import confirm

        confirm(cli, f"removes channel {', '.join(ids)} with all values")

    def ask(name: str) -> dict[str, Any]:
        answer = cli.station.delete(f"/channels/{segment(name)}", wait_s=REMOVE_S)
        warnings = answer.get("warnings", []) if isinstance(answer, dict) else []
        for warning in warnings:
            cli.out.note(f"channel {name} was in use: {warning['hint']}")
        return {"removed": name, "warnings": warnings}

    return for_each(cli, ids, ask, lambda answer: f"{answer['removed']} removed")


def _all(cli: Session, state: str | None) -> list[dict[str, Any]]:
    pages = cli.station.pages("/channels", {"state": state, "limit": PAGE})
    return [channel for page in pages for channel in page["items"]]


def _counts(counts: dict[str, int] | None) -> str:
    return " ".join(f"{count}{kind}" for kind, count in (counts or {}).items() if count)


def _ago(at_ms: int | None) -> str | None:
    from tradewind.cli.times import span

    return f"{span(time.time() - at_ms / 1000)} ago" if at_ms else None


def _view(channel: dict[str, Any], points: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    from tradewind.cli.point import point_table

    config, figures = channel["config"] or {}, channel["status"]
    head = facts(
        [
            ("channel", f"{channel['id']} {channel['name']}"),
            ("protocol", channel["protocol"]),
            ("state", status_cell(channel["state"])),
            ("parameters", short(config.get("parameters", {}), 200)),
            ("polls", f"{figures['polls']}, {figures['failures']} failed, {figures['missed']} missed"),
            ("lost", f"{figures['dropped']} readings, {figures['refused']} messages too large"),
            ("error", figures["error"] or "-"),
            ("version", channel["version"] or "-"),
        ]
    )
    return Lines(head, Text(), point_table(points))
