"""Commands in Redis: which transitions there are, in which order, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.lifetimes import lives
from tests.servers import Cluster, Server
from tradewind.clock import FakeClock
from tradewind.errors import Conflict, Overloaded
from tradewind.points.command_record import (
    Command,
    CommandConflict,
    CommandNotFound,
    CommandStatus,
    Outcome,
    Result,
    new_command_id,
)
from tradewind.points.command_store import KEEP_MS, MAX_WAITING, OVERRUN_MS, CommandStore, Effect
from tradewind.points.owed import owed_text
from tradewind.points.plane import PointPlane
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings, Settings

DONE = Outcome(CommandStatus.SUCCESS, Result.DONE)
ADDRESS = "comsrv:1001:a:40001"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(link: Link, key_prefix: str, clock: FakeClock) -> AsyncIterator[CommandStore]:
    plane = PointPlane(link, Settings(key_prefix=key_prefix), clock)
    yield CommandStore(plane)
    await plane.close()


async def put(
    store: CommandStore,
    value: str = "55.5",
    *,
    address: str = ADDRESS,
    model: tuple[str, str] = ("channel_1001", "a_40001"),
    who: str = "ann",
    key: str = "",
    sha: str = "x",
    expiry_ms: int = 30_000,
    must_be_selected: bool = False,
) -> str:
    record = {
        "model_name": model[0], "field_name": model[1], "value": value, "message": "", "source": "api_request",
        "address": address, "reason": "test", "who": who, "timeout_ms": 10_000, "key": key,
    }  # fmt: skip
    command_id, _ = await store.submit(
        new_command_id(), record, expiry_ms=expiry_ms, sha=sha, must_be_selected=must_be_selected
    )
    return command_id


async def take(store: CommandStore, channel: str = "1001", owner: str = "me") -> Command:
    command = await store.take(channel, owner)
    assert command is not None
    return command


async def left(store: CommandStore) -> tuple[int, int, int]:
    """Open commands, commands in the queue, channels at work."""
    keys, redis = store.plane.keys, store.plane.redis
    return (
        await redis.zcard(keys.commands_open()),
        await redis.llen(keys.channel_todo("1001")),
        await redis.exists(keys.channel_doing("1001")),
    )


async def test_the_record_is_the_seeds(store: CommandStore, clock: FakeClock) -> None:
    command_id = await put(store, "1600.0", model=("power_calc", "max_power"))
    raw = await store.plane.redis.hgetall(store.plane.keys.command(command_id))
    found = {name.decode(): value.decode() for name, value in raw.items()}
    assert found["id"] == command_id and command_id.startswith("cmd_") and len(command_id) == 40
    seed = {
        "model_name": "power_calc", "field_name": "max_power", "value": "1600.0", "status": "pending",
        "created_at": str(clock.ms), "updated_at": str(clock.ms), "message": "", "source": "api_request",
    }  # fmt: skip
    assert {name: found[name] for name in seed} == seed
    await lives(store.plane.redis, store.plane.keys.command(command_id), KEEP_MS / 1000)
    assert await store.plane.redis.lrange(store.plane.keys.command_list("power_calc"), 0, -1) == [command_id.encode()]


async def test_commands_of_a_channel_are_taken_in_order_and_one_at_a_time(store: CommandStore) -> None:
    ids = [await put(store, f"{number}.0") for number in range(3)]
    assert await store.waiting("1001") == 3
    for command_id in ids:
        command = await take(store)
        assert (command.id, command.status, command.owner) == (command_id, CommandStatus.EXECUTING, "me")
        assert await store.take("1001", "me") is None, "the first has not ended"
        await store.finish(command, DONE)
    assert await store.take("1001", "me") is None
    assert await left(store) == (0, 0, 0)
    assert [c.status for c in await store.of_model("channel_1001")] == [CommandStatus.SUCCESS] * 3


async def test_tokens_grow(store: CommandStore) -> None:
    await put(store)
    first = await take(store)
    await store.finish(first, DONE)
    await put(store)
    assert (await take(store)).token > first.token > 0


async def test_an_expired_command_ends_when_it_is_met(store: CommandStore, clock: FakeClock) -> None:
    old = await put(store, expiry_ms=1000)
    young = await put(store, expiry_ms=5000)
    clock.advance(1)
    assert (await take(store)).id == young
    ended = await store.get(old)
    assert (ended.status, ended.result) == (CommandStatus.TIMEOUT, Result.EXPIRED)


async def test_the_sweeper_ends_what_waits_too_long(store: CommandStore, clock: FakeClock) -> None:
    command_id = await put(store, expiry_ms=1000)
    assert await store.sweep() == []
    clock.advance(1)
    assert await store.sweep() == [command_id]
    assert (await store.get(command_id)).result is Result.EXPIRED
    assert await left(store) == (0, 0, 0)


async def test_the_sweeper_ends_what_nobody_ended(store: CommandStore, clock: FakeClock) -> None:
    await put(store)
    command = await take(store)
    clock.advance((10_000 + OVERRUN_MS) / 1000 - 0.001)
    assert await store.sweep() == []
    clock.advance(0.001)
    assert await store.sweep() == [command.id]
    ended = await store.get(command.id)
    assert (ended.status, ended.result) == (CommandStatus.TIMEOUT, Result.LOST)
    assert await left(store) == (0, 0, 0)


async def test_a_late_answer_is_written_down_but_changes_nothing(store: CommandStore, clock: FakeClock) -> None:
    await put(store)
    command = await take(store)
    clock.advance(20)
    await store.sweep()
    with pytest.raises(CommandConflict):
        await store.finish(command, DONE)
    assert (await store.get(command.id)).status is CommandStatus.TIMEOUT
    shown = [effect.value for effect in await store.effects(now_ms=clock.ms + 60_000)]
    assert shown == [None], "the board does not show it, but that the point is uncertain"
    late = (await store.journal(1))[0]
    assert (late["id"], late["result"]) == (command.id, "late") and "success" in late["message"]


async def test_a_new_owner_ends_what_the_lost_one_left_and_never_repeats_it(store: CommandStore) -> None:
    first, second = await put(store), await put(store)
    assert (await take(store, owner="old")).id == first
    command = await take(store, owner="new")
    assert command.id == second
    ended = await store.get(first)
    assert (ended.status, ended.result) == (CommandStatus.TIMEOUT, Result.LOST)
    assert "unknown" in ended.message


async def test_a_stale_token_cannot_end_a_command(store: CommandStore) -> None:
    await put(store)
    old = await take(store, owner="old")
    await put(store)
    await take(store, owner="new")
    with pytest.raises(CommandConflict):
        await store.finish(old, DONE)


async def test_taking_and_ending_may_be_repeated_after_a_lost_reply(
    store: CommandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.points.command_store.short_random", lambda: "same")
    await put(store)
    await put(store)
    first = await take(store)
    assert (await take(store)).id == first.id, "the same call again brings the same command"
    effect = await store.finish(first, DONE)
    assert await store.finish(first, DONE) == effect
    entries = [entry for entry in await store.journal() if entry["id"] == first.id]
    assert [entry["to"] for entry in reversed(entries)] == ["pending", "executing", "success"]


async def test_only_a_waiting_command_can_be_cancelled(store: CommandStore) -> None:
    command_id = await put(store)
    await store.cancel(command_id, "bob", "wrong value")
    await store.cancel(command_id, "bob")
    found = await store.get(command_id)
    assert (found.status, found.message) == (CommandStatus.CANCELLED, "cancelled by bob: wrong value")
    assert (await store.journal(1))[0]["who"] == "bob"
    assert await left(store) == (0, 0, 0)
    await put(store)
    running = await take(store)
    with pytest.raises(CommandConflict):
        await store.cancel(running.id)
    await store.finish(running, DONE)
    with pytest.raises(CommandConflict):
        await store.cancel(running.id)
    with pytest.raises(CommandNotFound):
        await store.cancel("cmd_none")


async def test_cancel_and_take_at_once_have_one_winner(store: CommandStore) -> None:
    for _ in range(20):
        command_id = await put(store)
        taken, cancelled = await asyncio.gather(
            store.take("1001", "me"), store.cancel(command_id), return_exceptions=True
        )
        assert (taken is None) == (cancelled is None)
        if isinstance(taken, Command):
            await store.finish(taken, DONE)


async def test_a_key_brings_the_same_command_again(store: CommandStore) -> None:
    first = await put(store, key="k", sha="a")
    assert await put(store, key="k", sha="a") == first
    assert await store.waiting("1001") == 1
    with pytest.raises(Conflict) as caught:
        await put(store, key="k", sha="b")
    assert caught.value.code == "idempotency_mismatch"
    assert (await store.known("k", "a")) == await store.get(first)
    assert await store.known("other", "a") is None


async def test_a_queue_is_bounded(store: CommandStore) -> None:
    await store.plane.redis.lpush(store.plane.keys.channel_todo("1001"), *(f"cmd_{n}" for n in range(MAX_WAITING)))
    with pytest.raises(Overloaded):
        await put(store)
    assert await store.of_model("channel_1001") == []
    assert await store.take("1001", "me") is None, "100 at a time of what has no record"
    assert await store.waiting("1001") == MAX_WAITING - 100


async def test_the_list_has_the_last_thousand_and_loses_expired_records(store: CommandStore) -> None:
    key = store.plane.keys.command_list("channel_1001")
    await store.plane.redis.rpush(key, *(f"cmd_{n}" for n in range(1200)))
    kept = await put(store)
    assert await store.plane.redis.llen(key) == 1000
    assert [command.id for command in await store.of_model("channel_1001", 50)] == [kept]
    assert await store.plane.redis.llen(key) == 951, "the 49 that were looked at are gone"


async def test_success_of_a_models_control_is_written_as_the_seed_says(store: CommandStore, clock: FakeClock) -> None:
    await put(store, "1500.0", model=("power_calc", "max_power"))
    pubsub = store.plane.redis.pubsub()
    channel = f"{store.plane.keys.channel_prefix}modsrv:power_calc:control"
    await pubsub.subscribe(channel)
    await pubsub.get_message(timeout=5)
    await store.finish(await take(store), DONE)
    stored = await store.plane.redis.hget(store.plane.keys.model_values("power_calc", "control"), "max_power")
    assert stored.decode() == f"1500.0:{clock.ms}:api_request"
    message: Any = await pubsub.get_message(ignore_subscribe_messages=True, timeout=5)
    assert message["data"] == b"max_power:1500.0"
    await pubsub.aclose()


@pytest.mark.parametrize("result", [Result.REFUSED, Result.DIFFERS])
async def test_a_failure_changes_no_value(store: CommandStore, clock: FakeClock, result: Result) -> None:
    await put(store, model=("power_calc", "max_power"))
    failed = Outcome(CommandStatus.FAILED, result, "no", 12.5)
    effect = await store.finish(await take(store), failed)
    found = await store.effects(now_ms=clock.ms + 60_000)
    if result is Result.DIFFERS:
        assert effect is not None and effect.value is None and found == [effect], "the point is uncertain"
    else:
        assert effect is None and found == []
    assert await store.plane.redis.exists(store.plane.keys.model_values("power_calc", "control")) == 0
    assert (await store.of_model("power_calc"))[0].actual == 12.5


async def test_what_the_board_must_show_is_kept_until_it_shows_it(store: CommandStore, clock: FakeClock) -> None:
    """Whoever would have shown it may be killed in between."""

    async def pending() -> list[Effect]:
        return await store.effects(now_ms=clock.ms + 60_000)

    first = await put(store)
    done = await store.finish(await take(store), DONE)
    second = await put(store, "7.0", address="comsrv:1001:a:40002")
    unsure = await store.finish(await take(store), Outcome(CommandStatus.TIMEOUT, Result.UNKNOWN, "no answer"))
    assert done is not None and unsure is not None
    assert {effect.command_id: effect.value for effect in await pending()} == {first: 55.5, second: None}
    await store.settled([done, unsure])
    assert await pending() == []
    clock.advance(1)
    assert await store.read_back(unsure.address, first, 6.5) is None, "it is another one that left it unknown"
    known = await store.read_back(unsure.address, second, 6.5)
    assert known is not None and known.value == 6.5 and await pending() == [known]
    await store.settled([unsure])
    assert await pending() == [known], "something newer has come in its place"
    await store.settled([known])
    assert await pending() == [] and await store.unsure("1001") == {}


@pytest.mark.parametrize("value", [0.0, None])
async def test_what_is_owed_is_released_or_dismissed(
    store: CommandStore, clock: FakeClock, value: float | None
) -> None:
    channel = ChannelSpec("1001", points=(PointSpec(Kind.CONTROL, "30001", control_type="pulse", pulse_ms=50),))
    command_id = await put(store, "1.0", address="comsrv:1001:c:30001", model=("channel_1001", "c_30001"))
    text = owed_text(channel, channel.points[0], 0.0, 0.0, clock.ms)
    await store.owe(await take(store), text, 1000)
    (owed,) = await store.owed("1001")
    assert (owed.command_id, owed.value, await store.owed("1002")) == (command_id, 0.0, [])
    shown = await store.owed_done(owed, value=value, message="so", who="ann")
    assert await store.owed() == [] and await store.owed_done(owed, value=value) is None
    journal = (await store.journal(1))[0]
    assert (journal["to"], journal["who"]) == ("dismissed" if value is None else "released", "ann")
    pending = await store.effects(now_ms=clock.ms + 60_000)
    assert pending == ([] if value is None else [shown])
    assert await store.plane.redis.xlen(store.plane.keys.faults()) == 0, "no alarm was raised, so none is cleared"


async def test_a_selection_belongs_to_one_owner_and_one_value(store: CommandStore, clock: FakeClock) -> None:
    with pytest.raises(Conflict) as caught:
        await put(store, must_be_selected=True)
    assert caught.value.code == "not_selected"
    assert await store.select(ADDRESS, "55.5", "ann", 30_000) == clock.ms + 30_000
    with pytest.raises(Conflict):
        await store.select(ADDRESS, "55.5", "bob", 30_000)
    with pytest.raises(Conflict) as caught:
        await put(store, who="bob")
    assert caught.value.code == "selected_by_other"
    with pytest.raises(Conflict) as caught:
        await put(store, "60.0", must_be_selected=True)
    assert caught.value.code == "selected_other_value"
    command_id = await put(store, must_be_selected=True)
    assert (await store.get(command_id)).select
    with pytest.raises(Conflict):
        await put(store, must_be_selected=True)


async def test_a_selection_ends_by_itself_or_is_released(store: CommandStore, clock: FakeClock) -> None:
    await store.select(ADDRESS, "55.5", "ann", 1000)
    clock.advance(1)
    with pytest.raises(Conflict):
        await put(store, must_be_selected=True)
    await store.select(ADDRESS, "1.0", "bob", 1000)
    with pytest.raises(Conflict):
        await store.release(ADDRESS, "ann")
    assert await store.release(ADDRESS, "bob") is True
    assert await store.release(ADDRESS, "bob") is False
    await put(store, who="ann")


async def test_every_transition_is_in_the_journal_with_who_and_why(store: CommandStore) -> None:
    await put(store)
    await store.finish(await take(store), DONE)
    entries = list(reversed(await store.journal()))
    assert [(entry["from"], entry["to"]) for entry in entries] == [
        ("", "pending"), ("pending", "executing"), ("executing", "success"),
    ]  # fmt: skip
    assert all((e["who"], e["reason"], e["address"], e["value"]) == ("ann", "test", ADDRESS, "55.5") for e in entries)
    assert entries[-1]["result"] == "done"


async def test_the_last_commands_of_all_models(store: CommandStore) -> None:
    first = await put(store)
    second = await put(store, address="comsrv:2:c:1", model=("channel_2", "c_1"), value="1")
    assert [command.id for command in await store.recent()] == [second, first]


async def test_terminal_states_are_final(any_redis: Server | Cluster, key_prefix: str) -> None:
    """Eight owners and a sweeper race for the same commands: each has one end, and one token ends it."""
    link = await open_link(RedisSettings(url=any_redis.url))
    store = CommandStore(PointPlane(link, Settings(key_prefix=key_prefix)))
    ids = [await put(store) for _ in range(40)]
    ends: list[str] = []

    async def work(owner: str) -> None:
        for _ in range(40):
            command = await store.take("1001", owner)
            if command is not None:
                try:
                    await store.finish(command, DONE)
                    ends.append(command.id)
                except CommandConflict:
                    pass

    await asyncio.gather(*(work(f"owner{n}") for n in range(8)))
    found = await store.read(ids)
    assert {command.status for command in found if command} <= {CommandStatus.SUCCESS, CommandStatus.TIMEOUT}
    assert sorted(ends) == sorted(c.id for c in found if c and c.status is CommandStatus.SUCCESS)
    journal = await store.journal(1000)
    for command_id in ids:
        final = [
            e for e in journal if e["id"] == command_id and e["to"] in ("success", "timeout") and e["result"] != "late"
        ]
        assert len(final) == 1
    await link.close()
