"""Who uses the points of a channel: models, rules, flows and the policy of history. For warnings when it is removed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from tradewind import codec
from tradewind.api.history_room import HistoryServices
from tradewind.api.point_room import PointServices
from tradewind.api.rule_room import RuleServices
from tradewind.errors import TradewindError
from tradewind.flows.control import FlowControl
from tradewind.models.spec import ModelSpec
from tradewind.offload import offload
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType, is_wrong_type

#: Users that are named; of the rest the number is told.
MAX_NAMED = 100
#: Flows that are listed at once, and bytes of their definitions that are read at once (one may be longer).
FLOWS, FLOW_BYTES = 200, 2_000_000
_ADDRESS = re.compile(r"comsrv:([0-9]+):[msca](?::[0-9]+)?|comsrv:([0-9]+)(?=[:*])")
_WHAT = {
    "model": "its outputs become uncertain",
    "rule": "it judges the point as unknown",
    "flow": "it finds no value, and its trigger never fires",
    "history": "it records nothing of it any more",
}


class ChannelUsers:
    def __init__(
        self, points: PointServices, rules: RuleServices, flows: FlowControl, history: HistoryServices
    ) -> None:
        self._points = points
        self._rules = rules
        self._flows = flows
        self._history = history

    async def warnings(self, channels: Iterable[str]) -> list[dict[str, str]]:
        """One of each user: `{code, path, hint}`. What cannot be asked is told as `users_not_known`: a removal is not
        refused for it, and nobody takes it for unused."""
        wanted, found = frozenset(channels), _Users()
        rooms = {"model": self._of_models, "rule": self._of_rules, "flow": self._of_flows, "history": self._of_history}
        for kind, documents in rooms.items():
            try:
                async for some in documents():
                    found.add(await offload(_users_of, kind, some, wanted))
            except TradewindError as error:
                found.add([_not_known(kind, f"{kind}s" if kind != "history" else "history.policy", error)])
        return found.told()

    async def _of_models(self) -> AsyncIterator[Mapping[str, Any]]:
        """As filled in by their templates; the documents of those that cannot be."""
        models = await self._points.models.load()
        yield {name: models.specs.get(name, document) for name, document in models.models.items()}

    async def _of_rules(self) -> AsyncIterator[Mapping[str, Any]]:
        yield (await self._rules.rules.load()).rules

    async def _of_flows(self) -> AsyncIterator[Mapping[str, Any]]:
        """The texts of a few at a time: each may be megabytes."""
        store, after = self._flows.store, ""
        while ids := await store.ids(after, FLOWS):
            some: list[str] = []
            size = 0
            for flow_id, length in zip(ids, await self._ask_flows("hstrlen", ids), strict=True):
                some.append(flow_id)
                size += length if isinstance(length, int) else 0
                if size > FLOW_BYTES:
                    yield dict(zip(some, await self._ask_flows("hget", some), strict=True))
                    some, size = [], 0
            if some:
                yield dict(zip(some, await self._ask_flows("hget", some), strict=True))
            after = ids[-1]

    async def _ask_flows(self, command: str, ids: list[str]) -> list[Any]:
        """Of each its definition, or how long it is; WrongType of one that somebody has put in its place."""
        plane = self._flows.store.plane
        with translated():
            pipe = plane.tasks.redis.pipeline(transaction=False)
            for flow_id in ids:
                getattr(pipe, command)(plane.keys.flow(flow_id), "config")
            replies = await pipe.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, Exception) and not is_wrong_type(reply):
                    raise reply
        return [
            WrongType([plane.keys.flow(flow_id)]) if isinstance(reply, Exception) else reply
            for flow_id, reply in zip(ids, replies, strict=True)
        ]

    async def _of_history(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {"policy": await self._history.store.policy_text()}


class _Users:
    """The first are named, the rest is counted."""

    def __init__(self) -> None:
        self._named: list[dict[str, str]] = []
        self._more = 0

    def add(self, found: Iterable[dict[str, str]]) -> None:
        for each in found:
            if len(self._named) < MAX_NAMED:
                self._named.append(each)
            else:
                self._more += 1

    def told(self) -> list[dict[str, str]]:
        more = {"code": "in_use", "path": "more", "hint": f"{self._more} more use it"}
        return [*self._named, *([more] if self._more else [])]


def _users_of(kind: str, documents: Mapping[str, Any], wanted: frozenset[str]) -> list[dict[str, str]]:
    """Those of them that name a point of these channels. Takes long: not on the loop."""
    found = []
    for name, document in documents.items():
        path = f"{kind}s.{name}" if kind != "history" else "history.policy"
        if isinstance(document, TradewindError):
            found.append(_not_known(f"{kind} {name}", path, document))
            continue
        used = dict.fromkeys(m[0] for m in _ADDRESS.finditer(_said(document)) if (m[1] or m[2]) in wanted)
        if used:
            first, others = next(iter(used)), len(used) - 1
            said = f"{first} and {others} more" if others else first
            found.append({"code": "in_use", "path": path, "hint": f"{kind} {name} uses {said}: {_WHAT[kind]}"})
    return found


def _said(document: Any) -> str:
    """All that is said of one, with the points that it names."""
    if document is None or isinstance(document, bytes):
        return (document or b"").decode(errors="replace")
    if isinstance(document, ModelSpec):
        return " ".join([*(i.address for i in document.inputs), *(c.address for c in document.controls)])
    return codec.encode(document).decode()


def _not_known(what: str, path: str, error: TradewindError) -> dict[str, str]:
    hint = f"whether a {what} uses it is not known: {error.message}"
    return {"code": "users_not_known", "path": path, "hint": hint}
