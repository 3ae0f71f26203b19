"""The producer process: `producer.py APP`, run by the app's own interpreter.

Reads one command a line, answers one line of JSON with `submitted` (monotonic time before the call) and `seconds`:
  enqueue FIRST COUNT noop|sleeper
  submit ID
An app has `enqueue(ids, kind)` and `submit(id)`, or both as coroutines plus `session()`, an async context manager.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import time
from typing import Any


def parse(line: str) -> tuple[str, tuple[Any, ...]]:
    word, *rest = line.split()
    if word == "enqueue":
        first, count = int(rest[0]), int(rest[1])
        return word, (range(first, first + count), rest[2])
    return word, (int(rest[0]),)


def answer(began: float) -> None:
    print(json.dumps({"submitted": began, "seconds": time.monotonic() - began}), flush=True)


def main_sync(app: Any) -> None:
    for line in sys.stdin:
        word, args = parse(line)
        began = time.monotonic()
        getattr(app, word)(*args)
        answer(began)


async def main_async(app: Any) -> None:
    loop = asyncio.get_running_loop()
    async with app.session():
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            word, args = parse(line)
            began = time.monotonic()
            await getattr(app, word)(*args)
            answer(began)


if __name__ == "__main__":
    module = importlib.import_module(sys.argv[1])
    if inspect.iscoroutinefunction(module.submit):
        asyncio.run(main_async(module))
    else:
        main_sync(module)
