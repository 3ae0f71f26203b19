"""One cycle of a flow to its end on a station of its own: embedded, in a temporary folder, in this process.

Nothing is recorded in SQL: what the cycle says and sends is read from the stream that a recorder would read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.cli.flow_file import FlowFile, check_files
from tradewind.errors import Invalid, TimedOut, TradewindError

if TYPE_CHECKING:
    from tradewind.flows.starting import RunRequest
    from tradewind.settings import Settings
    from tradewind.station import Station

#: How often it is looked at: often at first, since many flows end at once; less often where a look itself takes long.
SOONEST_S, LATEST_S, SLOWEST_S = 0.005, 0.1, 2.0
#: How long running nodes may take to end after a stop.
GRACE_S = 2.0
#: How long the threads of a stopped station may take to end.
LEAVE_S = 1.0
#: Entries of the stream in one read.
BATCH = 1000


@dataclass
class Outcome:
    """`outputs`: what nodes without a successor sent, node → handle → value."""

    status: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return bool(self.status.get("cycle_status") == "completed")

    @property
    def error(self) -> str:
        """Which nodes failed, and why; empty after a good end."""
        if self.is_good:
            return ""
        nodes = self.status.get("nodes", {}).items()
        failed = [f"node {name!r}: {node.get('error_message')}" for name, node in nodes if node["status"] == "failed"]
        told = "; ".join(failed) or str(self.status.get("error") or "no node failed")
        return f"cycle of {self.status['flow_id']!r} {_ENDS.get(self.status['cycle_status'], 'ended badly')}: {told}"

    def view(self) -> dict[str, Any]:
        return {**self.status, "outputs": self.outputs, "logs": self.logs}


_ENDS = {"failed": "failed", "timeout": "ran out of time", "stopped": "was stopped"}


Tell = Callable[[dict[str, Any]], None]


def run_once(
    settings: Settings,
    files: Sequence[FlowFile],
    request: RunRequest,
    on_status: Tell,
    on_log: Tell,
    timeout_s: float | None = None,
) -> Outcome:
    """Run the first file's flow; the others are there for it to call. Raises Invalid, TimedOut, Unavailable."""
    from tradewind.tasks.guarded_loop import new_event_loop  # heavy

    check_files(files, settings.imports)
    with tempfile.TemporaryDirectory(prefix="tradewind-flow-", ignore_cleanup_errors=True) as folder:
        own = _own_settings(settings, Path(folder) / "data", files)
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                return runner.run(_run(own, files, request, on_status, on_log, timeout_s))
        except asyncio.CancelledError:  # SIGTERM
            raise KeyboardInterrupt from None
        except BaseExceptionGroup as group:
            ours = group.subgroup(TradewindError)
            if ours is None:
                raise
            raise _first_of(ours) from None


def _first_of(group: BaseExceptionGroup[TradewindError]) -> TradewindError:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def leave_threads_behind(code: int) -> None:
    """End the process now if a node still runs in a thread, for which Python would wait."""
    end = time.monotonic() + LEAVE_S
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("tradewind-") and not thread.daemon]
    for thread in ours:
        thread.join(max(0.0, end - time.monotonic()))
    if any(thread.is_alive() for thread in ours):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _own_settings(usual: Settings, folder: Path, files: Sequence[FlowFile]) -> Settings:
    """The embedded default with what the usual settings say about nodes. The worker has every label that is asked."""
    from tradewind.flows.syntax import parse_flow
    from tradewind.settings import Settings

    asked = (label for file in files for node in parse_flow(file.document).nodes for label in node.labels)
    labels = dict.fromkeys([*usual.worker.labels, *asked])
    worker = {"labels": list(labels), "grace_s": min(GRACE_S, usual.worker.grace_s), "address": ""}
    return Settings(
        data_dir=folder,
        imports=usual.imports,
        flows=usual.flows,
        tasks=usual.tasks.model_copy(update={"archive": False}),
        worker=usual.worker.model_copy(update=worker),
        log=usual.log,
    )


async def _run(
    settings: Settings,
    files: Sequence[FlowFile],
    request: RunRequest,
    on_status: Tell,
    on_log: Tell,
    timeout_s: float | None,
) -> Outcome:
    from tradewind.station import open_station

    outcome, refused = Outcome(), None
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # Ctrl-C does so by itself
    async with open_station(settings, frozenset({"scheduler", "worker"})) as station:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(station.run(stop), name="station")
            try:
                feed = await _start(station, files, request, outcome, on_log)
                await _follow(station, feed, on_status, timeout_s)
            except TradewindError as error:  # kept, so that the station ends in good order
                refused = error
            stop.set()
    if refused is not None:
        raise refused
    return outcome


async def _start(
    station: Station, files: Sequence[FlowFile], request: RunRequest, outcome: Outcome, on_log: Tell
) -> _Feed:
    for file in reversed(files):
        try:
            await station.flows.register(file.document)
        except Invalid as error:
            raise file.placed(error) from None
    flow_id = files[0].flow_id
    cycle = await station.flows.run(flow_id, request)
    plan = await station.flow_store.plan(flow_id)
    inner = {edge.source for edge in plan.spec.edges}
    return _Feed(station, flow_id, cycle, inner, outcome, on_log)


async def _follow(station: Station, feed: _Feed, on_status: Tell, timeout_s: float | None) -> None:
    """Until the cycle has ended. Raises TimedOut, after it was asked to stop."""
    end = time.monotonic() + timeout_s if timeout_s is not None else None
    pause_s = SOONEST_S
    while True:
        began = time.monotonic()
        status = await station.flows.status.comprehensive(feed.flow_id, feed.cycle)
        took_s = time.monotonic() - began
        on_status(status)
        await feed.read(status)
        if status["cycle_status"] != "running":
            return
        if end is not None and time.monotonic() > end:
            await station.flows.stop_cycle(feed.flow_id, feed.cycle, f"not done after {timeout_s:g} s")
            raise TimedOut(
                f"flow {feed.flow_id!r} is not done after {timeout_s:g} s: {_open_nodes(status)}",
                code="still_running",
                hint="give it more time with --timeout, or what it waits for with --signal node.handle=JSON",
            )
        pause_s = min(LATEST_S, pause_s * 1.5)
        await asyncio.sleep(max(pause_s, min(SLOWEST_S, 9 * took_s)))


def _open_nodes(status: dict[str, Any]) -> str:
    found = [
        f"{name} {n['status']}" for name, n in status["nodes"].items() if n["status"] in ("running", "awaiting_input")
    ]
    return ", ".join(found[:5]) + (" …" if len(found) > 5 else "") or "its nodes wait"


class _Feed:
    """Reads the stream of records: log lines, and what the last nodes sent."""

    def __init__(
        self, station: Station, flow_id: str, cycle: int, inner: set[str], outcome: Outcome, tell: Tell
    ) -> None:
        self.flow_id = flow_id
        self.cycle = cycle
        self._client = station.link.client
        self._key = station.plane.keys.flow_outbox()
        self._inner = inner
        self._outcome = outcome
        self._tell = tell
        self._last = b"0-0"

    async def read(self, status: dict[str, Any]) -> None:
        """All that is new; `status` is how the cycle stood before."""
        self._outcome.status = status
        from tradewind import codec
        from tradewind.redis.connection import translated

        while True:
            with translated():
                found: Any = await self._client.xrange(self._key, b"(" + self._last, "+", count=BATCH)
            for entry_id, fields in found:
                self._last = entry_id
                for record in codec.decode(fields[b"d"]):
                    if (record.get("flow"), record.get("cycle")) == (self.flow_id, self.cycle):
                        self._take(record)
            if len(found) < BATCH:
                return

    def _take(self, record: dict[str, Any]) -> None:
        from tradewind.clock import iso

        if record["k"] == "log":
            entry = {
                "cycle": record["cycle"],
                "node_id": record.get("node"),
                "log_level": record.get("level"),
                "log_source": record.get("source"),
                "message": record.get("message"),
                "log_metadata": record.get("meta"),
                "created_at": iso(int(record["at"])),
            }
            self._outcome.logs.append(entry)
            self._tell(entry)
        elif record["k"] == "signal" and record["sig"]["source_node"] not in self._inner:
            sent = record["sig"]
            if sent["source_node"] != "*":
                self._outcome.outputs.setdefault(sent["source_node"], {})[sent["source_handle"]] = sent["payload"]
