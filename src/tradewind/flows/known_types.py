"""The node types that a station's flows may use: those of this process, and those that its workers have announced.

A type that only an HTTP worker serves has no description: it takes any handle and any config.
"""

from __future__ import annotations

import time

import msgspec
import structlog

from tradewind import codec
from tradewind.clock import now_ms
from tradewind.errors import Problem
from tradewind.flows import alarm_trigger, point_trigger
from tradewind.flows.check import check_flow
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.plane import FlowPlane
from tradewind.flows.spec import FlowSpec, NodeType
from tradewind.flows.syntax import read_flow
from tradewind.redis.connection import translated

log = structlog.get_logger(__name__)
FRESH_S = 2.0
#: A type that no worker has announced for so long is forgotten.
KEEP_MS = 7 * 86_400_000


class _Announced(msgspec.Struct):
    seen_ms: int
    node_type: NodeType


class KnownTypes:
    def __init__(self, plane: FlowPlane, registry: NodeRegistry) -> None:
        self.plane = plane
        self.registry = registry
        self._read_at = 0.0
        self._others: dict[str, NodeType] = {}

    async def announce(self) -> None:
        """A worker says which types it runs, so that processes without its code can check flows."""
        found = {name: codec.encode(_Announced(now_ms(), kind)) for name, kind in self.registry.describe().items()}
        if found:
            with translated():
                await self.plane.tasks.redis.hset(self.plane.keys.node_types(), mapping=found)

    async def is_announced(self) -> bool:
        """Whether Redis knows all types of this process; if not, it has lost them."""
        names = list(self.registry.describe())
        with translated():
            found = await self.plane.tasks.redis.hmget(self.plane.keys.node_types(), names) if names else []
        return all(data is not None for data in found)

    async def all(self, *, fresh: bool = False) -> dict[str, NodeType]:
        if fresh or time.monotonic() - self._read_at > FRESH_S:
            self._others = await self._read()
            self._read_at = time.monotonic()
        return {**self._others, **self.registry.describe()}

    async def _read(self) -> dict[str, NodeType]:
        keys, client = self.plane.keys, self.plane.tasks.redis
        with translated():
            announced = await client.hgetall(keys.node_types())
            served = await client.smembers(keys.worker_types())
            tasks = await client.hkeys(keys.types())
        found: dict[str, NodeType] = {}
        known_tasks = {name.decode() for name in tasks}
        for name in sorted(n.decode() for n in served):
            if name not in known_tasks:
                found[name] = NodeType(name, "served by an HTTP worker", "remote", open_inputs=True, open_outputs=True)
        old = []
        for name, data in announced.items():
            try:
                entry = msgspec.json.decode(data, type=_Announced)
            except msgspec.MsgspecError as error:
                log.error("a node type cannot be read", type=name.decode(errors="replace"), error=str(error))
                continue
            if entry.seen_ms < now_ms() - KEEP_MS:
                old.append(name)
            else:
                found[name.decode()] = entry.node_type
        if old:
            with translated():
                await client.hdel(keys.node_types(), *old)
        return found

    async def check(
        self, document: object, flow_id: str | None = None
    ) -> tuple[FlowSpec | None, list[Problem], dict[str, NodeType]]:
        """The flow (None if anything is wrong), all that is wrong with it, and the types it was checked against."""
        spec, problems = read_flow(document, flow_id=flow_id)
        types = await self.all()
        if spec is None:
            return None, problems, types
        if any(node.type not in types for node in spec.nodes):
            types = await self.all(fresh=True)
        problems = problems + check_flow(spec, types, max_nodes=self.plane.settings.max_nodes)
        problems += config_problems(spec, self.registry)
        problems += point_trigger.trigger_problems(spec.triggers) + alarm_trigger.trigger_problems(spec.triggers)
        return (None if problems else spec), problems, types


def config_problems(spec: FlowSpec, registry: NodeRegistry) -> list[Problem]:
    """What the node classes themselves say about their config (a wrong expression, say)."""
    fed: dict[str, list[str]] = {node.id: [*node.inputs, *node.external] for node in spec.nodes}
    for edge in spec.edges:
        if edge.target in fed and edge.target_handle not in fed[edge.target]:
            fed[edge.target].append(edge.target_handle)
    found: list[Problem] = []
    for i, node in enumerate(spec.nodes):
        node_class = registry.get(node.type)
        if node_class is not None:
            for problem in node_class.check_config(node.config, fed[node.id]):
                path = (
                    problem.path
                    if problem.path.startswith("nodes[")
                    else f"nodes[{i}].config.{problem.path}".rstrip(".")
                )
                found.append(Problem(problem.code, path, problem.hint))
    return found
