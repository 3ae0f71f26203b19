"""`Node`: what a class node inherits, and so all that a running node can ask and say."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from tradewind.errors import Problem
from tradewind.flows.call import NodeCall, NodeHost, Stop
from tradewind.flows.handles_sdk import DONE, Reading
from tradewind.flows.node_errors import NodeValidationException
from tradewind.flows.node_values import as_json, tolerant_json
from tradewind.ids import new_id, new_ids
from tradewind.signals.signal import Signal, read_type

if TYPE_CHECKING:
    from tradewind.flows.node_plan import NodePlan
    from tradewind.flows.spec import NodeType

LEVELS = {"DEBUG": "DEBUG", "INFO": "INFO", "WARNING": "WARNING", "ERROR": "ERROR", "CRITICAL": "CRITICAL"}
LEVELS |= {"WARN": "WARNING", "FATAL": "CRITICAL"}
SCOPES = ("component", "flow")

#: Ids for signals, made many at a time because one alone costs as much as the rest of a run.
_spare_ids: list[str] = []
os.register_at_fork(after_in_child=_spare_ids.clear)


class Node:
    """Base of class nodes. One instance serves one attempt; what it keeps in attributes is gone afterwards.

    A method `_on_{handle}_received(self, signal)`, async or plain, is called for each signal before `execute`.
    Methods that return an awaitable have done their work when they return: plain code need not await them.
    """

    #: Set by `@node`.
    plan: ClassVar[NodePlan | None] = None
    is_async: ClassVar[bool] = False
    inline: ClassVar[bool] = False

    _call: NodeCall
    _host: NodeHost
    _now: Callable[[], float] = staticmethod(time.time)
    _outputs: dict[str, Signal]
    _readings: dict[str, Reading]
    _extra: dict[str, Any]
    _stop: Stop | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.plan = None  # a subclass of a node type is none until it is decorated itself

    def execute(self) -> Any:
        """Do the work: `async def`, or a plain `def`, which then runs in a thread.

        None and True: done. False: failed. A dict: done, and a signal for each handle that it names.
        """
        raise NotImplementedError

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        """What is wrong with a config beyond its schema; asked when a flow is registered.

        `inputs`: the handles that edges feed. The path of a problem counts from the config: `expression`.
        """
        return []

    @classmethod
    def check_input(cls, config: dict[str, Any], handle: str, value: Any) -> list[Problem]:
        """What is wrong with a value from outside for a handle: it is refused, and the node goes on
        waiting. By default: whether it has the handle's type."""
        declared = next((one for one in cls.plan.inputs if one.name == handle), None) if cls.plan is not None else None
        if declared is None or declared.read is None or declared.options.aggregate:
            return []
        try:
            declared.read(value)
        except (msgspec.ValidationError, OverflowError) as error:
            return [Problem("bad_value", "value", f"give {declared.shown}: {error}")]
        return []

    @classmethod
    def describe(cls) -> NodeType:
        """What `GET /node-types` shows."""
        if cls.plan is None:
            raise NodeValidationException(f"{cls.__qualname__} is no node type", hint="decorate it with @node")
        return cls.plan.description

    @property
    def call(self) -> NodeCall:
        return self._call

    @property
    def host(self) -> NodeHost:
        return self._host

    @property
    def config(self) -> dict[str, Any]:
        """As the flow gives it; the declared fields hold the same values with their types and defaults."""
        return self._call.config

    @property
    def flow_id(self) -> str:
        return self._call.flow_id

    @property
    def cycle(self) -> int:
        return self._call.cycle

    @property
    def component_id(self) -> int:
        return self._call.component_id

    @property
    def node_id(self) -> str:
        return self._call.node_id

    @property
    def attempt(self) -> int:
        return self._call.attempt

    @property
    def state(self) -> Any:
        """What this node left when it suspended itself; None in its first run."""
        return self._call.state

    @property
    def is_cancelled(self) -> bool:
        """True once the node shall stop. For plain code, which nobody can interrupt: look now and then, and return."""
        return self._host.is_cancelled

    @property
    def inputs(self) -> dict[str, Any]:
        """All values by handle: of signals, values given in the flow, and defaults; also of handles not declared."""
        found = dict(self._extra)
        for name, reading in self._readings.items():
            if reading.problem is None:
                found[name] = reading.value
        return found

    def persist_log(self, message: str, level: str = "INFO", metadata: dict[str, Any] | None = None) -> Awaitable[None]:
        """Write to the flow's log. Levels: DEBUG, INFO, WARNING, ERROR, CRITICAL."""
        known = LEVELS.get(level.upper())
        if known is None:
            raise NodeValidationException(f"{level!r} is no log level", hint="one of DEBUG INFO WARNING ERROR CRITICAL")
        text = str(message).encode(errors="backslashreplace").decode()  # lone surrogates cannot be stored
        self._host.log(known, text, None if metadata is None else tolerant_json(metadata))
        return DONE

    def progress(self, value: Any, message: str = "") -> None:
        """Show how far it is: a number from 0 to 1, or any small JSON."""
        self._host.progress(value, message)

    def send_signal(self, handle: str, payload: Any, signal_type: str = "ANY") -> Awaitable[None]:
        """Send on a handle by its name. `ANY` means the type that the handle declares."""
        self._emit(handle, payload, signal_type)
        return DONE

    def send_stop_execution_signal(self, reason: str, scope: str = "component") -> Awaitable[None]:
        """End the component, or with scope `flow` the whole cycle, early and well, once this node has ended."""
        if scope not in SCOPES:
            raise NodeValidationException(f"{scope!r} is no scope of a stop", hint="component or flow")
        self._stop = Stop(str(reason), scope)
        return DONE

    def _emit(self, handle: str, payload: Any, signal_type: str = "ANY") -> None:
        plan, call = self.plan, self._call
        assert plan is not None  # run_node gives nothing else
        output = plan.outputs.get(handle)
        if output is None and not plan.description.open_outputs:
            known = ", ".join(plan.outputs) or "none"
            raise NodeValidationException(
                f"node {call.node_id!r} ({plan.type}) has no output {handle!r}; its outputs: {known}",
                [handle],
                call.node_id,
            )
        payload = as_json(payload, "what node %r sends on %r", call.node_id, handle)
        if output is not None and output.kinds is not None and type(payload) not in output.kinds:
            raise NodeValidationException(
                f"node {call.node_id!r} sends {type(payload).__name__} on {handle!r}, which carries {output.shown}",
                [handle],
                call.node_id,
            )
        if signal_type != "ANY":
            signal_type = read_type(signal_type)
        elif output is not None:
            signal_type = output.signal_type
        try:
            signal_id = _spare_ids.pop()
        except IndexError:
            _spare_ids.extend(new_ids(64))
            signal_id = new_id()
        self._outputs[handle] = Signal(
            signal_id, signal_type, payload, self._now(), call.node_id, handle, call.flow_id, call.cycle
        )
