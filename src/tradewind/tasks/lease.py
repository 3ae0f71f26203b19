"""Keeps a worker's lease alive from a thread with its own blocking connection, so that a busy loop never loses it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import redis
import structlog

from tradewind.errors import Unavailable, error_text
from tradewind.redis.connection import Link
from tradewind.tasks.worker_store import WorkerStore

log = structlog.get_logger(__name__)


class LeaseKeeper:
    """Renews every `renew_s`. `on_lost` is called from the thread once Redis says that the worker is unknown."""

    def __init__(
        self,
        link: Link,
        store: WorkerStore,
        renew_s: float,
        locks: Callable[[], list[str]],
        on_lost: Callable[[], None],
    ) -> None:
        self._link = link
        self._store = store
        self._renew_s = renew_s
        self._locks = locks
        self._on_lost = on_lost
        self.status = "active"
        #: When the last renewal that succeeded was begun, by `time.monotonic`.
        self.renewed = time.monotonic()
        self._stop = threading.Event()
        self._poke = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease-{store.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def renew_now(self) -> None:
        self._poke.set()

    def stop(self) -> None:
        self._stop.set()
        self._poke.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        client: redis.Redis | None = None
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                if client is None:
                    client = self._link.new_blocking_client()
                if not self._store.beat_from_thread(client, self.status, self._locks()):
                    self._on_lost()
                    break
                self.renewed = began
                wait = self._renew_s
            except (redis.RedisError, OSError, Unavailable) as error:
                log.warning("lease not renewed", worker=self._store.id, error=error_text(error))
                if client is not None:
                    client.close()
                client, wait = None, 0.5
            self._poke.wait(max(0.05, wait - (time.monotonic() - began)))
            self._poke.clear()
        if client is not None:
            client.close()
