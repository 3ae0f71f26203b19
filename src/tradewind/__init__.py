"""Tradewind: decision loops against the real world, in one product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind.tasks import Abort, Retry, current, task

if TYPE_CHECKING:
    from tradewind.flows.node import Input, Node, Output, Suspend, node
    from tradewind.settings import Settings
    from tradewind.signals.signal import Signal
    from tradewind.tasks.client import BlockingClient, Client, Handle, TaskFailed, connect

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "BlockingClient",
    "Client",
    "Handle",
    "Input",
    "Node",
    "Output",
    "Retry",
    "Settings",
    "Signal",
    "Suspend",
    "TaskFailed",
    "connect",
    "current",
    "node",
    "task",
]
_FROM_FLOWS = frozenset({"Input", "Node", "Output", "Suspend", "node"})


def __getattr__(name: str) -> Any:
    """The rest of the public names, loaded at first use: a module of task functions needs only `task`."""
    if name == "Settings":
        from tradewind.settings import Settings

        return Settings
    if name in _FROM_FLOWS:
        from tradewind.flows import node as flows

        return getattr(flows, name)
    if name == "Signal":
        from tradewind.signals.signal import Signal

        return Signal
    if name in __all__:
        from tradewind.tasks import client

        return getattr(client, name)
    raise AttributeError(f"module 'tradewind' has no attribute {name!r}")
