"""The `@node` decorator, and with it all that somebody who writes nodes imports.

docs/nodes.md is the guide.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, overload

from tradewind.errors import Invalid
from tradewind.flows.call import Suspend
from tradewind.flows.function_node import Outputs, class_of_function
from tradewind.flows.handles_sdk import Input, Output
from tradewind.flows.node_base import Node
from tradewind.flows.node_errors import (
    NodeException,
    NodeExecutionException,
    NodeExecutionFailed,
    NodeInputMissing,
    NodeInputStale,
    NodeResourceException,
    NodeStopExecutionException,
    NodeTimeoutException,
    NodeValidationException,
)
from tradewind.flows.node_plan import NodeOptions, plan_class, summary
from tradewind.flows.node_registry import NodeRegistry, node_types

__all__ = [
    "Input",
    "Node",
    "NodeException",
    "NodeExecutionException",
    "NodeExecutionFailed",
    "NodeInputMissing",
    "NodeInputStale",
    "NodeResourceException",
    "NodeStopExecutionException",
    "NodeTimeoutException",
    "NodeValidationException",
    "Output",
    "Suspend",
    "node",
    "node_class_of",
]

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    def __call__(self, target: F, /) -> F: ...


@overload
def node(target: F, /) -> F: ...


@overload
def node(
    name: str | None = None,
    /,
    *,
    category: str = "general",
    timeout: float = 0,
    retries: int = 0,
    description: str = "",
    outputs: Outputs | None = None,
    inline: bool = False,
    open_inputs: bool = False,
    open_outputs: bool = False,
    registry: NodeRegistry | None = None,
) -> Decorator: ...


def node(
    target: Any = None,
    /,
    *,
    category: str = "general",
    timeout: float = 0,
    retries: int = 0,
    description: str = "",
    outputs: Outputs | None = None,
    inline: bool = False,
    open_inputs: bool = False,
    open_outputs: bool = False,
    registry: NodeRegistry | None = None,
) -> Any:
    """Make a class or a function a node type; it stays what it is and can be used as before.

    timeout: seconds (0: the station's). retries: further attempts after the first. description: instead of the
    docstring's first paragraph. outputs: of a function, names or a mapping from name to type. inline: plain code runs
    on the loop, not in a thread; for what takes microseconds. open_inputs, open_outputs: takes, sends any other handle.
    """
    local_names = sys._getframe(1).f_locals

    def wrap(made: Any) -> Any:
        is_class = isinstance(made, type)
        if (is_class and not issubclass(made, Node)) or not callable(made):
            raise Invalid(f"{made!r} cannot be a node", hint="decorate a function, or a class that inherits from Node")
        options = NodeOptions(
            type=target if isinstance(target, str) else _snake(made.__name__) if is_class else made.__name__,
            category=category,
            timeout=timeout or 0,
            retries=retries,
            description=description or summary(made.__dict__.get("__doc__") if is_class else made.__doc__),
            inline=inline,
            open_inputs=open_inputs,
            open_outputs=open_outputs,
        )
        if is_class:
            node_class = _prepare(made, options, outputs, local_names)
        else:
            node_class = class_of_function(made, options, outputs, local_names)
            made.node_class = node_class
        (node_types if registry is None else registry).add(node_class)
        return made

    return wrap if target is None or isinstance(target, str) else wrap(target)


def _prepare(
    made: type[Node], options: NodeOptions, outputs: Outputs | None, local_names: Mapping[str, Any]
) -> type[Node]:
    if outputs is not None:
        raise Invalid(f"node {made.__qualname__} is a class", hint="declare its outputs: `name: Output[float]`")
    made.plan = plan_class(made, options, local_names)
    made.is_async = inspect.iscoroutinefunction(made.execute)
    made.inline = options.inline
    return made


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def node_class_of(made: Any) -> type[Node]:
    """The class that runs it, of a decorated class or function. Raises Invalid for anything else."""
    found = made if isinstance(made, type) else getattr(made, "node_class", None)
    if isinstance(found, type) and issubclass(found, Node) and found.plan is not None:
        return found
    raise Invalid(f"{made!r} is no node", hint="decorate it with @node")
