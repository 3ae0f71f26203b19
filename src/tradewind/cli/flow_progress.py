"""A cycle while it runs: a live table on a terminal, a line for each change elsewhere, nothing for programs."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tradewind.cli.output import Output, short

if TYPE_CHECKING:
    from rich.live import Live

#: A flow of more nodes is told by its counts, once a second.
LINES_MAX = 200
#: Lines of the terminal that the table leaves free.
SPARE_LINES = 8


class CycleProgress:
    """`with CycleProgress(out) as progress: progress.update(status)…`; `status` is the comprehensive one."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self._live: Live | None = None
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._counted_at = 0.0

    def __enter__(self) -> CycleProgress:
        if self.out.is_live:
            from rich.live import Live

            self._live = Live(console=self.out.side, transient=True, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, traceback)

    def update(self, status: dict[str, Any]) -> None:
        if self.out.is_json:
            return
        if self._live is not None:
            from tradewind.cli.flow_view import status_view

            self._live.update(status_view(status, max(4, self.out.side.height - SPARE_LINES)), refresh=True)
        elif len(status["nodes"]) > LINES_MAX:
            self._tell_counts(status)
        else:
            self._tell_changes(status)

    def say(self, text: Any) -> None:
        """A line above the live table."""
        if not self.out.is_json:
            self.out.side.print(text, markup=False, highlight=False, soft_wrap=True)

    def _tell_counts(self, status: dict[str, Any]) -> None:
        from tradewind.cli.flow_view import statistics

        if time.monotonic() - self._counted_at >= 1 or status["cycle_status"] != "running":
            self._counted_at = time.monotonic()
            self.out.note(f"cycle {status['cycle']} {status['cycle_status']}: {statistics(status['statistics'])}")

    def _tell_changes(self, status: dict[str, Any]) -> None:
        from tradewind.cli.times import between
        from tradewind.clock import now_ms

        now = now_ms()
        for name, node in status["nodes"].items():
            state = (node["status"], node.get("attempt"), node.get("progress"))
            if self._seen.get(name, ("pending",))[0] == node["status"] == "pending" or self._seen.get(name) == state:
                continue
            self._seen[name] = state
            took = between(node.get("started_at"), node.get("finished_at"), now) if node.get("finished_at") else ""
            words = node.get("error_message") or (node.get("message") if node["status"] == "awaiting_input" else "")
            if node["status"] == "running" and node.get("progress") is not None:
                words = short(node["progress"])
            again = f"attempt {node['attempt']}" if (node.get("attempt") or 0) > 1 else ""
            self.out.note(" ".join(str(part) for part in (name, node["status"], took, again, words) if part))
