"""Tasks as people see them: one line in a table, everything about one, how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind.cli.output import Output, cell, facts, json_text, short, status_cell, table

if TYPE_CHECKING:
    from rich.console import RenderableType


def task_table(tasks: list[dict[str, Any]], empty: str) -> RenderableType:
    from tradewind.cli.times import between, relative
    from tradewind.clock import now_ms

    now = now_ms()
    rows = [
        (
            cell(t["id"]),
            cell(t["type"]),
            status_cell(t["status"]),
            t["priority"],
            f"{t['attempt']}/{t['max_attempts']}" if t.get("max_attempts") else t["attempt"],
            relative(t.get("created_at"), now),
            between(t.get("started_at"), t.get("finished_at"), now),
            note_of(t),
        )
        for t in tasks
    ]
    headings = ("id", "type", "status", "priority", "attempt", "created", "took", "note")
    return table(headings, rows, empty=empty, right=("attempt", "took"))


def note_of(task: dict[str, Any]) -> str | None:
    """The most telling thing about a task in a few words: its error, its progress or its result."""
    if task.get("error"):
        error = task["error"]
        return short(f"{error.get('type') or 'error'}: {error.get('message', '')}")
    if task["status"] == "SUCCESS":
        return short(task.get("result")) if task.get("result") is not None else None
    return short(task["progress"]) if task.get("progress") is not None else None


def task_facts(task: dict[str, Any]) -> RenderableType:
    from tradewind.cli.times import between, local
    from tradewind.clock import now_ms

    now = now_ms()
    pairs: list[tuple[str, Any]] = [("id", task["id"]), ("type", task["type"]), ("status", status_cell(task["status"]))]
    for name, value in task.items():
        if name in ("id", "type", "status", "error", "stalls") or value in (None, [], {}, ""):
            continue
        if name.endswith("_at") or name == "deadline":
            pairs.append((name, local(value, now)))
        elif name in ("tags", "labels"):
            pairs.append((name, ", ".join(value)))
        elif name in ("args", "kwargs", "result", "progress"):
            pairs.append((name, json_text(value)))
        else:
            pairs.append((name, value))
    took = between(task.get("started_at"), task.get("finished_at"), now)
    if took:
        pairs.append(("took", took))
    if task.get("stalls"):
        pairs.append(("stalls", f"{task['stalls']} (times a worker died with it)"))
    if task.get("error"):
        error = task["error"]
        pairs.append(("error", cell(f"{error.get('type') or 'error'}: {error.get('message', '')}", "red")))
        if error.get("traceback"):
            pairs.append(("", error["traceback"].rstrip()))
    return facts(pairs)


def show_end(out: Output, task: dict[str, Any], *, result_only: bool) -> int:
    """Print how a task ended; 0 when well, 1 when badly."""
    is_good = task["status"] == "SUCCESS"
    if result_only and is_good and not out.is_json:
        result = task.get("result")
        if result is not None:
            out.console.print(result if isinstance(result, str) else json_text(result), soft_wrap=True, highlight=False)
    else:
        out.show(task, lambda: task_facts(task))
    return 0 if is_good else 1
