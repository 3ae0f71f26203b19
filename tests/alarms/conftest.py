from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.alarms.alarm_room import AlarmRoom
from tradewind.redis.connection import Link


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[AlarmRoom]:
    room = AlarmRoom(link, key_prefix)
    yield room
    await room.plane.close()
