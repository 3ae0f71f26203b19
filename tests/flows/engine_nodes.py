"""Node types for tests of the engine, and `stage`: where they meet the test (gates to wait at, notes of what ran)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tradewind.flows.node import Input, Node, Output, Suspend, node


class Stage:
    """One per process; names are unique per flow, so tests do not meet."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.runs: list[tuple[str, int, str, int, Any]] = []

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    def open_all(self) -> None:
        for gate in self.gates.values():
            gate.set()

    def clear(self) -> None:
        self.gates, self.runs = {}, []

    def note(self, made: Node, value: Any = None) -> None:
        self.runs.append((made.flow_id, made.cycle, made.node_id, made.attempt, value))

    def ran(self, flow_id: str, cycle: int | None = None) -> list[str]:
        """Ids of nodes in the order of their starts, once for each attempt."""
        return [n for f, c, n, _, _ in self.runs if f == flow_id and cycle in (None, c)]

    def got(self, flow_id: str, node_id: str) -> list[Any]:
        return [value for f, _, n, _, value in self.runs if (f, n) == (flow_id, node_id)]


stage = Stage()


@node("e_send")
class Send(Node):
    """Sends `values`, handle by handle."""

    values: dict[str, Any] = {}  # noqa: RUF012 - config, copied for each node
    signal: str = "ANY"
    a: Output[Any]
    b: Output[Any]
    data: Output[Any]

    async def execute(self) -> None:
        stage.note(self)
        for handle, value in (self.values or {"a": 1}).items():
            await self.send_signal(handle, value, self.signal)


@node("e_fail")
class Fail(Node):
    """Fails the first `times` attempts; 0: always."""

    times: int = 0
    error: str = "on purpose"
    value: Input[Any] = Input(default=None)
    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self)
        if not self.times or self.attempt <= self.times:
            raise ValueError(self.error)
        await self.a.send(self.attempt)


@node("e_false")
class AnswersFalse(Node):
    value: Input[Any] = Input(default=None)
    a: Output[Any]

    async def execute(self) -> bool:
        stage.note(self)
        await self.a.send(1)
        return False


@node("e_block")
class Block(Node):
    """Waits at the gate named after the flow, or at `gate`."""

    gate: str = ""
    value: Input[Any] = Input(default=None)
    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self, self.value.value)
        await stage.gate(self.gate or self.flow_id).wait()
        await self.a.send(self.value.value)


@node("e_note")
class Note(Node):
    """Keeps what it gets; both inputs are needed if they are wired."""

    x: Input[Any]
    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self, self.x.value)
        await self.a.send(self.x.value)


@node("e_two")
class Two(Node):
    """`x` is needed, `y` has a default."""

    x: Input[Any]
    y: Input[Any] = Input(default="nothing")
    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self, (self.x.value if self.x.has_value else None, self.y.value))
        await self.a.send([self.x.value if self.x.has_value else None, self.y.value])


@node("e_gather")
class Gather(Node):
    data: Input[dict[str, Any]] = Input(aggregate=True)
    a: Output[dict[str, Any]]

    async def execute(self) -> None:
        value = self.data.value if self.data.has_value else {}
        stage.note(self, value)
        await self.a.send(value)


@node("e_stop")
class Stops(Node):
    """Ends the rest well. `sends`: also a value."""

    scope: str = "component"
    sends: bool = False
    value: Input[Any] = Input(default=None)
    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self)
        if self.sends:
            await self.a.send("last")
        await self.send_stop_execution_signal("enough", self.scope)


@node("e_talk")
class Talk(Node):
    """Says something, reports progress, then waits at the gate."""

    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self)
        await self.persist_log("half way", "WARNING", metadata={"done": 0.5})
        self.progress(0.5, "half way")
        await stage.gate(self.flow_id).wait()
        await self.a.send(1)


@node("e_ask")
class Ask(Node):
    """Does not run before something came from outside."""

    word: Input[Any] = Input(external=True)
    value: Input[Any] = Input(default=None)
    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self, self.word.value)
        await self.a.send(self.word.value)


@node("e_big")
def big(*, size: int) -> str:
    return "x" * size


@node("e_size")
def size_of(x: str) -> int:
    return len(x)


@node("e_thread")
def in_thread(x: float, *, seconds: float = 0.0) -> float:
    time.sleep(seconds)
    return x + 1


@node("e_nap")
class Nap(Node):
    """Blocks its slot for that long."""

    seconds: float
    value: Input[Any] = Input(default=None)
    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self)
        await asyncio.sleep(self.seconds)
        await self.a.send(1)


@node("e_slow_ask")
class SlowAsk(Node):
    """Asks for `word` without waiting for it: stands at the gate, then is suspended for an hour."""

    word: Input[str | None] = Input(default=None, external=True)
    a: Output[Any]

    async def execute(self) -> None:
        stage.note(self, self.word.value)
        await stage.gate(self.flow_id).wait()
        if self.word.value is None:
            raise Suspend(3600, {"asked": True})
        await self.a.send(self.word.value)


@node("e_note_all", open_inputs=True)
class NoteAll(Node):
    """Notes everything that it was given, by handle."""

    async def execute(self) -> None:
        stage.note(self, dict(self.inputs))


@node("e_make")
class Make(Node):
    """Sends what the expression makes, in Python."""

    made: str
    a: Output[Any]

    async def execute(self) -> None:
        def deep() -> Any:
            value: Any = []
            for _ in range(100_000):
                value = [value]
            return value

        await self.a.send(eval(self.made, {"deep": deep}))
