"""What other programs leave in the keys of rules, alarms and sources harms no other rule."""

from __future__ import annotations

from tests.rules.rule_room import RuleRoom, rule, until
from tradewind.points.board import Batch
from tradewind.rules.open_alarms import alarm_samples
from tradewind.rules.references import find_dangling
from tradewind.rules.spec import AlarmOpen


async def test_what_is_spoilt_at_one_source_or_rule_holds_up_no_other(room: RuleRoom) -> None:
    plane, keys = room.plane, room.keys
    blind = {"field": "t", "operator": ">", "value": 1, "source": "comsrv:7:m:1"}
    level = {"field": "t", "operator": ">", "value": 1, "source": "modsrv:pump:control:level"}
    after = {"type": "alarm", "rule_id": "spoilt"}
    await room.store.apply(
        [
            rule(),
            rule("blind", conditions=[blind]),
            rule("pumping", conditions=[level]),
            rule("after", conditions=[after]),
        ]
    )
    await plane.at("7").redis.set(keys.points("7", "m"), "text")
    await plane.at("7").redis.set(keys.channel_status("7"), "text")
    await plane.redis.set(keys.model_values("pump", "control"), "text")
    await plane.redis.set(keys.alarm_rule("spoilt"), "text")
    await plane.redis.hset(keys.rule_states(), b"\xff", "1")
    await plane.redis.hset(keys.alarm_open(), b"\xff|\xff", "alarm_x")
    await plane.redis.hset(keys.rule_figures(), mapping={b"\xff:ms": "many", "hot:executions": "some"})
    await plane.redis.xadd(keys.rule_outbox(), {b"\xff": b"\xff"})
    async with room.leading():
        await room.show(80)
        await room.alarms_become("New")

        async def is_dropped() -> bool:
            return not await plane.redis.xlen(keys.rule_outbox())

        await until(is_dropped)
    assert (await room.history.totals())["ms"] >= 0
    assert (await room.history.figures(["hot"]))["hot"].triggered == 1


async def test_an_alarm_that_cannot_be_read_is_neither_open_nor_closed(room: RuleRoom) -> None:
    plane, keys = room.plane, room.keys
    await plane.redis.sadd(keys.alarm_rule("torn"), b"\xff", "alarm_1")
    await plane.redis.set(keys.alarm("alarm_1"), "text")
    await plane.redis.set(keys.alarm_rule("spoilt"), "text")
    await plane.redis.sadd(keys.alarm_rule("well"), "alarm_1", "alarm_2")
    await plane.redis.hset(keys.alarm("alarm_2"), mapping={"status": "New", "source_point": b"\xff"})
    conditions = {name: AlarmOpen(name, statuses=("New",)) for name in ("torn", "spoilt", "well", "none")}
    found = await alarm_samples(plane, conditions, 1)
    assert {address: sample.value for address, sample in found.items()} == {"well": 1.0, "none": 0.0}


async def test_channels_that_another_program_pushed_are_looked_through(room: RuleRoom) -> None:
    await room.board.write([Batch.of_channel("1001", "m", {"1": 1.0})])
    await room.plane.redis.sadd(room.keys.channels_pushed(), b"\xff:m")
    assert await find_dangling(room.plane, [await room.store.validate(rule())]) == []
