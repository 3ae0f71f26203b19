"""What depends on what: an order in which everything comes after what it needs, and circles that forbid one. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def ordered(needs: Mapping[str, Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Names in order, ties as given, and circles as paths that end where they began (`[a, b, a]`); no two share a name.

    Names that stand in a circle or behind one are not in the order. Needs that are no names themselves are ignored.
    """
    place = {name: i for i, name in enumerate(needs)}
    names = list(needs)
    after: list[list[int]] = [[] for _ in names]
    open_needs = [0] * len(names)
    for name, wanted in needs.items():
        for other in dict.fromkeys(wanted):
            if other in place:
                after[place[other]].append(place[name])
                open_needs[place[name]] += 1
    ready = [i for i, count in enumerate(open_needs) if not count]
    order: list[str] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(names[at])
        for later in after[at]:
            open_needs[later] -= 1
            if not open_needs[later]:
                heapq.heappush(ready, later)
    if len(order) == len(names):
        return order, []
    left = {name for name in names if open_needs[place[name]]}
    return order, _circles({name: [n for n in needs[name] if n in left] for name in names if name in left})


def _circles(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Every name left over waits for another one left over, so following needs always leads into a circle."""
    done: set[str] = set()
    circles = []
    for start in needs:
        path: list[str] = []
        on_path: dict[str, int] = {}
        name = start
        while name not in done and name not in on_path:
            on_path[name] = len(path)
            path.append(name)
            name = needs[name][0]
        if name in on_path:
            circle = path[on_path[name] :]
            first = min(range(len(circle)), key=circle.__getitem__)
            turned = circle[first:] + circle[:first]
            circles.append([*turned, turned[0]])
        done.update(path)
    return circles


def shown(circle: Sequence[str], most: int = 20) -> str:
    names = list(circle) if len(circle) <= most else [*circle[: most // 2], "…", *circle[-most // 2 :]]
    return " → ".join(names)
