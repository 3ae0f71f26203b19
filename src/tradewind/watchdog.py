"""Says when the event loop was blocked: a thread that expects a sign of life, and logs the loop's stack without one."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback

import structlog

log = structlog.get_logger(__name__)


class Watchdog:
    def __init__(self, limit_s: float = 1.0) -> None:
        self._limit_s = limit_s
        self._seen = time.monotonic()
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._sign()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _sign(self) -> None:
        self._seen = time.monotonic()
        if not self._stop.is_set():
            self._loop.call_later(self._limit_s / 4, self._sign)

    def _run(self) -> None:
        told = False
        while not self._stop.wait(self._limit_s / 4):
            silent_s = time.monotonic() - self._seen
            if silent_s <= self._limit_s:
                told = False
            elif not told:
                told = True  # once per spell
                frame = sys._current_frames().get(self._loop_thread)
                stack = "".join(traceback.format_stack(frame)) if frame else ""
                log.warning("the event loop is blocked", seconds=round(silent_s, 1), stack=stack)
