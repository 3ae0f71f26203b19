"""Which type each key should have, as the docstrings of keys.py say it. No I/O."""

from __future__ import annotations

import inspect
import re
from functools import cache

from tradewind.redis.keys import Keys

TYPES = frozenset({"string", "hash", "list", "set", "zset", "stream"})
_MARK = "\x00"


@cache
def _patterns(part: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Of every key, with `part` for its free parts; those that say most first: `cmd:open` before `cmd:{id}`."""
    keys, found = Keys(), []
    for name, method in vars(Keys).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        kind = (inspect.getdoc(method) or " ").replace(";", " ").split()[0]
        if kind not in TYPES:
            continue  # a channel of pub/sub
        text = method(keys, *[_MARK] * (len(inspect.signature(method).parameters) - 1))
        found.append((text.count(_MARK), -len(text), re.escape(text).replace(re.escape(_MARK), part), kind))
    return tuple((re.compile(f"(.*?){text}"), kind) for _, _, text, kind in sorted(found))


def expected_type(key: str, prefix: str | None = None) -> str | None:
    """`hash`, `list`, …; None for a key that is none of ours. `prefix`: what must stand before it; None: anything."""
    for part in ("[^:]+", ".+"):
        for pattern, kind in _patterns(part):
            match = pattern.fullmatch(key)
            if match is not None and prefix in (None, match[1]):
                return kind
    return None
