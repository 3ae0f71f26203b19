"""A task room per test: its own key prefix, a fake clock, on every Redis in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tasks.room import Room
from tradewind.clock import FakeClock
from tradewind.redis.connection import Link
from tradewind.settings import Settings


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make_room(link: Link, key_prefix: str, clock: FakeClock) -> Callable[..., Room]:
    """`make_room(archive=None, **settings)`: settings by group, `tasks={"max_queued": 3}`."""

    def make(archive: Any = None, **groups: Any) -> Room:
        return Room(link, Settings(key_prefix=key_prefix, **groups), clock, archive)

    return make


@pytest.fixture
def room(make_room: Callable[..., Room]) -> Room:
    return make_room()
