"""Starts cycles when points change: reads the change feed and asks each flow's triggers. A job of the leader.

What a trigger remembers is stored together with the place in the feed, after its cycles were started; a cycle that was
started before a crash is found again by its run id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import structlog
from redis.exceptions import RedisError

from tradewind import codec
from tradewind.errors import TradewindError, Unavailable, error_text
from tradewind.flows.control import FlowControl
from tradewind.flows.point_trigger import TYPES, PointTrigger, Remembered, read_trigger
from tradewind.points.address import Address
from tradewind.points.board_read import BoardReader
from tradewind.points.feed import FeedBatch, FeedReader
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord, WrongType, reading

log = structlog.get_logger(__name__)
CONSUMER = "flow-triggers"
#: How long a list of triggers is used before it is read again: a flow that was just started misses nothing.
FRESH_S = 0.0
T = TypeVar("T")


class TriggerWatch:
    def __init__(self, flows: FlowControl, points: PointPlane) -> None:
        self.flows = flows
        self.points = points
        self._board = BoardReader(points)
        self._by_key: dict[str, list[tuple[str, int, PointTrigger]]] = {}
        self._by_flow: dict[str, dict[int, PointTrigger]] = {}
        self._states: dict[str, Remembered] = {}
        self._text: dict[bytes, bytes] = {}
        self._read_at = 0.0

    async def run(self) -> None:
        reader = FeedReader(self.points, CONSUMER)
        try:
            await self._load()
            async for batch in reader:
                await self._refresh()
                await self._take(batch)
        finally:
            await reader.close()

    async def _load(self) -> None:
        plane = self.flows.store.plane
        with translated():
            raw = await plane.tasks.redis.hgetall(plane.keys.trigger_states())
        self._states = {}
        for field, text in raw.items():
            try:
                with reading("what a trigger remembers"):
                    self._states[field.decode()] = msgspec.json.decode(text, type=Remembered)
            except SpoiltRecord as error:  # as if it had seen nothing yet
                log.warning("trigger_state_unreadable", trigger=field.decode(errors="replace"), error=error.message)

    async def _refresh(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._read_at < FRESH_S:
            return
        plane = self.flows.store.plane
        with translated():
            text = await plane.tasks.redis.hgetall(plane.keys.flow_triggers())
        self._read_at = now
        if text == self._text:
            return
        self._text = text
        self._by_key, self._by_flow = {}, {}
        for name, i, trigger in triggers_of(text, TYPES, read_trigger):
            address = trigger.address
            self._by_flow.setdefault(name, {})[i] = trigger
            key = f"{address.service}:{address.entity}:{address.kind}"
            self._by_key.setdefault(key, []).append((name, i, trigger))

    async def _take(self, batch: FeedBatch) -> None:
        changed: dict[str, bytes] = {}
        for entry in batch.entries:
            wanted = self._by_key.get(entry.key)
            if not wanted or entry.is_late:
                continue
            values, bad, times = entry.values(), entry.quality(), entry.times()
            fired: list[tuple[str, int]] = []
            for flow_id, at, trigger in wanted:
                field = trigger.address.field
                if field not in values or bad.get(field) == "bad":
                    continue
                name = f"{flow_id} {at}"
                before = self._states.get(name, Remembered())
                fires, state = trigger.judge(values[field], times[field], before)
                state.previous, state.ts = before.last, times[field]
                self._states[name] = state
                changed[name] = codec.encode(state)
                if fires:
                    fired.append((flow_id, at))
            for flow_id, at in fired:  # when all triggers know what this entry says
                seen = await self._seen(flow_id)
                await fire(self.flows, flow_id, "point", seen, f"{entry.id}-{at}", at)
        await self._store(batch, changed)

    async def _seen(self, flow_id: str) -> dict[int, Any]:
        """What each point trigger of a flow saw last; what the board has where it has seen nothing yet."""
        seen: dict[int, Any] = {}
        for at, trigger in self._by_flow[flow_id].items():
            state = self._states.get(f"{flow_id} {at}")
            if state is None:
                state = await self._on_board(trigger.address)
            address = str(trigger.address)
            seen[at] = {"address": address, "value": state.last, "previous": state.previous, "ts": state.ts}
        return seen

    async def _on_board(self, address: Address) -> Remembered:
        try:
            known = await self._board.read_one(address)
        except WrongType as error:
            log.warning("trigger_point_unreadable", address=str(address), error=error.message)
            return Remembered()
        return Remembered(last=known.value, ts=known.ts)

    async def _store(self, batch: FeedBatch, changed: dict[str, bytes]) -> None:
        plane = self.flows.store.plane
        with translated():
            pipe = plane.tasks.redis.pipeline(transaction=True)
            if changed:
                pipe.hset(plane.keys.trigger_states(), mapping=changed)
            pipe.execute_command("HSET", self.points.keys.feed_cursors(), *batch.cursor)
            await pipe.execute()


def triggers_of(
    text: Mapping[bytes, bytes], types: Container[str], read: Callable[[dict[str, Any]], T]
) -> Iterator[tuple[str, int, T]]:
    """Flow, number and trigger of all in `flows:triggers` that have one of these types; what is none is logged."""
    for field, data in text.items():
        flow_id = field.decode(errors="replace")
        try:
            with reading(f"the triggers of the flow {flow_id!r}"):
                raws = codec.decode(data)
                of_type = [(i, raw) for i, raw in enumerate(raws) if raw.get("type") in types]
        except SpoiltRecord as error:
            log.error("a trigger cannot be read", flow=flow_id, error=error.message)
            continue
        for i, raw in of_type:
            try:
                with reading(f"trigger {i} of the flow {flow_id!r}"):
                    trigger = read(raw)
            except SpoiltRecord as error:
                log.error("a trigger cannot be read", flow=flow_id, error=error.message)
                continue
            yield flow_id, i, trigger


async def fire(
    flows: FlowControl, flow_id: str, trigger: str, seen: Mapping[int, Any], run_id: str, fired: int
) -> None:
    """Start a cycle of a flow that runs; waits while Redis is away. One that was started with this id is not again.

    `seen`: what each trigger of the flow, by its number, has to say; `fired`: which of them this is about.
    """
    while True:
        try:
            await flows.fire(flow_id, trigger, seen[fired], run_id=run_id, only_running=True, fired=fired, others=seen)
            return
        except Unavailable as error:
            log.warning("a triggered cycle waits", flow=flow_id, error=error.message)
            await asyncio.sleep(0.5)
        except TradewindError as error:
            log.info("a trigger started no cycle", flow=flow_id, error=error.message)
            return
        except RedisError as error:  # a script has stumbled over a record of that flow
            log.error("a trigger started no cycle", flow=flow_id, error=error_text(error))
            return
