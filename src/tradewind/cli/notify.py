"""`tradewind notify`: who is told of alarms, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.each import for_each
from tradewind.cli.group import Group, Session
from tradewind.cli.output import cell, short, status_cell, table
from tradewind.errors import Invalid

if TYPE_CHECKING:
    from rich.console import RenderableType

app = Group("Notifications: who is told of alarms, and what became of it.")


@app.command()
def show(ctx: typer.Context) -> None:
    """The policy: targets, routes, quiet hours, escalation. Secrets are not shown."""
    cli: Session = ctx.obj
    found = cli.station.get("/notifications/policy")
    cli.out.show(found, lambda: _view(found))


@app.command("set")
def set_policy(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - is stdin.")],
) -> None:
    """Replace the policy; *** in an address keeps the secret that is stored."""
    from tradewind.cli.definition_file import read_definitions

    cli: Session = ctx.obj
    (one,) = read_definitions(file, ("policy",))
    try:
        found = cli.station.put("/notifications/policy", one.document)
    except Invalid as error:
        raise one.placed(error) from None
    targets = len(found["targets"])
    cli.out.show(found, lambda: cell(f"version {found['version']} stored: {targets} targets"))


@app.command()
def test(ctx: typer.Context, targets: Annotated[list[str], typer.Argument(metavar="TARGET…")]) -> int:
    """Send a test message to targets now; exit 1 if one does not take it."""
    cli: Session = ctx.obj
    failed: list[str] = []

    def ask(target: str) -> dict[str, Any]:
        answer: dict[str, Any] = cli.station.post("/notifications/test", {"target": target}, wait_s=90)
        if not answer["ok"]:
            failed.append(target)
        return answer

    code = for_each(cli, targets, ask, _told)
    return code or (1 if failed else 0)


@app.command()
def log(
    ctx: typer.Context,
    status: Annotated[
        str | None, typer.Option("--status", metavar="S", help="waiting, retrying, sent, given_up, dropped.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", metavar="NAME", help="Only to this target.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 50,
) -> None:
    """Deliveries: those under way, then those that ended, newest first."""
    cli: Session = ctx.obj
    found = cli.station.get("/notifications/log", {"status": status, "target": target, "limit": limit})
    from tradewind.cli.times import clock_time

    rows = [
        (d["id"], clock_time(d["at"]), d["target"], status_cell(d["status"]), d["count"], d["attempts"],
         short(d["error"], 80))
        for d in found["items"]
    ]  # fmt: skip
    headings = ("id", "at", "target", "status", "messages", "attempts", "error")
    cli.out.show(found, lambda: table(headings, rows, empty="no deliveries", right=("messages", "attempts")))


def _told(answer: dict[str, Any]) -> str:
    return f"{answer['target']} " + (f"took it in {answer['duration_ms']} ms" if answer["ok"] else answer["error"])


def _view(policy: dict[str, Any]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    from tradewind.cli.output import json_text

    targets = [
        (name, each["url"], "off" if each.get("enabled") is False else "on", ", ".join(each.get("events", [])))
        for name, each in policy["targets"].items()
    ]
    routes = [
        (", ".join(r["targets"]), r.get("min_level", "Info"), short(r.get("match", {}), 80)) for r in policy["routes"]
    ]
    steps = [(s["after_s"], ", ".join(s["targets"]), s.get("min_level", "Info")) for s in policy["escalation"]]
    quiet = json_text(policy["quiet_hours"]) if policy.get("quiet_hours") else "none"
    return Lines(
        cell(f"version {policy['version']}, quiet hours: {quiet}"),
        table(("target", "address", "enabled", "events"), targets, empty="no targets"),
        Text(),
        table(("route to", "from level", "match"), routes, empty="no routes"),
        Text(),
        table(("after s", "escalates to", "from level"), steps, empty="no escalation", right=("after s",)),
    )
