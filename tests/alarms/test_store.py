"""Raising, clearing and operators' actions, on every Redis; after each the indexes fit the record."""

from __future__ import annotations

import pytest

from tests.alarms.alarm_room import AlarmRoom, hot
from tradewind import codec
from tradewind.alarms.record import AlarmNotFound, NewAlarm, new_alarm_id
from tradewind.alarms.store import AlarmConflict
from tradewind.alarms.transitions import NEXT, Action, Status, allowed
from tradewind.errors import Invalid

SEED_ID = "alarm_550e8400-e29b-41d4-a716-446655440000"


async def test_every_example_of_the_seed(room: AlarmRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.alarms.store.new_alarm_id", lambda: SEED_ID)
    raised = await room.store.raise_(
        NewAlarm(
            rule_id="rule_1",
            title="高温告警",
            description="设备温度超过75°C阈值",
            level="Critical",
            category="temperature",
            tags=["temperature", "device_001"],
            source="comsrv:1001:m:10001",
            threshold="75.0",
            actual="78.5",
            data={"unit": "°C"},
        )
    )
    assert (raised.id, raised.is_new) == (SEED_ID, True)
    record = await room.record(SEED_ID)
    seed = {
        "id": SEED_ID,
        "title": "高温告警",
        "description": "设备温度超过75°C阈值",
        "level": "Critical",
        "status": "New",
        "category": "temperature",
        "priority": "5",
        "tags": '["temperature","device_001"]',
        "source_point": "comsrv:1001:m:10001",
        "threshold_value": "75.0",
        "actual_value": "78.5",
        "created_at": "2024-01-01T10:00:00Z",
        "updated_at": "2024-01-01T10:00:00Z",
        "data": '{"unit":"°C"}',
    }
    assert {name: record.get(name) for name in seed} == seed
    nulls = ("acknowledged_by", "acknowledged_at", "resolved_at")
    assert not any(name in record for name in nulls)  # null is absent in a hash, null in JSON
    shown = (await room.store.get(SEED_ID)).to_json()
    assert [shown[name] for name in nulls] == [None, None, None]
    assert (shown["tags"], shown["data"], shown["priority"]) == (["temperature", "device_001"], {"unit": "°C"}, 5)
    assert (shown["count"], shown["rule_id"], shown["colour"]) == (1, "rule_1", "red")
    keys, redis = room.keys, room.redis
    for name in ("category:temperature", "level:Critical", "status:New", "date:2024-01-01"):
        assert await redis.smembers(f"{keys.p}alarm:{name}") == {SEED_ID.encode()}
    assert list(await redis.hgetall(f"{keys.p}alarm:buckets:2024010110")) == [SEED_ID.encode()]
    line = f'{{"id":"{SEED_ID}","level":"Critical","created_at":"2024-01-01T10:00:00Z"}}'
    assert await redis.hgetall(f"{keys.p}alarm:realtime") == {f"temperature:{SEED_ID}".encode(): line.encode()}
    assert await redis.ttl(keys.alarm(SEED_ID)) == -1
    await room.audit()


async def test_raised_again_it_counts_and_only_a_higher_level_moves_it(room: AlarmRoom) -> None:
    first = await room.store.raise_(hot(actual="80", level="Medium"))
    room.advance(1.5)
    again = await room.store.raise_(hot(actual="81", level="Info"))
    assert (again.id, again.is_new) == (first.id, False)
    alarm = await room.store.get(first.id)
    assert (alarm.count, alarm.actual_value, alarm.level, alarm.version) == (2, "81", "Medium", 1)
    assert alarm.last_seen - alarm.first_seen == 1500
    await room.store.raise_(hot(actual="99", level="critical"))
    alarm = await room.store.get(first.id)
    assert (alarm.count, alarm.level, alarm.priority, alarm.version) == (3, "Critical", 5, 2)
    assert await room.events(first.id) == ["raised", "level"]
    await room.audit()
    assert await room.store.clear("rule_1", "comsrv:1001:m:10001", "20") == first.id
    after = await room.store.raise_(hot())
    assert after.is_new and after.id != first.id
    assert len(await room.audit()) == 2


async def test_a_clock_that_is_set_back_does_no_harm(room: AlarmRoom) -> None:
    first = await room.store.raise_(hot())
    room.advance(-7200)
    await room.store.raise_(hot())
    await room.store.acknowledge(first.id, "li")
    await room.store.resolve(first.id, "li")
    alarm = await room.store.get(first.id)
    assert alarm.last_seen == alarm.first_seen
    figures = await room.redis.hgetall(room.keys.alarm_figures())
    assert (figures[b"ack_ms"], figures[b"resolve_ms"]) == (b"0", b"0")
    room.advance(40 * 86_400)
    await room.tick()
    assert await room.audit() == {}


ROUTES: dict[Status, list[Action]] = {
    Status.NEW: [],
    Status.ACKNOWLEDGED: [Action.ACKNOWLEDGE],
    Status.ESCALATED: [Action.ESCALATE],
    Status.SUPPRESSED: [Action.SUPPRESS],
    Status.RESOLVED: [Action.RESOLVE],
    Status.CLOSED: [Action.RESOLVE, Action.CLOSE],
}
LEADS_TO = {
    Action.ACKNOWLEDGE: Status.ACKNOWLEDGED,
    Action.RESOLVE: Status.RESOLVED,
    Action.SUPPRESS: Status.SUPPRESSED,
    Action.SHELVE: Status.SUPPRESSED,
    Action.UNSHELVE: Status.NEW,
    Action.ESCALATE: Status.ESCALATED,
    Action.CLOSE: Status.CLOSED,
}


@pytest.mark.parametrize("status", list(Status))
async def test_the_transitions_are_those_of_the_table(room: AlarmRoom, status: Status) -> None:
    for action in Action:
        raised = await room.store.raise_(hot(f"comsrv:1:m:{action.value}"))
        for step in ROUTES[status]:
            await room.store.act(step, [raised.id], "li")
        assert await room.status(raised.id) == status
        before = await room.record(raised.id)
        acted = (await room.store.act(action, [raised.id], "wang", "why", duration_s=60))[0]
        can = action in allowed(status)
        assert (acted.error is None) == can, f"{action} in {status}"
        if not can:
            assert isinstance(acted.error, AlarmConflict)
            assert acted.error.allowed == allowed(status)
            assert await room.record(raised.id) == before
        elif acted.is_changed:
            assert acted.status == LEADS_TO[action] or (status, action) == (Status.RESOLVED, Action.ACKNOWLEDGE)
            assert acted.status == status or Status(acted.status) in NEXT[status]
            entry = (await room.store.history(raised.id))[-1]
            assert (entry.from_status, entry.to_status, entry.who, entry.note) == (status, acted.status, "wang", "why")
            assert entry.version == acted.version == int(before["version"]) + 1
            assert (await room.store.get(raised.id)).note == "why"
        else:
            assert await room.record(raised.id) == before
        if can and action is not Action.SHELVE:
            again = (await room.store.act(action, [raised.id], "zhao"))[0]
            assert (again.error, again.is_changed, again.version) == (None, False, acted.version)
    await room.audit()


async def test_a_resolved_alarm_may_still_be_acknowledged(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot())
    await room.store.clear("rule_1", "comsrv:1001:m:10001")
    room.advance(5)
    acted = await room.store.acknowledge(raised.id, "li", "seen")
    alarm = await room.store.get(raised.id)
    assert (acted.status, acted.is_changed) == ("Resolved", True)
    assert (alarm.acknowledged_by, alarm.acknowledged_at) == ("li", "2024-01-01T10:00:05Z")
    await room.audit()


async def test_a_version_that_has_moved_is_refused(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot())
    await room.store.acknowledge(raised.id, "li", version=1)
    with pytest.raises(AlarmConflict, match="version 2") as caught:
        await room.store.resolve(raised.id, "wang", version=1)
    assert caught.value.code == "version_moved"
    assert (await room.store.acknowledge(raised.id, "li", version=1)).is_changed is False  # a repeat is no conflict
    await room.store.resolve(raised.id, "wang", version=2)


async def test_many_at_once_each_with_its_own_outcome(room: AlarmRoom) -> None:
    raised = await room.store.raise_many([hot(f"comsrv:1:m:{n}") for n in range(450)])
    await room.store.resolve(raised[7].id, "li")
    unknown = new_alarm_id()
    acted = await room.store.act(Action.SUPPRESS, [*(r.id for r in raised), unknown, "../x"], "li", "works")
    refused = {a.id: type(a.error) for a in acted if a.error is not None}
    assert refused == {raised[7].id: AlarmConflict, unknown: AlarmNotFound, "../x": AlarmNotFound}
    assert sum(a.is_changed for a in acted) == 449
    await room.audit()


async def test_a_lost_reply_repeats_nothing(room: AlarmRoom) -> None:
    """The script runs twice, as it does when the connection breaks before the reply."""
    store, run = room.store, room.store._scripts.run

    async def twice(name: str, keys: list[str], args: list[str]) -> object:
        first = await run(name, keys, args)
        assert await run(name, keys, args) == first
        return first

    store._scripts.run = twice  # type: ignore[method-assign,assignment]
    raised = await store.raise_(hot())
    await store.raise_(hot())
    assert (await store.get(raised.id)).count == 2
    assert (await store.shelve(raised.id, "li", duration_s=60)).version == 2
    await store.resolve(raised.id, "li")
    assert await room.events(raised.id) == ["raised", "shelved", "resolved"]
    assert len(await room.audit()) == 1


async def test_a_repeat_after_the_alarm_has_ended_makes_no_second_one(room: AlarmRoom) -> None:
    alarm = codec.encode({"id": new_alarm_id(), "rule_id": "r", "source": "s:1", "level": "Low", "title": "t"})
    keys = [room.keys.alarm_open()]
    first = await room.store._run("alarm_raise", keys, [alarm])
    await room.store.clear("r", "s:1")
    assert await room.store._run("alarm_raise", keys, [alarm]) == first
    assert len(await room.audit()) == 1


async def test_a_latched_alarm_waits_for_an_operator(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot(latched=True))
    for _ in range(2):
        assert await room.store.clear("rule_1", "comsrv:1001:m:10001", "20") == raised.id
    alarm = await room.store.get(raised.id)
    assert (alarm.status, alarm.cleared_at, alarm.actual_value) == ("New", "2024-01-01T10:00:00Z", "20")
    await room.store.raise_(hot())
    assert (await room.store.get(raised.id)).cleared_at is None
    await room.store.resolve(raised.id, "li")
    assert await room.events(raised.id) == ["raised", "cleared", "raised", "resolved"]
    await room.audit()


async def test_alarms_of_a_rule_that_is_gone_are_marked_and_resolved(room: AlarmRoom) -> None:
    one = await room.store.raise_(hot(data={"a": [], "b": {"c": 1}}))
    two = await room.store.raise_(hot("comsrv:1001:m:2"))
    other = await room.store.raise_(hot(rule_id="rule_2"))
    assert await room.store.end_rule("rule_1", "deleted") == 2
    assert await room.store.end_rule("rule_1", "deleted") == 0
    assert (await room.store.get(one.id)).data == {"rule_state": "deleted", "a": [], "b": {"c": 1}}
    assert (await room.store.get(two.id)).data == {"rule_state": "deleted"}
    assert (await room.store.history(one.id))[-1].note == "rule deleted"
    assert [await room.status(i) for i in (one.id, two.id, other.id)] == ["Resolved", "Resolved", "New"]
    await room.audit()


async def test_everything_wrong_is_said_at_once_and_nothing_is_raised(room: AlarmRoom) -> None:
    bad = NewAlarm(rule_id="a b", source="x|y", title="", level="Dire", category="a:b", tags=["x y"], escalate_ms=-1)
    with pytest.raises(Invalid) as caught:
        await room.store.raise_many([hot(), bad])
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {f"[1].{f}" for f in ("rule_id", "source", "title", "level", "category", "tags", "escalate_ms")}
    assert await room.audit() == {}
    for seconds in (0, -1, 86_401, float("nan")):
        with pytest.raises(Invalid, match="cannot be shelved"):
            await room.store.shelve(new_alarm_id(), "li", duration_s=seconds)
    with pytest.raises(AlarmNotFound):
        await room.store.get("realtime")


@pytest.mark.parametrize(
    ("word", "level"), [("Major", "High"), ("MINOR", "Medium"), ("warning", "Low"), ("5", "Critical")]
)
async def test_other_names_of_levels(room: AlarmRoom, word: str, level: str) -> None:
    raised = await room.store.raise_(hot(level=word))
    assert (await room.store.get(raised.id)).level == level
