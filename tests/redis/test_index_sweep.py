"""What the sweeps of all rooms send to their scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.servers import Server
from tradewind.cli.examine_indexes import sweeps_of
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.tasks.plane import Plane


async def test_long_definitions_are_not_sent_to_a_script_that_needs_their_names(
    redis_7: Server, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await open_link(RedisSettings(url=redis_7.url))
    plane = Plane(link, Settings(key_prefix=key_prefix))
    keys, long, sent = plane.keys, "x" * 100_000, [0]
    for key in (keys.channels(), keys.schedules(), keys.node_types(), keys.flow_triggers(), keys.trigger_states()):
        await plane.redis.hset(key, mapping={f"n{i}": long for i in range(5)})
    for sweep in sweeps_of(plane).values():
        run = sweep._scripts.run

        async def counted(name: str, names: Sequence[str], args: Sequence[Any], run: Any = run) -> Any:
            sent.append(sum(len(str(arg)) for arg in args))
            return await run(name, names, args)

        monkeypatch.setattr(sweep._scripts, "run", counted)
        faults = await sweep.run("look")
        if sweep.script == "flow_repair":
            assert "names flow n4 which has no record" in {fault.what for fault in faults}
    await link.close()
    assert len(sent) > 4 and max(sent) < 50_000
