"""The history of a station: where samples are kept, and who records them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.clock import iso, now_ms
from tradewind.errors import Invalid
from tradewind.health_part import Part
from tradewind.history.keeping import KeepingSource
from tradewind.history.policy_memory import FILE as POLICY_FILE
from tradewind.history.policy_memory import PolicyMemory
from tradewind.history.sink import Sink
from tradewind.history.status import is_recording
from tradewind.history.store import CONSUMER, HistoryStore, PolicyKeeping
from tradewind.points.address import Address
from tradewind.points.feed_trim import forget_consumer
from tradewind.settings import Settings
from tradewind.station_parts import leading, missing, unneeded
from tradewind.station_points import PointRoom
from tradewind.tasks.progress import read_report

if TYPE_CHECKING:  # heavy, and not every role needs them
    from tradewind.history.query import HistoryQuery
    from tradewind.history.recorder import HistoryRecorder

#: What health reads of the recorder's figures.
STATUS = (
    "sink", "spool_rows", "lag_ms", "at_ms", "spool_error", "spool_elsewhere_bytes", "sink_error", "disk_error",
)  # fmt: skip


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

    async def look(self) -> dict[str, Part]:
        """The role for health. Raises Unavailable."""
        return {"hissrv": await self._look()}

    async def _look(self) -> Part:
        if not self.settings.history.enabled:
            return Part("off", "history is off (history.enabled)")
        keys = self.plane.keys
        leader, report, feeds, written, channels, models, status = await self.plane.home.ask(
            [
                ("GET", keys.history_leader()),
                ("GET", keys.progress(keys.history_leader())),
                ("EXISTS", keys.feeds()),
                ("EXISTS", keys.feed()),
                ("HLEN", keys.channels()),
                ("HLEN", keys.models()),
                ("HMGET", keys.history_status(), *STATUS),
            ]
        )
        if not leader:
            is_needed = bool(feeds or written or channels or models)
            return missing("hissrv", "nobody records") if is_needed else unneeded("there is nothing to record yet")
        names = ("sink", "waiting", "lag_ms", "at_ms", "spool_error", "held", "sink_error", "disk_error")
        told = dict(zip(names, (text.decode() if text else "" for text in status), strict=True))
        now = now_ms()
        part = leading(leader.decode(), self._said(told), read_report(report), now)
        if part.status != "ok":
            return part
        if not is_recording(leader.decode(), told["at_ms"], now):
            since = f"since {iso(int(told['at_ms']))}" if told["at_ms"].isdigit() else "yet"
            return Part("down", f"{part.detail}; it has not said that it records {since}", "look at its log, or end it")
        if told["sink"] == "away" or told["spool_error"] or told["disk_error"] or told["held"] not in ("", "0"):
            return Part("down", part.detail, "`tradewind history stats` shows it in full")
        return Part("degraded" if told["sink"] == "slow" else "ok", part.detail)

    def _said(self, told: Mapping[str, str]) -> str:
        said = [f"sink {told['sink'] or 'unknown'}"]
        if told["sink_error"] and told["sink"] != "ok":
            said[0] += f": {told['sink_error']}"
        if told["waiting"] not in ("", "0"):
            said.append(f"{told['waiting']} samples wait on disk")
        if told["held"] not in ("", "0"):
            said.append(f"{told['held']} bytes wait in the spool of a process that hangs")
        said += [told[name] for name in ("spool_error", "disk_error") if told[name]]
        if told["lag_ms"].isdigit():
            said.append(f"{int(told['lag_ms']) / 1000:.1f} s behind")
        return "; ".join(said)

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
