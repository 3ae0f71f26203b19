"""`tradewind history`: what was, of any point; and how recording goes. Files: history_file.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.history_file import export, import_file
from tradewind.cli.output import plain, table
from tradewind.errors import Invalid, Problem

if TYPE_CHECKING:
    from rich.console import RenderableType

app = Group("History: what was, of any point; and how recording goes.")
PAGE = 1000
#: A station gives a sink that hangs so long before it says so.
WAIT_S = 45.0

Series = Annotated[
    list[str], typer.Argument(metavar="SERIES…", help="comsrv:1001:m:10001; with a * all recorded ones that fit.")
]
From = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="-1h, -7d, ISO or milliseconds; an hour before --to.")
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="The same; not included, now by default.")]
Bucket = Annotated[str | None, typer.Option("--bucket", metavar="SPAN", help="raw, auto, or such as 1m.")]
Agg = Annotated[
    list[str] | None,
    typer.Option("--agg", metavar="NAME", help="mean, min, max, first, last, count, sum, integral, stddev, good."),
]
Gap = Annotated[str | None, typer.Option("--gap", metavar="SPAN", help="Which silence is a gap: such as 5m.")]

app.command("export")(export)
app.command("import")(import_file)


@app.command()
def query(
    ctx: typer.Context,
    series: Series,
    since: From = None,
    until: To = None,
    bucket: Bucket = None,
    agg: Agg = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many points of each series.")] = None,
    gap: Gap = None,
    fill: Annotated[
        str | None, typer.Option("--fill", metavar="HOW", help="Buckets without samples: none, null or previous.")
    ] = None,
) -> None:
    """What was in a range of time: samples, or buckets of them. Of the last hour when nothing is said."""
    from tradewind.cli.history_view import empty_notes, range_notes, range_view

    cli: Session = ctx.obj
    asked = {"series": series, "from": since, "to": until, "bucket": bucket, "agg": agg, "limit": limit, "gap": gap}
    asked |= {"fill": fill, "quality": "true" if bucket == "raw" else None}
    found = cli.station.get("/history", asked, wait_s=WAIT_S)
    cli.out.show(found, lambda: range_view(found))
    for note in range_notes(found):
        cli.out.note(note)
    empty = [each["address"] for each in found["series"] if not each["samples"]]
    if empty and not cli.is_json:
        newest = cli.station.get("/history/latest", {"series": empty}, wait_s=WAIT_S)
        for note in empty_notes(newest["items"]):
            cli.out.note(note)


@app.command()
def latest(ctx: typer.Context, series: Series) -> None:
    """The newest recorded sample of each series."""
    from tradewind.cli.history_view import latest_view

    cli: Session = ctx.obj
    found = cli.station.get("/history/latest", {"series": series}, wait_s=WAIT_S)
    cli.out.show(found, lambda: latest_view(found["items"]))


@app.command("series")
def list_series(
    ctx: typer.Context,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Such as comsrv:1001:*.")] = "*",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
) -> None:
    """Which series are recorded, in order of address."""
    from tradewind.cli.history_view import series_view

    cli: Session = ctx.obj
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    for page in cli.station.pages("/history/series", {"pattern": pattern, "limit": min(limit, PAGE)}):
        items += page["items"]
        cursor = page["next_cursor"]
        if len(items) >= limit:
            cursor = cursor if len(items) == limit else items[limit - 1]["address"]
            break
    items = items[:limit]
    cli.out.show({"items": items, "next_cursor": cursor}, lambda: series_view(items, pattern))
    if cursor is not None:
        cli.out.note(f"there are more than {limit}: narrow the pattern, or raise --limit")


@app.command()
def stats(
    ctx: typer.Context,
    series: Annotated[
        list[str] | None, typer.Argument(metavar="[SERIES…]", help="Figures of these; of the recorder without any.")
    ] = None,
    since: From = None,
    until: To = None,
    gap: Gap = None,
) -> int:
    """Figures of series in a range of time; without series how recording goes, and exit 1 when it does not."""
    from tradewind.cli.history_view import figures_view, is_recording, status_view

    cli: Session = ctx.obj
    if series:
        asked = {"series": series, "from": since, "to": until, "gap": gap}
        found = cli.station.get("/history/statistics", asked, wait_s=WAIT_S)
        cli.out.show(found, lambda: figures_view(found))
        return 0
    if since or until or gap:
        problem = Problem("nothing_asked", "SERIES", "name series, or leave --from, --to and --gap out")
        raise Invalid("there is no series", code=problem.code, hint=problem.hint, problems=[problem])
    status = cli.station.get("/history/status")
    cli.out.show(status, lambda: status_view(status))
    return 0 if is_recording(status) else 1


@app.command()
def policy(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Option("--set", metavar="FILE", help="Replace it by this YAML or JSON; - is stdin.")
    ] = "",
) -> None:
    """What is recorded, and how; a station folder has it as history.yaml."""
    cli: Session = ctx.obj
    if file:
        from tradewind.cli.apply_history import read_policy_file

        found = cli.station.put("/history/policy", read_policy_file(file))
        cli.out.note("stored; the recorder follows within seconds")
    else:
        found = cli.station.get("/history/policy")
    cli.out.show(found, lambda: _policy_view(found))


def _policy_view(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    from tradewind.cli.output import facts

    batch = found["batch_config"]
    head = facts(
        [
            ("batches", f"{batch['size']} samples or {batch['timeout_ms']} ms"),
            ("types", " ".join(batch["type_filter"]) or "none"),
            ("subscribed", plain(" ".join(found["subscribe"]) or "nothing")),
        ]
    )
    rows = [
        (p["match"], "yes" if p["record"] else "no", f"{p['deadband']:g}", p["min_interval_ms"], p["class"])
        for p in found["policies"]
    ]
    headings = ("match", "recorded", "deadband", "at most every ms", "class")
    numbers = ("deadband", "at most every ms")
    parts = [head, Text(), table(headings, rows, empty="every change is recorded", right=numbers)]
    if found["classes"]:
        kinds = ("raw_days", "minute_days", "hour_days")
        kept = [(name, *(_days(days[kind]) for kind in kinds)) for name, days in sorted(found["classes"].items())]
        parts += [Text(), table(("class", "samples", "minutes", "hours"), kept, empty="no classes")]
    return Lines(*parts)


def _days(days: int | None) -> str:
    return "as in the settings" if days is None else "for ever" if days == 0 else f"{days} d"
