"""Rules and groups in Redis: the seed's keys and JSON, versions, checks at the door, what goes with a rule."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.rules.rule_room import RuleRoom, rule, seed_rule
from tradewind.alarms.record import NewAlarm
from tradewind.alarms.store import AlarmStore
from tradewind.clock import FakeClock
from tradewind.errors import Conflict, Invalid, NotFound, Unavailable
from tradewind.rules.definitions import plan
from tradewind.rules.history_record import Checked, Context, Execution, encode
from tradewind.rules.store import RuleStore

GROUP = {"id": "group_temperature", "name": "温度"}


def changes(version: str) -> int:
    """How often something was changed since the first change: numbers do not begin at 1, see rule_change.lua."""
    return int(version) % 1000


async def raw(room: RuleRoom, key: str) -> Any:
    return await room.plane.redis.get(key)


async def members(room: RuleRoom, key: str) -> set[str]:
    return {name.decode() for name in await room.plane.redis.smembers(key)}


async def test_the_seed_example_stands_in_redis_in_its_own_words(room: RuleRoom) -> None:
    await room.store.put_group(GROUP)
    await room.store.put(seed_rule())
    text = (await raw(room, room.keys.rule("rule_temperature_monitor"))).decode()
    wanted = json.dumps({**seed_rule(), "version": 1}, ensure_ascii=False, separators=(",", ":"))
    assert text == wanted, "the seed's fields in its order, ours behind"
    assert await members(room, room.keys.rules()) == {"rule_temperature_monitor"}
    assert await members(room, room.keys.rule_groups()) == {"group_temperature"}
    assert await members(room, room.keys.rule_group_rules("group_temperature")) == {"rule_temperature_monitor"}
    group = json.loads(await raw(room, room.keys.rule_group("group_temperature")))
    assert group == {
        "id": "group_temperature",
        "name": "温度",
        "description": "",
        "created_at": "2024-01-01T10:00:00Z",
        "updated_at": "2024-01-01T10:00:00Z",
        "version": 1,
    }
    assert await room.plane.redis.ttl(room.keys.rule("rule_temperature_monitor")) == -1


async def test_a_put_counts_the_version_up_and_keeps_when_it_was_created(room: RuleRoom) -> None:
    first = await room.store.put(rule())
    assert isinstance(room.clock, FakeClock)
    room.clock.advance(1.5)
    second = await room.store.put(rule(limit=80))
    assert (first["version"], second["version"]) == (1, 2)
    assert second["created_at"] == "2024-01-01T10:00:00Z" and second["updated_at"] == "2024-01-01T10:00:01.500Z"
    assert await room.store.get("hot") == second
    third = await room.store.put(rule(limit=80))
    assert third == second, "nothing changed, so nothing was stored"


async def test_a_version_that_has_moved_is_refused(room: RuleRoom) -> None:
    await room.store.put(rule())
    await room.store.put(rule(limit=80, version=1))
    with pytest.raises(Conflict) as caught:
        await room.store.put(rule(limit=90, version=1))
    assert caught.value.code == "version_moved"
    assert (await room.store.get("hot"))["conditions"][0]["value"] == 80


async def test_one_of_two_edits_of_the_same_version_wins(room: RuleRoom) -> None:
    await room.store.put(rule())
    other = RuleRoom(room.link, room.settings.key_prefix, room.clock)
    edits = [room.store.put(rule(limit=80, version=1)), other.store.put(rule(limit=90, version=1))]
    found = await asyncio.gather(*edits, return_exceptions=True)
    await other.plane.close()
    assert sorted(type(one).__name__ for one in found) == ["Conflict", "dict"]
    assert (await room.store.get("hot"))["version"] == 2


async def test_edits_of_different_rules_never_collide(room: RuleRoom) -> None:
    stores = [RuleStore(room.link, room.keys, room.settings, room.clock) for _ in range(4)]
    await room.store.put_group({"id": "g"})
    made = await asyncio.gather(*(stores[i % 4].put(rule(f"r{i}", group_id="g"), is_new=True) for i in range(200)))
    assert {document["version"] for document in made} == {1}
    found = await asyncio.gather(
        *(stores[i % 4].put(rule(f"r{i}", limit=1, version=1)) for i in range(0, 200, 4)),
        *(stores[i % 4].disable(f"r{i}") for i in range(1, 200, 4)),
        *(stores[i % 4].remove(f"r{i}") for i in range(2, 200, 4)),
        *(store.load() for store in stores for _ in range(20)),
    )
    assert len(found) == 230
    now = await room.store.load()
    assert len(now.rules) == 150 and now.version == await room.store.version() and changes(now.version) == 351
    inside = [name for name, document in now.rules.items() if document["group_id"] == "g"]
    assert await members(room, room.keys.rule_group_rules("g")) == set(inside) and len(inside) == 100


async def test_of_edits_of_one_rule_without_a_version_none_is_refused(room: RuleRoom) -> None:
    stores = [RuleStore(room.link, room.keys, room.settings, room.clock) for _ in range(4)]
    made = await asyncio.gather(*(stores[i % 4].put(rule(limit=i)) for i in range(60)))
    assert sorted(document["version"] for document in made) == list(range(1, 61))
    last = max(made, key=lambda document: int(document["version"]))
    assert await room.store.get("hot") == last


async def test_of_edits_of_one_version_exactly_one_wins(room: RuleRoom) -> None:
    stores = [RuleStore(room.link, room.keys, room.settings, room.clock) for _ in range(4)]
    await room.store.put(rule())
    edits = (stores[i % 4].put(rule(limit=i, version=1)) for i in range(40))
    found = await asyncio.gather(*edits, return_exceptions=True)
    refused = [one for one in found if isinstance(one, Conflict)]
    assert len(refused) == 39 and {one.code for one in refused} == {"version_moved"}
    (won,) = (one for one in found if isinstance(one, dict))
    assert await room.store.get("hot") == won and won["version"] == 2


async def test_a_change_that_is_stuck_for_too_long_says_so(room: RuleRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_late(*_: Any) -> bool:
        return False

    monkeypatch.setattr("tradewind.rules.store.PATIENCE_S", 0.05)
    monkeypatch.setattr(room.store, "_store", is_late)
    with pytest.raises(Unavailable) as caught:
        await room.store.put(rule())
    assert caught.value.code == "rules_busy"


@pytest.mark.parametrize("version", [0, 5])
async def test_a_version_of_a_rule_that_is_not_there_brings_none_back(room: RuleRoom, version: int) -> None:
    await room.store.put(rule())
    if version:
        await room.store.remove("hot")
    with pytest.raises(Conflict) as caught:
        await room.store.put(rule(limit=1, version=version))
    assert caught.value.code == "version_moved" and "leave the version out" in caught.value.hint
    with pytest.raises(Conflict):
        await room.store.put_group({**GROUP, "version": 5})
    await room.store.put(rule("new", version=0))
    await room.store.put(rule("copy", version=5), is_new=True)
    assert (await room.store.get("copy"))["version"] == 1


async def test_a_group_and_a_rule_that_joins_it_do_not_miss_each_other(room: RuleRoom) -> None:
    """Whoever looked at the group before the other one changed it looks again."""
    await room.store.put_group(GROUP)
    now = await room.store.about(["hot"])
    joining = plan(now, "2024-01-01T10:00:00Z", [rule(group_id=GROUP["id"])])
    leaving = plan(now, "2024-01-01T10:00:00Z", [], (), (), [GROUP["id"]])
    assert await room.store._store(now, joining)
    assert not await room.store._store(now, leaving), "it has a rule by now"
    await room.store.remove_group(GROUP["id"], "cascade")
    assert not await room.store._store(now, joining), "the group is gone"
    assert await room.store.list() == []


async def test_a_group_is_switched_in_one_change(room: RuleRoom) -> None:
    rules = [rule("a", group_id="g"), rule("b", group_id="g", enabled=False), rule("c")]
    await room.store.apply(rules, groups=[{"id": "g"}])
    put, changed = await room.store.switch_group("g", is_on=False)
    assert ([document["enabled"] for document in put], changed) == ([False, False], ["a"])
    assert changes(await room.store.version()) == 2
    await room.plane.redis.hset(room.keys.rule_figures(), "b:stopped_ms", 5)
    _, changed = await room.store.switch_group("g", is_on=True)
    assert changed == ["a", "b"] and (await room.store.get("c"))["version"] == 1
    await room.plane.redis.hset(room.keys.rule_figures(), "b:stopped_ms", 5)
    assert (await room.store.switch_group("g", is_on=True))[1] == ["b"], "the loop guard had stopped it"
    assert (await room.store.switch_group("g", is_on=True))[1] == []
    with pytest.raises(NotFound):
        await room.store.switch_group("h", is_on=True)


async def test_create_refuses_what_exists(room: RuleRoom) -> None:
    await room.store.put(rule(), is_new=True)
    with pytest.raises(Conflict) as caught:
        await room.store.put(rule(), is_new=True)
    assert caught.value.code == "rule_exists"
    await room.store.put_group(GROUP, is_new=True)
    with pytest.raises(Conflict):
        await room.store.put_group(GROUP, is_new=True)


async def test_all_problems_are_named_and_nothing_is_stored(room: RuleRoom) -> None:
    bad = rule("other", group_id="nowhere")
    worse = rule("worse", group_id="nowhere", conditions=[{"operator": "~", "value": 1, "source": "x"}])
    with pytest.raises(Invalid) as caught:
        await room.store.apply([rule(), bad, worse])
    found = {(problem.code, problem.path) for problem in caught.value.problems}
    assert ("unknown_group", "rules[1].group_id") in found
    assert {path for _, path in found} >= {"rules[2].conditions[0].operator", "rules[2].conditions[0].source"}
    assert ("unknown_group", "rules[2].group_id") in found
    assert await room.store.list() == [] and changes(await room.store.version()) == 0


async def test_many_are_one_change(room: RuleRoom) -> None:
    put = await room.store.apply([rule(f"r{i}", group_id="g") for i in range(300)], groups=[{"id": "g"}])
    assert len(put) == 300 and changes(await room.store.version()) == 1
    await room.store.apply([rule("r0", limit=1)], remove=[f"r{i}" for i in range(1, 300)])
    assert [document["id"] for document in await room.store.list()] == ["r0"]
    assert changes(await room.store.version()) == 2


async def test_a_list_is_by_priority_and_can_be_searched(room: RuleRoom) -> None:
    await room.store.apply(
        [
            rule("a", name="Cold room", enabled=False),
            rule("b", point="2", priority=9, group_id="g"),
            rule("c", description="of the COLD store"),
        ],
        groups=[{"id": "g", "name": "G"}],
    )

    async def ids(**query: Any) -> list[str]:
        return [document["id"] for document in await room.store.list(**query)]

    assert await ids() == ["b", "a", "c"]
    assert await ids(enabled=False) == ["a"]
    assert await ids(group_id="g") == ["b"] and await ids(group_id="") == ["a", "c"]
    assert await ids(search="cold") == ["a", "c"]
    assert await ids(source="comsrv:1001:m:2") == ["b"]
    assert [(group["id"], group["rules"]) for group in await room.store.list_groups()] == [("g", 1)]


async def test_a_rule_changes_its_group(room: RuleRoom) -> None:
    await room.store.apply([rule(group_id="g")], groups=[{"id": "g"}, {"id": "h"}])
    await room.store.put(rule(group_id="h"))
    assert await members(room, room.keys.rule_group_rules("g")) == set()
    assert await members(room, room.keys.rule_group_rules("h")) == {"hot"}


async def test_a_group_with_rules_goes_only_when_it_is_said_what_becomes_of_them(room: RuleRoom) -> None:
    await room.store.apply([rule("a", group_id="g"), rule("b", group_id="h")], groups=[{"id": "g"}, {"id": "h"}])
    with pytest.raises(Conflict) as caught:
        await room.store.remove_group("g")
    assert caught.value.code == "group_has_rules" and "has 1 rule" in str(caught.value)
    assert "1 rules" not in str(caught.value)
    await room.store.remove_group("g", "ungroup")
    assert (await room.store.get("a"))["group_id"] == ""
    await room.store.remove_group("h", "cascade")
    assert [document["id"] for document in await room.store.list()] == ["a"]
    assert await members(room, room.keys.rule_groups()) == set()
    with pytest.raises(NotFound):
        await room.store.get_group("h")


async def test_enable_and_disable_are_versions_too_and_idempotent(room: RuleRoom) -> None:
    await room.store.put(rule())
    off = await room.store.disable("hot")
    assert (off["enabled"], off["version"]) == (False, 2)
    assert await room.store.disable("hot") == off
    assert (await room.store.enable("hot"))["version"] == 3
    with pytest.raises(NotFound):
        await room.store.enable("nothing")


async def test_a_removed_rule_leaves_nothing_behind_but_its_part_of_the_sums(room: RuleRoom) -> None:
    await room.store.apply([rule(group_id="g")], groups=[{"id": "g"}])
    redis = room.plane.redis
    await redis.hset(room.keys.rule_states(), "hot", b"x")
    await redis.hset(room.keys.rule_figures(), mapping={"hot:executions": 1, "hot:ms": 2, "hot:last_ms": 3})
    await redis.lpush(room.keys.rule_history("hot"), b"{}")
    await room.store.remove("hot")
    left = [key async for key in room.link.client.scan_iter(match=f"{room.keys.rules()[:-5]}*")]
    kept = {room.keys.rule_groups(), room.keys.rule_group("g"), room.keys.rules_version(), room.keys.rule_figures()}
    assert {key.decode() for key in left} == kept
    assert await redis.hgetall(room.keys.rule_figures()) == {b":executions": b"1", b":ms": b"2"}
    with pytest.raises(NotFound):
        await room.store.remove("hot")


async def test_an_equal_change_after_a_lost_reply_is_done_once(room: RuleRoom) -> None:
    now = await room.store.about(["hot"])
    change = plan(now, "2024-01-01T10:00:00Z", [rule()])
    assert await room.store._store(now, change)
    assert await room.store._store(now, change), "the same once more, as after a lost reply"
    assert changes(await room.store.version()) == 1
    other = plan(now, "2024-01-01T10:00:00Z", [rule(limit=1)])
    assert not await room.store._store(now, other), "it was made of an old version"


async def test_a_rule_by_a_name_of_the_station_is_removed_without_its_alarms(room: RuleRoom) -> None:
    """Put there by another program; its open alarms are faults of the station."""
    fault = NewAlarm(rule_id="station", source="rulesrv:x", title="a fault")
    await AlarmStore(room.plane).raise_(fault)
    await write_by_hand(room, "station", json.dumps(rule("station")))
    assert [problem.path for problem in (await room.store.load()).problems] == ["station.id"]
    await room.store.disable("station")
    await room.store.remove("station")
    assert await room.statuses() == ["New"]


async def test_history_is_read_newest_first_and_not_older_than_it_is_kept(room: RuleRoom) -> None:
    day = 86_400_000
    now = room.clock.now_ms()
    for at in (now - 8 * day, now - day, now - 6 * day, now):  # one ended late
        execution = Execution(
            id=f"exec_{at}", rule_id="hot", timestamp=at, triggered=True, conditions_result={"t": Checked(True, 1.0)},
            actions_executed=[], success=True, duration_ms=0, error_message=None, context=Context("x", 1.0),
        )  # fmt: skip
        await room.plane.redis.lpush(room.keys.rule_history("hot"), encode(execution))
    await room.plane.redis.lpush(room.keys.rule_history("hot"), b"left by somebody else")
    assert [e.timestamp for e in await room.history.read("hot")] == [now, now - day, now - 6 * day]
    assert [e.timestamp for e in await room.history.read("hot", limit=1, offset=1)] == [now - day]
    assert [e.timestamp for e in await room.history.read("hot", to_ms=now - day)] == [now - day, now - 6 * day]


async def test_what_another_program_wrote_is_a_rule_without_a_version(room: RuleRoom) -> None:
    """The seed's document, put there by hand."""
    by_hand = {**seed_rule(), "group_id": None}
    assert "version" not in by_hand
    await write_by_hand(room, by_hand["id"], json.dumps(by_hand))
    assert (await room.store.get_spec(by_hand["id"])).priority == by_hand["priority"]
    off = await room.store.disable(by_hand["id"])
    assert (off["enabled"], off["version"], off["created_at"]) == (False, 1, by_hand["created_at"])


@pytest.mark.parametrize(
    "text", ["{broken", "[1]", '{"id": "other", "conditions": []}', '{"id": "odd", "priority": "7"}']
)
async def test_one_that_cannot_be_read_hides_no_other_and_can_be_removed(room: RuleRoom, text: str) -> None:
    await room.store.put(rule())
    await write_by_hand(room, "odd", text)
    now = await room.store.load()
    assert set(now.specs) == {"hot"} and {problem.path.split(".")[0] for problem in now.problems} == {"odd"}
    assert {document["id"] for document in await room.store.list()} == {"hot", "odd"}
    if "conditions" not in text:
        with pytest.raises(Conflict) as refused:
            await room.store.disable("odd")
        assert refused.value.code == "rule_faulty" and (await raw(room, room.keys.rule("odd"))).decode() == text
    await room.store.remove("odd")
    assert set((await room.store.load()).rules) == {"hot"}


async def write_by_hand(room: RuleRoom, rule_id: str, text: str) -> None:
    await room.plane.redis.set(room.keys.rule(rule_id), text)
    await room.plane.redis.sadd(room.keys.rules(), rule_id)
    await room.plane.redis.incr(room.keys.rules_version())
