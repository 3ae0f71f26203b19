"""A node that runs here: what it says (logs, progress) and asks (child cycles) on its way to Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind import codec
from tradewind.clock import now_ms
from tradewind.flows.plane import FlowPlane
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg
from tradewind.tasks.running import Running

if TYPE_CHECKING:
    from tradewind.flows.node_start import Follow
    from tradewind.flows.store import FlowStore

#: A node that says more than this between two looks (a second) loses the oldest lines, and a line says so.
MAX_LINES = 1000
MAX_MESSAGE = 10_000


class RunningNode:
    """The `NodeHost` of one attempt."""

    __slots__ = ("_attempt", "_dropped", "_follow", "_lines", "_progress", "state", "store")

    def __init__(self, store: FlowStore, follow: Follow, state: Running, attempt: int) -> None:
        self.store = store
        self.state = state
        self._follow = follow
        self._attempt = attempt  # without those that a lost worker cost
        self._lines: list[bytes] = []
        self._dropped = 0
        self._progress: tuple[float, str] | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.state.is_cancelled

    def log(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None:
        follow = self._follow
        if len(self._lines) >= MAX_LINES:
            del self._lines[0]
            self._dropped += 1
        self._lines.append(
            codec.encode(
                {
                    "k": "log",
                    "flow": follow.flow_id,
                    "cycle": follow.cycle,
                    "node": follow.node_id,
                    "level": level.upper(),
                    "source": "node",
                    "message": message[:MAX_MESSAGE],
                    "meta": metadata,
                    "at": now_ms(),
                }
            )
        )

    def progress(self, value: Any, message: str = "") -> None:
        """A share from 0 to 1; shown as 0 to 100 in the seed's record."""
        share = min(1.0, max(0.0, float(value)))
        self._progress = (share, message)
        self.state.progress({"progress": share, "message": message[:500]} if message else share)

    def take_logs(self) -> bytes:
        """What is not written yet, as JSON joined by commas."""
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self.log("WARNING", f"{dropped} log lines were dropped: more than {MAX_LINES} at once")
        lines, self._lines = self._lines, []
        return b",".join(lines)

    async def flush(self) -> None:
        """Logs and progress so far, before the node has ended. Raises Unavailable."""
        plane: FlowPlane = self.store.plane
        if self._lines:
            data = b"[" + self.take_logs() + b"]"
            with translated():
                await plane.tasks.redis.xadd(
                    plane.keys.flow_outbox(), {"d": data}, maxlen=plane.outbox_max, approximate=True
                )
        if self._progress is not None:
            (share, message), self._progress = self._progress, None
            keys, task_id = plane.keys, self.state.id
            args: list[Arg] = [f"{share * 100:g}", message, self.state.token]
            names = [keys.node_task(task_id), keys.task(task_id)]
            await plane.scripts.run("node_progress", names, args)

    async def start_cycle(self, flow_id: str, signals: dict[str, Any], key: str = "") -> int:
        from tradewind.flows.starting import start_child

        follow = self._follow
        parent = f"{follow.flow_id}:{follow.cycle}:{follow.node_id}"
        return await start_child(self.store, flow_id, signals, parent, key and f"{self._attempt}-{key}")

    async def cycle_outputs(self, flow_id: str, cycle: int) -> dict[str, dict[str, Any]]:
        from tradewind.flows.starting import cycle_outputs

        return await cycle_outputs(self.store, flow_id, cycle)
