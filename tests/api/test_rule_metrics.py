"""Figures of rules for Prometheus."""

from __future__ import annotations

from typing import Any

from tests.api.conftest import SmallStation
from tests.api.flow_station import Flows

RULE: dict[str, Any] = {
    "conditions": [{"field": "t", "source": "comsrv:1001:m:1", "operator": ">", "value": "80"}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": "hot"}}],
}


async def test_no_counter_falls_when_a_rule_is_deleted(api: Flows, station: SmallStation) -> None:
    async def counter(name: str) -> float:
        lines = (await api.client.get("/metrics")).text.splitlines()
        return float(next(line for line in lines if line.startswith(f"tradewind_rule_{name}_total ")).split()[1])

    plane, names = station.rules.plane, ("executions", "triggered", "failed", "seconds")
    for rule_id in ("hot", "cold"):
        await api.post("/rules", {**RULE, "id": rule_id}, 201)
    figures = {f"{r}:{w}": n for r in ("hot", "cold") for w, n in (("executions", 5), ("triggered", 3), ("ms", 4000))}
    await plane.redis.hset(plane.keys.rule_figures(), mapping={**figures, "hot:failed": 2})
    assert [await counter(name) for name in names] == [10, 6, 2, 8]
    await api.ask("DELETE", "/rules/hot", 204)
    assert [await counter(name) for name in names] == [10, 6, 2, 8]
    await plane.redis.hincrby(plane.keys.rule_figures(), "cold:executions", 1)
    assert await counter("executions") == 11, "it goes on counting"
