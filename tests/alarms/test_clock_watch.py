"""The clock of Redis is set back by an hour: it is told once, and what was to last for a while lasts that long."""

from __future__ import annotations

from tests.alarms.alarm_room import AlarmRoom, hot
from tradewind.alarms.clock_watch import ClockWatch
from tradewind.redis.scripts import Scripts

HOUR_S = 3600


def watch_of(room: AlarmRoom) -> ClockWatch:
    return ClockWatch(room.plane, Scripts(room.plane.link, "tradewind.alarms", 2))


async def told(room: AlarmRoom) -> list[str]:
    entries = await room.redis.xrange(room.keys.faults())
    return [fields[b"message"].decode() for _, fields in entries if fields[b"code"] == b"clock_set_back"]


async def test_a_clock_that_is_set_back_is_told_once_also_by_another_process(room: AlarmRoom) -> None:
    assert await watch_of(room).look() == 0
    room.advance(5)
    assert await watch_of(room).look() == 0
    room.advance(-4)
    assert await watch_of(room).look() == 0, "small steps are no news"
    room.advance(-HOUR_S)
    assert abs(await watch_of(room).look() - HOUR_S * 1000) <= 5000
    for _ in range(3):
        room.advance(1)
        assert await watch_of(room).look() == 0
    assert len(await told(room)) == 1
    # It died after it noticed and before it told.
    await room.redis.hset(room.keys.station_clock(), "told", "0")
    assert await watch_of(room).look() > 0
    assert len(await told(room)) == 2


async def test_shelving_and_escalation_last_as_long_as_they_should(room: AlarmRoom) -> None:
    shelved = await room.store.raise_(hot())
    await room.store.shelve(shelved.id, "li", "repair", duration_s=600)
    waiting = await room.store.raise_(hot("comsrv:1001:m:2", escalate_ms=300_000))
    await watch_of(room).look()
    room.advance(-HOUR_S)
    await watch_of(room).look()
    await room.tick()
    assert (await room.store.get(shelved.id)).status == "Suppressed"
    assert (await room.store.get(waiting.id)).status == "New", "no storm"
    room.advance(301)
    await watch_of(room).look()
    await room.tick()
    assert (await room.store.get(waiting.id)).status == "Escalated"
    room.advance(300)
    await room.tick()
    assert (await room.store.get(shelved.id)).status == "New"


async def test_commands_expire_and_retries_come_when_they_should(room: AlarmRoom) -> None:
    now, keys = room.clock.now_ms(), room.keys
    await room.redis.hset(f"{keys.p}cmd:c1", mapping={"status": "pending", "expires_ms": now + 30_000})
    await room.redis.zadd(keys.commands_open(), {"c1": now + 30_000})
    for name, status in (("t1", "RETRYING"), ("t2", "PENDING")):
        await room.redis.hset(f"{keys.p}task:{name}", mapping={"status": status, "due": now + 10_000})
        await room.redis.zadd(keys.delayed(), {name: now / 1000 + 10})
    await room.redis.zadd(keys.workers(), {"w1": now + 5_000})
    await watch_of(room).look()
    room.advance(-HOUR_S)
    await watch_of(room).look()
    now = room.clock.now_ms()
    assert await room.redis.zscore(keys.workers(), "w1") == now + 5_000, "a lost one is found in time"
    assert await room.redis.zscore(keys.commands_open(), "c1") == now + 30_000
    assert await room.redis.hget(f"{keys.p}cmd:c1", "expires_ms") == str(now + 30_000).encode()
    assert abs(await room.redis.zscore(keys.delayed(), "t1") - now / 1000 - 10) < 0.01
    by_clock = await room.redis.zscore(keys.delayed(), "t2")
    assert abs(by_clock - now / 1000 - 10 - HOUR_S) < 0.01, "it may be a time of the day"
