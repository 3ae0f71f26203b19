"""Index repair: what stands in an index without its record, and records that miss in one. Scripts never leave such;
a hand in redis-cli or a server that lost its last second does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tradewind.alarms.context import script_context
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg, Scripts

#: Entries and records that one script looks at.
BATCH = 200
_SCAN = 500
Entry = tuple[str, str, str]


class IndexSweep:
    def __init__(self, plane: PointPlane) -> None:
        self.plane = plane
        self._scripts = Scripts(plane.link, "tradewind.alarms", plane.all_settings.redis.max_retries)
        self._context = script_context(plane.keys, plane.all_settings)

    async def run(self) -> int:
        """Look at everything once, in small steps; how much was wrong. Raises Unavailable."""
        wrong = 0
        entries: list[Entry] = []
        records: list[str] = []
        async for key in self._keys():
            name = key.removeprefix("alarm:")
            if name.startswith("alarm_"):
                records.append(name)
            else:
                async for entry in self._entries(key):
                    entries.append(entry)
                    if len(entries) == BATCH:
                        wrong += await self._repair(entries, [])
                        entries = []
            if len(records) == BATCH:
                wrong += await self._repair([], records)
                records = []
        return wrong + await self._repair(entries, records)

    async def _repair(self, entries: list[Entry], records: list[str]) -> int:
        if not entries and not records:
            return 0
        args: list[Arg] = [self._context, self.plane.clock.now_arg(), len(entries)]
        args += [word for entry in entries for word in entry]
        args += records
        return int(await self._scripts.run("alarm_repair", [self.plane.keys.alarm_open()], args))

    async def _keys(self) -> AsyncIterator[str]:
        """Keys of alarms without the prefix."""
        prefix = self.plane.keys.p
        pattern = "".join(f"\\{c}" if c in "*?[]\\^" else c for c in prefix) + "alarm:*"
        cursor = 0
        while True:
            with translated(self.plane.link):
                cursor, keys = await self.plane.redis.scan(cursor, match=pattern, count=_SCAN)
            for key in keys:
                yield key.decode(errors="replace").removeprefix(prefix)
            if not cursor:
                return

    async def _entries(self, key: str) -> AsyncIterator[Entry]:
        """Key without the prefix, member or field, id of the alarm."""
        redis, whole = self.plane.redis, f"{self.plane.keys.p}{key}"
        kind = key.split(":")[1]
        cursor = 0
        while True:
            with translated(self.plane.link):
                if kind in ("category", "level", "status", "date", "rule"):
                    cursor, found = await redis.sscan(whole, cursor, count=_SCAN)
                    pairs = [(member, member) for member in found]
                elif kind in ("order", "timers"):
                    cursor, found = await redis.zscan(whole, cursor, count=_SCAN)
                    pairs = [(member, member.rpartition(b":")[2]) for member, _ in found]
                elif kind in ("buckets", "realtime", "open"):
                    cursor, found = await redis.hscan(whole, cursor, count=_SCAN)
                    pairs = [(f, v if kind == "open" else f.rpartition(b":")[2]) for f, v in found.items()]
                else:
                    return
            for member, alarm_id in pairs:
                yield key, member.decode(errors="replace"), alarm_id.decode(errors="replace")
            if not cursor:
                return
