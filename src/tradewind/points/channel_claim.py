"""Which channels this process may poll: leases in `points:owners`, kept by a thread so that a busy loop loses none.

A lease that could not be renewed is given up by our own clock when two thirds of it are over, before Redis lets
another process in. Others try a few times per lease, so that a dead owner is replaced within 1.5 leases. Processes
share the channels evenly: each claims its share, and lets go what it has beyond it when another one has asked for it
for a lease. What nobody has claimed for a lease is taken by anybody: a process that lives and leaves its share alone
leaves no channel without a poller. Nor does one whose loop hangs: after three leases without a sign of life from it
the thread renews nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import redis
import structlog

from tradewind.errors import Unavailable, error_text
from tradewind.points.plane import PACKAGE, PointPlane
from tradewind.redis.faults import MAX_REPORTS, fault_fields
from tradewind.redis.scripts import Arg, sha, source

log = structlog.get_logger(__name__)
#: Leases that ended so long ago belong to channels that are gone.
FORGET_MS = 3_600_000
#: Leases that the loop may be silent before its channels are given up.
HUNG_LEASES = 3
#: What `channel_claim` says of a channel that is ours and that another process asks for.
ASKED_FOR = 2
#: The alarm about channels that live processes leave unclaimed.
FAULT_CODE, FAULT_SOURCE = "channels_unclaimed", "points:claims"


class ClaimKeeper:
    """`on_change` is called on the loop when `held` has changed. Owners never share an id, not even after a restart."""

    def __init__(self, plane: PointPlane, owner: str, on_change: Callable[[], None], *, lease_s: float = 10.0) -> None:
        self.owner = owner
        self._link = plane.link
        self._key = plane.keys.channel_owners()
        self._claim_keys = [self._key, plane.keys.channel_pollers(), plane.keys.channel_claims()]
        self._pollers = plane.keys.channel_pollers()
        self._faults = plane.keys.faults()
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
        self._asked: frozenset[str] = frozenset()
        self._above_since: float | None = None
        self._is_asking = False
        self._is_hung = False
        self._turned = time.monotonic()
        self._told: bool | None = None
        self._poke, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"claims-{owner}", daemon=True)

    @property
    def held(self) -> frozenset[str]:
        """The channels that are ours now, by our own clock."""
        now, until = time.monotonic(), self._until
        return frozenset(channel for channel in self._held if until.get(channel, 0.0) > now)

    @property
    def leaving(self) -> frozenset[str]:
        """Those of them that another process shall have: stop polling, then `release`."""
        return self._leaving

    def is_ours(self, channel: str) -> bool:
        """By our own clock now, also in a process that was stopped, or whose thread hangs: ask before each poll."""
        return channel in self._held and self._until.get(channel, 0.0) > time.monotonic()

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
                if self._is_alive(began):
                    if client is None:
                        client = self._link.new_blocking_client(self._lease_s / 4)
                    self._renew(client, began)
                if self._is_asking:  # some of another's channels will soon be free
                    wait = soon
            except (redis.RedisError, OSError, Unavailable) as error:
                log.warning("channel leases out of reach", owner=self.owner, error=error_text(error))
                _close(client)
                client, wait = None, soon
            except Exception:  # a thread that ends would leave its share unclaimed for ever
                log.exception("channel_claims_failed", owner=self.owner)
                _close(client)
                client, wait = None, soon
            self._settle(time.monotonic())
            if self._until:
                wait = min(wait, max(0.02, min(self._until.values()) - time.monotonic()))
            self._poke.wait(max(0.02, wait - (time.monotonic() - began)))
            self._poke.clear()
        self._let_go(client)

    def _is_alive(self, now: float) -> bool:
        """Whether the loop, which polls, has turned lately."""
        self._loop.call_soon_threadsafe(self._turn)
        is_hung = now - self._turned > HUNG_LEASES * self._lease_s
        if is_hung and not self._is_hung:
            log.error(
                "loop_hangs", owner=self.owner, channels=sorted(self._until), silent_s=round(now - self._turned, 1)
            )
        self._is_hung = is_hung
        return not is_hung

    def _turn(self) -> None:
        self._turned = time.monotonic()
        if self._is_hung:
            self._poke.set()

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
        lease_ms = int(self._lease_s * 1000)
        reply = self._script(client, "channel_claim", self._claim_keys, lease_ms, [str(lease_ms), *wanted])
        share, is_asking, extra, all_extra, *replies = reply
        for channel, is_ours in zip(wanted, replies, strict=True):
            if is_ours:
                self._until[channel] = began + self._lease_s * 2 / 3
            else:
                self._until.pop(channel, None)
        self._asked = frozenset(channel for channel, found in zip(wanted, replies, strict=True) if found == ASKED_FOR)
        self._is_asking = bool(is_asking)
        self._share_out(share, began)
        self._tell(client, extra, all_extra)

    def _share_out(self, share: int, now: float) -> None:
        """Not at once: a process that died counts until its lease ends, and one that restarts would count twice."""
        staying = self._until.keys() - self._leaving
        going = sorted(staying & self._asked)[: max(0, len(staying) - share)]
        if not going:
            self._above_since = None
            return
        if self._above_since is None:
            self._above_since = now
        if now - self._above_since >= self._lease_s:
            self._above_since = None
            self._leaving |= set(going)
            log.info("channels for another process", owner=self.owner, channels=going)
            self._loop.call_soon_threadsafe(self._on_change)

    def _tell(self, client: redis.Redis, extra: int, all_extra: int) -> None:
        """Of channels that this process polls because those that should have do not. Whoever sees that nobody has such
        channels any more says so, also for another one that told it and is gone."""
        is_extra = extra > 0
        if all_extra and not is_extra:
            self._told = None
            return
        if is_extra == self._told:
            return
        if is_extra:
            log.warning("channels_taken_beyond_share", owner=self.owner, count=extra)
        elif self._told:
            log.info("channels_shared_again", owner=self.owner)
        text = f"{self.owner} polls {extra} channels beyond its share: another comsrv lives and does not claim them"
        state: Literal["raise", "clear"] = "raise" if is_extra else "clear"
        fields = fault_fields(FAULT_CODE, FAULT_SOURCE, text if is_extra else "", state=state)
        client.xadd(self._faults, fields, maxlen=MAX_REPORTS, approximate=True)  # type: ignore[arg-type]
        self._told = is_extra

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


def _close(client: redis.Redis | None) -> None:
    if client is not None:
        client.close()


def taken_beyond_share(claims: Mapping[bytes, bytes], now_ms: int) -> dict[str, int]:
    """Of the hash `points:claims`: process → channels that it polls beyond its share because nobody claimed them."""
    found = {}
    for field, value in claims.items():
        kind, _, process = field.decode(errors="replace").partition(":")
        count, _, ends = value.partition(b":")
        if kind == "extra" and count.isdigit() and ends.isdigit() and int(ends) > now_ms:
            found[process] = int(count)
    return found
