"""The registry of node tasks, as a worker or a scheduler sees it through any state store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import structlog

from tradewind.errors import NotFound, error_text
from tradewind.flows.node_record import IN_FLIGHT, NodeStatus, NodeTask, node_task_id, parse_node_status
from tradewind.flows.state_store import StateStore
from tradewind.redis.keys import Keys

log = structlog.get_logger(__name__)

#: The store adds the prefix.
_NAMES = Keys()


class NodeTaskManager:
    """`worker_id`: whose tasks `register_task` makes."""

    def __init__(self, store: StateStore, worker_id: str) -> None:
        self.store = store
        self.worker_id = worker_id

    async def register_task(
        self, flow_id: str, cycle: int, node_id: str, node_type: str, config: Mapping[str, Any] | None = None
    ) -> NodeTask:
        """Take a node task on; also one that another worker left in flight. Raises Conflict, Invalid."""
        task = NodeTask(
            node_task_id=node_task_id(flow_id, cycle, node_id),
            flow_id=flow_id,
            cycle=cycle,
            node_id=node_id,
            node_type=node_type,
            worker_id=self.worker_id,
            config=dict(config or {}),
        )
        return await self.store.register_node_task(task)

    async def update_task_status(
        self, task_id: str, status: str, additional_info: Mapping[str, Any] | None = None
    ) -> bool:
        """False when the transition is not allowed, such as a late `running` after the end.

        `additional_info`: message, progress, config, error_message. Raises NotFound, Invalid.
        """
        info = dict(additional_info or {})
        error_message = str(info.pop("error_message", ""))
        return await self.store.update_node_task(
            task_id, parse_node_status(status), error_message, info=info, is_registered=True
        )

    async def get_task(self, task_id: str) -> NodeTask | None:
        found = await self._read([task_id])
        return found[0] if found else None

    async def get_worker_tasks(self, worker_id: str | None = None) -> list[NodeTask]:
        """Of this worker if none is named; the ones that ended too, while Redis has them. By time of registration."""
        key = _NAMES.worker_tasks(worker_id or self.worker_id)
        return _in_order(await self._read(await self.store.get_set_members(key)))

    async def list_tasks(self, flow_id: str | None = None, cycle: int | None = None) -> list[NodeTask]:
        """All, of a flow, or of one of its cycles. Without a cycle every known id is looked at."""
        if flow_id is not None and cycle is not None:
            nodes = await self.store.get_set_members(_NAMES.cycle_nodes(flow_id, cycle))
            if nodes:
                tasks = await self._read(node_task_id(flow_id, cycle, node) for node in nodes)
                return _in_order(task for task in tasks if (task.flow_id, task.cycle) == (flow_id, cycle))
        found: dict[str, NodeTask] = {}
        start = f"{flow_id}_" if flow_id is not None else ""
        async for ids in self.store.scan_set(_NAMES.node_tasks_list()):
            for task in await self._read(task_id for task_id in ids if task_id.startswith(start)):
                if flow_id in (None, task.flow_id) and cycle in (None, task.cycle):
                    found[task.node_task_id] = task
        return _in_order(found.values())

    async def stop_task(self, task_id: str, reason: str = "Stopped by NodeTaskManager") -> bool:
        """Set the termination flag, which the node meets at its next check; False when it ended. Raises NotFound."""
        if await self.get_task(task_id) is None:
            raise NotFound(f"there is no node task {task_id}", code="node_task_not_found", hint="it may have expired")
        return await self.store.set_termination_flag(task_id, reason)

    async def remove_task(self, task_id: str) -> bool:
        """Forget everything about it; False when there was nothing."""
        return await self.store.remove_node_task(task_id)

    async def cleanup_old_tasks(self) -> int:
        """Forget the ids of expired tasks, here and in every worker's list; how many. Cheap enough for once an hour."""
        return await self.store.forget_expired_node_tasks()

    async def cleanup_worker_tasks(self, worker_id: str) -> int:
        """A worker is gone: what it had in flight failed, its list is emptied, records stay. How many failed (A-18)."""
        key = _NAMES.worker_tasks(worker_id)
        failed = 0
        async for ids in self.store.scan_set(key):
            for task in await self._read(ids):
                if task.status in IN_FLIGHT:
                    failed += await self.store.update_node_task(
                        task.node_task_id, NodeStatus.FAILED, f"worker {worker_id} is gone", worker_id=worker_id
                    )
            await self.store.remove_from_set(key, *ids)
        return failed

    async def get_comprehensive_node_status(self, flow_id: str, cycle: int) -> dict[str, dict[str, Any]]:
        """Node id → record with `error_message`; status as in the state hash. Empty before the first cycle (-1)."""
        if cycle < 0:
            return {}
        tasks = await self.list_tasks(flow_id, cycle)
        states = await self.store.get_node_task_statuses([task.node_task_id for task in tasks])
        found = {}
        for task, state in zip(tasks, states, strict=True):
            view = msgspec.to_builtins(task) | {"error_message": ""}
            if state is not None:
                view |= {"status": state["status"], "error_message": state["error_message"]}
            found[task.node_id] = view
        return found

    async def _read(self, task_ids: Iterable[str]) -> list[NodeTask]:
        """Records in the order of the ids, without the ones that are gone."""
        found = []
        values = await self.store.get_values([_NAMES.node_task(task_id) for task_id in task_ids])
        for value in values:
            if value is None:
                continue
            try:
                found.append(msgspec.convert(value, NodeTask, strict=False))
            except msgspec.ValidationError as error:  # written by a stranger: it must not hide the others
                log.warning("a node task cannot be read", error=error_text(error))
        return found


def _in_order(tasks: Iterable[NodeTask]) -> list[NodeTask]:
    return sorted(tasks, key=lambda task: (task.registered_at, task.node_task_id))
