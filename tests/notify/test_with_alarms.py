"""What the alarm scripts write is what the keeper reads: real alarms, from the first raise to the last message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.web import Web
from tests.notify.notify_room import NotifyRoom, documents, until
from tradewind.alarms.record import NewAlarm
from tradewind.alarms.store import AlarmStore
from tradewind.points.plane import PointPlane


@pytest.fixture
def alarms(room: NotifyRoom) -> AlarmStore:
    return AlarmStore(PointPlane(room.link, room.plane.all_settings, room.clock))


def hot(source: str = "comsrv:1001:m:1", **fields: Any) -> NewAlarm:
    return NewAlarm(**({"rule_id": "r1", "source": source, "level": "High", "title": f"hot at {source}"} | fields))


async def put(room: NotifyRoom, web: Web, **parts: Any) -> None:
    for name in ("ops", "boss"):
        web.text(f"/{name}", "")
    targets = {name: {"url": f"{web.address}/{name}"} for name in ("ops", "boss")}
    await room.store.put({"targets": targets, "routes": [{"targets": ["ops"]}]} | parts)


def told(web: Web, path: str = "/ops") -> list[tuple[str, str, str]]:
    found = [message for document in documents(web, path) for message in document["messages"]]
    return [(message["event"], message["level"], message["title"]) for message in found]


async def test_an_alarm_is_told_once_when_it_rises_gets_worse_and_ends(
    room: NotifyRoom, alarms: AlarmStore, web: Web
) -> None:
    await put(room, web, routes=[{"targets": ["ops"], "match": {"category": "heat", "source": "comsrv:1001:*"}}])
    async with room.keeper():
        for _ in range(5):
            await alarms.raise_(hot(category="heat"))
        await room.quiet()
        raised = await alarms.raise_(hot(category="heat", level="Critical"))
        await alarms.acknowledge(raised.id, "ann")
        await room.quiet()
        await alarms.clear("r1", "comsrv:1001:m:1")
        await alarms.raise_(hot("comsrv:1002:m:1", category="heat"))
        await room.quiet()
    title = "hot at comsrv:1001:m:1"
    assert told(web) == [("raised", "High", title), ("level", "Critical", title), ("cleared", "Critical", title)]


async def test_a_suppressed_alarm_is_told_when_it_is_let_go(room: NotifyRoom, alarms: AlarmStore, web: Web) -> None:
    await put(room, web)
    async with room.keeper():
        await alarms.raise_(hot("comsrv:1001", rule_id="station", title="channel off-line"))
        await alarms.raise_(hot())
        await alarms.raise_(hot("comsrv:1001:m:2"))
        await alarms.clear("r1", "comsrv:1001:m:2")
        await room.quiet()
        assert told(web) == [("raised", "High", "channel off-line")], "neither the effects nor the end of one of them"
        await alarms.clear("station", "comsrv:1001")
        await room.quiet()
    assert sorted(told(web)[1:]) == [
        ("cleared", "High", "channel off-line"),
        ("released", "High", "hot at comsrv:1001:m:1"),
    ]


async def test_the_chain_stops_when_an_operator_acknowledges(room: NotifyRoom, alarms: AlarmStore, web: Web) -> None:
    await put(room, web, escalation=[{"after_s": 60, "targets": ["boss"]}])
    async with room.keeper():
        first = await alarms.raise_(hot())
        await alarms.raise_(hot("comsrv:1001:m:2"))
        await room.quiet()
        await alarms.acknowledge(first.id, "ann")
        room.advance(61)
        await until(lambda: bool(told(web, "/boss")))
        await room.quiet()
    assert told(web, "/boss") == [("escalated", "High", "hot at comsrv:1001:m:2")]


async def test_an_alarm_may_name_its_targets(room: NotifyRoom, alarms: AlarmStore, web: Web) -> None:
    await put(room, web)
    async with room.keeper():
        await alarms.raise_(hot(notify=["boss"]))
        await room.quiet()
    assert told(web, "/boss") and not told(web)


async def test_a_flood_of_alarms_is_told_in_a_few_deliveries(room: NotifyRoom, alarms: AlarmStore, web: Web) -> None:
    await put(room, web, group_interval_s=300)
    async with room.keeper():
        await alarms.raise_(hot("comsrv:1001:m:0"))
        await room.quiet()
        for n in range(1, 60):
            await alarms.raise_(hot(f"comsrv:1001:m:{n}"))
            room.advance(1)
        await room.planned()
        room.advance(300)
        await room.quiet()
    assert sum(document["count"] for document in documents(web, "/ops")) == 60
    assert len(documents(web, "/ops")) <= 12
