"""The state store in plain memory, for tests. TTLs go by the clock; what expired is dropped when it is met."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tradewind import codec
from tradewind.clock import Clock, iso
from tradewind.errors import NotFound
from tradewind.flows.node_record import (
    IN_FLIGHT,
    NodeState,
    NodeStatus,
    NodeTask,
    TerminationFlag,
    check_node_task,
    check_task_id,
    sources_of,
)
from tradewind.flows.state_store import (
    FLAG_TTL_S,
    NODE_TTL_S,
    StateStore,
    batches,
    check_reason,
    decode_value,
    encode_info,
    encode_value,
    has_ended,
    holds_another_kind,
    is_taken,
    ttl_ms,
)
from tradewind.redis.keys import Keys

T = TypeVar("T", bytes, set[str], dict[str, str])


class InMemoryStateStore(StateStore):
    """No method waits between its first look and its last write, so each is atomic on its event loop."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._keys = Keys()
        #: Key → (JSON, set or hash; ms when it expires or 0).
        self._data: dict[str, tuple[bytes | set[str] | dict[str, str], int]] = {}

    def _get(self, key: str, kind: type[T]) -> T | None:
        value, until = self._data.get(key, (None, 0))
        if value is None:
            return None
        if until and until <= self._clock.now_ms():
            del self._data[key]
            return None
        if not isinstance(value, kind):
            raise holds_another_kind(key)
        return value

    def _set(self, key: str, value: bytes | set[str] | dict[str, str], ttl: int = 0) -> None:
        self._data[key] = (value, self._clock.now_ms() + ttl if ttl else 0)

    def _delete(self, key: str) -> bool:
        _, until = self._data.pop(key, (b"", -1))
        return until == 0 or until > self._clock.now_ms()

    async def initialize(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        self._data.clear()

    async def set_value(self, key: str, value: Any, ttl_s: float | None = None) -> None:
        self._set(key, encode_value(key, value), 0 if ttl_s is None else ttl_ms(ttl_s))

    async def get_values(self, keys: Sequence[str]) -> list[Any]:
        return [
            await self.get_value(key) if isinstance(self._data.get(key, (None,))[0], bytes) else None for key in keys
        ]

    async def get_value(self, key: str) -> Any:
        data = self._get(key, bytes)
        return None if data is None else decode_value(key, data)

    async def delete_value(self, key: str) -> bool:
        return self._delete(key)

    async def add_to_set(self, key: str, *members: str) -> int:
        found = self._get(key, set) or set()
        new = set(members) - found
        if new:
            self._set(key, found | new)
        return len(new)

    async def remove_from_set(self, key: str, *members: str) -> int:
        found = self._get(key, set) or set()
        gone = found.intersection(members)
        if gone == found:
            self._delete(key)
        else:
            self._set(key, found - gone)
        return len(gone)

    async def get_set_members(self, key: str) -> set[str]:
        return set(self._get(key, set) or ())

    async def scan_set(self, key: str) -> AsyncIterator[list[str]]:
        for batch in batches(await self.get_set_members(key)):
            yield batch

    def _record(self, task_id: str) -> dict[str, Any] | None:
        data = self._get(self._keys.node_task(check_task_id(task_id)), bytes)
        found: dict[str, Any] | None = None if data is None else codec.decode(data)
        return found

    def _status(self, task_id: str, record: dict[str, Any] | None) -> str | None:
        state = self._get(self._keys.node_state(task_id), dict)
        return state["status"] if state else (record or {}).get("status")

    def _write(self, task_id: str, record: dict[str, Any] | None, status: str, error_message: str) -> None:
        now, ttl = self._clock.now_ms(), NODE_TTL_S * 1000
        if record is not None:
            record |= {"status": status, "updated_at": iso(now)}
            self._set(self._keys.node_task(task_id), codec.encode(record), ttl)
        state = {"status": status, "updated_at": str(now / 1000), "error_message": error_message}
        self._set(self._keys.node_state(task_id), state, ttl)

    async def register_node_task(self, task: NodeTask) -> NodeTask:
        check_node_task(task)
        task_id = task.node_task_id
        wanted = codec.decode(encode_value(task_id, task))
        record = self._record(task_id)
        status = self._status(task_id, record)
        if record is not None and any(str(record.get(n)) != str(wanted[n]) for n in ("flow_id", "cycle", "node_id")):
            raise is_taken(task_id)
        if status is not None and status not in IN_FLIGHT:
            raise has_ended(task_id, status)
        before = (record or {}).get("worker_id")
        if before and before != task.worker_id:
            status = NodeStatus.PENDING if status == NodeStatus.RUNNING else status
            await self.remove_from_set(self._keys.worker_tasks(before), task_id)
        if record is None:
            record = wanted | {"registered_at": iso(self._clock.now_ms())}
        else:
            record |= {name: wanted[name] for name in ("node_type", "worker_id", "config")}
        state = self._get(self._keys.node_state(task_id), dict) or {}
        self._write(task_id, record, status or NodeStatus.REGISTERED, state.get("error_message", ""))
        await self.add_to_set(self._keys.node_tasks_list(), task_id)
        await self.add_to_set(self._keys.worker_tasks(task.worker_id), task_id)
        return msgspec.convert(record, NodeTask, strict=False)

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
        changes = {name: codec.decode(data) for name, data in encode_info(info, error_message).items()}
        record = self._record(task_id)
        if record is None and is_registered:
            raise NotFound(f"there is no node task {task_id}", code="node_task_not_found", hint="it may have expired")
        if worker_id and (record or {}).get("worker_id") != worker_id:
            return False
        old = self._status(task_id, record)
        if old is not None and old not in sources_of(status):
            return old == status
        if record is not None:
            record |= changes
        self._write(task_id, record, status, error_message)
        return True

    async def get_node_task_statuses(self, task_ids: Sequence[str]) -> list[NodeState | None]:
        found: list[NodeState | None] = []
        for task_id in task_ids:
            state = self._get(self._keys.node_state(check_task_id(task_id)), dict)
            found.append(
                NodeState(
                    status=state["status"],
                    updated_at=float(state["updated_at"]),
                    error_message=state["error_message"],
                )
                if state
                else None
            )
        return found

    async def remove_node_task(self, task_id: str) -> bool:
        record = self._record(task_id)
        self._delete(self._keys.node_terminate(task_id))
        await self.remove_from_set(self._keys.node_tasks_list(), task_id)
        if record and record.get("worker_id"):
            await self.remove_from_set(self._keys.worker_tasks(record["worker_id"]), task_id)
        had_state = self._delete(self._keys.node_state(task_id))
        return self._delete(self._keys.node_task(task_id)) or had_state

    def _gone(self, key: str) -> Iterator[str]:
        for task_id in self._get(key, set) or ():
            if self._get(self._keys.node_task(task_id), bytes) is None:
                yield task_id

    async def forget_expired_node_tasks(self) -> int:
        for key in [key for key in self._data if key.startswith(self._keys.worker_tasks(""))]:
            await self.remove_from_set(key, *self._gone(key))
        listed = self._keys.node_tasks_list()
        return await self.remove_from_set(listed, *self._gone(listed))

    async def set_termination_flag(self, task_id: str, reason: str) -> bool:
        check_reason(reason)
        status = self._status(task_id, self._record(task_id))
        if status is not None and status not in IN_FLIGHT:
            return False
        flag = {"reason": reason, "timestamp": iso(self._clock.now_ms())}
        self._set(self._keys.node_terminate(task_id), codec.encode(flag), FLAG_TTL_S * 1000)
        return True

    async def get_termination_flag(self, task_id: str) -> TerminationFlag | None:
        data = self._get(self._keys.node_terminate(check_task_id(task_id)), bytes)
        return None if data is None else msgspec.json.decode(data, type=TerminationFlag)

    async def clear_termination_flag(self, task_id: str) -> bool:
        return self._delete(self._keys.node_terminate(check_task_id(task_id)))

    async def set_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> None:
        self._set(self._keys.component_stop(flow_id, cycle, component_id), b"1", FLAG_TTL_S * 1000)

    async def get_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> bool:
        return self._get(self._keys.component_stop(flow_id, cycle, component_id), bytes) is not None

    async def clear_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> bool:
        return self._delete(self._keys.component_stop(flow_id, cycle, component_id))
