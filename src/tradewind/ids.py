"""Ids: what they may look like, and how new ones are made."""

from __future__ import annotations

import itertools
import os
import re
import time

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,160}")
IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9_.:@/-]{1,200}")

#: Words that stand in the place of an id in some key family, so no id may be one of them.
_RESERVED = """
type cancel cache status events outbox idem token types reply queue inflight control body high normal
delayed dead parked paused leader epoch wake config due realtime category level date buckets all marked
deadlines slots
"""
RESERVED = frozenset(_RESERVED.split())

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PAIRS = [a + b for a in _DIGITS for b in _DIGITS]
_SPAN = len(_PAIRS)


def is_id(text: str) -> bool:
    return ID.fullmatch(text) is not None and text not in RESERVED


def is_task_id(text: str) -> bool:
    return TASK_ID.fullmatch(text) is not None and text not in RESERVED


def _base36(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, rest = divmod(number, 36)
        digits.append(_DIGITS[rest])
    return "".join(reversed(digits))


class IdMaker:
    """Makes 20-character task ids that sort by time: 8 of milliseconds, 8 of chance per process, 4 of a counter."""

    def __init__(self) -> None:
        self._pid = 0
        self._chance = ""
        self._counter = itertools.count()

    def many(self, count: int) -> list[str]:
        if os.getpid() != self._pid:  # also after a fork: two processes never share their chance part
            self._pid = os.getpid()
            self._chance = _base36(int.from_bytes(os.urandom(8)), 8)
        head = _base36(time.time_ns() // 1_000_000, 8) + self._chance
        counter = self._counter
        ids = []
        for _ in range(count):
            high, low = divmod(next(counter) % (_SPAN * _SPAN), _SPAN)
            ids.append(head + _PAIRS[high] + _PAIRS[low])
        return ids

    def one(self) -> str:
        return self.many(1)[0]


new_ids = IdMaker().many


def new_id() -> str:
    return new_ids(1)[0]


def short_random() -> str:
    """Eight characters of chance, for worker, scheduler and client ids."""
    return _base36(int.from_bytes(os.urandom(8)), 8)
