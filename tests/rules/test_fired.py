"""When a rule last fired is its last rise, whatever came after."""

from __future__ import annotations

from tests.rules.rule_room import RuleRoom, rule


async def test_a_fall_does_not_move_when_it_last_fired(room: RuleRoom) -> None:
    await room.store.put(rule())
    assert (await room.history.figures(["hot"]))["hot"].fired_ms == 0
    async with room.leading():
        await room.show(70)
        await room.show(80, 1)
        (fired,) = await room.told("hot", 1)
        await room.show(70, 60)
        await room.told("hot", 2)
        figures = (await room.history.figures(["hot"]))["hot"]
        assert (figures.triggered, figures.fired_ms) == (1, fired["timestamp"])
        assert figures.last_ms >= figures.fired_ms + 60_000
    await room.store.remove("hot")
    left = await room.plane.redis.hkeys(room.keys.rule_figures())
    assert not [field for field in left if field.startswith(b"hot:")]
