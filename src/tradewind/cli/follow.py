"""Following one task until it ends: a spinner with its progress on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tradewind.cli.group import Session
from tradewind.cli.http import Http, segment
from tradewind.cli.output import plain, short
from tradewind.cli.task_view import show_end
from tradewind.errors import TimedOut

if TYPE_CHECKING:
    from rich.progress import Progress

ENDED = frozenset({"SUCCESS", "FAILED", "CANCELLED", "TIMEOUT", "DEAD"})
#: How long one request may be held back: short enough for a lively display, long enough to be cheap.
LIVE_WAIT_S = 0.5
QUIET_WAIT_S = 20.0


def finish(cli: Session, task: dict[str, Any], timeout_s: float | None, *, result_only: bool = False) -> int:
    """Wait, show how it ended, and say whether that was good (0) or bad (1). Raises TimedOut."""
    out = cli.out
    is_watched = out.is_live or not (out.is_json or result_only)
    changes = follow(cli.station, task, timeout_s, LIVE_WAIT_S if is_watched else QUIET_WAIT_S)
    if out.is_live:
        with _progress(cli) as progress:
            line = progress.add_task(task["id"], total=None)
            for task in changes:
                total, done, words = progress_of(task.get("progress"))
                text = plain(f"{task['id']} {task['type']} {task['status']} {words}".rstrip())
                progress.update(line, description=text, total=total, completed=done)
    else:
        seen = None
        for task in changes:
            state = (task["status"], task["attempt"], task.get("progress"))
            if is_watched and state != seen:
                words = short(task["progress"]) if task.get("progress") is not None else ""
                out.note(f"{task['id']} {task['status']} attempt {task['attempt']} {words}".rstrip())
            seen = state
    return show_end(out, task, result_only=result_only)


def follow(station: Http, task: dict[str, Any], timeout_s: float | None, hold_s: float) -> Iterator[dict[str, Any]]:
    """The task again and again, the last time when it has ended. Raises TimedOut."""
    end = time.monotonic() + timeout_s if timeout_s is not None else None
    yield task
    while task["status"] not in ENDED:
        left_s = end - time.monotonic() if end is not None else QUIET_WAIT_S
        if left_s <= 0:
            raise TimedOut(
                f"task {task['id']!r} is still {task['status']} after {timeout_s:g} s",
                code="still_running",
                hint=f"it goes on; follow it with `tradewind task watch {task['id']}`",
            )
        wait_s = round(min(left_s, hold_s), 3)
        task = station.get(f"/tasks/{segment(task['id'])}", {"wait": wait_s}, wait_s=wait_s)
        yield task


def progress_of(progress: Any) -> tuple[float | None, float, str]:
    """Total, done and words of a progress report: a share from 0 to 1, `{done|current, total}`, or anything."""
    if isinstance(progress, bool) or progress is None:
        return None, 0, ""
    if isinstance(progress, (int, float)):
        is_share = 0 <= progress <= 1
        return (1.0, float(progress), "") if is_share else (None, 0, short(progress))
    if isinstance(progress, dict):
        total = progress.get("total")
        done = progress.get("done", progress.get("current"))
        if isinstance(total, (int, float)) and isinstance(done, (int, float)) and total > 0:
            note = progress.get("note") or progress.get("message") or ""
            return float(total), float(done), f"{done}/{total} {short(note) if note else ''}".rstrip()
    return None, 0, short(progress)


@contextlib.contextmanager
def _progress(cli: Session) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    with Progress(
        SpinnerColumn(), text, BarColumn(bar_width=24), TimeElapsedColumn(), console=cli.out.side, transient=True
    ) as progress:
        yield progress
