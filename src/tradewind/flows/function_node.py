"""A plain function as a node: parameters are inputs, keyword-only ones config, what it returns is the output.

`Annotated[float, Input(unit="kW")]` says more about an input, and `Annotated[…, Output(…)]` about what is returned. A
parameter annotated as `Node` gets the running node itself, for its log and its progress.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from tradewind.errors import Invalid
from tradewind.flows.handles_sdk import Input, InputOptions, Output, OutputOptions
from tradewind.flows.node_base import Node
from tradewind.flows.node_plan import (
    InputPlan,
    NodeOptions,
    OutputPlan,
    check_options,
    make_plan,
    plan_input,
    plan_output,
    read_hints,
)

Outputs = Sequence[str] | Mapping[str, Any]


class FunctionNode(Node):
    """The class behind a function node; `function` is the user's."""

    function: Callable[..., Any]


@dataclass
class _Shape:
    """What a function takes. `places`: for each positional parameter the number of its input, None for the node."""

    inputs: list[InputPlan] = field(default_factory=list)
    config: list[tuple[str, Any, Any]] = field(default_factory=list)
    places: list[int | None] = field(default_factory=list)
    node_keyword: str = ""
    is_open: bool = False


def class_of_function(
    function: Callable[..., Any], options: NodeOptions, outputs: Outputs | None, local_names: Mapping[str, Any]
) -> type[FunctionNode]:
    """Raises Invalid for a function that cannot be a node."""
    check_options(options)
    where = function.__qualname__
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise Invalid(f"node {where} is a generator", hint="return a list instead of yield")
    hints = read_hints(function, local_names)
    shape = _read_parameters(function, hints)
    sent = _read_outputs(hints.get("return", Any), outputs)
    if shape.is_open:
        options = msgspec.structs.replace(options, open_inputs=True)
    plan = make_plan(options, shape.inputs, sent, shape.config, where)
    plan.has_many_outputs = list(sent) != ["result"]
    plan.call_function = _caller(function, shape)
    made: type[FunctionNode] = type(function.__name__, (FunctionNode,), {"function": staticmethod(function)})
    made.__doc__, made.__module__, made.__qualname__ = function.__doc__, function.__module__, where
    made.plan = plan
    made.is_async = inspect.iscoroutinefunction(function)
    made.inline = options.inline
    return made


def _read_parameters(function: Callable[..., Any], hints: dict[str, Any]) -> _Shape:
    shape = _Shape()
    for param in inspect.signature(function).parameters.values():
        hint = hints.get(param.name, Any)
        default = UNSET if param.default is param.empty else param.default
        if param.kind is param.VAR_POSITIONAL:
            raise Invalid(
                f"node {function.__qualname__} takes *{param.name}", hint="name its inputs; **name takes any others"
            )
        if param.kind is param.VAR_KEYWORD:
            shape.is_open = True
        elif isinstance(hint, type) and issubclass(hint, Node):
            if param.kind is param.KEYWORD_ONLY:
                shape.node_keyword = param.name
            else:
                shape.places.append(None)
        elif param.kind is param.KEYWORD_ONLY:
            shape.config.append((param.name, hint, default))
        else:
            plain, told = _told(hint, Input)
            given = told.options if told is not None else InputOptions()
            if default is not UNSET:
                given = msgspec.structs.replace(given, default=default)
            if given.auto_update_attr:
                raise Invalid(f"node {function.__qualname__} is a function: it has no attribute to update")
            shape.places.append(len(shape.inputs))
            shape.inputs.append(plan_input(FunctionNode, param.name, plain, given))
    return shape


def _told(hint: Any, kind: type) -> tuple[Any, Any]:
    """The annotation without our part in it, and that part (None if there is none)."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint, None
    said = [part for part in hint.__metadata__ if isinstance(part, kind)]
    if not said:
        return hint, None
    others = [part for part in hint.__metadata__ if part is not said[0]]
    plain = hint.__origin__
    for part in others:
        plain = typing.Annotated[plain, part]
    return plain, said[0]


def _read_outputs(hint: Any, outputs: Outputs | None) -> dict[str, OutputPlan]:
    if outputs is not None:
        types = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs, Any)
    elif typing.is_typeddict(hint):
        types = typing.get_type_hints(hint, include_extras=True)
    elif hint is None or hint is type(None):
        types = {}
    else:
        plain, told = _told(hint, Output)
        options = told.options if told is not None else OutputOptions()
        return {"result": plan_output("result", plain, options)}
    made = {}
    for name, kind in types.items():
        plain, told = _told(kind, Output)
        made[name] = plan_output(name, plain, told.options if told is not None else OutputOptions())
    return made


def _caller(function: Callable[..., Any], shape: _Shape) -> Callable[[Node, list[Any]], Any]:
    names = [name for name, _, _ in shape.config]
    if not names and not shape.is_open and not shape.node_keyword and None not in shape.places:
        return lambda node, values: function(*values)

    def call(node: Node, values: list[Any]) -> Any:
        args = [node if place is None else values[place] for place in shape.places]
        told = node.__dict__
        keywords = {name: told[name] for name in names if name in told}
        if shape.node_keyword:
            keywords[shape.node_keyword] = node
        if shape.is_open:
            keywords.update(node._extra)
        return function(*args, **keywords)

    return call
