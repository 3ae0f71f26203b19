"""What `tradewind rule backtest` sends, and how it shows what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind.cli.output import facts, short, table
from tradewind.documents import read_document
from tradewind.errors import Invalid

if TYPE_CHECKING:
    from rich.console import RenderableType

#: As much as the station takes in one request.
MAX_CSV_BYTES = 100_000_000
#: How long the station may take.
BACKTEST_S = 300.0


def samples_of(csv: str | None, since: str | None, until: str | None, stale: str | None) -> dict[str, Any]:
    """The part of the request that says which samples. Raises Invalid."""
    if (csv is None) == (since is None):
        raise Invalid("which samples?", code="usage", hint="give --csv FILE, or --from T (and --to T) for the history")
    more: dict[str, Any] = {} if until is None else {"to": until}
    if stale is not None:
        from tradewind.tasks.periodic import parse_every

        more["stale_s"] = parse_every(stale) / 1000
    if csv is None:
        return {"from": since, **more}
    data = read_document(csv, max_bytes=MAX_CSV_BYTES)
    try:
        return {"csv": data.decode("utf-8-sig"), **more}
    except UnicodeDecodeError as error:
        raise Invalid(f"{csv} is not UTF-8", code="bad_encoding", hint="write it as UTF-8") from error


def report_view(report: dict[str, Any]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    from tradewind.cli.times import span

    pairs = [
        ("rule", report["rule_id"]),
        ("samples", f"{report['samples']}, {report['from'] or '-'} to {report['until'] or '-'}"),
        ("fired", f"{report['rises']} times; fell {report['falls']} times"),
        ("active", f"{span(report['active_ms'] / 1000)}{', and at the end' if report['is_active'] else ''}"),
        ("alarms", f"{report['alarms']} (raised {report['raised']} times)"),
        *[(f"would {kind}", f"{count} times") for kind, count in report["actions"].items()],
        *[("no samples of", address) for address in report["silent"]],
        *([("error", report["error"])] if report["error"] else []),
    ]
    rows = [
        (e["at"], e["edge"], e["cause"], e["source"], e["value"],
         short(", ".join(f"{name}={each['actual_value']}" for name, each in e["conditions"].items()), 80))
        for e in report["events"]
    ]  # fmt: skip
    edges = table(("at", "edge", "cause", "source", "value", "values"), rows, empty="it would not have fired")
    more = [Text("… there are more: give --limit")] if report["is_cut"] else []
    return Lines(facts(pairs), Text(), edges, *more)
