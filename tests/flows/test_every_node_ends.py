"""Whatever a node throws, sends or leaves behind, it ends once, its cycle ends, and the worker goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flows.engine import Engine
from tests.flows.engine_nodes import stage
from tests.hostile import ERRORS, VALUES
from tradewind.flows.call import Suspend
from tradewind.flows.node import Node, Output, node
from tradewind.flows.node_errors import NodeStopExecutionException

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of their `__del__`
#: What JSON can carry after all, or shows as text.
KEPT = {"dying", "list", "dict", "huge number", "huge text", "error", "class", "module", "object"}


@node("h_throw")
class Throw(Node):
    name: str = ""

    async def execute(self) -> None:
        stage.note(self)
        raise ERRORS[self.name]()


@node("h_thread_throw")
class ThreadThrow(Node):
    name: str = ""

    def execute(self) -> None:
        stage.note(self)
        raise ERRORS[self.name]()


@node("h_send")
class SendIt(Node):
    name: str = ""
    out: Output[Any]

    async def execute(self) -> None:
        stage.note(self)
        self._outputs.clear()
        await self.out.send(VALUES[self.name]())


@node("h_thread_send")
class ThreadSend(Node):
    name: str = ""
    out: Output[Any]

    def execute(self) -> Any:
        stage.note(self)
        return {"out": VALUES[self.name]()}


@node("h_return")
class Return(Node):
    name: str = ""

    async def execute(self) -> Any:
        stage.note(self)
        return VALUES[self.name]()


@node("h_leave")
class Leave(Node):
    """Suspends itself with a state that cannot be kept."""

    name: str = ""

    async def execute(self) -> None:
        stage.note(self)
        raise Suspend(30, VALUES[self.name]())


@node("h_sleep")
class Sleep(Node):
    """Suspends itself for a time that is none."""

    async def execute(self) -> None:
        stage.note(self)
        raise Suspend(float("nan"))


@node("h_say")
class Say(Node):
    """Logs and reports what cannot be written, then ends well."""

    name: str = ""

    async def execute(self) -> None:
        stage.note(self)
        await self.persist_log("caf\udce9", metadata={"it": VALUES[self.name]()})


@node("h_thread_say")
class ThreadSay(Node):
    name: str = ""

    def execute(self) -> None:
        stage.note(self)
        self.persist_log("caf\udce9", metadata={"it": VALUES[self.name]()})
        try:
            self.progress(VALUES[self.name]())
        except BaseException:  # noqa: BLE001 — it shall raise here, not on the loop
            return


@node("h_stop")
class StopIt(Node):
    async def execute(self) -> None:
        stage.note(self)
        raise NodeStopExecutionException("caf\udce9")


async def _go(station: Engine, kind: str, names: dict[str, Any]) -> dict[str, str]:
    """The state of each, by name; each in a component of its own, which a successor must see the end of."""
    order = list(names)
    nodes: dict[str, Any] = {f"n{i}": (kind, {"name": name}) for i, name in enumerate(order)}
    ended = await station.go(nodes)
    ran = stage.ran(ended.flow_id)
    assert sorted(ran) == sorted(nodes), "each ran once"
    states = {name: ended.states[f"n{i}"] for i, name in enumerate(order)}
    for i, name in enumerate(order):
        if states[name] == "failed":
            assert ended.nodes[f"n{i}"]["error_message"], name
    return states


@pytest.mark.parametrize("kind", ["h_throw", "h_thread_throw"])
async def test_whatever_a_node_throws_ends_it_once(station: Engine, kind: str) -> None:
    states = await _go(station, kind, ERRORS)
    assert {name for name, state in states.items() if state != "failed"} == set()
    assert (await station.go({"a": "e_send"})).status == "completed"


@pytest.mark.parametrize("kind", ["h_send", "h_thread_send", "h_return", "h_leave"])
async def test_whatever_a_node_gives_ends_it_once(station: Engine, kind: str) -> None:
    states = await _go(station, kind, {name: make for name, make in VALUES.items() if name not in KEPT})
    assert {name for name, state in states.items() if state != "failed"} == set()
    assert (await station.go({"a": "e_send"})).status == "completed"


@pytest.mark.parametrize("kind", ["h_say", "h_thread_say"])
async def test_whatever_a_node_says_does_not_harm_it(station: Engine, kind: str) -> None:
    states = await _go(station, kind, VALUES)
    assert {name for name, state in states.items() if state != "completed"} == set()


async def test_a_node_that_suspends_itself_for_no_time_or_stops_for_no_reason_ends(station: Engine) -> None:
    ended = await station.go({"a": "h_sleep", "b": "h_stop"})
    assert ended.states == {"a": "failed", "b": "terminated"}
    assert "no number of seconds" in ended.nodes["a"]["error_message"]
    assert "caf" in ended.nodes["b"]["error_message"]
