"""Task types for trying it out: `echo`, `sleep`, `fail`."""

from __future__ import annotations

import asyncio
from typing import Any

from tradewind.tasks.function import task
from tradewind.tasks.running import current


@task
async def echo(value: Any = None) -> Any:
    """Return what it is given."""
    return value


@task
async def sleep(seconds: float = 1.0) -> float:
    """Wait, reporting progress ten times, and return the seconds."""
    for step in range(10):
        await asyncio.sleep(seconds / 10)
        current().progress((step + 1) / 10)
    return seconds


@task
async def fail(message: str = "it was asked to fail") -> None:
    """Raise an error with this message."""
    raise RuntimeError(message)
