"""Where nodes and their managers keep state: the seed's methods as a contract over Redis and plain memory.

Keys of values and sets are the seed's plain names; a store adds its own prefix. Redis trouble raises Unavailable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tradewind import codec
from tradewind.errors import Conflict, Invalid
from tradewind.flows.node_record import NodeState, NodeStatus, NodeTask, TerminationFlag, parse_node_status

NODE_TTL_S = 86_400
FLAG_TTL_S = 3_600
#: Set members that are read and looked at in one step.
BATCH = 500
#: What an update may change in the JSON record beside status and time.
CHANGEABLE = frozenset({"message", "progress", "config"})


class StateStore(ABC):
    @abstractmethod
    async def initialize(self) -> None:
        """Check that the store can be used. Raises Unavailable."""

    @abstractmethod
    async def close(self) -> None:
        """Give back what the store opened itself; nothing that it was given."""

    # values

    @abstractmethod
    async def set_value(self, key: str, value: Any, ttl_s: float | None = None) -> None:
        """Keep JSON; without a ttl for ever, also when the old value had one. Raises Invalid for what is not JSON."""

    @abstractmethod
    async def get_values(self, keys: Sequence[str]) -> list[Any]:
        """Per key the value; None when there is none, or a set. Raises Invalid for a value that is not JSON."""

    @abstractmethod
    async def get_value(self, key: str) -> Any:
        """The value or None. Raises Invalid for a value that is not JSON, Conflict for a set."""

    @abstractmethod
    async def delete_value(self, key: str) -> bool:
        """Remove a value or a set; whether there was one."""

    # sets

    @abstractmethod
    async def add_to_set(self, key: str, *members: str) -> int:
        """How many are new. Raises Conflict when the key holds a value."""

    @abstractmethod
    async def remove_from_set(self, key: str, *members: str) -> int:
        """How many were there. The set is gone with its last member."""

    @abstractmethod
    async def get_set_members(self, key: str) -> set[str]:
        """All at once; see scan_set for sets that may be large."""

    @abstractmethod
    def scan_set(self, key: str) -> AsyncIterator[list[str]]:
        """Members in batches. Those in the set all the while come at least once; the set may change meanwhile."""

    # node tasks: one writer for the JSON record and the state hash, each call atomic

    @abstractmethod
    async def register_node_task(self, task: NodeTask) -> NodeTask:
        """Write record, state and both id sets; the record as it is now. May be repeated.

        Registered by another worker, a task that has not ended becomes that worker's (a running one `pending` again)
        and keeps its time of registration. Raises Conflict when it has ended, or when the id is taken by another
        flow, cycle or node (A-8).
        """

    @abstractmethod
    async def update_node_task(
        self,
        task_id: str,
        status: NodeStatus,
        error_message: str = "",
        *,
        info: Mapping[str, Any] | None = None,
        worker_id: str = "",
        is_registered: bool = False,
    ) -> bool:
        """Move a node task on and renew its 24 h; True when it now has that status, also when it had it before.

        False when the transition is not allowed: then nothing changes, and an end is final. A task without a record
        gets a state only, or raises NotFound if `is_registered`. `worker_id`: only if the task is that worker's.
        `info`: message, progress, config.
        """

    async def set_node_task_status(self, task_id: str, status: str, error_message: str = "") -> bool:
        """As update_node_task; the record's message becomes the error's. Raises Invalid for an unknown status."""
        return await self.update_node_task(task_id, parse_node_status(status), error_message)

    @abstractmethod
    async def get_node_task_statuses(self, task_ids: Sequence[str]) -> list[NodeState | None]: ...

    async def get_node_task_status(self, task_id: str) -> NodeState | None:
        return (await self.get_node_task_statuses([task_id]))[0]

    @abstractmethod
    async def remove_node_task(self, task_id: str) -> bool:
        """Remove record, state, termination flag and both memberships; whether there was a record or a state."""

    @abstractmethod
    async def forget_expired_node_tasks(self) -> int:
        """Drop ids whose record is gone from `node_tasks_list` and all `worker_tasks:`; how many from the former."""

    # flags

    @abstractmethod
    async def set_termination_flag(self, task_id: str, reason: str) -> bool:
        """Ask a node to stop, for 1 h; False, and no flag, when it has ended. Also before the task is registered."""

    @abstractmethod
    async def get_termination_flag(self, task_id: str) -> TerminationFlag | None: ...

    @abstractmethod
    async def clear_termination_flag(self, task_id: str) -> bool: ...

    @abstractmethod
    async def set_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> None:
        """Nodes of the component that have not started are to be skipped; lasts 1 h."""

    @abstractmethod
    async def get_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> bool: ...

    @abstractmethod
    async def clear_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> bool: ...


def encode_value(what: str, value: Any) -> bytes:
    """Raises Invalid when the value is not plain JSON; NaN and infinities are not."""
    try:
        data = codec.encode(value)
        is_lost = codec.lost_non_finite(value, data)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise Invalid(f"{what} is not JSON: {error}", code="not_json", hint="use plain JSON data") from error
    if is_lost:
        raise Invalid(f"{what} has a NaN or an infinity", code="not_json", hint="use null")
    return data


def decode_value(key: str, data: bytes) -> Any:
    try:
        return codec.decode(data)
    except Invalid as error:
        raise Invalid(f"{key}: {error.message}", code=error.code, hint="who wrote it?") from error


def encode_info(info: Mapping[str, Any] | None, error_message: str) -> dict[str, bytes]:
    """The fields that an update changes, as JSON. Raises Invalid for others."""
    fields = dict(info or {})
    unknown = fields.keys() - CHANGEABLE
    if unknown:
        names = ", ".join(sorted(unknown))
        raise Invalid(f"a node task has no such field to change: {names}", hint=", ".join(sorted(CHANGEABLE)))
    if error_message:
        fields.setdefault("message", error_message)
    return {name: encode_value(name, value) for name, value in fields.items()}


def ttl_ms(ttl_s: float) -> int:
    if not ttl_s > 0:
        raise Invalid(f"a ttl of {ttl_s!r} s is not positive", code="bad_ttl", hint="leave it out to keep the value")
    return max(1, round(ttl_s * 1000))


def check_reason(reason: str) -> bytes:
    if not isinstance(reason, str):
        raise Invalid("the reason of a termination is text", code="bad_reason", hint="give a sentence")
    return codec.encode(reason)


def has_ended(task_id: str, status: str) -> Conflict:
    return Conflict(f"node task {task_id} has ended: {status}", code="node_ended", hint="run it in a new cycle")


def is_taken(task_id: str) -> Conflict:
    hint = "rename the flow or the node: {flow}_{cycle}_{node} must be unique"
    return Conflict(f"node task id {task_id} is taken by another flow, cycle or node", code="id_taken", hint=hint)


def holds_another_kind(key: str) -> Conflict:
    return Conflict(
        f"{key} holds another kind of data", code="wrong_kind", hint="values and sets have keys of their own"
    )


def batches(items: Iterable[str]) -> list[list[str]]:
    found = list(items)
    return [found[at : at + BATCH] for at in range(0, len(found), BATCH)]
