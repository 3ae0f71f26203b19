"""Actions of several rules: who comes first, who waits for whom, and what is told of a command that ends late."""

from __future__ import annotations

from functools import partial

import msgspec

from tests.points.command_bench import CHANNEL
from tests.rules.rule_room import RuleRoom, until
from tests.rules.test_actions import MODEL, acting, device, fire
from tradewind.clock import FakeClock
from tradewind.rules import actions as actions_module

ON = ("send_control", {"channel_id": 1001, "point_id": 30001, "value": 1})


def to_silent(value: float = 1) -> tuple[str, dict[str, float]]:
    return "send_control", {"channel_id": 1002, "point_id": 30001, "value": value}


async def silent_channel(room: RuleRoom) -> None:
    """Takes commands, and nobody carries them out."""
    await room.channels.put([msgspec.structs.replace(CHANNEL, id="1002")])
    await room.plane.at("1002").redis.hset(room.keys.channel_status("1002"), "online", "1")


async def test_rules_of_one_change_command_a_point_in_the_order_of_their_priority(room: RuleRoom) -> None:
    rules = [
        acting(
            ("send_control", {"channel_id": 1001, "point_id": 40001, "type": "a", "value": n}), id=f"p{n}", priority=n
        )
        for n in (5, 100, 1, 50, 20)
    ]
    for document in rules:
        await room.store.put(document)
    async with device(room) as found, room.leading():

        async def has_written(many: int) -> bool:
            return len(found.written) >= many

        for turn in range(1, 5):
            await fire(room)
            await until(partial(has_written, 5 * turn))
            assert [value for _, value in found.written] == [100.0, 50.0, 20.0, 5.0, 1.0] * turn
            await room.show(70, 0.001)


async def test_devices_that_do_not_answer_hold_up_no_other_rule(room: RuleRoom) -> None:
    await silent_channel(room)
    many = actions_module.MAX_SENDING + 6
    await room.store.apply([acting(to_silent(), id=f"s{n}", priority=9) for n in range(many)])
    await room.store.put(acting(ON, priority=1))
    async with device(room) as found, room.leading():
        await fire(room)
        told = (await room.told("hot", 1))[0]
        assert told["success"] and found.written == [("30001", 1.0)]
        assert told["duration_ms"] < 3000
        assert await room.plane.redis.xlen(room.keys.rule_outbox()) == many, "they wait for their commands"


async def test_a_command_that_expires_is_told_as_failed(room: RuleRoom) -> None:
    await silent_channel(room)
    await room.store.put(acting(to_silent(), ("log_event", {"message": "x"})))
    async with device(room), room.leading():
        await fire(room)

        async def waits() -> bool:
            return len(await room.commands.list()) == 1

        await until(waits)
        assert isinstance(room.clock, FakeClock)
        room.clock.advance(31)
        await room.commands.sweep()
        told = (await room.told("hot", 1))[0]
    assert told["success"] is False and told["actions_executed"] == ["log_event"]
    assert told["results"][0]["code"] == "expired" and told["results"][0]["id"] in told["error_message"]


async def test_the_next_action_of_a_rule_comes_after_its_command_has_ended(room: RuleRoom) -> None:
    follow = ("send_control", {"channel_id": 1001, "point_id": 40001, "value": 7})
    await room.store.put(acting(ON, follow))
    async with device(room) as found, room.leading():
        found.hangs.clear()
        await fire(room)
        await found.began.wait()
        assert len(await room.commands.list()) == 1
        found.hangs.set()
        assert (await room.told("hot", 1))[0]["success"]
        assert found.written == [("30001", 1.0), ("40001", 7.0)]


async def test_a_control_of_a_model_commands_its_device(room: RuleRoom) -> None:
    model = {**MODEL, "controls": {"power": {"address": "comsrv:1001:a:40001", "min": 0, "max": 100}}}
    async with device(room) as found:
        await room.models.put(model)
        await room.store.put(acting(("send_control", {"address": "modsrv:battery:control:power", "value": 12})))
        async with room.leading():
            await fire(room)
            told = (await room.told("hot", 1))[0]
    assert told["success"], told
    assert found.written == [("40001", 12.0)]
