"""What every part of the notify room needs to reach Redis: link, key names, scripts, settings, clock."""

from __future__ import annotations

from typing import Any

from tradewind.clock import Clock
from tradewind.redis.connection import Link, translated
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Scripts
from tradewind.settings import Settings


class NotifyPlane:
    def __init__(self, link: Link, settings: Settings, clock: Clock | None = None) -> None:
        self.link = link
        self.all_settings = settings
        self.settings = settings.notify
        self.keys = Keys(settings.key_prefix, cluster=link.cluster)
        self.scripts = Scripts(link, "tradewind.notify", settings.redis.max_retries)
        self.clock = clock or Clock()

    @property
    def redis(self) -> Any:
        """The link's client; Any, because redis-py types every reply as str or bytes or more and ours are bytes."""
        return self.link.client

    async def now_ms(self) -> int:
        """The clock that outbox entries are stamped with: the server's, unless a test turns one."""
        fixed = self.clock.now_arg()
        if fixed:
            return int(fixed)
        with translated(self.link):
            seconds, micros = await self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000
