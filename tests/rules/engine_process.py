"""A process that judges rules until it is killed: `python -m tests.rules.engine_process URL PREFIX`.

`{prefix}test:hold` names a script before which it stops for good, so that a kill meets it just there; it says so in
`{prefix}test:held`. `{prefix}test:judges` counts the processes that have begun to judge.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.rules.rule_room import RuleRoom, leads, until
from tradewind.clock import Clock
from tradewind.redis.connection import Link, open_link
from tradewind.redis.scripts import Scripts
from tradewind.settings import RedisSettings
from tradewind.tasks.builtin import echo as echo  # a task type that rules may submit

#: Leases that end soon after a kill; a loop guard and a history that busy rules do not fill.
GROUPS: dict[str, Any] = {
    "scheduler": {"leader_ttl_s": 0.9, "renew_s": 0.2},
    "rules": {"loop_depth": 1000, "history_keep": 100_000},
}


def open_room(link: Link, prefix: str) -> RuleRoom:
    return RuleRoom(link, prefix, Clock(), **GROUPS)


def stop_where_told(link: Link, prefix: str) -> None:
    run = Scripts.run

    async def held_run(self: Scripts, name: str, *rest: Any) -> Any:
        if await link.client.get(f"{prefix}test:hold") == name.encode():
            await link.client.set(f"{prefix}test:held", name)
            await asyncio.Event().wait()
        return await run(self, name, *rest)

    Scripts.run = held_run  # type: ignore[method-assign]


async def main(url: str, prefix: str) -> None:
    link = await open_link(RedisSettings(url=url))
    room = open_room(link, prefix)
    stop_where_told(link, prefix)
    async with room.engine(entries=20, steps_a_call=4) as engine:  # small, so that a kill meets every sort of moment
        await link.client.incr(f"{prefix}test:ready")
        await until(lambda: leads(engine), 600)
        await link.client.incr(f"{prefix}test:judges")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
