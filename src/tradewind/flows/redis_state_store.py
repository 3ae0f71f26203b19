"""The state store on Redis: the seed's keys, types and TTLs; node tasks are written by `lua/node_task_*.lua` only."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from tradewind import codec
from tradewind.clock import Clock
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
    BATCH,
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
from tradewind.redis.connection import Link, translated
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, Scripts

#: Keys that one SCAN step looks at.
SCAN = 1000


class RedisStateStore(StateStore):
    """The link stays the caller's. `retries`: of node task scripts, which may be repeated, after connection trouble."""

    def __init__(self, link: Link, keys: Keys, clock: Clock | None = None, retries: int = 3) -> None:
        self._link = link
        self._keys = keys
        self._clock = clock or Clock()
        self._scripts = Scripts(link, "tradewind.flows", retries)

    @property
    def _redis(self) -> Any:
        return self._link.client

    def _head(self) -> list[Arg]:
        return [self._keys.p, self._clock.now_arg()]

    async def initialize(self) -> None:
        with translated(self._link):
            await self._redis.ping()

    async def close(self) -> None:
        """Nothing is ours."""

    async def set_value(self, key: str, value: Any, ttl_s: float | None = None) -> None:
        px = None if ttl_s is None else ttl_ms(ttl_s)
        data = encode_value(key, value)
        with translated():
            await self._redis.set(self._keys.p + key, data, px=px)

    async def get_values(self, keys: Sequence[str]) -> list[Any]:
        found: list[Any] = []
        for batch in batches(keys):
            with translated():
                values = await self._redis.mget([self._keys.p + key for key in batch])
            found += [
                None if data is None else decode_value(key, data) for key, data in zip(batch, values, strict=True)
            ]
        return found

    async def get_value(self, key: str) -> Any:
        with translated(), _kind_is_right(key):  # MGET answers nil for a set
            data = await self._redis.get(self._keys.p + key)
        return None if data is None else decode_value(key, data)

    async def delete_value(self, key: str) -> bool:
        with translated():
            return bool(await self._redis.delete(self._keys.p + key))

    async def add_to_set(self, key: str, *members: str) -> int:
        if not members:
            return 0
        with translated(), _kind_is_right(key):
            return int(await self._redis.sadd(self._keys.p + key, *members))

    async def remove_from_set(self, key: str, *members: str) -> int:
        if not members:
            return 0
        with translated(), _kind_is_right(key):
            return int(await self._redis.srem(self._keys.p + key, *members))

    async def get_set_members(self, key: str) -> set[str]:
        with translated(), _kind_is_right(key):
            return {member.decode() for member in await self._redis.smembers(self._keys.p + key)}

    async def scan_set(self, key: str) -> AsyncIterator[list[str]]:
        cursor = 0
        while True:
            with translated(), _kind_is_right(key):
                cursor, members = await self._redis.sscan(self._keys.p + key, cursor, count=BATCH)
            if members:
                yield [member.decode() for member in members]
            if not cursor:
                return

    def _node_keys(self, task_id: str) -> list[str]:
        keys = self._keys
        return [keys.node_task(check_task_id(task_id)), keys.node_state(task_id)]

    async def register_node_task(self, task: NodeTask) -> NodeTask:
        check_node_task(task)
        keys, task_id = self._keys, task.node_task_id
        status, *rest = await self._scripts.run(
            "node_task_register",
            [*self._node_keys(task_id), keys.node_tasks_list(), keys.worker_tasks(task.worker_id)],
            [*self._head(), encode_value(task_id, task), task_id, task.worker_id, _IN_FLIGHT, NODE_TTL_S * 1000],
        )
        if status == -1:
            raise is_taken(task_id)
        if status == 0:
            raise has_ended(task_id, rest[0].decode())
        return msgspec.json.decode(rest[0], type=NodeTask, strict=False)

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
        args = [*self._head(), status.value, _words(sources_of(status)), error_message, NODE_TTL_S * 1000, worker_id]
        args.append("1" if is_registered else "0")
        for name, data in encode_info(info, error_message).items():
            args += [name, data]
        reply = await self._scripts.run("node_task_update", self._node_keys(task_id), args)
        if reply == -1:
            raise NotFound(f"there is no node task {task_id}", code="node_task_not_found", hint="it may have expired")
        return bool(reply)

    async def get_node_task_statuses(self, task_ids: Sequence[str]) -> list[NodeState | None]:
        names = [self._keys.node_state(check_task_id(task_id)) for task_id in task_ids]
        found: list[NodeState | None] = []
        for batch in batches(names):
            with translated():
                pipe = self._redis.pipeline(transaction=False)
                for name in batch:
                    pipe.hmget(name, "status", "updated_at", "error_message")
                found += [_state(*fields) for fields in await pipe.execute()]
        return found

    async def remove_node_task(self, task_id: str) -> bool:
        keys = [*self._node_keys(task_id), self._keys.node_terminate(task_id), self._keys.node_tasks_list()]
        return bool(await self._scripts.run("node_task_remove", keys, [*self._head(), task_id]))

    async def forget_expired_node_tasks(self) -> int:
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self._keys.worker_tasks("")) + "*"
        with translated():  # a cluster's scan meets one node, which has all our keys
            workers = {key async for key in self._redis.scan_iter(pattern, count=SCAN, _type="set")}
        for key in workers:
            await self._sweep(key.decode())
        return await self._sweep(self._keys.node_tasks_list())

    async def _sweep(self, key: str) -> int:
        dropped = 0
        async for members in self.scan_set(key.removeprefix(self._keys.p)):
            for batch in batches(members):
                dropped += int(await self._scripts.run("node_task_sweep", [key], [self._keys.p, *batch]))
        return dropped

    async def set_termination_flag(self, task_id: str, reason: str) -> bool:
        keys = [*self._node_keys(task_id), self._keys.node_terminate(task_id)]
        args = [*self._head(), _IN_FLIGHT, check_reason(reason), FLAG_TTL_S * 1000]
        return bool(await self._scripts.run("node_task_terminate", keys, args))

    async def get_termination_flag(self, task_id: str) -> TerminationFlag | None:
        with translated():
            data = await self._redis.get(self._keys.node_terminate(check_task_id(task_id)))
        if data is None:
            return None
        flag = codec.decode(data)
        return {"reason": str(flag.get("reason", "")), "timestamp": str(flag.get("timestamp", ""))}

    async def clear_termination_flag(self, task_id: str) -> bool:
        with translated():
            return bool(await self._redis.delete(self._keys.node_terminate(check_task_id(task_id))))

    async def set_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> None:
        with translated():
            await self._redis.set(self._keys.component_stop(flow_id, cycle, component_id), "1", ex=FLAG_TTL_S)

    async def get_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> bool:
        with translated():
            return bool(await self._redis.exists(self._keys.component_stop(flow_id, cycle, component_id)))

    async def clear_component_stop_flag(self, flow_id: str, cycle: int, component_id: int) -> bool:
        with translated():
            return bool(await self._redis.delete(self._keys.component_stop(flow_id, cycle, component_id)))


def _words(states: frozenset[NodeStatus]) -> str:
    """` pending running `, as the scripts look words up."""
    return f" {' '.join(sorted(states))} "


_IN_FLIGHT = _words(IN_FLIGHT)


def _state(status: bytes | None, updated_at: bytes | None, error_message: bytes | None) -> NodeState | None:
    if status is None:
        return None
    try:
        seconds = float(updated_at or 0)
    except ValueError:  # a stranger wrote it in some other form
        seconds = 0.0
    error = (error_message or b"").decode(errors="replace")
    return {"status": status.decode(), "updated_at": seconds, "error_message": error}


class _kind_is_right:
    """Our word for a command that met another type of key."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE"):
            raise holds_another_kind(self.key) from error
