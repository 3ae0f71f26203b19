"""The shape of a flow: components, entry nodes, topological order, cycles. Pure, iterative, deterministic."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tradewind.errors import NotFound

#: So many cycles are looked for; a flow with more of them has a reader who knows by then.
MAX_CYCLES = 20


@dataclass(frozen=True, slots=True)
class Component:
    """Nodes that are connected, whatever the direction of the edges. `id` counts by the first declared node."""

    id: int
    nodes: tuple[str, ...]
    entry_nodes: tuple[str, ...]
    is_dag: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """`order` is topological, ties by declaration; nodes on or behind a cycle come last, as declared.

    `cycles` share no node; each is a path that ends where it began: `("a", "b", "a")`.
    """

    components: tuple[Component, ...]
    order: tuple[str, ...]
    entry_nodes: tuple[str, ...]
    cycles: tuple[tuple[str, ...], ...]
    component_of: dict[str, int] = field(repr=False)
    _place: dict[str, int] = field(repr=False)
    _before: list[list[int]] = field(repr=False)
    _after: list[list[int]] = field(repr=False)

    @property
    def cycle(self) -> tuple[str, ...] | None:
        return self.cycles[0] if self.cycles else None

    def upstream(self, node: str) -> tuple[str, ...]:
        """Everything that the node waits for, in topological order, without itself. Raises NotFound."""
        return self._reach(node, self._before)

    def downstream(self, node: str) -> tuple[str, ...]:
        """Everything that waits for the node, in topological order, without itself. Raises NotFound."""
        return self._reach(node, self._after)

    def structure(self) -> dict[str, Any]:
        """What `flow:{id}` keeps as `structure`."""
        components: dict[str, dict[str, Any]] = {}
        for component in self.components:
            components[str(component.id)] = entry = {
                "nodes": list(component.nodes),
                "entry_nodes": list(component.entry_nodes),
                "node_count": len(component.nodes),
                "is_dag": component.is_dag,
            }
            if not component.is_dag:
                entry["error"] = "Contains cycle"
        return {
            "component_count": len(components),
            "components": components,
            "entry_nodes": list(self.entry_nodes),
        }

    def _reach(self, node: str, neighbours: list[list[int]]) -> tuple[str, ...]:
        # Neighbours are counted by place in `order`, so sorting places sorts topologically.
        if node not in self._place:
            raise NotFound(f"there is no node {node!r}", code="node_not_found", hint="see the flow's nodes")
        start = self._place[node]
        seen = {start}
        todo = [start]
        while todo:
            for place in neighbours[todo.pop()]:
                if place not in seen:
                    seen.add(place)
                    todo.append(place)
        seen.discard(start)
        return tuple(self.order[place] for place in sorted(seen))


def analyse(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> Graph:
    """Edges are (source, target); those with an unknown end are left out, a node named twice counts once."""
    names = list(dict.fromkeys(nodes))
    number = {name: i for i, name in enumerate(names)}
    pairs = dict.fromkeys((number[a], number[b]) for a, b in edges if a in number and b in number)
    after: list[list[int]] = [[] for _ in names]
    before: list[list[int]] = [[] for _ in names]
    for source, target in pairs:
        after[source].append(target)
        before[target].append(source)

    order, sorted_count, cycles = _sort(before, after)
    group, group_count = _group(before, after)
    members: list[list[str]] = [[] for _ in range(group_count)]
    entries: list[list[str]] = [[] for _ in range(group_count)]
    for i in order:
        members[group[i]].append(names[i])
        if not before[i]:
            entries[group[i]].append(names[i])
    cyclic = {group[i] for i in order[sorted_count:]}

    place = [0] * len(names)
    for position, i in enumerate(order):
        place[i] = position
    return Graph(
        components=tuple(
            Component(k, tuple(members[k]), tuple(entries[k]), k not in cyclic) for k in range(group_count)
        ),
        order=tuple(names[i] for i in order),
        entry_nodes=tuple(name for i, name in enumerate(names) if not before[i]),
        cycles=tuple(tuple(names[i] for i in cycle) for cycle in cycles),
        component_of={name: group[i] for i, name in enumerate(names)},
        _place={name: place[i] for i, name in enumerate(names)},
        _before=[[place[k] for k in before[i]] for i in order],
        _after=[[place[k] for k in after[i]] for i in order],
    )


def _sort(before: list[list[int]], after: list[list[int]]) -> tuple[list[int], int, list[list[int]]]:
    """All nodes, how many of them Kahn's algorithm could sort, and the cycles that it got stuck at.

    Each cycle is cut out, then the search goes on behind it.
    """
    open_inputs = [len(sources) for sources in before]
    ready = [i for i, count in enumerate(open_inputs) if count == 0]  # sorted, so it is a heap
    order: list[int] = []
    gone = [False] * len(before)
    cycles: list[list[int]] = []
    first_left = 0
    behind_cycle = False
    while True:
        while ready:
            i = heapq.heappop(ready)
            gone[i] = True
            if not behind_cycle:
                order.append(i)
            for target in after[i]:
                open_inputs[target] -= 1
                if open_inputs[target] == 0 and not gone[target]:
                    heapq.heappush(ready, target)
        while first_left < len(gone) and gone[first_left]:
            first_left += 1
        if first_left == len(gone) or len(cycles) == MAX_CYCLES:
            break
        behind_cycle = True
        cycle = _walk_back(first_left, before, gone)
        cycles.append(cycle)
        for i in cycle[:-1]:
            open_inputs[i] = 0
            gone[i] = True
        ready = cycle[:-1]
        heapq.heapify(ready)
    done = set(order)
    sorted_count = len(order)
    order.extend(i for i in range(len(before)) if i not in done)
    return order, sorted_count, cycles


def _walk_back(start: int, before: list[list[int]], gone: list[bool]) -> list[int]:
    """Every node left has a source that is left, so walking back must meet itself: a cycle, from its first node on."""
    position: dict[int, int] = {}
    path: list[int] = []
    here = start
    while here not in position:
        position[here] = len(path)
        path.append(here)
        here = next(source for source in before[here] if not gone[source])
    cycle = path[position[here] :][::-1]
    first = cycle.index(min(cycle))
    return [*cycle[first:], *cycle[:first], cycle[first]]


def _group(before: list[list[int]], after: list[list[int]]) -> tuple[list[int], int]:
    """The number of each node's component, counted by its first node."""
    group = [-1] * len(before)
    count = 0
    for start in range(len(before)):
        if group[start] >= 0:
            continue
        group[start] = count
        todo = [start]
        while todo:
            i = todo.pop()
            for neighbours in (before[i], after[i]):
                for k in neighbours:
                    if group[k] < 0:
                        group[k] = count
                        todo.append(k)
        count += 1
    return group, count
