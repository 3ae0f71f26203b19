"""Node types of the fault tests of flows. Each writes its begin and its end to a ledger outside the system.

Imported by worker processes as a top-level module (their PYTHONPATH names this folder), never by the tests.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from tradewind.flows.node import Input, Node, Output, node

_ledger = os.open(os.environ["FAULT_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _note(kind: str, made: Node) -> None:
    host: Any = made.host
    token = getattr(host, "_host", host).state.token  # in a thread the host stands behind another one
    line = f"{kind} {made.call.task_id} {made.attempt} {token} {os.getpid()} {time.monotonic()}\n"
    os.write(_ledger, line.encode())


@node("f_step")
class Step(Node):
    """One more than it got, after a nap."""

    ms: float = 0.0
    x: Input[float] = Input(default=0.0)
    out: Output[float]

    async def execute(self) -> None:
        _note("begin", self)
        await asyncio.sleep(self.ms / 1000)
        _note("end", self)
        await self.out.send(self.x.value + 1)


@node("f_deaf")
class Deaf(Node):
    """Plain code in a thread that hears of no stop."""

    out: Output[float]

    def execute(self) -> None:
        _note("begin", self)
        time.sleep(600)


@node("f_next")
class Next(Node):
    """One more than it got; it cannot do without."""

    x: Input[float]
    out: Output[float]

    async def execute(self) -> None:
        _note("begin", self)
        _note("end", self)
        await self.out.send(self.x.value + 1)


@node("f_join")
class Join(Node):
    """The sum of all that came."""

    ms: float = 0.0
    all: Input[dict[str, Any]] = Input(aggregate=True)
    out: Output[float]

    async def execute(self) -> None:
        _note("begin", self)
        await asyncio.sleep(self.ms / 1000)
        _note("end", self)
        await self.out.send(sum(self.all.value.values()))


@node("f_two")
class Two(Node):
    """Waits for both of its inputs."""

    x: Input[float]
    y: Input[float]
    out: Output[float]

    async def execute(self) -> None:
        _note("begin", self)
        _note("end", self)
        await self.out.send(self.x.value + self.y.value)


@node("f_fail")
class Fail(Node):
    x: Input[float] = Input(default=0.0)
    out: Output[float]

    async def execute(self) -> None:
        _note("begin", self)
        raise ValueError("on purpose")


@node("f_big")
class Big(Node):
    """Sends that many bytes."""

    size: int = 1000
    ms: float = 0.0
    x: Input[Any] = Input(default=None)
    out: Output[str]

    async def execute(self) -> None:
        _note("begin", self)
        await asyncio.sleep(self.ms / 1000)
        _note("end", self)
        await self.out.send("x" * self.size)
