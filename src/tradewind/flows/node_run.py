"""Runs a node once. The hot path of the flow room: what can be known before is in the class's plan."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tradewind.flows.call import NodeCall, NodeHost, NodeResult
from tradewind.flows.handles_sdk import Reading, bound_input
from tradewind.flows.node_base import Node
from tradewind.flows.node_errors import (
    NodeException,
    NodeExecutionException,
    NodeExecutionFailed,
    NodeValidationException,
    for_task_room,
)
from tradewind.flows.node_plan import InputPlan, NodePlan
from tradewind.flows.node_reading import Clock, by_handle, read_config, read_extra, read_input
from tradewind.signals.signal import Signal
from tradewind.tasks.client import blocking_in_use
from tradewind.tasks.one_process import one_process

_EMPTY: dict[str, Any] = {}


async def run_node(
    call: NodeCall,
    node_class: type[Node],
    host: NodeHost,
    thread_pool: Executor | None = None,
    now: Clock = time.time,
) -> NodeResult:
    """One attempt. Plain code runs in `thread_pool` (None: the loop's own) unless the type is inline.

    Raises what the node raises, Suspend among it, as the error that makes the task room do the right thing (Abort for
    what another attempt would not heal).
    """
    plan = node_class.plan
    if plan is None:
        raise NodeValidationException(f"{node_class.__qualname__} is no node type", hint="decorate it with @node")
    try:
        node = node_class()
        node._call = call
        node._host = host
        node._now = now
        outputs: dict[str, Signal] = {}
        node._outputs = outputs
        if call.config or plan.config_always:
            config, attributes = read_config(plan, call), node.__dict__
            for name in plan.config_fields:
                attributes[name] = getattr(config, name)
        function = plan.call_function
        arguments = _bind(node, plan, call, now, is_function=function is not None)
        if plan.has_hooks and (plan.has_async_hooks or node_class.is_async or node_class.inline):
            await _receive(node, plan)
        if node_class.is_async:
            returned = await (node.execute() if function is None else function(node, arguments))
        elif node_class.inline:
            returned = node.execute() if function is None else function(node, arguments)
        else:
            returned = await _in_thread(node, plan, arguments, thread_pool)
        if returned is not None:
            if function is None:
                _take_returned(node, returned)
            else:
                _take_value(node, plan, returned)
        return NodeResult(outputs, node._stop)
    except NodeException as error:
        if not error.node_id:
            error.node_id = call.node_id
        known = for_task_room(error)
        if known is error:
            raise
        raise known from error


def _bind(node: Node, plan: NodePlan, call: NodeCall, now: Clock, *, is_function: bool) -> list[Any]:
    """Give the node its inputs; the values in the order of the plan for a function."""
    arrived = by_handle(call.arrived) if call.arrived else _EMPTY
    if plan.description.open_inputs:
        node._extra = read_extra(plan, arrived, call)
    else:
        node._extra = _EMPTY
    if not plan.inputs:
        node._readings = _EMPTY
        return []
    readings: dict[str, Reading] = {}
    node._readings = readings
    attributes = node.__dict__
    for declared in plan.inputs:
        name = declared.name
        items = arrived.get(name)
        reading = readings[name] = read_input(declared, items, call, now)
        if not is_function:
            is_connected = items is not None or name in call.connected
            attributes[declared.attribute] = bound_input(declared.options, reading, is_connected, now)
    if not is_function:
        return []
    for reading in readings.values():
        if reading.problem is not None:
            raise reading.problem
    return [reading.value for reading in readings.values()]


def _steps(node: Node, declared: InputPlan) -> list[tuple[Any, Signal]]:
    """What `auto_update_attr` holds after each signal of an input, with the signal."""
    reading = node._readings[declared.name]
    if not reading.keys:
        return [(reading.value, signal) for signal in reading.signals]
    if declared.is_list:
        return [(reading.value[: i + 1], signal) for i, signal in enumerate(reading.signals)]
    merged: dict[str, Any] = {}
    steps = []
    for key, signal in zip(reading.keys, reading.signals, strict=True):
        merged = {**merged, key: reading.value[key]}
        steps.append((merged, signal))
    return steps


def _updates(node: Node, plan: NodePlan) -> list[Callable[[], Any]]:
    """Update the attributes, and list the hooks to call; each is called after the update that its signal makes."""
    calls: list[Callable[[], Any]] = []
    for declared in plan.inputs:
        attribute = declared.options.auto_update_attr
        reading = node._readings[declared.name]
        if attribute and not reading.signals and (reading.is_given or not hasattr(node, attribute)):
            setattr(node, attribute, {} if declared.options.aggregate and reading.value is None else reading.value)
        for value, signal in _steps(node, declared):
            if attribute:
                calls.append(_setter(node, attribute, value))
            if declared.hook:
                calls.append(_caller(getattr(node, declared.hook), signal))
    return calls


def _setter(node: Node, attribute: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, attribute, value)


def _caller(hook: Callable[[Signal], Any], signal: Signal) -> Callable[[], Any]:
    return lambda: hook(signal)


async def _receive(node: Node, plan: NodePlan) -> None:
    for call in _updates(node, plan):
        waiting = call()
        if inspect.isawaitable(waiting):
            await waiting


async def _in_thread(node: Node, plan: NodePlan, arguments: list[Any], pool: Executor | None) -> Any:
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    context.run(blocking_in_use, loop)
    node._host = _ThreadHost(node._host, loop)
    returned, error = await loop.run_in_executor(pool, context.run, _work, node, plan, arguments)
    if error is not None:
        raise error
    return returned


def _work(node: Node, plan: NodePlan, arguments: list[Any]) -> tuple[Any, BaseException | None]:
    """What it returned, or what it raised: a future cannot carry StopIteration and GeneratorExit."""
    try:
        with one_process():
            if plan.has_hooks and not plan.has_async_hooks:
                for call in _updates(node, plan):
                    call()
            return node.execute() if plan.call_function is None else plan.call_function(node, arguments), None
    except BaseException as error:  # noqa: BLE001 — the fence around user code; raised again where it is awaited
        return None, error


class _ThreadHost:
    """The host, for code in a thread: what it says is handed to the loop, in order."""

    def __init__(self, host: NodeHost, loop: asyncio.AbstractEventLoop) -> None:
        self._host, self._loop = host, loop

    def log(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None:
        self._loop.call_soon_threadsafe(self._host.log, level, message, metadata)

    def progress(self, value: Any, message: str = "") -> None:
        share = float(value)  # here, where an error is the node's own
        self._loop.call_soon_threadsafe(self._host.progress, share, str(message))

    @property
    def is_cancelled(self) -> bool:
        return self._host.is_cancelled

    async def start_cycle(self, flow_id: str, signals: dict[str, Any], key: str = "") -> int:
        return await self._host.start_cycle(flow_id, signals, key)

    async def cycle_outputs(self, flow_id: str, cycle: int) -> dict[str, dict[str, Any]]:
        return await self._host.cycle_outputs(flow_id, cycle)


def _take_returned(node: Node, returned: Any) -> None:
    if returned is True:
        return
    if returned is False:
        raise NodeExecutionFailed(f"node {node.node_id!r} ({node._call.type}) returned False", node.node_id)
    if not isinstance(returned, dict):
        raise NodeExecutionException(
            f"execute of node {node.node_id!r} ({node._call.type}) returned {type(returned).__name__}",
            node.node_id,
            hint="return a bool, a dict of outputs, or nothing",
        )
    for handle, payload in returned.items():
        node._emit(handle, payload)


def _take_value(node: Node, plan: NodePlan, returned: Any) -> None:
    """What a function returned: the only output's value, or a dict or a tuple of several."""
    names = list(plan.outputs)
    if not plan.has_many_outputs:
        node._emit("result", returned)
    elif isinstance(returned, dict):
        for handle, payload in returned.items():
            node._emit(handle, payload)
    elif isinstance(returned, tuple) and len(returned) == len(names):
        for handle, payload in zip(names, returned, strict=True):
            if payload is not None:
                node._emit(handle, payload)
    else:
        raise NodeExecutionException(
            f"node {node.node_id!r} ({plan.type}) returned {type(returned).__name__}",
            node.node_id,
            hint=f"return a dict with any of {', '.join(names)}, or a tuple of all",
        )
