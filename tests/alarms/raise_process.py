"""A process that raises the alarm of `hot()` again and again: `python -m tests.alarms.raise_process URL PREFIX TIMES`.

It has no more of the room than it needs, and so starts soon.
"""

from __future__ import annotations

import asyncio
import sys

from tradewind.alarms.record import NewAlarm
from tradewind.alarms.store import AlarmStore
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings

HOT = NewAlarm(
    rule_id="rule_1", source="comsrv:1001:m:10001", title="too hot", level="High", category="temperature"
)  # as in alarm_room


async def main(url: str, prefix: str, times: str) -> None:
    link = await open_link(RedisSettings(url=url))
    store = AlarmStore(PointPlane(link, Settings(key_prefix=prefix)))
    await asyncio.gather(*(store.raise_(HOT) for _ in range(int(times))))
    await link.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
