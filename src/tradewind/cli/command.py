"""`tradewind command`: change something at a device, and see what became of it."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.each import for_each
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell, facts, short, status_cell, table
from tradewind.cli.point import finite
from tradewind.errors import Invalid, TimedOut

if TYPE_CHECKING:
    from rich.console import RenderableType

app = Group("Commands: change something at a device, and see what became of it.")
ENDED = frozenset({"success", "failed", "cancelled", "timeout"})
#: How long one request may be held back.
HOLD_S = 20.0
SOURCE = "cli"


@app.command(context_settings={"ignore_unknown_options": True})  # so that a value may begin with a minus
def send(
    ctx: typer.Context,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="comsrv:1001:a:40001, or modsrv:MODEL:control:FIELD.")
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="A number; for switches 0 or 1.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended; exit 1 if not with success.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="S", min=0.1, help="How long to wait; exit 7 after that.")
    ] = None,
    key: Annotated[
        str, typer.Option("--key", metavar="K", help="Idempotency key: sent again, it is the same command.")
    ] = "",
    expiry: Annotated[
        float | None, typer.Option("--expiry", metavar="S", min=0.001, help="Not carried out later than that.")
    ] = None,
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="On whose behalf (you).")] = None,
) -> int:
    """Send a command. It is carried out at most once."""
    cli: Session = ctx.obj
    body: dict[str, Any] = {**target(address), "value": number(value), "source": SOURCE, "reason": reason}
    body |= {"who": user() if who is None else who, "idempotency_key": key or None, "expiry_s": expiry}
    accepted = cli.station.post("/commands", {name: given for name, given in body.items() if given is not None})
    if not wait and timeout is None:
        cli.out.show(accepted, lambda: cell(f"{accepted['id']} {accepted['status']}"))
        return 0
    ended = _follow(cli, accepted["id"], timeout)
    cli.out.show(ended, lambda: cell(_told(ended)))
    return 0 if ended["status"] == "success" else 1


@app.command()
def show(ctx: typer.Context, command_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """One command: who sent it, why, and how it ended."""
    cli: Session = ctx.obj
    found = cli.station.get(f"/commands/{segment(command_id)}")
    cli.out.show(found, lambda: _view(found))


@app.command("list")
def list_commands(
    ctx: typer.Context,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Of a model, or of channel_1001 for bare points.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 50,
) -> None:
    """The newest commands first; they are kept for 24 hours."""
    cli: Session = ctx.obj
    found = cli.station.get("/commands", {"model": model, "limit": limit})
    from tradewind.cli.times import clock_time

    rows = [
        (c["id"], clock_time(c["created_at"]), c["address"], f"{c['value']:g}", status_cell(c["status"]), c["result"],
         c["who"] or c["source"], short(c["message"] or c["reason"], 60))
        for c in found["items"]
    ]  # fmt: skip
    headings = ("id", "sent", "address", "value", "status", "result", "by", "note")
    cli.out.show(found, lambda: table(headings, rows, empty="no commands", right=("value",)))


@app.command()
def cancel(
    ctx: typer.Context,
    ids: Annotated[list[str], typer.Argument(metavar="ID…")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "",
) -> int:
    """Cancel commands that still wait; one that is being carried out cannot be stopped."""
    cli: Session = ctx.obj

    def ask(command_id: str) -> dict[str, Any]:
        body = {"who": user(), "reason": reason}
        answer: dict[str, Any] = cli.station.post(f"/commands/{segment(command_id)}/cancel", body)
        return answer

    return for_each(cli, ids, ask, lambda answer: f"{answer['id']} {answer['status']}")


@app.command()
def owed(ctx: typer.Context) -> None:
    """What devices are still owed, such as the 0 of a pulse that was interrupted."""
    cli: Session = ctx.obj
    found = cli.station.get("/commands/owed")
    from tradewind.cli.times import clock_time

    rows = [
        (o["address"], f"{o['value']:g}", clock_time(o["since"]), "late" if o["is_told"] else "due", o["command_id"])
        for o in found["items"]
    ]
    headings = ("address", "value", "since", "state", "command")
    cli.out.show(found, lambda: table(headings, rows, empty="nothing is owed", right=("value",)))


@app.command()
def dismiss(
    ctx: typer.Context,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Of `command owed`.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why nobody needs to do it any more.")],
) -> int:
    """Give up what a device is owed: somebody has made sure that it is off, or it is gone for good."""
    cli: Session = ctx.obj
    found = cli.station.post("/commands/owed/dismiss", {"address": address, "who": user(), "reason": reason})
    is_done = found["dismissed"]
    cli.out.show(found, lambda: cell(f"{address} dismissed" if is_done else f"nothing is owed to {address}"))
    return 0 if is_done else 1


def target(text: str) -> dict[str, str]:
    """The address of a point, or model and field of a control. Raises Invalid."""
    from tradewind.points.address import CONTROL, Address

    address = Address.parse(text)
    if address.is_point:
        return {"address": text}
    if address.kind != CONTROL:
        hint = f"write modsrv:{address.entity}:control:FIELD for a control of the model"
        raise Invalid(f"{text} is computed and cannot be commanded", code="not_writable", hint=hint)
    return {"model": address.entity, "field": address.field}


def number(text: str) -> float:
    """Raises Invalid."""
    words = {"on": 1.0, "true": 1.0, "off": 0.0, "false": 0.0}
    try:
        return words[text.lower()] if text.lower() in words else finite(text)
    except ValueError:
        raise Invalid(f"{text!r} is no finite number", code="not_a_number", hint="give a number, on or off") from None


def user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process without a user name, as in some containers
        return ""


def _follow(cli: Session, command_id: str, timeout_s: float | None) -> dict[str, Any]:
    """The command once it has ended. Raises TimedOut."""
    end = time.monotonic() + timeout_s if timeout_s is not None else None
    while True:
        left_s = end - time.monotonic() if end is not None else HOLD_S
        wait_s = round(max(0.0, min(left_s, HOLD_S)), 3)
        found: dict[str, Any] = cli.station.get(f"/commands/{segment(command_id)}", {"wait": wait_s}, wait_s=wait_s)
        if found["status"] in ENDED:
            return found
        if left_s <= 0:
            raise TimedOut(
                f"command {command_id} is still {found['status']} after {timeout_s:g} s",
                code="still_running",
                hint=f"it goes on; see `tradewind command show {command_id}`",
            )


def _told(command: dict[str, Any]) -> str:
    return f"{command['id']} {command['status']} {command['result']} {command['message']}".rstrip()


def _view(command: dict[str, Any]) -> RenderableType:
    from tradewind.cli.times import local

    now_ms = round(time.time() * 1000)
    return facts(
        [
            ("command", command["id"]),
            ("status", status_cell(command["status"])),
            ("result", command["result"] or "-"),
            ("message", command["message"] or "-"),
            ("target", f"{command['address']} ({command['model_name']}, {command['field_name']})"),
            ("value", f"{command['value']:g}"),
            ("read back", "-" if command["actual"] is None else f"{command['actual']:g}"),
            ("sent", local(command["created_at"], now_ms)),
            ("changed", local(command["updated_at"], now_ms)),
            ("expires", local(command["expires_at"], now_ms) or "-"),
            ("by", " ".join(filter(None, (command["who"], f"({command['source']})")))),
            ("reason", command["reason"] or "-"),
            ("key", command["idempotency_key"] or "-"),
        ]
    )
