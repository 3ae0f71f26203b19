"""An outbox that is full: what nobody was told is counted to the message, an alarm, and itself told."""

from __future__ import annotations

import pytest

from tests.nodes.web import Web
from tests.notify.notify_room import NotifyRoom, until
from tests.notify.test_with_alarms import hot, put, told
from tradewind.alarms.faults import FaultReader
from tradewind.alarms.statistics import read_statistics
from tradewind.alarms.store import AlarmStore
from tradewind.errors import Overloaded
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link

MOST = 20


@pytest.fixture
def room(link: Link, key_prefix: str) -> NotifyRoom:
    return NotifyRoom(link, key_prefix, outbox_max=MOST)


@pytest.fixture
def plane(room: NotifyRoom) -> PointPlane:
    return PointPlane(room.link, room.plane.all_settings, room.clock)


async def test_dropped_messages_are_counted_and_the_loss_is_told(room: NotifyRoom, plane: PointPlane, web: Web) -> None:
    alarms = AlarmStore(plane)
    await put(room, web)
    await alarms.raise_many([hot(f"a:{n}") for n in range(200)])
    left = int(await room.redis.xlen(room.keys.notify_outbox()))
    figures = await read_statistics(plane)
    assert (figures.outbox_waiting, figures.outbox_dropped) == (left, 200 - left)
    assert left < 200
    with pytest.raises(Overloaded):
        await room.store.tell("a message of a program is refused instead")

    async def is_reported() -> bool:
        return bool(await room.redis.xlen(room.keys.faults()))

    async with room.keeper():
        await until(is_reported)
        assert await FaultReader(plane).step() == 1
        alarm = await alarms.get(await alarms.open_id("station", "notifications:outbox"))
        assert alarm.data["code"] == "notification_dropped" and f"{200 - left} messages" in alarm.title
        await room.planned()
        room.advance(400)  # so many alarms are a flood: it is told with the next group
        await room.quiet()
    assert ("raised", "High", alarm.title) in told(web)
    assert (await read_statistics(plane)).outbox_dropped == 200 - left


async def test_what_was_planned_is_not_dropped(room: NotifyRoom, plane: PointPlane, web: Web) -> None:
    await put(room, web)
    async with room.keeper():
        for part in range(10):
            await AlarmStore(plane).raise_many([hot(f"{part}:{n}") for n in range(MOST)])
            await room.planned()
    assert (await read_statistics(plane)).outbox_dropped == 0
