"""Finds the value of each input of one run: signal, else what the flow gives, else the default. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tradewind.flows.call import Arrived, NodeCall
from tradewind.flows.handles_sdk import Reading
from tradewind.flows.node_errors import NodeInputMissing, NodeInputStale, NodeValidationException
from tradewind.flows.node_plan import InputPlan, NodePlan
from tradewind.signals.signal import Signal

Clock = Callable[[], float]


def by_handle(arrived: list[Arrived]) -> dict[str, list[Arrived]]:
    found: dict[str, list[Arrived]] = {}
    for item in arrived:
        known = found.get(item.target_handle)
        if known is None:
            found[item.target_handle] = [item]
        else:
            known.append(item)
    return found


def read_input(plan: InputPlan, arrived: list[Arrived] | None, call: NodeCall, now: Clock) -> Reading:
    """Raises NodeInputMissing, NodeInputStale, NodeValidationException.

    Where only a tombstone came, the trigger rule wants the node to run without the value: the problem then waits in the
    reading until somebody asks for the value.
    """
    options = plan.options
    oldest_s = 0.0
    if arrived is not None:
        items = [item for item in arrived if item.signal is not None]
        if items and options.max_age is not None:
            moment = now()
            oldest_s = max(moment - item.signal.timestamp for item in items if item.signal is not None)
            items = [i for i in items if i.signal is not None and moment - i.signal.timestamp <= options.max_age]
        if items:
            return _aggregate(plan, arrived, items, call) if options.aggregate else _single(plan, items[-1], call)
    name = plan.name
    if name in call.given:
        return Reading(_convert(plan, call.given[name], call, "the value given for"), is_given=True)
    if name in call.config:
        return Reading(_convert(plan, call.config[name], call, "the value in the config for"), is_given=True)
    if plan.make_default is not None:
        return Reading(plan.make_default())
    where = f"input {name!r} of node {call.node_id!r}"
    if oldest_s:
        raise NodeInputStale(
            f"{where} is stale: its signal is {oldest_s:.1f} s old, at most {options.max_age:g} s are allowed",
            [name],
            call.node_id,
        )
    if arrived:
        stone = arrived[-1]
        told = f"{stone.source_node!r} sent nothing on {stone.source_handle!r} ({stone.tombstone or 'skipped'})"
        return Reading(problem=NodeInputMissing(f"{where} has no value: {told}", [name], call.node_id))
    raise NodeInputMissing(
        f"{where} has no value", [name], call.node_id, hint="wire an edge to it, or give it under `inputs` of the node"
    )


def _single(plan: InputPlan, item: Arrived, call: NodeCall) -> Reading:
    signal = item.signal
    assert signal is not None
    value = signal.payload
    if plan.read is not None:
        value = _convert(plan, value, call, f"the signal of {item.source_node!r} for")
    return Reading(value, (signal,), None, True)


def _aggregate(plan: InputPlan, wired: list[Arrived], items: list[Arrived], call: NodeCall) -> Reading:
    """The keys follow from all edges, tombstones among them, so that they are the same in every cycle."""
    counts: dict[str, int] = {}
    for item in wired:
        counts[item.source_handle] = counts.get(item.source_handle, 0) + 1
    keys, signals, values = [], [], {}
    for item in items:
        is_unique = counts[item.source_handle] == 1 and item.source_handle
        key = item.source_handle if is_unique else f"{item.source_node}:{item.source_handle}"
        assert item.signal is not None
        keys.append(key)
        signals.append(item.signal)
        values[key] = item.signal.payload
    value = [signal.payload for signal in signals] if plan.is_list else values
    return Reading(_convert(plan, value, call, "the signals for"), signals, None, True, keys)


def _convert(plan: InputPlan, value: Any, call: NodeCall, what: str) -> Any:
    if plan.read is None:
        return value
    try:
        return plan.read(value)
    except (msgspec.ValidationError, OverflowError) as error:
        raise NodeValidationException(
            f"{what} input {plan.name!r} of node {call.node_id!r} is not {plan.shown}: {error}",
            [plan.name],
            call.node_id,
        ) from error


def read_extra(plan: NodePlan, arrived: dict[str, list[Arrived]], call: NodeCall) -> dict[str, Any]:
    """The values of handles that the type does not declare."""
    found = {name: value for name, value in call.given.items() if name not in plan.names}
    for name, items in arrived.items():
        if name not in plan.names:
            signals: list[Signal] = [item.signal for item in items if item.signal is not None]
            if signals:
                found[name] = signals[-1].payload
    return found


def read_config(plan: NodePlan, call: NodeCall) -> msgspec.Struct:
    """The config with its types and defaults. Raises NodeValidationException."""
    raw = call.config
    if not plan.names.isdisjoint(raw):
        raw = {name: value for name, value in raw.items() if name not in plan.names}
    try:
        return msgspec.convert(raw, plan.config, str_keys=True)
    except msgspec.ValidationError as error:
        raise NodeValidationException(
            f"the config of node {call.node_id!r} ({plan.type}) is wrong: {error}", plan.config_fields, call.node_id
        ) from error
