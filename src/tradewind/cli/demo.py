"""`tradewind demo`: a station in a temporary folder with a micro-grid, an alarm and many tasks; and how they did."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import demo_alarm, demo_flow, demo_grid
from tradewind.cli.group import Session
from tradewind.cli.http import Http
from tradewind.cli.output import status_cell, table
from tradewind.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from tradewind.cli.demo_station import DemoStation

SECONDS = 20.0
#: After the last submit, the last tasks get so long to end.
SETTLE_S = 30.0
#: A demo that ran for hours is judged by its newest tasks.
JUDGED = 1000
#: The type whose tasks are meant to end DEAD; all others are meant to succeed.
MEANT_TO_FAIL = "fail"


def demo(
    ctx: typer.Context,
    port: Annotated[int | None, typer.Option("--port", metavar="P", help="8400 or the next free one.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="N", min=1, envvar="DEMO_SECONDS", help="End by itself after so long."),
    ] = None,
) -> int:
    """Show a station at work; until Ctrl-C on a terminal, else for 20 seconds. Exit 0 if everything worked."""
    from tradewind.cli.demo_station import DemoStation

    cli: Session = ctx.obj
    if seconds is None and not cli.out.console.is_terminal:
        seconds = SECONDS
    with DemoStation(port) as station:
        cli.out.note(f"a station runs at {station.http.url}  (page: {station.http.url}/  API: {station.http.url}/docs)")
        cli.out.note("ends by itself after " + (f"{seconds:g} s" if seconds else "Ctrl-C"))
        demo_grid.start(station.http)
        demo_flow.start(station.http)
        raised = demo_alarm.start(station.http)
        cli.out.note(demo_alarm.told(raised))
        ids = _run(cli, station, seconds)
        tasks = settle(station.http, ids[-JUDGED:])
        cycles = demo_flow.stop(station.http)
        alarm = demo_alarm.stop(station.http, raised)
        grid = demo_grid.stop(station.http)
    verdict = judge(tasks, cycles, grid, alarm)
    cli.out.show(verdict, lambda: _summary(verdict))
    return 0 if verdict["ok"] else 1


def mix(round_number: int) -> list[dict[str, Any]]:
    """What one round submits: a little of everything."""
    tasks: list[dict[str, Any]] = [
        {"type": "echo", "args": [f"hello {round_number}"]},
        {"type": "echo", "args": ["urgent"], "priority": "high"},
        {"type": "sleep", "args": [0.3]},
        {"type": "total", "args": [[9.99, 20, 12.5]]},
        {"type": "echo", "args": ["later"], "delay_s": 1.5},
    ]
    if round_number % 3 == 0:
        tasks.append({"type": "call_supplier", "args": [round_number]})
        tasks.append({"type": "report", "args": [8]})
    if round_number % 5 == 0:
        tasks.append({"type": MEANT_TO_FAIL, "args": ["it is meant to"], "max_attempts": 2, "backoff_s": 0.2})
    return [{**task, "tags": ["demo"]} for task in tasks]


def settle(http: Http, ids: list[str]) -> list[dict[str, Any]]:
    """The tasks once all have ended, or as they are when time is up."""
    from tradewind.cli.follow import follow

    end = time.monotonic() + SETTLE_S
    tasks = []
    for task_id in ids:
        states = follow(http, http.get(f"/tasks/{task_id}"), max(0.0, end - time.monotonic()), 5.0)
        last: list[dict[str, Any]] = []
        with suppress(TimedOut):
            for state in states:
                last = [state]
        tasks += last
    return tasks


def judge(
    tasks: list[dict[str, Any]], cycles: dict[str, int], grid: dict[str, Any], alarm: dict[str, Any]
) -> dict[str, Any]:
    """How many of each type ended how, how cycles ended, how the micro-grid and its alarm did, and whether that is what
    was meant."""
    types: dict[str, dict[str, int]] = {}
    wrong = []
    for task in tasks:
        ends = types.setdefault(task["type"], {})
        ends[task["status"]] = ends.get(task["status"], 0) + 1
        if task["status"] != ("DEAD" if task["type"] == MEANT_TO_FAIL else "SUCCESS"):
            wrong.append(task["id"])
    is_ok = bool(tasks) and not wrong and set(cycles) <= {"completed", "running"} and cycles.get("completed", 0) > 0
    is_ok = is_ok and grid["ok"] and alarm["ok"]
    counted = {"ok": is_ok, "tasks": len(tasks), "types": types, "wrong": wrong}
    return {**counted, "cycles": cycles, "grid": grid, "alarm": alarm}


def _run(cli: Session, station: DemoStation, seconds: float | None) -> list[str]:
    """Submit a round with each snapshot of the live feed; ids of everything that was submitted."""
    ids: list[str] = []
    end = time.monotonic() + seconds if seconds is not None else None
    with ExitStack() as stack:
        show = _display(cli, stack, station.http.url)
        try:
            for number, snapshot in enumerate(station.http.snapshots()):
                # The last seconds are left for the tasks to end in.
                if end is None or time.monotonic() < end - min(3.0, (seconds or 0) / 2):
                    ids += station.http.post("/tasks/batch", {"tasks": mix(number)})["ids"]
                show(snapshot, demo_grid.values(station.http))
                if end is not None and time.monotonic() >= end:
                    break
        except KeyboardInterrupt:
            cli.out.note("stopping")
    return ids


def _display(cli: Session, stack: ExitStack, url: str) -> Callable[[dict[str, Any], list[dict[str, Any]]], None]:
    """A live view on a terminal; elsewhere a line every few seconds."""
    if cli.out.is_live:
        from rich.live import Live

        live = stack.enter_context(Live(console=cli.out.side, transient=True, auto_refresh=False))
        return lambda snapshot, points: live.update(_view(url, snapshot, points), refresh=True)
    last = [0.0]

    def line(snapshot: dict[str, Any], points: list[dict[str, Any]]) -> None:
        if time.monotonic() - last[0] >= 5:
            last[0] = time.monotonic()
            waiting = " ".join(f"{q['name']} {q['length']}" for q in snapshot["queues"]["data"] or ())
            cli.out.note(f"{snapshot['health']['status']}: {_counts(snapshot)}; queues: {waiting}")
            cli.out.note(f"micro-grid: {demo_grid.told(points)}")

    return line


def _counts(snapshot: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in (snapshot["counts"]["data"] or {}).items() if count)


def _view(url: str, snapshot: dict[str, Any], points: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from tradewind.cli.queue import queue_table
    from tradewind.cli.task_view import task_table

    head = Text.assemble(url, "  ", status_cell(snapshot["health"]["status"]), f"  {_counts(snapshot)}")
    tasks = task_table((snapshot["tasks"]["data"] or [])[:8], _empty(snapshot["tasks"], "no tasks"))
    parts = (
        demo_grid.grid_table(points),
        demo_alarm.alarm_table(snapshot),
        queue_table(snapshot["queues"]["data"] or []),
        tasks,
    )
    return Group(head, *(each for part in parts for each in (Text(), part)))


def _empty(part: dict[str, Any], words: str) -> str:
    return words if part["state"] == "current" else f"not known now: {part['state']}"


def _summary(verdict: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    rows = [
        (name, status_cell(status), count, "as meant" if name == MEANT_TO_FAIL and status == "DEAD" else None)
        for name, ends in sorted(verdict["types"].items())
        for status, count in sorted(ends.items())
    ]
    cycles = ", ".join(f"{count} {status}" for status, count in verdict["cycles"].items()) or "none"
    seen = f"{verdict['tasks']} tasks; cycles of the flow: {cycles}"
    wrong = [*verdict["wrong"], *verdict["grid"]["wrong"], *verdict["alarm"]["wrong"]]
    head = f"{seen}; {demo_grid.summary(verdict['grid'])}; {demo_alarm.summary(verdict['alarm'])}"
    head += ": everything worked" if verdict["ok"] else f"; not as meant: {', '.join(wrong) or 'see above'}"
    return Group(
        table(("type", "ended", "tasks", "note"), rows, empty="no tasks", right=("tasks",)),
        Text(),
        demo_grid.grid_table(verdict["grid"]["values"]),
        Text(head),
    )
