"""What a node may raise, and what that means for its attempts. The names are the seed's.

An error of any other kind counts as a failed attempt, too. Errors that another attempt would not heal are also an Abort
of the task room, so that the attempts left are not used up on them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tradewind.errors import TradewindError
from tradewind.tasks.running import Abort, Retry


class NodeException(TradewindError):
    """The family. `is_retryable`: whether attempts that are left are used."""

    code = "node_error"
    is_retryable: ClassVar[bool] = True

    def __init__(
        self, message: str, node_id: str = "", status: str = "failed", *, code: str | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.node_id = node_id
        self.status = status


class NodeExecutionException(NodeException):
    """The node could not do its work."""

    code = "node_failed"


class NodeExecutionFailed(NodeExecutionException):
    """`execute` returned False."""


class NodeTimeoutException(NodeExecutionException):
    """Something that the node waited for took too long."""

    code = "node_timeout"

    def __init__(self, message: str, timeout_seconds: float | None = None, node_id: str = "") -> None:
        super().__init__(message, node_id)
        self.timeout_seconds = timeout_seconds


class NodeResourceException(NodeExecutionException):
    """Something that the node needs is not there now. `retry_after_s`: wait so long instead of the usual backoff."""

    code = "node_resource"

    def __init__(
        self, message: str, resource_type: str = "", node_id: str = "", *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, node_id)
        self.resource_type = resource_type
        self.retry_after_s = retry_after_s


class NodeValidationException(NodeExecutionException, Abort):
    """What the node was given, or what it sends, is wrong. `invalid_params`: the names of the handles or fields."""

    code = "node_invalid"
    is_retryable = False

    def __init__(self, message: str, invalid_params: Any = (), node_id: str = "", *, hint: str = "") -> None:
        super().__init__(message, node_id, hint=hint)
        self.invalid_params = tuple(invalid_params)


class NodeInputMissing(NodeValidationException):
    """A required input has neither a signal nor a value."""

    code = "input_missing"


class NodeInputStale(NodeValidationException):
    """The signal of a required input is older than the `max_age` of its handle."""

    code = "input_stale"


class NodeStopExecutionException(NodeExecutionException, Abort):
    """The node shall end here, or ends itself: its status is `terminated`, no failure."""

    code = "node_stopped"
    is_retryable = False

    def __init__(self, reason: str, source_node: str = "system") -> None:
        super().__init__(f"stopped by {source_node}: {reason}", source_node, "terminated")
        self.reason = reason
        self.source_node = source_node


def for_task_room(error: NodeException) -> Exception:
    """The error that makes the task room do what `error` means; mostly `error` itself."""
    if not error.is_retryable and not isinstance(error, Abort):  # a user's own subclass
        return Abort(f"{type(error).__name__}: {error}")
    if isinstance(error, NodeResourceException) and error.retry_after_s is not None:
        return Retry(f"{type(error).__name__}: {error}", error.retry_after_s, only_if_left=True)
    return error
