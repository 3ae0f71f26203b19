"""Faults that rooms report on `station:faults` become alarms of the rule `station`."""

from __future__ import annotations

from typing import Any

import structlog

from tradewind import codec
from tradewind.alarms.context import script_context
from tradewind.alarms.record import MAX_TEXT, MAX_TITLE, STATION, Level, NewAlarm, check, level_of, new_alarm_id, wire
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import report
from tradewind.redis.scripts import Arg, Scripts
from tradewind.redis.text import stream_id_of

log = structlog.get_logger(__name__)
#: This reader's field in `station:cursors`.
READER = "station:faults@alarmsrv"
BATCH = 200


class FaultReader:
    def __init__(self, plane: PointPlane) -> None:
        self.plane = plane
        self._scripts = Scripts(plane.link, "tradewind.alarms", plane.all_settings.redis.max_retries)
        self._context = script_context(plane.keys, plane.all_settings)

    async def step(self, client: Any = None, wait_ms: int = 0) -> int:
        """Raise and clear what was reported; how many reports. With a client, waits for some. Raises Unavailable."""
        keys = self.plane.keys
        with translated(self.plane.link):
            stored = await self.plane.redis.hget(keys.cursors(), READER)
            cursor = stream_id_of(stored)  # as nothing, if somebody has written something else there
            block = wait_ms if client is not None else None
            reader = self.plane.redis if client is None else client
            found = await reader.xread({keys.faults(): cursor or "0-0"}, count=BATCH, block=block)
        entries = _entries(found)
        if not entries:
            return 0
        if cursor and await self._is_cut(cursor):
            text = (
                "faults of the station were reported while nobody read them, and the oldest are lost: look at the parts"
            )
            log.error("faults_lost", after=cursor)
            await report(self.plane.link, keys, "faults_lost", "station:faults", text)
        args: list[Arg] = [self._context, self.plane.clock.now_arg(), READER, stored or b"", entries[-1][0].decode()]
        for entry_id, fields in entries:
            args += _wish(entry_id.decode(), fields)
        await self._scripts.run("alarm_faults", [keys.cursors()], args)
        return len(entries)

    async def _is_cut(self, cursor: str) -> bool:
        """Reports behind the cursor may have gone unread: the one that it stands at has, and all before the first that
        is there. Reports are never removed by their reader."""
        keys = self.plane.keys
        with translated(self.plane.link):
            own = await self.plane.redis.xrange(keys.faults(), cursor, cursor)
            first = await self.plane.redis.xrange(keys.faults(), count=1)
        return not own and bool(first) and _number(first[0][0]) > _number(cursor.encode())


def _number(entry_id: bytes) -> tuple[int, int]:
    ms, _, number = entry_id.partition(b"-")
    return int(ms), int(number or 0)


def _entries(found: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Of the one stream of a reply of XREAD, which is a list or, with RESP3, a dict."""
    if not found:
        return []
    if isinstance(found, dict):
        return [entry for part in next(iter(found.values())) for entry in part]
    return list(found[0][1])


def _wish(entry_id: str, fields: dict[bytes, bytes]) -> list[Arg]:
    """What `alarm_faults` takes of one report: nothing of one that cannot be an alarm."""
    raw = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    source, code = raw.get("source", ""), raw.get("code", "")
    message = raw.get("message", "")
    if raw.get("state") == "clear":
        return ["clear", codec.encode({"source": source, "why": message[:MAX_TEXT]})]
    alarm = NewAlarm(
        rule_id=STATION,
        source=source,
        title=(message.splitlines() or [code])[0][:MAX_TITLE] or code or "fault",
        description=message[:MAX_TEXT],
        level=raw["level"] if level_of(raw.get("level", "")) else Level.HIGH.value,
        category=STATION,
        data={"code": code, "at": raw.get("at", "")},
    )
    problems = check(alarm)
    if problems:
        log.error(
            "not a fault of the station: left out", entry=entry_id, problem=f"{problems[0].path} {problems[0].hint}"
        )
        return []
    return ["raise", codec.encode(wire(alarm, new_alarm_id()))]
