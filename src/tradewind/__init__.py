"""Tradewind: decision loops against the real world, in one product."""

from tradewind.settings import Settings
from tradewind.tasks import Abort, Retry, current, task
from tradewind.tasks.client import BlockingClient, Client, Handle, TaskFailed, connect

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "BlockingClient",
    "Client",
    "Handle",
    "Retry",
    "Settings",
    "TaskFailed",
    "connect",
    "current",
    "task",
]
