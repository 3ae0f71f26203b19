from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.models.model_room import ModelRoom
from tradewind.redis.connection import Link


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[ModelRoom]:
    room = ModelRoom(link, key_prefix)
    yield room
    await room.plane.close()
