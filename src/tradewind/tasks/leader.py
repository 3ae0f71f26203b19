"""Who leads: a thread holds a lock with a blocking connection, so that a busy loop never loses the lead.

The holder steps down by its own clock when it could not renew for two thirds of the lease, before Redis lets another
one in. Each term has an epoch that every leader script compares: a late write of an old term is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import redis
import structlog

from tradewind.errors import Unavailable, error_text
from tradewind.fence import Fence
from tradewind.redis.connection import Link
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, sha, source
from tradewind.settings import Settings
from tradewind.tasks.progress import LOOP, Progress

log = structlog.get_logger(__name__)
_PACKAGE = "tradewind.tasks"
#: How often one that does not lead tries to.
TRY_S = 0.4
TROUBLE_PAUSE_S = 1.0
#: How many leases a report of progress outlives.
REPORT_LEASES = 6


class Plane(Protocol):
    """What every room's plane has."""

    link: Link
    keys: Keys
    all_settings: Settings


class Leadership:
    """`lock` and `terms`: the keys of who leads and of the count of terms. `epoch` is the running term, 0 while another
    one leads; `changed` is set on the loop at every change."""

    def __init__(self, plane: Plane, holder_id: str, lock: str, terms: str) -> None:
        self.plane = plane
        self.id = holder_id
        self.epoch = 0
        self.changed = asyncio.Event()
        self.progress = Progress()
        settings = plane.all_settings.scheduler
        self._ttl_ms = int(settings.leader_ttl_s * 1000)
        self._renew_s = settings.renew_s
        self._report_ms = self._ttl_ms * REPORT_LEASES
        self._held_s = settings.leader_ttl_s * 2 / 3
        # A server that does not answer is asked twice before the lead is given up, and not waited for longer.
        self._patience_s = max(0.1, (self._held_s - self._renew_s - TRY_S) / 2)
        self._keys = [lock, terms]
        self._held_until = 0.0
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=f"leader-{holder_id}", daemon=True)

    def start(self) -> None:
        log.info("stands for election", holder=self.id)
        self._thread.start()

    async def stop(self) -> None:
        """Give the lead up at once, so that another one takes over without waiting for the lease to end."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join, 5)

    async def serve(
        self, stop: asyncio.Event, term: Callable[[int], Awaitable[None]], trouble: Callable[[Unavailable], None]
    ) -> None:
        """Stand for election until `stop` is set, then give the lead up.

        `term` is called with every epoch that is won and returns soon after it is over; what it raises of Unavailable
        goes to `trouble`, and the term is begun again.
        """
        self.start()
        try:
            while not stop.is_set():
                epoch = self.epoch
                if not epoch:
                    await either(stop, self.changed)
                    self.changed.clear()
                    continue
                try:
                    await term(epoch)
                except Unavailable as error:
                    trouble(error)
                    self.progress.met("term", error.message)
                    await either(stop, timeout_s=TROUBLE_PAUSE_S)
        finally:
            await self.stop()

    def is_held(self, epoch: int) -> bool:
        """Whether that term goes on by our own clock: False at once in a process that was stopped for too long, before
        it has learnt that another one leads."""
        return epoch == self.epoch and time.monotonic() < self._held_until

    def step_down(self, epoch: int) -> None:
        """Called when a script said that this term is over; a newer one goes on."""
        if epoch == self.epoch:
            self._set(0)

    def _set(self, epoch: int) -> None:
        if epoch == self.epoch:
            return
        log.info("leads now" if epoch else "does not lead any more", holder=self.id, epoch=epoch or self.epoch)
        self.epoch = epoch
        self._loop.call_soon_threadsafe(self.changed.set)

    def _run(self) -> None:
        client: redis.Redis | None = None
        fence = Fence(job="leader lock", holder=self.id)
        while not self._stop.is_set():
            began = time.monotonic()
            wait = TRY_S
            try:
                if client is None:
                    client = self.plane.link.new_blocking_client(self._patience_s)
                epoch = self.epoch
                if epoch and _script(client, "leader_renew", self._keys, [self.id, epoch, self._ttl_ms]):
                    self._held_until = began + self._held_s
                elif epoch:
                    self._set(0)
                else:
                    epoch = _script(client, "leader_acquire", self._keys, [self.id, self._ttl_ms])
                    if epoch:
                        self._held_until = began + self._held_s
                        self._set(epoch)
                if self.epoch:
                    wait = self._renew_s
                    self._report(client)
            except (redis.RedisError, OSError, Unavailable) as error:
                log.warning("leader lock out of reach", holder=self.id, error=error_text(error))
                if client is not None:
                    client.close()
                client = None
                if self.epoch and time.monotonic() >= self._held_until:
                    self._set(0)
            except Exception as error:  # noqa: BLE001 - a thread that ends would never lead again
                if self._loop.is_closed():
                    return
                fence.met(error)
                if self.epoch and time.monotonic() >= self._held_until:
                    self._set(0)
            if self.epoch:
                wait = max(0.05, min(wait, self._held_until - time.monotonic()))
            self._stop.wait(wait)
        self._release(client)

    def _report(self, client: redis.Redis) -> None:
        """What the parts of this role did last; the loop says that it turns when it comes to it."""
        self._loop.call_soon_threadsafe(self.progress.mark, LOOP)
        key = self.plane.keys.progress(self._keys[0])
        # A server that is full still renews the lead, and takes no report.
        with contextlib.suppress(redis.ResponseError):
            client.set(key, msgspec.json.encode(self.progress.report()), px=self._report_ms)

    def _release(self, client: redis.Redis | None) -> None:
        epoch, self.epoch = self.epoch, 0
        if client is None:
            return
        try:
            if epoch:
                _script(client, "leader_release", self._keys, [self.id, epoch])
        except (redis.RedisError, OSError) as error:
            log.warning("could not give the lead up; it will end by itself", holder=self.id, error=error_text(error))
        finally:
            client.close()


async def either(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait for the first of them, or for so long."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _script(client: redis.Redis, name: str, keys: list[str], args: list[Arg]) -> int:
    command = ("EVALSHA", sha(_PACKAGE, name), len(keys), *keys, *args)
    try:
        return int(client.execute_command(*command))  # type: ignore[no-untyped-call]
    except redis.exceptions.NoScriptError:
        client.script_load(source(_PACKAGE, name))
        return int(client.execute_command(*command))  # type: ignore[no-untyped-call]
