"""A process that records until it is killed: `python -m tests.history.recorder_process REDIS PREFIX FOLDER [INFLUX]`.

Without a URL of InfluxDB it records into files of our own in FOLDER.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.history.history_room import LEASES
from tradewind.history import delivery
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.station_history import HistoryRoom
from tradewind.station_points import PointRoom

#: Seconds after which a write counts as slow (delivery.SLOW_S).
SLOW_ENV = "TEST_SLOW_S"


def settings_of(prefix: str, folder: str | Path, influx: str = "") -> Settings:
    groups = {"scheduler": LEASES, "influx": {"url": influx}, "data_dir": str(folder)}
    return Settings.model_validate({"key_prefix": prefix, **groups})


async def main(url: str, prefix: str, folder: str, influx: str = "") -> None:
    delivery.SLOW_S = float(os.environ.get(SLOW_ENV, delivery.SLOW_S))
    link = await open_link(RedisSettings(url=url))
    room = HistoryRoom(PointRoom(link, settings_of(prefix, folder, influx)))
    await room.record(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
