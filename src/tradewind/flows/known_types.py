"""The node types that a station's flows may use: those of this process, and those that its workers have announced.

A type that only an HTTP worker serves has no description: it takes any handle and any config.
"""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec
import structlog

from tradewind import codec
from tradewind.clock import now_ms
from tradewind.errors import Problem, error_text
from tradewind.flows import alarm_trigger, point_trigger
from tradewind.flows.check import check_flow
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.plane import FlowPlane
from tradewind.flows.spec import FlowSpec, NodeType
from tradewind.flows.syntax import read_flow
from tradewind.offload import offload
from tradewind.problems import Problems
from tradewind.redis.connection import translated
from tradewind.tasks.offers import NODE, Offers

log = structlog.get_logger(__name__)
FRESH_S = 2.0
#: A type that no live worker serves is remembered for so long.
KEEP_MS = 7 * 86_400_000
REFRESH_MS = 3_600_000
T = TypeVar("T")


class _Announced(msgspec.Struct):
    seen_ms: int
    node_type: NodeType


class KnownTypes:
    def __init__(self, plane: FlowPlane, registry: NodeRegistry) -> None:
        self.plane = plane
        self.registry = registry
        self._read_at = 0.0
        self._others: dict[str, list[NodeType]] = {}
        self._offers = Offers(plane.tasks)

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
        """One description of each type: this process's own, else the youngest worker's, else the last one known."""
        await self._refresh(fresh=fresh)
        return {**{name: kinds[0] for name, kinds in self._others.items()}, **self.registry.describe()}

    async def alternatives(self) -> dict[str, list[NodeType]]:
        """Types that live workers describe in more than one way, this process's own among them; all of them count."""
        await self._refresh()
        own = self.registry.describe()
        found = {}
        for name, kinds in self._others.items():
            several = [own[name], *(kind for kind in kinds if kind != own[name])] if name in own else kinds
            if len(several) > 1:
                found[name] = several
        return found

    async def _refresh(self, *, fresh: bool = False) -> None:
        if fresh or time.monotonic() - self._read_at > FRESH_S:
            self._others = await self._read()
            self._read_at = time.monotonic()

    async def _read(self) -> dict[str, list[NodeType]]:
        """By type, the youngest worker's first; one that nobody offers any more also with any handle and any config."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        offers = await self._offers.read()
        with translated():
            announced = await client.hgetall(keys.node_types())
            served = {name.decode(errors="replace") for name in await client.smembers(keys.worker_types())}
            tasks = {name.decode(errors="replace") for name in await client.hkeys(keys.types())}
        found: dict[str, list[NodeType]] = {}
        for offer in offers:
            for name, data in offer.entries.items():
                if name.startswith(NODE):
                    _add(found, name.removeprefix(NODE), _decoded(data, NodeType, name))
            for name in offer.open_types:
                if name not in tasks:
                    _add(found, name, _remote(name))
        for name in sorted(served - tasks - found.keys()):
            _add(found, name, _remote(name))
        old, seen_again = [], {}
        for raw, data in announced.items():
            entry, name = _decoded(data, _Announced, raw.decode(errors="replace")), raw.decode(errors="replace")
            if entry is None:
                continue
            if name in served:
                if entry.seen_ms < now_ms() - REFRESH_MS:  # the time counts from the end of its last worker
                    seen_again[raw] = codec.encode(_Announced(now_ms(), entry.node_type))
                if name not in found:
                    _add(found, name, entry.node_type)
            elif entry.seen_ms < now_ms() - KEEP_MS:
                old.append(raw)
            elif name not in found:
                found[name] = [entry.node_type, _remote(name)]
        with translated():
            if seen_again:
                await client.hset(keys.node_types(), mapping=seen_again)
            if old:
                await client.hdel(keys.node_types(), *old)
        return found

    async def check(
        self, document: object, flow_id: str | None = None
    ) -> tuple[FlowSpec | None, Problems, dict[str, NodeType]]:
        """The flow (None if anything is wrong), all that is wrong with it, and the types it was checked against.

        Where live workers describe a type differently, the description with the fewest problems counts.
        """
        spec, problems = await offload(read_flow, document, flow_id=flow_id)
        types = await self.all()
        if spec is None:
            return None, problems, types
        if any(node.type not in types for node in spec.nodes):
            types = await self.all(fresh=True)
        most = self.plane.settings.max_nodes
        found = await offload(check_flow, spec, types, max_nodes=most)
        if found:
            several = await self.alternatives()
            for name in sorted({node.type for node in spec.nodes} & several.keys()):
                for kind in several[name][1:]:
                    other = {**types, name: kind}
                    less = await offload(check_flow, spec, other, max_nodes=most)
                    if less.total < found.total:
                        found, types = less, other
        problems += found
        problems += await offload(config_problems, spec, self.registry)
        problems += point_trigger.trigger_problems(spec.triggers) + alarm_trigger.trigger_problems(spec.triggers)
        return (None if problems else spec), problems, types


def _add(found: dict[str, list[NodeType]], name: str, kind: NodeType | None) -> None:
    if kind is not None and kind not in found.setdefault(name, []):
        found[name].append(kind)


def _remote(name: str) -> NodeType:
    return NodeType(name, "served by an HTTP worker", "remote", open_inputs=True, open_outputs=True)


def _decoded(data: bytes, kind: type[T], name: str) -> T | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        log.error("a node type cannot be read", type=name, error=error_text(error))
        return None


def config_problems(spec: FlowSpec, registry: NodeRegistry) -> Problems:
    """What the node classes themselves say about their config (a wrong expression, say)."""
    fed: dict[str, list[str]] = {node.id: [*node.inputs, *node.external] for node in spec.nodes}
    for edge in spec.edges:
        if edge.target in fed and edge.target_handle not in fed[edge.target]:
            fed[edge.target].append(edge.target_handle)
    found = Problems()
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
