"""Which channels this process may poll: leases in `points:owners`, kept by a thread so that a busy loop loses none.

A lease that could not be renewed is given up by our own clock when two thirds of it are over, before Redis lets
another process in. Others try a few times per lease, so that a dead owner is replaced within 1.5 leases. Processes
share the channels evenly: each claims its share at most, and lets go what it has beyond it for longer than a lease.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

import redis
import structlog

from tradewind.errors import Unavailable, error_text
from tradewind.points.plane import PACKAGE, PointPlane
from tradewind.redis.scripts import Arg, sha, source

log = structlog.get_logger(__name__)
#: Leases that ended so long ago belong to channels that are gone.
FORGET_MS = 3_600_000


class ClaimKeeper:
    """`on_change` is called on the loop when `held` has changed. Owners never share an id, not even after a restart."""

    def __init__(self, plane: PointPlane, owner: str, on_change: Callable[[], None], *, lease_s: float = 10.0) -> None:
        self.owner = owner
        self._link = plane.link
        self._key = plane.keys.channel_owners()
        self._pollers = plane.keys.channel_pollers()
        self._now_arg = plane.clock.now_arg
        self._lease_s = lease_s
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._released: set[str] = set()
        self._until: dict[str, float] = {}
        self._held: frozenset[str] = frozenset()
        self._leaving: frozenset[str] = frozenset()
        self._above_since: float | None = None
        self._is_uneven = False
        self._poke, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"claims-{owner}", daemon=True)

    @property
    def held(self) -> frozenset[str]:
        """The channels that are ours now."""
        return self._held

    @property
    def leaving(self) -> frozenset[str]:
        """Those of them that another process shall have: stop polling, then `release`."""
        return self._leaving

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Let all channels go, so that another process need not wait for the leases to end."""
        self._stop.set()
        self._poke.set()
        await asyncio.to_thread(self._thread.join, 5)

    def want(self, channels: Iterable[str]) -> None:
        """Claim these from now on, and no others; those that are held stay so until they are released."""
        with self._lock:
            self._wanted = set(channels)
        self._poke.set()

    def release(self, channel: str) -> None:
        """Nothing of this process polls the channel any more."""
        with self._lock:
            self._released.add(channel)
            self._held -= {channel}
        self._poke.set()

    def _run(self) -> None:
        client: redis.Redis | None = None
        while not self._stop.is_set():
            began = time.monotonic()
            soon = min(0.5, self._lease_s / 10)
            wait = self._lease_s / 4
            try:
                if client is None:
                    client = self._link.new_blocking_client(self._lease_s / 4)
                self._renew(client, began)
                if self._is_uneven:  # some of another's channels will soon be free
                    wait = soon
            except (redis.RedisError, OSError, Unavailable) as error:
                log.warning("channel leases out of reach", owner=self.owner, error=error_text(error))
                if client is not None:
                    client.close()
                client, wait = None, soon
            self._settle(time.monotonic())
            if self._until:
                wait = min(wait, max(0.02, min(self._until.values()) - time.monotonic()))
            self._poke.wait(max(0.02, wait - (time.monotonic() - began)))
            self._poke.clear()
        self._let_go(client)

    def _renew(self, client: redis.Redis, began: float) -> None:
        with self._lock:
            released, self._released = self._released, set()
            wanted = sorted((self._wanted | self._until.keys()) - released)
        try:
            if released:
                self._script(client, "channel_release", [self._key], FORGET_MS, sorted(released))
        except BaseException:
            with self._lock:
                self._released |= released
            raise
        for channel in released:
            self._until.pop(channel, None)
        if not wanted:
            return
        keys = [self._key, self._pollers]
        share, is_uneven, *replies = self._script(client, "channel_claim", keys, int(self._lease_s * 1000), wanted)
        for channel, is_ours in zip(wanted, replies, strict=True):
            if is_ours:
                self._until[channel] = began + self._lease_s * 2 / 3
            else:
                self._until.pop(channel, None)
        self._is_uneven = bool(is_uneven)
        self._share_out(share, began)

    def _share_out(self, share: int, now: float) -> None:
        """Not at once: a process that died counts until its lease ends, and one that restarts would count twice."""
        staying = sorted(self._until.keys() - self._leaving)
        if len(staying) <= share:
            self._above_since = None
            return
        if self._above_since is None:
            self._above_since = now
        if now - self._above_since >= self._lease_s:
            self._above_since = None
            self._leaving |= set(staying[share:])
            log.info("channels for another process", owner=self.owner, channels=staying[share:])
            self._loop.call_soon_threadsafe(self._on_change)

    def _settle(self, now: float) -> None:
        self._until = {channel: until for channel, until in self._until.items() if until > now}
        with self._lock:
            before, self._held = self._held, frozenset(self._until.keys() - self._released)
        self._leaving &= self._held  # after `held`: who reads them the other way round never sees one that left as held
        if self._held != before:
            if lost := before - self._held:
                log.info("channels let go", owner=self.owner, channels=sorted(lost))
            self._loop.call_soon_threadsafe(self._on_change)

    def _let_go(self, client: redis.Redis | None) -> None:
        self._held = frozenset()
        if client is None:
            return
        try:
            self._script(client, "channel_release", [self._key], FORGET_MS, sorted(self._until.keys() | self._released))
            client.zrem(self._pollers, self.owner)
        except (redis.RedisError, OSError) as error:
            log.warning(
                "channel leases not released; they will end by themselves", owner=self.owner, error=error_text(error)
            )
        finally:
            client.close()

    def _script(self, client: redis.Redis, name: str, keys: list[str], span_ms: int, channels: list[str]) -> list[int]:
        args: list[Arg] = [self._now_arg(), self.owner, span_ms, *channels]
        command = ("EVALSHA", sha(PACKAGE, name), len(keys), *keys, *args)
        try:
            reply = client.execute_command(*command)  # type: ignore[no-untyped-call]
        except redis.exceptions.NoScriptError:
            client.script_load(source(PACKAGE, name))
            reply = client.execute_command(*command)  # type: ignore[no-untyped-call]
        return reply if isinstance(reply, list) else [reply]
