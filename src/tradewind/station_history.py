"""The history of a station: where samples are kept, and who records them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.clock import now_ms
from tradewind.errors import Invalid
from tradewind.history.keeping import KeepingSource
from tradewind.history.policy_memory import FILE as POLICY_FILE
from tradewind.history.policy_memory import PolicyMemory
from tradewind.history.sink import Sink
from tradewind.history.status import is_recording
from tradewind.history.store import CONSUMER, HistoryStore, PolicyKeeping
from tradewind.points.address import Address
from tradewind.points.feed_trim import forget_consumer
from tradewind.settings import Settings
from tradewind.station_points import PointRoom

if TYPE_CHECKING:  # heavy, and not every role needs them
    from tradewind.history.query import HistoryQuery
    from tradewind.history.recorder import HistoryRecorder


class HistoryRoom:
    def __init__(self, points: PointRoom) -> None:
        plane = points.plane
        self.points = points
        self.plane = plane
        self.store = HistoryStore(plane.link, plane.keys)
        memory = PolicyMemory(folder_of(plane.all_settings) / POLICY_FILE)
        self.keeping = PolicyKeeping(self.store, days_of(plane.all_settings), memory)
        self._asked: HistoryQuery | None = None
        self._opening = asyncio.Lock()

    @property
    def settings(self) -> Settings:
        return self.plane.all_settings

    def sink(self) -> Sink:
        """One of its own for each that asks, to be opened and closed by it: the recorder writes, others read."""
        return sink_of(self.plane.all_settings, self.keeping)

    def recorder(self) -> HistoryRecorder:
        """What records: the role hissrv."""
        from tradewind.history.recorder import HistoryRecorder

        return HistoryRecorder(self.plane, self.sink(), folder_of(self.plane.all_settings) / "spool")

    def query(self, sink: Sink) -> HistoryQuery:
        """Questions to a sink that is open."""
        from tradewind.history.query import HistoryQuery
        from tradewind.history.question import Limits

        history = self.plane.all_settings.history
        return HistoryQuery(sink, self._units, Limits(history.max_points, history.max_series))

    async def questions(self) -> HistoryQuery:
        """What answers in this process, on a sink that the first question opens; `close` closes it."""
        async with self._opening:
            if self._asked is None:
                sink = self.sink()
                await sink.open()
                self._asked = self.query(sink)
            return self._asked

    async def close(self) -> None:
        async with self._opening:
            asked, self._asked = self._asked, None
            if asked is not None:
                await asked.sink.close()

    async def record(self, stop: asyncio.Event) -> None:
        """Record until `stop` is set: the role hissrv; nothing when history is off. Raises Unavailable."""
        if not self.plane.all_settings.history.enabled:
            await forget_consumer(self.plane, CONSUMER)  # or the feed would wait for it
            await stop.wait()
            return
        await self.recorder().run(stop)

    async def look(self) -> dict[str, tuple[bool | None, str]]:
        """Whether the role works (None: nobody does, and nothing waits for it) and what there is to say. Raises
        Unavailable."""
        keys = self.plane.keys
        leader, cursor, status = await self.plane.home.ask(
            [
                ("GET", keys.history_leader()),
                ("HEXISTS", keys.feed_cursors(), CONSUMER),
                (
                    "HMGET",
                    keys.history_status(),
                    "sink",
                    "spool_rows",
                    "lag_ms",
                    "at_ms",
                    "spool_error",
                    "spool_elsewhere_bytes",
                ),
            ]
        )
        if not leader:
            return {"hissrv": (False if cursor else None, "nobody records")}
        sink, waiting, lag_ms, at_ms, spool_error, held = (text.decode() if text else "" for text in status)
        detail = f"{leader.decode()}; sink {sink or 'unknown'}"
        if waiting not in ("", "0"):
            detail += f"; {waiting} samples wait on disk"
        if held not in ("", "0"):
            detail += f"; {held} bytes wait in the spool of a process that hangs"
        if spool_error:
            detail += f"; {spool_error}"
        if not is_recording(leader.decode(), at_ms, now_ms()):
            return {"hissrv": (False, f"{detail}; it does not say that it records")}
        is_well = sink != "away" and not spool_error and held in ("", "0")
        return {"hissrv": (is_well, f"{detail}; {int(lag_ms or 0) / 1000:.1f} s behind")}

    async def _units(self, series: Sequence[str]) -> dict[str, str]:
        await self.points.look()
        units = {}
        for name in series:
            with contextlib.suppress(Invalid):
                spec = self.points.describe(Address.parse(name))
                units[name] = spec.unit if spec is not None else ""
        return units


def folder_of(settings: Settings) -> Path:
    return settings.data_dir / "history"


def days_of(settings: Settings) -> tuple[int, int, int]:
    history = settings.history
    return history.raw_days, history.minute_days, history.hour_days


def sink_of(settings: Settings, keeping: KeepingSource | None = None) -> Sink:
    """InfluxDB when `influx.url` is set, files in the data folder otherwise. Without `keeping` every series is kept as
    long as the settings say."""
    if settings.influx.url:
        from tradewind.history.influx import InfluxSink

        return InfluxSink(settings.influx, settings.history.raw_days, keeping=keeping)
    from tradewind.history.sqlite import SqliteSink

    return SqliteSink(folder_of(settings), days_of(settings), keeping=keeping)
