"""Redis at its memory limit in the middle of a cycle: what has begun ends, new cycles are refused, nothing hangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests import servers
from tests.faults.flow_probe import flow_site
from tests.faults.station_process import Site
from tradewind.errors import Overloaded


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["local", "amqp"])
async def test_a_full_redis_lets_cycles_end_and_refuses_new_ones(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    with servers.redis_server(appendonly=True, extra=("--maxmemory-policy", "noeviction")) as redis:
        async with flow_site(make_site, redis.url, broker, flows_keep_cycles=3) as (there, roles):
            nodes: dict[str, Any] = {"first": ("f_big", {"size": 10_000, "ms": 300})}
            for n in range(30):
                nodes[f"n{n}"] = ("f_big", {"size": 20_000, "ms": 100})
            nodes["last"] = ("f_big", {}, {"trigger_rule": "all_done"})
            edges = [f"first.out>n{n}.x" for n in range(30)] + ["n29.out>last.x"]
            flow_id = await there.register(nodes, *edges)
            ticking = await there.register({"a": "f_step"}, interval=0.5)
            await there.flows.start(ticking)
            cycle = await there.run(flow_id)
            await there.in_ledger(lambda e: any(x.id.startswith(f"{flow_id}_{cycle}_first") for x in e), "its start")
            roles["a"].pause()  # over the broker, this one has no queues yet when memory ends
            held = await there.run(flow_id)
            await there.redis.config_set("maxmemory", 1_000_000)
            roles["a"].resume()
            ended = await there.end(flow_id, cycle, 30)
            assert ended.status == "completed", Counter(ended.states.values())
            assert Counter(ended.states.values()) == {"completed": len(nodes)}
            with pytest.raises(Overloaded, match="out of memory"):
                await there.flows.run(flow_id)
            seen = int(await there.redis.hget(there.keys.flow(ticking), "last_cycle"))

            await there.redis.config_set("maxmemory", 0)
            assert (await there.end(flow_id, held, 30)).status == "completed"
            ended = await there.end(flow_id, await there.run(flow_id), 30)
            assert ended.status == "completed"

            async def ticks() -> bool:
                return int(await there.redis.hget(there.keys.flow(ticking), "last_cycle")) > seen + 1

            await there.until(ticks, "the next slots", 15)
            await there.no_queues(flow_id, cycle, list(nodes))
        assert all(role.exit_code is None for role in roles.values()), there.site.logs()
