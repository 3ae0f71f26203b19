"""A target that is away for long: nothing is lost, somebody hears of it early, and old news are told as such."""

from __future__ import annotations

from tests.nodes.web import Web
from tests.notify.notify_room import NotifyRoom, documents, events, until
from tests.notify.test_keeper import put
from tradewind.notify.term import REPORT_AFTER


async def test_a_target_that_is_away_for_hours_loses_nothing_and_is_reported_early(room: NotifyRoom, web: Web) -> None:
    web.text("/ops", "down", 500)
    await put(room, web, "ops")
    began = room.clock.now_ms()
    tries = 0
    async with room.keeper() as keeper:
        await room.event("raised")
        while room.clock.now_ms() < began + 3 * 3_600_000:
            tries += 1
            await until(lambda tries=tries: keeper.stats.retried == tries)  # type: ignore[misc]
            reported = [("notification_failed", "notify:ops", "raise")] * (tries >= REPORT_AFTER)
            assert await room.faults() == reported, "once"
            if tries == REPORT_AFTER:
                assert room.clock.now_ms() < began + 600_000
                await room.event("cleared")
                await room.event("raised", "alarm_2")
                await room.planned()
            room.advance(min(300, 5 * 2 ** (tries - 1)))
    async with room.keeper("another") as keeper:
        web.text("/ops", "up")
        web.asked.clear()
        room.advance(300)
        await room.quiet()
        await until(lambda: keeper.stats.sent == 2)
    assert events(web, "/ops") == ["raised alarm_1", "cleared alarm_1", "raised alarm_2"], "in order"
    first, second = documents(web, "/ops")
    assert first["title"].endswith("Z, now Resolved)"), "no news any more"
    assert first["messages"][0]["now"] == "Resolved" and "now" not in second["messages"][1]
    assert await room.faults() == [("notification_failed", "notify:ops", state) for state in ("raise", "clear")]
