"""Transitions of alarms for who watches them: one listener on `alarm:events` for all watchers of this process.

What happened goes out with the alarm as it is then. Who reads slowly loses the oldest and is told how many; events may
be missed while Redis is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from tradewind import codec
from tradewind.alarms.listing import AlarmQuery
from tradewind.alarms.record import Alarm
from tradewind.alarms.store import AlarmStore
from tradewind.api.live_events import EventQueue, listen
from tradewind.errors import Invalid, Overloaded, TradewindError
from tradewind.points.plane import PointPlane

logger = structlog.get_logger("tradewind.api")
MAX_WATCHERS = 500


class AlarmWatcher(EventQueue):
    def __init__(self, wanted: AlarmQuery) -> None:
        super().__init__()
        self._wanted = wanted

    def push(self, event: dict[str, Any], alarm: Alarm) -> None:
        if fits(self._wanted, alarm):
            self.put("alarm", event)


class AlarmFeed:
    def __init__(self, plane: PointPlane, alarms: AlarmStore) -> None:
        self._plane = plane
        self._alarms = alarms
        self._watchers: set[AlarmWatcher] = set()
        self._listener: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        return self._listener is not None

    @contextmanager
    def watch(self, wanted: AlarmQuery) -> Iterator[AlarmWatcher]:
        """Raises Overloaded."""
        if len(self._watchers) >= MAX_WATCHERS:
            raise Overloaded(f"{MAX_WATCHERS} watch alarms already", code="too_many_watchers", hint="ask again later")
        watcher = AlarmWatcher(wanted)
        if self._is_closed:
            watcher.close()
        elif self._listener is None:
            self._listener = asyncio.create_task(
                listen(self._plane.link, self._plane.keys.alarm_events(), self._listening, self._tell, self._miss),
                name="api-alarms",
            )
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._stop()

    async def ready(self) -> None:
        """Returns when nothing that happens from now on is missed."""
        await self._listening.wait()

    def close(self) -> None:
        """Let everybody go; later watchers end at once."""
        self._is_closed = True
        self._listening.set()
        for watcher in self._watchers:
            watcher.close()
        self._stop()

    def _stop(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
            self._listening = asyncio.Event() if not self._is_closed else self._listening

    def _miss(self) -> None:
        for watcher in self._watchers:
            watcher.miss()

    async def _tell(self, messages: list[bytes]) -> None:
        events = [event for message in messages if (event := _decoded(message)) is not None]
        try:
            found = await self._alarms.find([event["alarm_id"] for event in events])
        except TradewindError as error:
            logger.warning("alarms cannot be watched", error=error.message)
            self._miss()
            return
        for event, alarm in zip(events, found, strict=True):
            if alarm is None:  # removed since
                continue
            told = {"event": event.get("event"), "at": event.get("timestamp"), "alarm": alarm.to_json()}
            for watcher in self._watchers:
                watcher.push(told, alarm)


def fits(wanted: AlarmQuery, alarm: Alarm) -> bool:
    """Whether a list with these filters would show it."""
    source = wanted.source
    return (
        (not wanted.status or alarm.status in wanted.status)
        and (not wanted.level or alarm.level in wanted.level)
        and (not wanted.category or alarm.category in wanted.category)
        and (not wanted.rule_id or alarm.rule_id == wanted.rule_id)
        and (
            not source
            or alarm.source_point == source
            or (source.endswith("*") and alarm.source_point.startswith(source[:-1]))
        )
        and (wanted.from_ms is None or alarm.first_seen >= wanted.from_ms)
        and (wanted.to_ms is None or alarm.first_seen <= wanted.to_ms)
    )


def _decoded(message: bytes) -> dict[str, Any] | None:
    try:
        event = codec.decode(message)
    except Invalid as error:
        logger.error("an event of an alarm cannot be read", error=error.message)
        return None
    return event if isinstance(event, dict) and isinstance(event.get("alarm_id"), str) else None
