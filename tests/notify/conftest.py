from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes.web import Web, serve
from tests.notify.notify_room import NotifyRoom
from tradewind.redis.connection import Link


@pytest.fixture
async def room(link: Link, key_prefix: str) -> NotifyRoom:
    return NotifyRoom(link, key_prefix)


@pytest.fixture
def web() -> Iterator[Web]:
    with serve() as web:
        yield web
