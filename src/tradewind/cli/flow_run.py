"""`tradewind flow run`: a cycle now, on the running station or on one of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.flow_progress import CycleProgress
from tradewind.cli.group import Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell, exit_code
from tradewind.errors import Invalid, Problem, TimedOut, TradewindError

if TYPE_CHECKING:
    from tradewind.cli.flow_once import Outcome

MODES = ("single", "upstream", "downstream", "component")
FILE_ENDS = (".yaml", ".yml", ".json")
#: Between two looks at a cycle of a running station; more where a look itself takes long.
LOOK_S, SLOWEST_S = 0.2, 2.0
#: How long the station may hold an answer back when nobody watches.
HOLD_S = 20.0
ENDED_BADLY = 1
INTERRUPTED = 130

Signals = Annotated[
    list[str] | None,
    typer.Option("--signal", metavar="NODE.HANDLE=JSON", help="A value that the cycle starts with; repeatable."),
]
Timeout = Annotated[float | None, typer.Option("--timeout", metavar="S", min=0, help="Give up after; exit 7.")]
Wait = Annotated[bool, typer.Option("--wait", help="Follow it until it ends; exit 1 if it ended badly.")]


def run(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="ID|FILE", help="A flow of the station, or with --once a file.")],
    signal: Signals = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="Run only a part, seen from here.")] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="|".join(MODES), help="Which part: single by default.")
    ] = None,
    from_cycle: Annotated[
        int | None,
        typer.Option(
            "--from-cycle", metavar="N", min=0, help="Signals of left-out nodes come from this cycle (the last)."
        ),
    ] = None,
    wait: Wait = False,
    timeout: Timeout = None,
    once: Annotated[bool, typer.Option("--once", help="Run a file to its end without any station.")] = False,
    imports: Annotated[
        list[str] | None, typer.Option("--import", metavar="MODULE", help="Your @node types; repeatable.")
    ] = None,
    others: Annotated[
        list[str] | None, typer.Option("--with", metavar="FILE", help="A flow that this one calls; repeatable.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings file.")] = None,
    log_level: Annotated[str, typer.Option("--log-level", metavar="L", help="Of the embedded station.")] = "ERROR",
) -> int:
    """Start a cycle now; or, with --once, run a file to its end on an embedded station. Exit 1 if the cycle failed."""
    cli: Session = ctx.obj
    given: dict[str, Any] = {
        "signals": read_signals(signal or []),
        "node": node,
        "mode": mode,
        "from_cycle": from_cycle,
    }
    body = {name: value for name, value in given.items() if value not in (None, {})}
    if once:
        if wait or from_cycle is not None:
            raise Invalid(
                "--once goes with neither --wait nor --from-cycle", hint="it always waits, and it has no past"
            )
        return _run_file(cli, target, body, imports or [], others or [], config, timeout, log_level)
    if imports or others or config:
        raise Invalid("--import, --with and --config go only with --once", hint="a running station has its own")
    if target.endswith(FILE_ENDS):
        raise Invalid(
            f"{target} is a file, not the id of a flow",
            hint=f"`flow run {target} --once` runs it here, `flow register {target}` brings it to the station",
        )
    started = cli.station.post(f"/flows/{segment(target)}/cycles", body)
    return follow_started(cli, started, wait or timeout is not None, timeout)


def read_signals(given: list[str]) -> dict[str, Any]:
    """`node.handle=value` each, the value as JSON where it parses, else as text. Raises Invalid with all problems."""
    from tradewind.cli.task import read_value

    found: dict[str, Any] = {}
    problems = []
    for text in given:
        name, equals, value = text.partition("=")
        node, dot, handle = name.partition(".")
        if not (equals and node and dot and handle):
            problems.append(Problem("bad_signal", f"--signal {text}", "give node.handle=JSON, such as price.value=5"))
        elif name in found:
            problems.append(Problem("doubled_signal", f"--signal {text}", f"{name} is given twice"))
        else:
            found[name] = read_value(value)
    if problems:
        raise Invalid("a signal cannot be read", code=problems[0].code, hint=problems[0].hint, problems=problems)
    return found


def follow_started(cli: Session, started: dict[str, Any], is_followed: bool, timeout_s: float | None) -> int:
    """Say which cycle was started, or follow it to its end."""
    if not is_followed:
        cli.out.show(started, lambda: cell(f"{started['flow_id']} cycle {started['cycle']} started"))
        return 0
    return follow_cycle(cli, started["flow_id"], started["cycle"], timeout_s)


def follow_cycle(cli: Session, flow_id: str, cycle: int | None, timeout_s: float | None = None) -> int:
    """Until the cycle (None: the last one) ends: 0 when well, 1 when badly. Raises TimedOut."""
    from tradewind.cli.flow_view import status_view

    end = time.monotonic() + timeout_s if timeout_s is not None else None
    path = f"/flows/{segment(flow_id)}"
    with CycleProgress(cli.out) as progress:
        while True:
            began = time.monotonic()
            if cli.is_json and cycle is not None:
                hold_s = HOLD_S if end is None else min(HOLD_S, max(0.1, end - began))
                cli.station.get(f"{path}/cycles/{cycle}", {"wait": round(hold_s, 3)}, wait_s=hold_s)
                began = time.monotonic()
            status = cli.station.get(f"{path}/status", {"cycle": cycle})
            took_s = time.monotonic() - began
            if status["cycle"] >= 0:
                cycle = status["cycle"]
                progress.update(status)
            if status.get("cycle_status") not in (None, "running"):
                break
            if end is not None and time.monotonic() > end:
                raise TimedOut(
                    f"cycle {cycle} of {flow_id!r} is still running after {timeout_s:g} s",
                    code="still_running",
                    hint=f"it goes on; follow it with `tradewind flow status {flow_id} --cycle {cycle} --watch`",
                )
            time.sleep(max(LOOK_S, min(SLOWEST_S, 4 * took_s)))
    cli.out.show(status, lambda: status_view(status))
    return 0 if status["cycle_status"] == "completed" else ENDED_BADLY


def _run_file(
    cli: Session,
    name: str,
    body: dict[str, Any],
    imports: list[str],
    others: list[str],
    config: Path | None,
    timeout_s: float | None,
    log_level: str,
) -> int:
    from tradewind.cli.flow_file import read_file
    from tradewind.cli.flow_once import leave_threads_behind, run_once
    from tradewind.cli.flow_view import log_line
    from tradewind.flows.starting import RunRequest
    from tradewind.logs import configure_logging
    from tradewind.settings import load_settings

    def tell(entry: dict[str, Any]) -> None:
        if entry["log_source"] == "node":
            progress.say(log_line(entry))

    files = [read_file(file) for file in (name, *others)]
    settings = load_settings(config, {"log.level": log_level, **({"imports": imports} if imports else {})})
    configure_logging(settings.log)
    try:
        with CycleProgress(cli.out) as progress:
            outcome = run_once(settings, files, RunRequest(**body), progress.update, tell, timeout_s)
    except TradewindError as error:
        cli.out.error(error)
        code = exit_code(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    else:
        code = _show_outcome(cli, outcome)
    leave_threads_behind(code)
    return code


def _show_outcome(cli: Session, outcome: Outcome) -> int:
    from rich.console import Group
    from rich.text import Text

    from tradewind.cli.flow_view import headline, outputs_table

    view = outcome.view()
    cli.out.show(view, lambda: Group(headline(view), Text(), outputs_table(outcome.outputs)))
    if outcome.is_good:
        return 0
    if not cli.is_json:
        cli.out.error(TradewindError(outcome.error, code="cycle_failed"))
    return ENDED_BADLY
