from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.models.model_room import ModelRoom
from tradewind.redis.connection import Link


@pytest.fixture(autouse=True)
def _ticks_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine looks at models, ages and its stop when it ticks: tests need not wait a second for each."""
    monkeypatch.setattr("tradewind.models.engine.TICK_S", 0.1)


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[ModelRoom]:
    room = ModelRoom(link, key_prefix)
    yield room
    await room.plane.close()
