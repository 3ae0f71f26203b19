from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.rules.rule_room import RuleRoom
from tradewind.redis.connection import Link


@pytest.fixture(autouse=True)
def _ticks_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine looks at rules, ages and its stop when it ticks: tests need not wait a second for each."""
    monkeypatch.setattr("tradewind.rules.engine.TICK_S", 0.1)


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[RuleRoom]:
    room = RuleRoom(link, key_prefix)
    yield room
    await room.plane.close()
