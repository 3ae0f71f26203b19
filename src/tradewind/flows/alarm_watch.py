"""Starts cycles when alarms change: reads the journal of alarms and asks each flow's triggers. A job of the leader.

The place in the journal is stored after its cycles were started; a cycle that was started before a crash is found again
by its run id. Nothing that this reader has not seen leaves the journal.
"""

from __future__ import annotations

from typing import Any

from redis.exceptions import ResponseError

from tradewind.alarms.journal_entry import READERS, JournalEntry
from tradewind.flows.alarm_trigger import TYPE, AlarmTrigger, payload_of, read_trigger
from tradewind.flows.control import FlowControl
from tradewind.flows.trigger_watch import fire, triggers_of
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated

#: Our field in `station:cursors`.
CURSOR = f"{READERS}flow-triggers"
WAIT_S = 2.0
BATCH = 200


class AlarmWatch:
    def __init__(self, flows: FlowControl, points: PointPlane) -> None:
        self._flows = flows
        self._points = points
        self._text: dict[bytes, bytes] = {}
        self._triggers: list[tuple[str, int, AlarmTrigger]] = []

    async def run(self) -> None:
        """Until cancelled. Raises Unavailable."""
        keys = self._points.keys
        client = self._points.link.new_client(WAIT_S)
        try:
            at = await self._begin()
            while True:
                with translated(self._points.link):
                    found: Any = await client.xread({keys.alarm_journal(): at}, count=BATCH, block=int(WAIT_S * 1000))
                if not found:
                    continue
                await self._refresh()
                for entry_id, fields in found[0][1]:
                    await self._take(entry_id.decode(), fields)
                    at = entry_id
                with translated(self._points.link):
                    await self._points.redis.hset(keys.cursors(), CURSOR, at)
        finally:
            await client.aclose()

    async def _begin(self) -> bytes:
        """Where we stood; the first time that is the end: what was before is no transition that we saw."""
        keys, redis = self._points.keys, self._points.redis
        with translated(self._points.link):
            if (at := await redis.hget(keys.cursors(), CURSOR)) is None:
                try:
                    last: bytes = (await redis.xinfo_stream(keys.alarm_journal()))["last-generated-id"]
                except ResponseError:  # there was never an alarm
                    last = b"0-0"
                await redis.hsetnx(keys.cursors(), CURSOR, last)
                at = last
        found: bytes = at
        return found

    async def _refresh(self) -> None:
        """Each time: a flow that was just started misses nothing."""
        plane = self._flows.store.plane
        with translated(self._points.link):
            text = await plane.tasks.redis.hgetall(plane.keys.flow_triggers())
        if text == self._text:
            return
        self._text, self._triggers = text, list(triggers_of(text, (TYPE,), read_trigger))

    async def _take(self, entry_id: str, fields: dict[bytes, bytes]) -> None:
        try:
            entry = JournalEntry.of_stream(fields)
        except (KeyError, ValueError):  # the recorder says so
            return
        payload = payload_of(entry)
        fitting: dict[str, dict[int, Any]] = {}
        for flow_id, i, trigger in self._triggers:
            if trigger.fits(entry):
                fitting.setdefault(flow_id, {})[i] = payload
        for flow_id, seen in fitting.items():
            for i in seen:
                await fire(self._flows, flow_id, TYPE, seen, f"alarm-{entry_id}-{i}", i)
