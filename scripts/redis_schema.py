"""Writes docs/redis-schema.md from the docstrings of redis/keys.py: `python scripts/redis_schema.py [--check]`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from tradewind.redis.keys import Keys

PAGE = Path(__file__).resolve().parent.parent / "docs" / "redis-schema.md"
HEAD = """# Redis schema

Every key that Tradewind uses, made from `src/tradewind/redis/keys.py` by `python scripts/redis_schema.py`; a test keeps
the two equal. `key_prefix` goes before every key; in a Redis Cluster all of these carry the hash tag `{tw}:` as well.
A key has a TTL, or it is bounded or emptied by the script or sweeper that its row names. "Seed" marks names that the
original design documents fix.

| key | type | what it holds, TTL, writer |
|---|---|---|
"""


def rows() -> list[str]:
    keys = Keys()
    found = []
    for name, method in vars(Keys).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        parameters = [p for p in inspect.signature(method).parameters if p != "self"]
        kind, _, text = (inspect.getdoc(method) or "").replace("\n", " ").partition(";")
        found.append(f"| `{method(keys, *('{' + p + '}' for p in parameters))}` | {kind} | {text.strip()} |")
    return found


def page() -> str:
    return HEAD + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else f"{PAGE.name} is out of date: run this script")
    PAGE.write_text(page(), encoding="utf-8")
