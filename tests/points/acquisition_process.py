"""The acquisition role as a process of its own, for tests that kill it: `URL PREFIX OWNER LEASE_S [FAULT]`.

FAULT `blind`: it cannot read the definitions of other channels than 1. A path: when there is a file, its loop hangs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.points.site import Site
from tradewind.errors import Invalid
from tradewind.points.channel_store import ChannelStore
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers.virtual import VirtualDriver
from tradewind.points.spec import ChannelSpec, Reading
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings


class BlindStore(ChannelStore):
    async def get_many(self, ids: Sequence[str]) -> list[ChannelSpec]:
        if list(ids) != ["1"]:
            raise Invalid("a definition of a version that this process does not know", code="bad_channel")
        return await super().get_many(ids)


async def main(url: str, prefix: str, owner: str, lease_s: float, fault: str) -> None:
    class HangingDriver(VirtualDriver):
        async def poll(self) -> list[Reading]:
            while fault and Path(fault).exists():
                time.sleep(0.05)
            return await super().poll()

    link = await open_link(RedisSettings(url=url))
    site = Site(link, prefix)
    if fault == "blind":
        site.store = BlindStore(link, site.plane.keys)
    drivers = DriverRegistry()
    drivers.add(HangingDriver)
    async with site.running(owner=owner, lease_s=lease_s, drivers=drivers):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), (*sys.argv[5:], "")[0]))
