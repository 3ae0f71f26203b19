"""What an error of a node makes of its task."""

from __future__ import annotations

from tradewind.flows.node_errors import NodeException, NodeResourceException, for_task_room
from tradewind.tasks.running import Abort, Retry


class Final(NodeException):
    is_retryable = False


def test_an_error_says_whether_and_when_it_is_tried_again() -> None:
    later = for_task_room(NodeResourceException("busy", "gpu", retry_after_s=9))
    assert isinstance(later, Retry) and "busy" in str(later)
    plain = NodeResourceException("busy", "gpu")
    assert for_task_room(plain) is plain
    final = for_task_room(Final("no"))
    assert isinstance(final, Abort) and str(final).startswith("Final: ")
