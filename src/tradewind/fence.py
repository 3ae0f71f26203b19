"""The fence around a part that must go on whatever it meets: one foreign record must end neither a process
nor, one after the other, each process that takes over.

Errors that the code expects (TradewindError, RedisError) are caught where they are met. What comes here is a bug, or a
record that nobody thought of.
"""

from __future__ import annotations

import time

import structlog

from tradewind.errors import error_text

log = structlog.get_logger(__name__)
#: How long an error is not logged again.
AGAIN_S = 3600.0
#: Different errors that one fence logs within that time.
MOST = 20


class Fence:
    """`where`: the fields that name the part in the log."""

    def __init__(self, **where: str) -> None:
        self._where = where
        self._told: dict[tuple[str, str, int, str], float] = {}

    def met(self, error: BaseException) -> str:
        """Log it with its traceback, the same one once an hour; the error in words."""
        first = first_of(error)
        text = f"{type(first).__name__}: {error_text(first)}"[:300]
        file, line = _place(first)
        if self.is_new(type(first).__name__, file, line, text):
            log.error("unexpected_error", **self._where, error=text, exc_info=error)
        return text

    def is_new(self, kind: str, file: str, line: int, text: str) -> bool:
        now, key = time.monotonic(), (kind, file, line, text)
        self._told = {known: at for known, at in self._told.items() if now - at < AGAIN_S}
        if key in self._told or len(self._told) >= MOST:
            return False
        self._told[key] = now
        return True


def first_of(error: BaseException) -> BaseException:
    """Of a group the first one that is none."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _place(error: BaseException) -> tuple[str, int]:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace is not None else ("", 0)
