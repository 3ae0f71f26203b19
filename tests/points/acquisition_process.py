"""The acquisition role as a process of its own, for tests that kill it: `URL PREFIX OWNER LEASE_S`."""

from __future__ import annotations

import asyncio
import sys

from tests.points.site import Site
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings


async def main(url: str, prefix: str, owner: str, lease_s: float) -> None:
    link = await open_link(RedisSettings(url=url))
    async with Site(link, prefix).running(owner=owner, lease_s=lease_s):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
