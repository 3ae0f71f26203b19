from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.rules.rule_room import RuleRoom
from tradewind.redis.connection import Link


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[RuleRoom]:
    room = RuleRoom(link, key_prefix)
    yield room
    await room.plane.close()
