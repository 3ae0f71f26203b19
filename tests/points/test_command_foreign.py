"""Commands that other programs write: by the protocol they are served; broken ones are refused one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.lifetimes import lives
from tests.points.command_bench import CHANNEL, Workbench
from tradewind.clock import now_ms
from tradewind.points.command_record import CommandBroken, CommandStatus, Result
from tradewind.redis.connection import Link

#: The fields of the protocol, and nothing of ours.
FOREIGN = {
    "id": "order-7", "model_name": "channel_1001", "field_name": "a_40001", "value": "12.5", "status": "pending",
    "message": "", "source": "scada",
}  # fmt: skip
BROKEN: dict[str, dict[str, str]] = {
    "no status": {"value": "1", "address": "comsrv:1001:a:40001"},
    "unknown status": {**FOREIGN, "status": "todo"},
    "no value": {name: text for name, text in FOREIGN.items() if name != "value"},
    "words": {**FOREIGN, "value": "much"},
    "infinite": {**FOREIGN, "value": "inf"},
    "no point": {**FOREIGN, "model_name": "somewhere"},
    "a measurement": {**FOREIGN, "field_name": "m_10001"},
    "another channel": {**FOREIGN, "model_name": "channel_1002"},
}


@pytest.fixture
async def bench(link: Link, key_prefix: str) -> AsyncIterator[Workbench]:
    bench = Workbench(link, key_prefix)
    await bench.online()
    yield bench
    await bench.plane.close()


async def put(bench: Workbench, command_id: str, fields: dict[str, str]) -> None:
    redis, keys = bench.plane.redis, bench.plane.keys
    await redis.hset(keys.command(command_id), mapping=fields)
    await redis.lpush(keys.channel_todo("1001"), command_id)


async def test_a_command_of_another_program_is_carried_out(bench: Workbench) -> None:
    now = now_ms()
    await put(bench, "order-7", {**FOREIGN, "created_at": str(now), "updated_at": str(now)})
    assert await bench.runner.run_next(CHANNEL, bench.device)
    assert bench.device.written == [("40001", 12.5)]
    command = await bench.commands.get("order-7")
    assert (command.status, command.result, command.source) == (CommandStatus.SUCCESS, Result.DONE, "scada")
    assert await bench.stored("a", "40001") == "12.500000"
    await lives(bench.plane.redis, bench.plane.keys.command("order-7"), 86_400)


async def test_an_old_command_of_another_program_has_expired(bench: Workbench) -> None:
    await put(bench, "order-7", {**FOREIGN, "created_at": str(now_ms() - 3_600_000)})
    assert not await bench.runner.run_next(CHANNEL, bench.device)
    assert (await bench.commands.get("order-7")).result is Result.EXPIRED and bench.device.written == []


async def test_one_that_waits_gets_a_deadline_without_being_taken(bench: Workbench) -> None:
    await put(bench, "order-7", {**FOREIGN, "created_at": str(now_ms() - 3_600_000)})
    assert await bench.store.adopt("1001") == []
    assert await bench.commands.sweep() == ["order-7"]
    assert (await bench.commands.get("order-7")).result is Result.EXPIRED


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("is_taken", [True, False])
async def test_what_nobody_can_carry_out_is_refused_and_holds_up_nobody(
    bench: Workbench, what: str, is_taken: bool
) -> None:
    await put(bench, "broken", BROKEN[what])
    sent = await bench.send("a", "40001", 5)
    if not is_taken:
        assert await bench.store.adopt("1001") == ["broken"]
    assert await bench.runner.run_next(CHANNEL, bench.device)
    assert (await bench.commands.get(sent.id)).status is CommandStatus.SUCCESS
    assert await bench.store.waiting("1001") == 0
    raw = await bench.plane.redis.hgetall(bench.plane.keys.command("broken"))
    if what != "no status":
        assert (raw[b"status"], raw[b"result"]) == (b"failed", b"refused") and raw[b"message"]
    told = [entry for entry in await bench.store.journal() if entry["id"] == "broken"]
    assert [(entry["to"], entry["result"]) for entry in told] == [("failed", "refused")] and told[0]["message"]


async def test_ids_without_a_record_and_records_of_another_type_are_written_down(bench: Workbench) -> None:
    redis, keys = bench.plane.redis, bench.plane.keys
    await redis.lpush(keys.channel_todo("1001"), "gone")
    await redis.set(keys.command("text"), "not a hash")
    await redis.lpush(keys.channel_todo("1001"), "text")
    await redis.zadd(keys.commands_open(), {"text": 1})
    sent = await bench.send("a", "40001", 5)
    assert await bench.runner.run_next(CHANNEL, bench.device)
    assert (await bench.commands.get(sent.id)).status is CommandStatus.SUCCESS
    told = {entry["id"]: entry["message"] for entry in await bench.store.journal() if entry["result"] == "refused"}
    assert "no record" in told["gone"] and "no hash" in told["text"]
    await redis.zadd(keys.commands_open(), {"text": 1, "gone": 1})
    assert await bench.commands.sweep() == []
    assert await redis.zcard(keys.commands_open()) == 0


@pytest.mark.parametrize("what", [what for what in BROKEN if what not in ("a measurement", "another channel")])
async def test_a_broken_one_is_shown_and_cancelled_with_a_clear_refusal(bench: Workbench, what: str) -> None:
    await put(bench, "cmd_broken", BROKEN[what])
    await bench.plane.redis.lpush(bench.plane.keys.command_list("channel_1001"), "cmd_broken")
    for ask in (bench.commands.get("cmd_broken"), bench.commands.cancel("cmd_broken")):
        with pytest.raises(CommandBroken) as caught:
            await ask
        assert "cmd:cmd_broken" in caught.value.message and caught.value.hint
    sent = await bench.send("a", "40001", 5)
    assert [command.id for command in await bench.commands.list("channel_1001")] == [sent.id]
    assert await bench.plane.redis.llen(bench.plane.keys.command_list("channel_1001")) == 2, "kept, not forgotten"


async def test_a_foreign_command_that_waits_can_be_cancelled(bench: Workbench) -> None:
    await put(bench, "cmd_foreign", {**FOREIGN, "created_at": str(now_ms())})
    assert (await bench.commands.cancel("cmd_foreign", "ann")).status is CommandStatus.CANCELLED
    assert await bench.store.waiting("1001") == 0
    assert not await bench.runner.run_next(CHANNEL, bench.device)


async def test_broken_effects_and_outcomes_are_passed_over(bench: Workbench) -> None:
    redis, keys = bench.plane.redis, bench.plane.keys
    await redis.hset(keys.command_effects(), mapping={"x": "rubbish", "y": "nowhere 1 2", "z": "comsrv:1:a:1 1 never"})
    await redis.hset(keys.channel_outcomes("1001"), mapping={"a:40001": "{", "rubbish": "1"})
    await redis.hset(keys.commands_owed(), mapping={"comsrv:1001:c:30002": "rubbish", "x": "1 0 y {}"})
    assert await bench.commands.sweep() == [] and await bench.commands.owed() == []
    await bench.runner.settle(CHANNEL, bench.device)
    command = await bench.carry_out("a", "40001", 5)
    assert command.status is CommandStatus.SUCCESS
