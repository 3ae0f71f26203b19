"""The keeper on real servers: groups, retries, quiet hours, escalation, takeover; webhooks to a real web server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from tests.nodes.web import Web
from tests.notify.mail import serve_mail
from tests.notify.notify_room import NotifyRoom, documents, events, until
from tradewind.clock import FakeClock
from tradewind.notify.keeper import NotifyKeeper
from tradewind.redis.connection import Link


async def put(room: NotifyRoom, web: Web, *names: str, **parts: Any) -> None:
    """Targets of these names at paths of these names; everything goes to the first unless routes say otherwise."""
    for name in names:
        web.answers.setdefault(f"/{name}", (200, {}, b""))
    targets = {name: {"url": f"{web.address}/{name}"} for name in names}
    await room.store.put({"targets": targets, "routes": [{"targets": [names[0]]}]} | parts)


async def test_an_alarm_is_told_from_its_beginning_to_its_end(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops")
    async with room.keeper() as keeper:
        await room.event("raised")
        await room.quiet()
        await room.event("acknowledged")
        await room.event("cleared")
        await room.quiet()
        await until(lambda: keeper.stats.sent == 2)
    assert events(web, "/ops") == ["raised alarm_1", "cleared alarm_1"], "acknowledged only for those who ask for it"
    ended = await room.store.ended()
    assert [(one.target, one.status, one.count, one.attempts) for one in ended] == [("ops", "sent", 1, 1)] * 2
    for key in (room.keys.notify_told(), room.keys.notify_due(), room.keys.notify_timers()):
        assert not await room.redis.exists(key), "nothing is left behind"


async def test_a_mail_is_delivered(room: NotifyRoom) -> None:
    with serve_mail() as mail:
        url = f"mailto://example.com:{mail.port}?smtp=127.0.0.1&from=tw@example.com&to=ann@example.com&mode=insecure"
        await room.store.put({"targets": {"ann": {"url": url}}, "routes": [{"targets": ["ann"]}]})
        async with room.keeper():
            await room.event("raised")
            await room.quiet()
        assert [message["Subject"] for _, _, message in mail.taken] == ["[High] Title of alarm_1"]


async def test_a_message_of_a_program_goes_its_way(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops", "dev")
    async with room.keeper() as keeper:
        await room.store.tell("deployed", "version 2", targets=["dev"], key="k1")
        await room.store.tell("deployed", "version 2", targets=["dev"], key="k1")
        await room.quiet()
        await until(lambda: keeper.stats.planned == 1)
    assert [document["title"] for document in documents(web, "/dev")] == ["[Info] deployed"]
    assert not documents(web, "/ops")


async def test_a_failing_target_is_tried_again_with_the_same_key_and_content(room: NotifyRoom, web: Web) -> None:
    web.text("/ops", "down", 500)
    await put(room, web, "ops")
    async with room.keeper() as keeper:
        await room.event("raised")
        await until(lambda: keeper.stats.retried == 1)
        await room.event("raised", "alarm_2")
        await room.planned()
        (first, second) = await room.store.pending()
        assert {first.status, second.status} == {"retrying", "waiting"}
        room.advance(6)
        await until(lambda: keeper.stats.retried == 2)
        web.text("/ops", "up")
        room.advance(11)
        await room.quiet()
    keys = [headers["idempotency-key"] for _, _, headers, _ in web.asked]
    bodies = [body for _, _, _, body in web.asked]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert bodies[0] == bodies[1] == bodies[2], "what has begun keeps its content"
    assert events(web, "/ops")[-1] == "raised alarm_2", "in order"
    assert [(one.status, one.attempts) for one in await room.store.ended()] == [("sent", 1), ("sent", 3)]
    assert not await room.faults()


async def test_a_target_that_stays_away_is_given_up_and_reported_and_the_others_do_not_wait(
    link: Link, key_prefix: str, web: Web
) -> None:
    room = NotifyRoom(link, key_prefix, max_attempts=3)
    web.text("/ops", "down", 500)
    await put(room, web, "ops", "dev", routes=[{"targets": ["ops", "dev"]}])
    async with room.keeper() as keeper:
        await room.event("raised")
        for attempts in (1, 2):
            await until(lambda attempts=attempts: keeper.stats.retried == attempts)  # type: ignore[misc]
            room.advance(400)
        await room.quiet()
        assert len(documents(web, "/ops")) == 3
        assert events(web, "/dev") == ["raised alarm_1"]
        assert await room.faults() == [("notification_failed", "notify:ops", "raise")]
        given_up = [one for one in await room.store.ended() if one.target == "ops"]
        assert [(one.status, one.attempts, one.error) for one in given_up] == [("given_up", 3, "answered 500: down")]
        web.asked.clear()
        web.text("/ops", "up")
        await room.event("cleared")
        await room.quiet()
        assert events(web, "/dev") == ["cleared alarm_1"]
        assert not web.asked or not documents(web, "/ops"), "who never heard of it need not hear of its end"
        await room.event("raised", "alarm_2")
        await room.quiet()
        assert events(web, "/ops") == ["raised alarm_2"]
        assert (await room.faults())[1:] == [("notification_failed", "notify:ops", "clear")]


async def test_an_end_that_waited_for_a_beginning_goes_down_with_it(link: Link, key_prefix: str, web: Web) -> None:
    room = NotifyRoom(link, key_prefix, max_attempts=2)
    web.text("/ops", "down", 500)
    await put(room, web, "ops")
    async with room.keeper() as keeper:
        await room.event("raised")
        await until(lambda: keeper.stats.retried == 1)
        await room.event("cleared")
        await room.planned()
        room.advance(400)
        await room.quiet()
        await until(lambda: keeper.stats.given_up == 1)
    assert events(web, "/ops") == ["raised alarm_1"] * 2
    assert [one.status for one in await room.store.ended()] == ["dropped", "given_up"]


async def test_an_answer_that_is_final_is_not_tried_again(room: NotifyRoom, web: Web) -> None:
    web.text("/ops", "no such hook", 404)
    await put(room, web, "ops")

    async def is_forgotten() -> bool:
        return not await room.redis.exists(room.keys.notify_targets())

    async with room.keeper():
        await room.event("raised")
        await room.quiet()
        assert len(web.asked) == 1 and await room.faults() == [("notification_failed", "notify:ops", "raise")]
        await put(room, web, "dev")  # without it: it will never work again
        await until(is_forgotten)
    assert (await room.faults())[1:] == [("notification_failed", "notify:ops", "clear")]


async def test_private_addresses_are_refused_by_default_and_reported(link: Link, key_prefix: str, web: Web) -> None:
    room = NotifyRoom(link, key_prefix, allow_private=False)
    port = web.address.rpartition(":")[2]
    target = {"url": f"http://localhost:{port}/ops"}
    await room.store.put({"targets": {"ops": target}, "routes": [{"targets": ["ops"]}]})
    async with room.keeper():
        await room.event("raised")
        await room.quiet()
    (ended,) = await room.store.ended()
    assert ended.status == "given_up" and "not a public address" in ended.error
    assert not web.asked


async def test_ten_thousand_messages_become_few_deliveries(link: Link, key_prefix: str, web: Web) -> None:
    room = NotifyRoom(link, key_prefix, group_wait_s=5, group_interval_s=300)
    await put(room, web, "ops", "boss", routes=[{"targets": ["ops"]}, {"targets": ["boss"], "min_level": "Critical"}])
    async with room.keeper() as keeper:
        for part in range(10):
            pipe = room.redis.pipeline(transaction=False)
            for n in range(1000):
                number = part * 1000 + n
                level = "Critical" if number % 1000 == 7 else "Low"
                entry = {"kind": "alarm", "event": "raised", "alarm_id": f"alarm_{number}", "level": level}
                entry |= {"status": "New", "title": f"t{number}", "flood": str(int(number >= 10)), "at": "1"}
                pipe.hset(room.keys.alarm(entry["alarm_id"]), "status", "New")
                pipe.xadd(room.keys.notify_outbox(), entry)
            await pipe.execute()
            room.advance(1)
        await room.planned()
        room.advance(10)
        await until(lambda: keeper.stats.sent >= 2)
        room.advance(400)
        await room.quiet()
        await until(lambda: keeper.stats.planned == 10_000)
    told = documents(web, "/ops")
    assert sum(document["count"] for document in told) == 10_000, "every one is counted"
    assert len(told) <= 3
    assert len(documents(web, "/boss")) <= 3
    assert sum(document["count"] for document in documents(web, "/boss")) == 10
    assert await room.redis.hlen(room.keys.notify_told()) == 10_000


async def test_quiet_hours_hold_messages_until_morning_and_let_critical_ones_pass(
    link: Link, key_prefix: str, web: Web
) -> None:
    evening = int(datetime(2024, 1, 10, 22, 30, tzinfo=UTC).timestamp() * 1000)
    room = NotifyRoom(link, key_prefix, FakeClock(evening))
    await put(room, web, "ops", quiet_hours={"from": "23:00", "to": "07:00", "timezone": "Europe/Berlin"})
    async with room.keeper() as keeper:
        await room.event("raised")
        await room.event("raised", "alarm_2", level="Critical")
        await until(lambda: keeper.stats.sent == 1)
        assert events(web, "/ops") == ["raised alarm_2"]
        (held,) = await room.store.pending()
        assert held.at == int(datetime(2024, 1, 11, 6, tzinfo=UTC).timestamp() * 1000)
    async with room.keeper():  # another one takes over what is held
        room.advance(7.5 * 3600)
        await room.quiet()
    assert events(web, "/ops") == ["raised alarm_2", "raised alarm_1"]


async def test_an_unacknowledged_alarm_escalates_also_after_a_restart(room: NotifyRoom, web: Web) -> None:
    chain = [{"after_s": 600, "targets": ["lead"]}, {"after_s": 1800, "targets": ["boss"]}]
    await put(room, web, "ops", "lead", "boss", escalation=chain)
    async with room.keeper():
        await room.event("raised")
        await room.event("raised", "alarm_2")
        await room.quiet()
        await room.event("acknowledged", "alarm_2")
        await room.planned()
    room.advance(600)
    async with room.keeper() as keeper:
        await until(lambda: events(web, "/lead") == ["escalated alarm_1"])
        await room.redis.hset(room.keys.alarm("alarm_1"), "acknowledged_at", "2024-01-01T10:00:00Z")
        room.advance(1200)

        async def is_over() -> bool:
            return not await room.redis.zcard(room.keys.notify_timers())

        await until(is_over)
        await room.event("cleared")
        await room.quiet()
        assert keeper.stats.given_up == 0
    assert events(web, "/lead") == ["escalated alarm_1", "cleared alarm_1"]
    assert not events(web, "/boss")


async def test_the_end_of_an_alarm_that_nobody_was_told_of_is_not_sent(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops", routes=[{"targets": ["ops"], "min_level": "High"}])
    async with room.keeper() as keeper:
        await room.event("raised", level="Low")
        await room.event("cleared", level="Critical")
        await room.event("cleared", "alarm_never_raised")
        await room.quiet()
        await until(lambda: keeper.stats.unrouted == 1)
    assert not web.asked


async def test_an_entry_that_nobody_can_read_stops_nothing(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops")
    await room.redis.xadd(room.keys.notify_outbox(), {b"\xff": b"\xff", b"targets": b"[1"})
    async with room.keeper():
        await room.event("raised")
        await room.quiet()
    assert "raised alarm_1" in events(web, "/ops")


async def test_names_and_records_of_another_program_hold_up_no_delivery(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops", "lead", escalation=[{"after_s": 600, "targets": ["lead"]}])
    keys, redis = room.keys, room.redis
    await redis.set(keys.alarm("alarm_9"), "text")
    await redis.zadd(keys.notify_timers(), {b"\xff": 1, "alarm_9": 1})
    await redis.zadd(keys.notify_failed(), {b"\xff": 1})
    await redis.hset(keys.notify_targets(), b"\xff:last", "1")
    await redis.hset(keys.notify_told(), b"\xff", "1")
    await redis.xadd(keys.notify_log(), {b"\xff": b"\xff"})
    async with room.keeper():
        await room.event("raised")
        await room.quiet()
        room.advance(600)
        await until(lambda: events(web, "/lead") == ["escalated alarm_1"])

        async def is_over() -> bool:
            return not await redis.zcard(keys.notify_timers())

        await until(is_over)
        await room.quiet()
    assert events(web, "/ops") == ["raised alarm_1"]
    assert {delivery.target for delivery in await room.store.ended()} == {"ops", "lead"}


async def test_a_removed_target_is_dropped_and_swept(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops")
    async with room.keeper():
        await room.event("raised")
        await room.quiet()
        web.text("/ops", "down", 500)
        await room.event("raised", "alarm_2")
        await until(lambda: len(web.asked) == 2)
        await room.store.put({})
        room.advance(6)
        await room.quiet()
    assert (await room.store.ended())[0].status == "dropped"
    assert await room.redis.hexists(room.keys.notify_targets(), "ops:last")
    await room.redis.delete(room.keys.alarm("alarm_1"))
    async with room.keeper():

        async def is_swept() -> bool:
            told = await room.redis.hkeys(room.keys.notify_told())
            return told == [b"alarm_2"] and not await room.redis.exists(room.keys.notify_targets())

        await until(is_swept)


async def test_a_target_that_was_turned_off_gets_nothing_more(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops")
    web.text("/ops", "down", 500)
    async with room.keeper():
        await room.event("raised")
        await until(lambda: len(web.asked) == 1)
        await room.store.put({"targets": {"ops": {"url": f"{web.address}/ops", "enabled": False}}})
        room.advance(6)
        await room.quiet()
    (ended,) = await room.store.ended()
    assert (ended.status, ended.error, len(web.asked)) == ("dropped", "it is off", 1)


async def test_a_second_keeper_waits_and_takes_over(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops")
    async with room.keeper("first") as first:
        second = NotifyKeeper(room.plane, keeper_id="second", tick_s=0.02)
        stop = asyncio.Event()
        task = asyncio.create_task(second.run(stop))
        await room.event("raised")
        await room.quiet()
        assert first.is_leading and not second.is_leading
    await until(lambda: second.is_leading)
    await room.event("raised", "alarm_2")
    await room.quiet()
    stop.set()
    await asyncio.wait_for(task, 20)
    assert (first.stats.sent, second.stats.sent) == (1, 1)


async def test_a_deposed_keeper_stores_nothing(room: NotifyRoom, web: Web) -> None:
    await put(room, web, "ops")
    async with room.keeper("first") as first:
        await room.redis.set(room.keys.notify_leader(), "somebody", px=60_000)
        await room.redis.incr(room.keys.notify_epoch())
        await room.event("raised")
        await until(lambda: not first.is_leading)
        assert await room.redis.xlen(room.keys.notify_outbox()) == 1
        assert not web.asked
