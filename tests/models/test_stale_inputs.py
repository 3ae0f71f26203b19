"""Outputs of models are as good as the worst input, also when nobody attends the channel of one; and values of models
that nobody computes are not good."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests import servers
from tests.models.examples import total
from tests.models.model_room import ModelRoom, until
from tests.points.site import Site, virtual_channel
from tests.rules.rule_room import RuleRoom, rule
from tradewind.clock import Clock
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings

STALE = {"stale_s": 1.0}
TOTAL = "modsrv:total:measurement:total"


@pytest.fixture
async def link(redis_7: servers.Server) -> AsyncIterator[Link]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield link
    await link.close()


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[ModelRoom]:
    room = ModelRoom(link, key_prefix, Clock(), **STALE)
    await room.store.put(total(channel=1))
    yield room
    await room.plane.close()


def plant(**more: object) -> ChannelSpec:
    points = (PointSpec(Kind.MEASUREMENT, "1", mapping={"initial_value": 1}), PointSpec(Kind.MEASUREMENT, "2"))
    return virtual_channel("1", *points, **more)


async def becomes(room: ModelRoom, quality: str, address: str = TOTAL) -> None:
    async def is_so() -> bool:
        return (await room.board.read_one(address)).quality == quality

    await until(is_so)


@pytest.mark.parametrize("way", ["disabled", "removed", "unattended"])
async def test_outputs_are_uncertain_when_their_inputs_are_not_refreshed(
    room: ModelRoom, link: Link, key_prefix: str, way: str
) -> None:
    site = Site(link, key_prefix, points=STALE)
    await site.store.put([plant()])
    async with room.engine():
        async with site.running():
            await becomes(room, "good")
            if way == "disabled":
                await site.store.put([plant(enabled=False)])
            elif way == "removed":
                await site.store.remove(["1"])
            if way != "unattended":
                await becomes(room, "uncertain")
        await becomes(room, "uncertain")
        assert await room.values("total", 2) == {"total": "uncertain"}, "and so it stands for other programs"
        await site.store.put([plant()])
        async with site.running():
            await becomes(room, "good")


async def test_values_of_models_are_stale_everywhere_when_nobody_computes_them(
    room: ModelRoom, link: Link, key_prefix: str
) -> None:
    rules = RuleRoom(link, key_prefix, Clock(), points=STALE)
    limit = {"operator": "<", "value": 75, "source": TOTAL, "field": "t"}
    await rules.store.put(rule(conditions=[limit]))
    site = Site(link, key_prefix, points=STALE)
    await site.store.put([plant()])
    async with site.running(), rules.leading() as judge:
        async with room.engine():
            await becomes(room, "good")
            await rules.alarms_become("New")
        await becomes(room, "uncertain")
        assert (await room.board.read_one(TOTAL)).is_stale
        assert (await room.board.read_model("total"))[0].is_stale

        async def is_unknown() -> bool:
            state = await rules.states()
            return bool(state) and judge.stats.rounds > 0 and await stale_in_rules(rules)

        await until(is_unknown)
        async with room.engine():
            await becomes(room, "good")
    await rules.plane.close()


async def stale_in_rules(rules: RuleRoom) -> bool:
    """Whether the stored state of the only rule has its source as stale."""
    from tradewind.rules.network import RuleNetwork
    from tradewind.rules.verdict import STALE as WORD

    stored = await rules.plane.redis.hgetall(rules.keys.rule_states())
    definitions = await rules.store.load()
    network = RuleNetwork(definitions.specs.values())
    network.restore({name.decode(): data for name, data in stored.items()})
    return [state.qualities for state in network.states.values()] == [[WORD]]


async def test_values_of_a_model_that_is_off_and_of_a_dropped_output_are_marked(room: ModelRoom) -> None:
    await room.store.put(total("other", channel=1))
    now = Clock().now_ms()
    async with room.engine():
        await room.write(now, {"1": 1, "2": 2}, channel="1")
        await becomes(room, "good")
        await becomes(room, "good", "modsrv:other:measurement:total")
        await room.store.put(total("other", channel=1, enabled=False))
        await becomes(room, "uncertain", "modsrv:other:measurement:total")
        assert await room.values("other", 2) == {"total": "uncertain"}
        await room.store.put(total(channel=1, outputs=[{"field": "sum", "source": "all"}]))
        await becomes(room, "good", "modsrv:total:measurement:sum")
        assert await room.values("total", 2) == {"total": "uncertain"}
