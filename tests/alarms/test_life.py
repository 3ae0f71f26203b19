"""What time and other alarms do to an alarm: escalation, shelving, causes, floods, retention. The clock is ours."""

from __future__ import annotations

import asyncio

from tests.alarms.alarm_room import DAY_S, AlarmRoom, hot
from tradewind import codec
from tradewind.alarms.record import NewAlarm
from tradewind.redis.connection import Link


def channel(number: str = "1001") -> NewAlarm:
    return NewAlarm(rule_id="station", source=f"comsrv:{number}", title="offline", level="High", category="station")


async def told(room: AlarmRoom, alarm_id: str) -> list[str]:
    return [entry["event"] for entry in await room.outbox() if entry["alarm_id"] == alarm_id]


async def test_an_alarm_that_nobody_acknowledges_escalates_once(room: AlarmRoom) -> None:
    slow = await room.store.raise_(hot(escalate_ms=60_000))
    seen = await room.store.raise_(hot("comsrv:1:m:2", escalate_ms=60_000))
    plain = await room.store.raise_(hot("comsrv:1:m:3"))
    room.advance(59)
    await room.tick()
    await room.store.acknowledge(seen.id, "li")
    assert await room.status(slow.id) == "New"
    room.advance(1)
    for _ in range(3):
        await room.tick()
        room.advance(100)
    assert [await room.status(a.id) for a in (slow, seen, plain)] == ["Escalated", "Acknowledged", "New"]
    assert (await room.store.get(slow.id)).escalations == 1
    assert await told(room, slow.id) == ["raised", "escalated"]
    await room.audit()


async def test_the_settings_may_escalate_all(link: Link, key_prefix: str) -> None:
    room = AlarmRoom(link, key_prefix, escalate_s=10)
    usual, never = await room.store.raise_(hot()), await room.store.raise_(hot("a:b", escalate_ms=0))
    room.advance(10)
    await room.tick()
    assert [await room.status(a.id) for a in (usual, never)] == ["Escalated", "New"]


async def test_a_shelved_alarm_comes_back_and_is_announced_again(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot(escalate_ms=60_000))
    await room.store.acknowledge(raised.id, "li")
    await room.store.shelve(raised.id, "li", "works", duration_s=3600)
    alarm = await room.store.get(raised.id)
    assert (alarm.status, alarm.shelved_until) == ("Suppressed", room.clock.now_ms() + 3_600_000)
    await room.store.raise_(hot())
    room.advance(3599)
    await room.tick()
    assert await room.status(raised.id) == "Suppressed"
    room.advance(1)
    await room.tick()
    alarm = await room.store.get(raised.id)
    assert (alarm.status, alarm.shelved_until, alarm.acknowledged_by, alarm.count) == ("New", None, None, 2)
    assert await told(room, raised.id) == ["raised", "acknowledged", "shelved", "unshelved"]
    await room.audit()
    room.advance(60)
    await room.tick()
    assert await room.status(raised.id) == "Escalated", "the time to acknowledge it begins anew"
    await room.audit()


async def test_to_shelve_again_for_as_long_changes_nothing_within_a_hundredth(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot())
    first = await room.store.shelve(raised.id, "li", duration_s=3600)
    until = (await room.store.get(raised.id)).shelved_until
    room.advance(35.9)
    again = await room.store.shelve(raised.id, "li", duration_s=3600)
    assert (again.is_changed, again.version) == (False, first.version)
    assert (await room.store.get(raised.id)).shelved_until == until
    room.advance(0.1)
    assert (await room.store.shelve(raised.id, "li", duration_s=3600)).is_changed
    short = await room.store.raise_(hot("a:1"))
    await room.store.shelve(short.id, "li", duration_s=60)
    room.advance(4.9)
    assert not (await room.store.shelve(short.id, "li", duration_s=60)).is_changed
    assert await room.events(short.id) == ["raised", "shelved"]
    room.advance(0.1)
    assert (await room.store.shelve(short.id, "li", duration_s=60)).is_changed
    over = await room.store.raise_(hot("a:2"))
    await room.store.shelve(over.id, "li", duration_s=1)
    room.advance(2)  # and nobody has ended it
    assert (await room.store.shelve(over.id, "li", duration_s=1)).is_changed
    await room.audit()


async def test_an_acknowledged_alarm_that_gets_worse_stays_so_and_is_told(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot(level="Low"))
    await room.store.acknowledge(raised.id, "li")
    await room.store.raise_(hot(level="Critical"))
    alarm = await room.store.get(raised.id)
    assert (alarm.status, alarm.level, alarm.acknowledged_by) == ("Acknowledged", "Critical", "li")
    assert await told(room, raised.id) == ["raised", "acknowledged", "level"]


async def test_a_shelved_alarm_whose_condition_ends_does_not_come_back(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot())
    await room.store.shelve(raised.id, "li", duration_s=60)
    await room.store.clear("rule_1", "comsrv:1001:m:10001")
    room.advance(60)
    await room.tick()
    assert await room.events(raised.id) == ["raised", "shelved", "cleared"]
    await room.audit()


async def test_a_channel_alarm_suppresses_those_of_its_points(room: AlarmRoom) -> None:
    before = await room.store.raise_(hot("comsrv:1001:m:1"))
    cause = await room.store.raise_(channel())
    one, two = await room.store.raise_many([hot("comsrv:1001:m:2"), hot("comsrv:1001:s:3")])
    other = await room.store.raise_(hot("comsrv:10011:m:2"))
    statuses = [await room.status(a.id) for a in (before, cause, one, two, other)]
    assert statuses == ["New", "New", "Suppressed", "Suppressed", "New"]
    assert (await room.store.get(one.id)).cause == cause.id
    assert await told(room, one.id) == []
    await room.audit()
    await room.store.clear("rule_1", "comsrv:1001:s:3")
    await room.store.shelve(one.id, "li", duration_s=600)
    await room.store.unshelve(one.id, "li")
    assert await room.status(one.id) == "Suppressed", "its cause is still there"
    await room.store.clear("station", "comsrv:1001")
    assert [await room.status(a.id) for a in (one, two)] == ["New", "Resolved"]
    assert await told(room, one.id) == ["released"]
    await room.audit()


async def test_one_that_is_shelved_too_stays_so_when_its_cause_ends(room: AlarmRoom) -> None:
    cause = await room.store.raise_(channel())
    one = await room.store.raise_(hot())
    await room.store.shelve(one.id, "li", duration_s=600)
    await room.store.resolve(cause.id, "li")
    assert await room.status(one.id) == "Suppressed"
    await room.audit()
    room.advance(600)
    await room.tick()
    assert await room.status(one.id) == "New"
    await room.audit()


async def test_a_cause_with_many_effects_lets_them_go_in_steps(room: AlarmRoom) -> None:
    cause = await room.store.raise_(channel())
    raised = await room.store.raise_many([hot(f"comsrv:1001:m:{n}") for n in range(450)])
    await room.store.clear("station", "comsrv:1001")
    assert await room.redis.scard(room.keys.alarm_effects(cause.id)) == 350, "no script holds the server for long"
    await room.audit()
    for _ in range(4):
        await room.keeper.tick()
    assert {a.status.value for a in await room.store.find([r.id for r in raised]) if a} == {"New"}
    assert not await room.redis.exists(room.keys.alarm_timers())
    await room.audit()


async def test_a_rule_may_name_the_rules_that_inhibit_it(room: AlarmRoom) -> None:
    high = await room.store.raise_(hot(rule_id="hh"))
    one = await room.store.raise_(hot(rule_id="h", inhibited_by=["hh"]))
    far = await room.store.raise_(hot("modsrv:x:measurement:y", rule_id="h", inhibited_by=["none", "hh"]))
    assert [(await room.store.get(a.id)).cause for a in (one, far)] == [high.id, high.id]
    await room.store.resolve(high.id, "li")
    assert [await room.status(a.id) for a in (one, far)] == ["New", "New"]
    await room.audit()


async def test_one_with_two_causes_stays_suppressed_until_both_have_ended(room: AlarmRoom) -> None:
    first, second = await room.store.raise_many([hot(rule_id="ra"), hot(rule_id="rb")])
    one = await room.store.raise_(hot(rule_id="h", inhibited_by=["ra", "rb"]))
    shelved = await room.store.raise_(hot("comsrv:1001:m:2", rule_id="h", inhibited_by=["ra", "rb"]))
    await room.store.shelve(shelved.id, "li", duration_s=600)
    assert (await room.store.get(one.id)).cause == first.id
    await room.store.resolve(first.id, "li")
    for alarm in (await room.store.get(one.id), await room.store.get(shelved.id)):
        assert (alarm.status, alarm.cause) == ("Suppressed", second.id)
    await room.audit()
    off = await room.store.raise_(channel())
    await room.store.clear("rb", "comsrv:1001:m:10001")
    assert (await room.store.get(one.id)).cause == off.id, "a channel is a cause, too"
    assert await told(room, one.id) == []
    await room.store.clear("station", "comsrv:1001")
    assert [await room.status(a.id) for a in (one, shelved)] == ["New", "Suppressed"]
    assert (await room.store.get(shelved.id)).cause is None
    assert await told(room, one.id) == ["released"]
    await room.audit()


async def test_two_alarms_do_not_suppress_each_other_for_ever(room: AlarmRoom) -> None:
    root = await room.store.raise_(hot(rule_id="root"))
    a = await room.store.raise_(hot(rule_id="a", inhibited_by=["a", "b", "root"]))
    b = await room.store.raise_(hot(rule_id="b", inhibited_by=["a"]))
    c = await room.store.raise_(hot("comsrv:1:m:1", rule_id="c", inhibited_by=["b"]))
    assert [(await room.store.get(x.id)).cause for x in (a, b, c)] == [root.id, a.id, b.id]
    await room.store.resolve(root.id, "li")
    assert [await room.status(x.id) for x in (a, b, c)] == ["New", "Suppressed", "Suppressed"]
    await room.store.resolve(a.id, "li")
    assert [await room.status(x.id) for x in (b, c)] == ["New", "Suppressed"]
    await room.audit()


async def test_ten_alarms_in_ten_minutes_are_a_flood_until_fewer_than_five_are(room: AlarmRoom) -> None:
    for n in range(9):
        await room.store.raise_(hot(f"a:{n}"))
        await room.store.raise_(hot(f"a:{n}"))  # the same one again is no new one
    assert not await room.redis.hexists(room.keys.alarm_figures(), "flood_since")
    room.advance(1)
    await room.store.raise_(hot("a:9"))
    flags = [entry["flood"] for entry in await room.outbox()]
    assert flags == ["0"] * 9 + ["1"]
    room.advance(598)
    await room.tick()
    for n in range(4):
        await room.store.raise_(hot(f"b:{n}"))
    assert await room.redis.hexists(room.keys.alarm_figures(), "flood_since")
    room.advance(1)
    await room.tick()  # nine are older now; five are left
    assert await room.redis.hexists(room.keys.alarm_figures(), "flood_since")
    room.advance(1)
    await room.tick()
    assert not await room.redis.hexists(room.keys.alarm_figures(), "flood_since")
    assert await room.redis.hget(room.keys.alarm_figures(), "flood_ms") == b"600000"
    await room.store.raise_(hot("c:1"))
    assert (await room.outbox())[-1]["flood"] == "0"


async def test_retention_takes_resolved_ones_and_never_active_or_unacknowledged_ones(room: AlarmRoom) -> None:
    names = ("new", "acked", "escalated", "suppressed", "resolved", "resolved_acked", "acked_resolved", "closed")
    found = {name: (await room.store.raise_(hot(f"x:{name}"))).id for name in names}
    store = room.store
    await store.acknowledge(found["acked"], "li")
    await store.escalate(found["escalated"], "li")
    await store.suppress(found["suppressed"], "li")
    for name in ("resolved", "resolved_acked"):
        await store.clear("rule_1", f"x:{name}")
    await store.acknowledge(found["resolved_acked"], "li")
    await store.acknowledge(found["acked_resolved"], "li")
    await store.resolve(found["acked_resolved"], "li")
    await store.suppress(found["closed"], "li")
    await store.close(found["closed"], "li")
    room.advance(30 * DAY_S - 1)
    await room.tick()
    assert len(await room.audit()) == len(names)
    room.advance(1)
    await room.tick()
    left = await room.audit()
    assert {found[name] for name in names[:5]} == set(left)
    room.advance(1000 * DAY_S)
    await room.tick()
    assert set(await room.audit()) == set(left)
    assert await room.events(found["resolved_acked"]) == ["raised", "cleared", "acknowledged", "closed", "removed"]
    await store.acknowledge(found["resolved"], "li")  # long after its time
    await room.tick()
    assert set(await room.audit()) == {found[name] for name in names[:4]}


async def test_every_transition_is_announced(room: AlarmRoom) -> None:
    pubsub = room.plane.link.client.pubsub()
    await pubsub.subscribe(room.keys.alarm_events())
    assert (await pubsub.get_message(timeout=5) or {})["type"] == "subscribe"
    raised = await room.store.raise_(hot())
    await room.store.acknowledge(raised.id, "li")
    await room.store.clear("rule_1", "comsrv:1001:m:10001")
    seen = []
    async with asyncio.timeout(10):
        while len(seen) < 3:
            message = await pubsub.get_message(timeout=1)
            if message:
                seen.append(codec.decode(message["data"]))
    await pubsub.aclose()  # type: ignore[no-untyped-call]
    base = {"alarm_id": raised.id, "rule_id": "rule_1", "source": "comsrv:1001:m:10001", "level": "High"}
    steps = [("raised", "New"), ("acknowledged", "Acknowledged"), ("cleared", "Resolved")]
    at = {"timestamp": room.clock.now_ms()}
    assert seen == [{"event": event, **base, "status": status, **at} for event, status in steps]


async def test_what_is_to_be_told_waits_in_the_outbox(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot(description="hot", notify=["ops"], actual="80"))
    await room.store.acknowledge(raised.id, "li", "on my way")
    first, second = await room.outbox()
    expected = {"kind": "alarm", "event": "raised", "alarm_id": raised.id, "rule_id": "rule_1", "level": "High"}
    expected |= {"source": "comsrv:1001:m:10001", "title": "too hot", "text": "hot", "targets": '["ops"]', "flood": "0"}
    expected |= {"at": str(room.clock.now_ms()), "key": f"{raised.id}:1", "category": "temperature", "actual": "80"}
    assert {name: first.get(name) for name in expected} == expected
    assert (second["event"], second["who"], second["note"], second["key"]) == (
        "acknowledged",
        "li",
        "on my way",
        f"{raised.id}:2",
    )
