"""The no-op nodes of the flow benchmark; a station takes them with `--import nodes`."""

from __future__ import annotations

import time
from typing import Annotated

from tradewind.flows.node import Input, node


@node(inline=True)
def noop(x: int) -> int:
    return x + 1


@node(inline=True)
def total(xs: Annotated[list, Input(aggregate=True)]) -> int:  # type: ignore[type-arg]
    return sum(xs)


@node(inline=True)
def stamp() -> float:
    """When it began, in milliseconds since the epoch."""
    return time.time() * 1000
