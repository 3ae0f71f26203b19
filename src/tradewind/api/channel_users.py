"""Who uses the points of a channel: models, rules, flows and the policy of history. For warnings when it is removed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from tradewind import codec
from tradewind.api.history_room import HistoryServices
from tradewind.api.point_room import PointServices
from tradewind.api.rule_room import RuleServices
from tradewind.errors import Unavailable
from tradewind.flows.control import FlowControl
from tradewind.redis.connection import translated

#: Users that are named; of the rest the number is told.
MAX_NAMED = 100
#: Flows that are read at once.
FLOWS = 200
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

    async def warnings(self, channels: Sequence[str]) -> list[dict[str, str]]:
        """One of each user: `{code, path, hint}`. None while they cannot be asked: a removal is not refused for it."""
        wanted, found = frozenset(channels), list[dict[str, str]]()
        more = 0
        try:
            async for kind, name, text in self._documents():
                used = dict.fromkeys(m[0] for m in _ADDRESS.finditer(text) if (m[1] or m[2]) in wanted)
                if not used:
                    continue
                if len(found) < MAX_NAMED:
                    first, others = next(iter(used)), len(used) - 1
                    said = f"{first} and {others} more" if others else first
                    path = f"{kind}s.{name}" if kind != "history" else "history.policy"
                    hint = f"{kind} {name} uses {said}: {_WHAT[kind]}"
                    found.append({"code": "in_use", "path": path, "hint": hint})
                else:
                    more += 1
        except Unavailable:
            return []
        if more:
            found.append({"code": "in_use", "path": "more", "hint": f"{more} more use it"})
        return found

    async def _documents(self) -> AsyncIterator[tuple[str, str, str]]:
        """Kind, name and all that is said of each that may name a point."""
        models = await self._points.models.load()
        for name, document in models.models.items():
            spec = models.specs.get(name)  # as filled in by its template
            places = [*(i.address for i in spec.inputs), *(c.address for c in spec.controls)] if spec else []
            yield "model", name, " ".join(places) if spec else codec.encode(document).decode()
        for rule_id, document in (await self._rules.rules.load()).rules.items():
            yield "rule", rule_id, codec.encode(document).decode()
        store, after = self._flows.store, ""
        while ids := await store.ids(after, FLOWS):
            with translated():
                pipe = store.plane.tasks.redis.pipeline(transaction=False)
                for flow_id in ids:
                    pipe.hget(store.plane.keys.flow(flow_id), "config")
                texts = await pipe.execute()
            for flow_id, text in zip(ids, texts, strict=True):
                yield "flow", flow_id, (text or b"").decode(errors="replace")
            after = ids[-1]
        yield "history", "policy", (await self._history.store.policy_text()).decode(errors="replace")
