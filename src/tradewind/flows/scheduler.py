"""The leader's part in flows: opens cycles that are due, ends those past their deadline, settles what ended elsewhere.

Nothing is polled: it sleeps until the next slot or deadline, and a list in Redis wakes it. A slot is claimed by the
script that opens its cycle, which also checks the term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from redis.exceptions import RedisError, ResponseError

from tradewind import codec
from tradewind.errors import Conflict, NotFound, TradewindError, Unavailable, error_text
from tradewind.fence import Fence
from tradewind.flows.plan import Plan
from tradewind.flows.plane import HOOK, FlowPlane
from tradewind.flows.remote import foreign_outputs
from tradewind.flows.slots import grace_ms, take_due
from tradewind.flows.store import FlowStore, Opened, Opening, unknown_flow
from tradewind.numerals import score_ms
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType, other_types, reading
from tradewind.redis.scripts import Arg
from tradewind.tasks.leader_store import Deposed
from tradewind.tasks.record import TERMINAL, Status, split_body

log = structlog.get_logger(__name__)
#: Longest sleep without a look.
LOOK_S = 5.0
BATCH = 200
#: So many flows that are due together are started side by side.
AT_ONCE = 20
#: A cycle whose record a script stumbles over is asked to stop again after so long.
STOP_AGAIN_MS = 60_000
#: After the id of the task: it is only taken off the list.
_NOTHING: list[Arg] = ["FAILED", "", "", "", "", "", ""]


class FlowScheduler:
    """Runs for one term of the leader. `news` is set after each round: a cycle may have begun or ended."""

    def __init__(self, store: FlowStore, scheduler_id: str, epoch: int, news: asyncio.Event | None = None) -> None:
        self.store = store
        self._news = news
        self.plane: FlowPlane = store.plane
        self._leader = (scheduler_id, epoch)
        self._fence = Fence(job="flows")
        #: Cycles past their deadline that could not be stopped.
        self._not_stopped: set[tuple[str, int]] = set()

    async def run(self) -> None:
        client: Any = self.plane.link.new_client(LOOK_S)
        news: asyncio.Task[Any] | None = None
        try:
            while True:
                if news is None or news.done():  # before the round: news that comes during it calls for another one
                    if news is not None and news.exception() is not None:
                        await asyncio.sleep(0.2)  # Redis is away; the reads below say so
                    wait = client.blpop([self.plane.keys.flows_wake()], timeout=LOOK_S)
                    news = asyncio.create_task(wait, name="flow news")
                await self.settle()
                await self.expire()
                next_ms = await self.fire_due()
                if self._news is not None:
                    self._news.set()
                now = self.plane.clock.now_ms()
                wait_s = LOOK_S if next_ms is None else min(LOOK_S, max(0.0, (next_ms - now) / 1000))
                if wait_s > 0:
                    await asyncio.wait([news], timeout=wait_s)
        finally:
            if news is not None:
                news.cancel()
            await client.aclose()

    # slots

    async def fire_due(self) -> int | None:
        """Open every cycle that is due; when the next slot or deadline is, None: none is known."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        now = self.plane.clock.now_ms()
        with translated():
            pipe = client.pipeline(transaction=False)
            pipe.zrange(keys.flows_due(), "-inf", now, byscore=True, withscores=True, offset=0, num=BATCH)
            pipe.zrange(keys.flows_due(), f"({now}", "+inf", byscore=True, withscores=True, offset=0, num=1)
            pipe.zrange(keys.flows_deadlines(), 0, 0, withscores=True)
            due, later, deadlines = await pipe.execute()
        stuck = 0
        for start in range(0, len(due), AT_ONCE):
            fired = [self._fire_one(flow_id, score_ms(score)) for flow_id, score in due[start : start + AT_ONCE]]
            stuck += (await asyncio.gather(*fired)).count(False)
        moments = [score_ms(score) for _, score in (*later, *deadlines)]
        if len(due) > stuck:
            moments.append(now)  # there may be more, or a new slot that is due already
        elif stuck:
            moments.append(now + 1000)
        return min(moments, default=None)

    async def _fire_one(self, raw: bytes, due_ms: int) -> bool:
        """False when it must wait: for the running cycle, for a server, or for whoever mends its record."""
        flow_id = raw.decode(errors="replace")
        try:
            return await self._fire(flow_id, due_ms)
        except Deposed:
            raise
        except NotFound:  # a slot of a flow that has gone
            with translated():
                await self.plane.tasks.redis.zrem(self.plane.keys.flows_due(), raw)
            return True
        except (TradewindError, RedisError) as error:  # a script may stumble over a record that a hand has spoilt
            log.warning("a cycle could not be started; it is tried again", flow=flow_id, error=error_text(error))
            return False
        except Exception as error:  # noqa: BLE001 - the other flows are due, too
            self._fence.met(error)
            return False

    async def _fire(self, flow_id: str, due_ms: int) -> bool:
        with translated():
            fields = ("version", "anchor_ms")
            version, anchored = await self.plane.tasks.redis.hmget(self.plane.keys.flow(flow_id), *fields)
        if version is None:
            raise unknown_flow(flow_id)
        plan = await self.store.plan(flow_id, version.decode(errors="replace"))
        schedule = plan.spec.schedule
        anchor, now = (int(anchored) if anchored and anchored.isdigit() else 0) or due_ms, self.plane.clock.now_ms()
        taken = take_due(schedule, due_ms, now, anchor, limit=1)
        if not taken.run:
            await self._pass(flow_id, plan, due_ms, taken.next_ms, taken.skipped)
            return True
        overlap = "wait" if schedule.misfire == "all" and schedule.overlap == "buffer_latest" else schedule.overlap
        opening = self._opening(plan, taken.run[0])
        opening.due_ms, opening.next_ms, opening.overlap, opening.missed = due_ms, taken.next_ms, overlap, taken.skipped
        if now - taken.run[0] > grace_ms(schedule) or taken.skipped:
            log.warning("a slot starts late", flow=flow_id, late_ms=now - taken.run[0], missed=taken.skipped)
        opened = await self._open(opening)
        if opened.why in ("buffered", "skipped"):
            log.info("a slot met a running cycle", flow=flow_id, slot=taken.run[0], policy=opened.why)
        return opened.why != "waits" and not opened.why.startswith("stopped:")

    def _opening(self, plan: Plan, slot_ms: int) -> Opening:
        spec = plan.spec
        return Opening(
            flow_id=spec.id,
            version=plan.version,
            trigger="schedule",
            slot_ms=slot_ms,
            timeout_s=self.plane.cycle_timeout_s(plan),
            on_failure="" if spec.on_failure == "isolate" else spec.on_failure,
        )

    async def _open(self, opening: Opening) -> Opened:
        opened = await self.store.open(opening, self._leader)
        if opened.why == "previous":
            for cycle in opened.running:
                await self.store.stop(opening.flow_id, cycle, "stopped", "", "a newer slot takes over")
            opening.overlap = "allow"
            opened = await self.store.open(opening, self._leader)
        return opened

    async def _pass(self, flow_id: str, plan: Plan, due_ms: int, next_ms: int | None, missed: int) -> None:
        """Slots that nobody could start in time and that the policy gives up."""
        log.warning("slots were missed", flow=flow_id, missed=missed)
        keys = self.plane.keys
        args: list[Arg] = [flow_id, due_ms, "" if next_ms is None else next_ms, missed]
        await self.plane.scripts.run("flow_pass", [keys.flow(flow_id), keys.flows_due()], args)

    async def open_buffered(self, flow_id: str) -> None:
        """The slot that waited for the cycle that has just ended."""
        try:
            raw = await self.store.read(flow_id)
            slot = raw.get("buffered_ms")
            if slot is None or raw.get("status") != "running":
                return
            with reading(f"the flow {flow_id!r}"):
                plan = await self.store.plan(flow_id, raw["version"])
                opening = self._opening(plan, int(slot))
            opening.overlap = "wait"
            opening.run_id = f"slot-{slot}"
            await self._open(opening)
        except (Deposed, Unavailable):
            raise
        except NotFound:
            return
        except (TradewindError, RedisError) as error:
            log.warning("buffered_slot_not_started", flow=flow_id, error=error_text(error))

    # deadlines

    async def expire(self) -> None:
        """Stop the cycles whose deadline has passed; open what was buffered behind ended ones."""
        keys, client, now = self.plane.keys, self.plane.tasks.redis, self.plane.clock.now_ms()
        with translated():
            late = await client.zrange(keys.flows_deadlines(), "-inf", now, byscore=True, offset=0, num=BATCH)
            ended = await client.lrange(keys.flows_ended(), 0, BATCH - 1)
        for name in late:
            known = read_cycle_name(name)
            is_stopped = known is not None and await self._time_out(*known)
            with translated():
                if is_stopped is None:
                    await client.zadd(keys.flows_deadlines(), {name: now + STOP_AGAIN_MS})
                elif not is_stopped:
                    await client.zrem(keys.flows_deadlines(), name)
        for flow_id in dict.fromkeys(ended):
            await self.open_buffered(flow_id.decode(errors="replace"))
        if ended:
            with translated():
                await client.ltrim(keys.flows_ended(), len(ended), -1)

    async def _time_out(self, flow_id: str, cycle: int) -> bool | None:
        """False: there is nothing to stop; None: it could not be done, and is to be tried again."""
        try:
            is_stopped = await self.store.stop(flow_id, cycle, "timeout", "", "the cycle's deadline has passed")
        except NotFound:  # somebody removed or spoilt it
            with translated():
                await self.plane.tasks.redis.srem(self.plane.keys.flow_running(flow_id), cycle)
            return False
        except (RedisError, WrongType) as error:  # the script has stumbled over its record
            if (flow_id, cycle) not in self._not_stopped:
                self._not_stopped.add((flow_id, cycle))
                log.error("cycle_not_stopped", flow=flow_id, cycle=cycle, error=error_text(error), hint="see doctor")
            return None
        self._not_stopped.discard((flow_id, cycle))
        if is_stopped:
            log.warning("a cycle ran past its deadline", flow=flow_id, cycle=cycle)
        return is_stopped

    # endings that came without the room's own commit

    async def settle(self) -> int:
        """Bring the ends of node tasks that their worker did not commit itself into their cycles."""
        keys, client = self.plane.keys, self.plane.tasks.redis
        done = 0
        while True:
            with translated():
                ids = await client.lrange(keys.task_ended(HOOK), 0, BATCH - 1)
                if not ids:
                    return done
                pipe = client.pipeline(transaction=False)
                for task_id in ids:
                    pipe.hmget(keys.task(task_id.decode(errors="replace")), "status", "worker")
                    pipe.get(keys.body(task_id.decode(errors="replace")))
                rows = other_types(await pipe.execute(raise_on_error=False))
            endings = [await self._read_ending(ids[i], rows[2 * i], rows[2 * i + 1]) for i in range(len(ids))]
            await self._settle_all(endings)
            done += len(ids)

    async def _settle_all(self, endings: Sequence[list[Arg]]) -> None:
        """All in one call; when that stumbles over a spoilt record, one by one, and without the one that it is."""
        args: list[Arg] = [*self.plane.head(), self.plane.outbox_max, *(part for each in endings for part in each)]
        try:
            await self.plane.scripts.run("node_settle", [self.plane.keys.task_ended(HOOK)], args)
        except (ResponseError, WrongType) as error:
            if len(endings) > 1:
                for ending in endings:
                    await self._settle_all([ending])
                return
            task_id = endings[0][0]
            log.error(
                "node_not_settled", task=str(task_id), error=error_text(error), hint="its cycle ends by its time-out"
            )
            with translated():
                await self.plane.tasks.redis.lrem(self.plane.keys.task_ended(HOOK), 1, task_id)

    async def _read_ending(self, task_id: bytes, row: Any, body: Any) -> list[Arg]:
        try:
            if isinstance(row, list) and isinstance(body, bytes) and row[0] is not None:
                with reading("its record"):
                    return [task_id, *await self._ending(task_id.decode(), row, body)]
        except (NotFound, Conflict) as error:  # a stranger wrote it, or its plan is gone
            log.warning("node_end_unreadable", task=task_id.decode(errors="replace"), error=error_text(error))
        return [task_id, *_NOTHING]

    async def _ending(self, task_id: str, row: list[bytes | None], body: bytes) -> list[Arg]:
        """What node_settle needs of a task that ended; without a flow when there is nothing to settle."""
        nothing = _NOTHING
        assert row[0] is not None
        status = Status(row[0].decode())
        request, outcome = split_body(body)
        kwargs = codec.decode(request).get("kwargs", {})
        if status not in TERMINAL or not {"flow_id", "cycle", "node_id"} <= kwargs.keys():
            return nothing
        flow_id, cycle, node_id = kwargs["flow_id"], kwargs["cycle"], kwargs["node_id"]
        ended = codec.decode(outcome) if outcome else {}
        error = ended.get("error") or {}
        message = f"{error.get('type', '')}: {error.get('message', '')}".strip(": ")[:500]
        packed = b""
        if status is Status.SUCCESS:
            with translated():
                version = await self.plane.tasks.redis.hget(self.plane.keys.cycle(flow_id, cycle), "version")
            if version is None:
                return nothing
            plan = await self.store.plan(flow_id, version.decode(errors="replace"))
            packed = msgspec.msgpack.encode(foreign_outputs(plan.nodes[node_id], flow_id, cycle, ended.get("result")))
        return [status.value, message, str(flow_id), int(cycle), str(node_id), packed, (row[1] or b"").decode()]


def read_cycle_name(raw: bytes) -> tuple[str, int] | None:
    """`{flow}:{cycle}`; None: somebody else has put it there."""
    flow_id, _, cycle = raw.decode(errors="replace").rpartition(":")
    is_one = flow_id and "\ufffd" not in flow_id and cycle.isascii() and cycle.isdigit()
    return (flow_id, int(cycle)) if is_one else None
