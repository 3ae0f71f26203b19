"""A process that judges rules until it is killed: `python -m tests.rules.engine_process URL PREFIX`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.rules.rule_room import RuleRoom
from tradewind.clock import Clock
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings
from tradewind.tasks.builtin import echo as echo  # a task type that rules may submit

#: Leases that end soon after a kill; a loop guard and a history that busy rules do not fill.
GROUPS: dict[str, Any] = {
    "scheduler": {"leader_ttl_s": 0.9, "renew_s": 0.2},
    "rules": {"loop_depth": 1000, "history_keep": 100_000},
}


def open_room(link: Link, prefix: str) -> RuleRoom:
    return RuleRoom(link, prefix, Clock(), **GROUPS)


async def main(url: str, prefix: str) -> None:
    link = await open_link(RedisSettings(url=url))
    room = open_room(link, prefix)
    async with room.engine(entries=20, steps_a_call=4):  # small, so that a kill meets every sort of moment
        await link.client.incr(f"{prefix}test:ready")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
