"""What every part of the task room needs to reach Redis: link, key names, scripts, settings, clock."""

from __future__ import annotations

from typing import Any

from tradewind.clock import Clock
from tradewind.redis.connection import Link
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, Scripts
from tradewind.settings import Settings

#: How long a cancel flag outlives the attempt that it is meant for, and the seed's lock and cache times.
CANCEL_MS = 3_600_000
LOCK_MS = 300_000
CACHE_MS = 300_000


class Plane:
    def __init__(self, link: Link, settings: Settings, clock: Clock | None = None) -> None:
        self.link = link
        self.all_settings = settings
        self.settings = settings.tasks
        self.keys = Keys(settings.key_prefix, cluster=link.cluster)
        self.scripts = Scripts(link, "tradewind.tasks", settings.redis.max_retries)
        self.clock = clock or Clock()
        self._archive = "1" if self.settings.archive else "0"
        self._ttl_ms = int(self.settings.result_ttl_s * 1000)
        self._events = self.keys.events()

    @property
    def redis(self) -> Any:
        """The link's client; Any, because redis-py types every reply as str or bytes or more and ours are bytes."""
        return self.link.client

    def head(self) -> list[Arg]:
        """The first five arguments of every task script; see lua/shared.lua."""
        return [self.keys.p, self.clock.now_arg(), self._events, self._archive, self._ttl_ms]
