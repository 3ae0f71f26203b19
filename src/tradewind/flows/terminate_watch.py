"""The leader's look at terminate and stop flags that somebody set in Redis by hand.

Workers look after the nodes that they run; a node that waits for inputs, for a slot or for its next run has no worker.
"""

from __future__ import annotations

import asyncio
import time

import structlog
from redis.exceptions import RedisError

from tradewind import codec
from tradewind.errors import Invalid, NotFound, TradewindError, Unavailable, error_text
from tradewind.flows.scheduler import read_cycle_name
from tradewind.flows.store import FlowStore
from tradewind.redis.connection import translated

log = structlog.get_logger(__name__)
LOOK_S = 1.0
#: So many flags are read a second; of more open nodes than that, the rest has its turn in the seconds after.
KEYS_A_LOOK = 5000
CYCLES_A_LOOK = 500


class TerminateWatch:
    def __init__(self, store: FlowStore) -> None:
        self.store = store
        self.plane = store.plane
        self._next_cycle = 0
        self._next_node = 0
        #: Cycles whose flags cannot be read, which was logged.
        self._unread: set[tuple[str, int]] = set()

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self.look()
            except Unavailable as error:
                log.warning("terminate_flags_unread", error=error.message)
            await asyncio.sleep(max(0.0, LOOK_S - (time.monotonic() - began)))

    async def look(self) -> int:
        """Stop open nodes that have a flag of their own, or of their component; how many had one of their own."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        with translated():
            names = await client.zrange(keys.flows_deadlines(), 0, -1)
        cycles = [known for name in names if (known := read_cycle_name(name)) is not None]
        room, ended, seen = KEYS_A_LOOK, 0, 0
        start = self._next_cycle % len(cycles) if cycles else 0
        self._unread &= set(cycles)
        for flow_id, cycle in (cycles[start:] + cycles[:start])[:CYCLES_A_LOOK]:
            first = self._next_node if not seen else 0
            looked, flagged, is_more = await self._look_at(flow_id, cycle, first, room)
            ended, room = ended + flagged, room - looked
            if is_more:  # it goes on here next time
                self._next_cycle, self._next_node = start + seen, first + looked
                return ended
            seen += 1
            if not room:
                break
        self._next_cycle, self._next_node = start + seen, 0
        return ended

    async def _look_at(self, flow_id: str, cycle: int, first: int, room: int) -> tuple[int, int, bool]:
        """How many open nodes were looked at, how many had a flag, whether there are more. Spoilt records of a cycle
        hold up no other."""
        try:
            open_nodes = await self._open(flow_id, cycle)
            some = open_nodes[first : first + room]
            flagged = await self._end_flagged(flow_id, cycle, some)
            return len(some), flagged, first + len(some) < len(open_nodes)
        except Unavailable:
            raise
        except (TradewindError, RedisError) as error:
            if (flow_id, cycle) not in self._unread:
                self._unread.add((flow_id, cycle))
                log.warning("terminate_flags_unread", flow=flow_id, cycle=cycle, error=error_text(error))
            return 0, 0, False

    async def _open(self, flow_id: str, cycle: int) -> list[str]:
        keys, client = self.plane.keys, self.plane.tasks.redis
        with translated():
            pipe = client.pipeline(transaction=False)
            pipe.smembers(keys.cycle_nodes(flow_id, cycle))
            pipe.hkeys(keys.cycle_done(flow_id, cycle))
            nodes, done = await pipe.execute()
        return sorted(node.decode(errors="replace") for node in nodes - set(done))

    async def _end_flagged(self, flow_id: str, cycle: int, nodes: list[str]) -> int:
        if not nodes:
            return 0
        keys, client = self.plane.keys, self.plane.tasks.redis
        ids = [f"{flow_id}_{cycle}_{node}" for node in nodes]
        with translated():
            pipe = client.pipeline(transaction=False)
            pipe.mget([keys.node_terminate(task_id) for task_id in ids])
            pipe.mget([keys.cancel(task_id) for task_id in ids])  # it runs and was asked to stop
            pipe.hget(keys.cycle(flow_id, cycle), "version")
            flags, asked, version = await pipe.execute()
        free = [i for i in range(len(nodes)) if asked[i] is None]
        ended = 0
        try:
            for i in free:
                if flags[i] is not None:
                    ended += await self._end_node(flow_id, cycle, nodes[i], reason_of(flags[i]))
            if version is not None:
                told = version.decode(errors="replace")
                await self._stop_components(flow_id, cycle, told, [nodes[i] for i in free])
        except NotFound:  # the cycle has gone meanwhile
            pass
        return ended

    async def _end_node(self, flow_id: str, cycle: int, node: str, reason: str) -> bool:
        try:
            return await self.store.stop(flow_id, cycle, "node", node, reason)
        except NotFound as error:
            if error.code != "node_not_found":
                raise
            return False  # somebody put it among the nodes

    async def _stop_components(self, flow_id: str, cycle: int, version: str, nodes: list[str]) -> None:
        plan = await self.store.plan(flow_id, version)
        components = sorted({plan.nodes[node].component for node in nodes if node in plan.nodes})
        if not components:
            return
        with translated():
            names = [self.plane.keys.component_stop(flow_id, cycle, component) for component in components]
            flags = await self.plane.tasks.redis.mget(names)
        for component, flag in zip(components, flags, strict=True):
            if flag is not None:
                await self.store.stop(flow_id, cycle, "component", str(component), "a stop flag in Redis")


def reason_of(flag: bytes) -> str:
    """What a terminate flag gives as its reason: the protocol's JSON object, or any text."""
    try:
        value = codec.decode(flag)
    except Invalid:
        value = flag.decode(errors="replace")
    if isinstance(value, dict):
        value = value.get("reason")
    return str(value)[:500] if value not in (None, "") else "terminated by a flag in Redis"
