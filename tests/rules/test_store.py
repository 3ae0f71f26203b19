"""Rules and groups in Redis: the seed's keys and JSON, versions, checks at the door, what goes with a rule."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.rules.rule_room import RuleRoom, rule, seed_rule
from tradewind.clock import FakeClock
from tradewind.errors import Conflict, Invalid, NotFound
from tradewind.rules.definitions import plan
from tradewind.rules.history_record import Checked, Context, Execution, encode

GROUP = {"id": "group_temperature", "name": "温度"}


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
    worse = rule("worse", conditions=[{"operator": "~", "value": 1, "source": "x"}])
    with pytest.raises(Invalid) as caught:
        await room.store.apply([rule(), bad, worse])
    found = {(problem.code, problem.path) for problem in caught.value.problems}
    assert ("unknown_group", "rules[1].group_id") in found
    assert {path for _, path in found} >= {"rules[2].conditions[0].operator", "rules[2].conditions[0].source"}
    assert await room.store.list() == [] and await room.store.version() == "0"


async def test_many_are_one_change(room: RuleRoom) -> None:
    put = await room.store.apply([rule(f"r{i}", group_id="g") for i in range(300)], groups=[{"id": "g"}])
    assert len(put) == 300 and await room.store.version() == "1"
    await room.store.apply([rule("r0", limit=1)], remove=[f"r{i}" for i in range(1, 300)])
    assert [document["id"] for document in await room.store.list()] == ["r0"]
    assert await room.store.version() == "2"


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
    assert caught.value.code == "group_has_rules"
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


async def test_a_removed_rule_leaves_nothing_behind(room: RuleRoom) -> None:
    await room.store.apply([rule(group_id="g")], groups=[{"id": "g"}])
    redis = room.plane.redis
    await redis.hset(room.keys.rule_states(), "hot", b"x")
    await redis.hset(room.keys.rule_figures(), mapping={"hot:executions": 1, "hot:ms": 2, "hot:last_ms": 3})
    await redis.lpush(room.keys.rule_history("hot"), b"{}")
    await room.store.remove("hot")
    left = [key async for key in room.link.client.scan_iter(match=f"{room.keys.rules()[:-5]}*")]
    kept = {room.keys.rule_groups(), room.keys.rule_group("g"), room.keys.rules_version()}
    assert {key.decode() for key in left} == kept
    with pytest.raises(NotFound):
        await room.store.remove("hot")


async def test_an_equal_change_after_a_lost_reply_is_done_once(room: RuleRoom) -> None:
    now = await room.store.load()
    change = plan(now, "2024-01-01T10:00:00Z", [rule()])
    assert await room.store._store(now, change)
    assert await room.store._store(now, change), "the same once more, as after a lost reply"
    assert await room.store.version() == "1"
    other = plan(now, "2024-01-01T10:00:00Z", [rule(limit=1)])
    assert not await room.store._store(now, other), "it was made of an old version"


async def test_history_is_read_newest_first_and_not_older_than_it_is_kept(room: RuleRoom) -> None:
    day = 86_400_000
    now = room.clock.now_ms()
    for at in (now - 8 * day, now - 6 * day, now - day, now):
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
