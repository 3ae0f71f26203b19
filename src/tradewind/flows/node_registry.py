"""The node types that a process knows, and how it comes to know them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tradewind.errors import Conflict, Problem
from tradewind.flows.node_base import Node
from tradewind.flows.node_errors import NodeValidationException
from tradewind.flows.spec import NodeType

GROUP = "tradewind.nodes"
_log = logging.getLogger(__name__)


class NodeRegistry:
    """Node classes by type name."""

    def __init__(self) -> None:
        self._classes: dict[str, type[Node]] = {}

    def add(self, node_class: type[Node]) -> None:
        """The same class again replaces itself (a module loaded twice). Raises Conflict for another of that type."""
        plan = node_class.plan
        if plan is None:
            raise NodeValidationException(f"{node_class.__qualname__} is no node type", hint="decorate it with @node")
        known = self._classes.get(plan.type)
        if known is not None and _home(known) != _home(node_class):
            raise Conflict(
                f"two nodes want the type {plan.type!r}: {_home(known)} and {_home(node_class)}",
                code="type_taken",
                hint='give one of them another name: @node("…")',
            )
        self._classes[plan.type] = node_class

    def get(self, type_name: str) -> type[Node] | None:
        return self._classes.get(type_name)

    def all(self) -> Iterable[type[Node]]:
        return self._classes.values()

    def check_input(self, type_name: str, config: dict[str, Any], handle: str, value: Any) -> list[Problem]:
        """What a node of that type says about a value from outside; nothing of a type that another process has."""
        node_class = self._classes.get(type_name)
        try:
            return node_class.check_input(config, handle, value) if node_class is not None else []
        except Exception:  # noqa: BLE001 — the fence around user code; the type is in the log
            _log.exception("check_input of node type %s failed; the value goes through", type_name)
            return []

    def describe(self) -> dict[str, NodeType]:
        """What the known types offer, by name, sorted."""
        return {name: self._classes[name].describe() for name in sorted(self._classes)}


def _home(node_class: type[Node]) -> str:
    return f"{node_class.__module__}.{node_class.__qualname__}"


#: Where `@node` puts node types; a station serves these.
node_types = NodeRegistry()


def discover(found: Iterable[EntryPoint] | None = None) -> dict[str, str]:
    """Load every package that announces nodes as an entry point of `tradewind.nodes`; importing it registers them.

    A package that cannot be loaded is logged and left out. Returns what went wrong, by the name of the entry point.
    """
    problems = {}
    for entry in sorted(found if found is not None else entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        try:
            entry.load()
        except Exception as error:  # noqa: BLE001 — the fence around plug-ins; the entry point is in the log
            problems[entry.name] = f"{type(error).__name__}: {error}"
            _log.exception("the node package %s (%s) cannot be loaded and is left out", entry.name, entry.value)
    return problems
