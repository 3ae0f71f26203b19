"""The scripts behind a round: repeated after a lost reply they do nothing twice; refused when they must not write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.rules.rule_room import RuleRoom, rule
from tradewind.clock import FakeClock
from tradewind.rules.effects import told
from tradewind.rules.history_record import Checked, Context, Execution, encode, new_execution_id
from tradewind.rules.round import Outcome, RoundStore
from tradewind.rules.script_context import rule_context

pack = msgspec.msgpack.encode
ALARM = {"source": "comsrv:1001:m:1", "level": "High", "title": "t", "rule_id": "hot"}


def raised(alarm_id: str = "alarm_1", **more: Any) -> bytes:
    return pack(("raise", "hot", {**ALARM, "id": alarm_id, **more}))


def execution(timestamp: int, **more: Any) -> Execution:
    given: dict[str, Any] = {
        "id": new_execution_id(), "rule_id": "hot", "timestamp": timestamp, "triggered": True, "success": True,
        "conditions_result": {"t": Checked(True, 1.0)}, "actions_executed": [], "duration_ms": 3, "error_message": None,
        "context": Context("x", 1.0),
    }  # fmt: skip
    return Execution(**{**given, **more})


@pytest.fixture
async def led(room: RuleRoom) -> AsyncIterator[RuleRoom]:
    """`me` leads, in term 1, with one rule of version 1; the cursor that saving has made is left out."""
    await room.store.put(rule())
    await room.plane.redis.delete(room.keys.feed_cursors())
    await room.plane.redis.set(room.keys.rules_version(), "1")
    await room.plane.redis.set(room.keys.rules_leader(), "me")
    await room.plane.redis.set(room.keys.rules_epoch(), "1")
    yield room


def rounds(room: RuleRoom, engine_id: str = "me", epoch: int = 1, version: str = "1", steps: int = 10) -> RoundStore:
    return RoundStore(room.plane, engine_id, epoch, version, steps)


async def test_a_round_whose_reply_was_lost_is_not_done_again(led: RuleRoom) -> None:
    """Also one without a cursor: timers have none."""
    store = rounds(led)
    steps = [raised(), pack(told(execution(led.clock.now_ms()))), pack(("act", "hot", "{}"))]
    sent: list[Any] = []
    run = store._scripts.run

    async def twice(*call: Any) -> Any:
        sent.append(await run(*call))
        return await run(*call)

    store._scripts.run = twice  # type: ignore[method-assign]
    store.begin(steps, {"hot": b"state"}, ())
    assert await store.finished() is Outcome.STORED and sent == [[1, 0]]
    assert [alarm["count"] for alarm in await led.alarms()] == ["1"]
    await led.told("hot", 1)
    assert await led.plane.redis.xlen(led.keys.rule_outbox()) == 1
    assert (await led.plane.redis.hgetall(led.keys.rule_states())) == {b"hot": b"state"}
    store.begin([], {}, ("rulesrv", "5-0"), is_tick=True)
    assert await store.finished() is Outcome.STORED
    assert await led.plane.redis.hget(led.keys.feed_cursors(), "rulesrv") == b"5-0"


async def test_the_cursor_waits_for_the_tick(led: RuleRoom) -> None:
    """An edge is stored without it: only with all states may it move."""
    store = rounds(led)
    assert not store.begin([], {}, ("rulesrv", "5-0"))
    assert store.begin([raised()], {"hot": b"x"}, ("rulesrv", "6-0"))
    assert await store.finished() is Outcome.STORED
    assert await led.plane.redis.hget(led.keys.feed_cursors(), "rulesrv") is None
    assert store.begin([], {}, ("rulesrv", "7-0"), is_tick=True)
    await store.finished()
    assert await led.plane.redis.hget(led.keys.feed_cursors(), "rulesrv") == b"7-0"
    assert not store.begin([], {}, (), is_tick=True)


@pytest.mark.parametrize(
    ("engine_id", "epoch", "version", "outcome"),
    [("other", 1, "1", Outcome.DEPOSED), ("me", 2, "1", Outcome.DEPOSED), ("me", 1, "7", Outcome.OUTDATED)],
)
async def test_nothing_is_stored_by_one_who_does_not_lead_or_knows_old_rules(
    led: RuleRoom, engine_id: str, epoch: int, version: str, outcome: Outcome
) -> None:
    store = rounds(led, engine_id, epoch, version)
    store.begin([raised()], {"hot": b"x"}, ("rulesrv", "5-0"))
    assert await store.finished() is outcome
    assert await led.alarms() == [] and await led.plane.redis.hlen(led.keys.feed_cursors()) == 0


async def test_many_steps_are_put_aside_with_the_round_and_done_in_order(led: RuleRoom) -> None:
    store = rounds(led, steps=2)
    clear = pack(("clear", "hot", ALARM["source"], "1.0"))
    steps = [raised(), clear, raised("alarm_2"), clear, raised("alarm_3")]
    store.begin(steps, {"hot": b"x"}, ("rulesrv", "5-0"))
    assert await store.finished() is Outcome.STORED
    found = {alarm["id"]: alarm["status"] for alarm in await led.alarms()}
    assert found == {"alarm_1": "Resolved", "alarm_2": "Resolved", "alarm_3": "New"}
    assert not await led.plane.redis.exists(led.keys.rule_pending())


async def test_an_execution_is_written_down_once(led: RuleRoom) -> None:
    redis, keys = led.plane.redis, led.keys
    entry = await redis.xadd(keys.rule_outbox(), {"rule_id": "hot", "body": "{}"})
    done = execution(led.clock.now_ms(), success=False)
    args = [rule_context(keys, led.settings), led.clock.now_arg(), entry.decode(), "hot", encode(done), 1, 1, 3]
    store = rounds(led)
    assert await store._scripts.run("rule_done", [keys.rule_outbox()], args) == 1
    assert await store._scripts.run("rule_done", [keys.rule_outbox()], args) == 0
    await led.told("hot", 1)
    figures = (await led.history.figures(["hot"]))["hot"]
    assert (figures.executions, figures.failed, figures.ms) == (1, 1, 3)


async def test_a_removed_rule_gets_no_history(led: RuleRoom) -> None:
    await led.store.remove("hot")
    store = rounds(led, version="2")
    store.begin([pack(told(execution(led.clock.now_ms())))], {}, ())
    assert await store.finished() is Outcome.STORED
    assert not await led.plane.redis.exists(led.keys.rule_history("hot"))
    assert not await led.plane.redis.exists(led.keys.rule_figures())


async def test_old_executions_go_as_new_ones_come(led: RuleRoom) -> None:
    assert isinstance(led.clock, FakeClock)
    store = rounds(led)
    for _ in range(3):
        store.begin([pack(told(execution(led.clock.ms)))], {}, ())
        assert await store.finished() is Outcome.STORED
        led.clock.advance(3 * 86_400)
    assert len(await led.told("hot", 3)) == 3
    store.begin([pack(told(execution(led.clock.ms)))], {}, ())
    await store.finished()
    assert len(await led.told("hot", 3)) == 3, "the first one is nine days old"
