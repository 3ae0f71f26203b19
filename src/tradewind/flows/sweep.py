"""Index repair of the flow room: lists of flows and cycles, what is due, what runs, node tasks, triggers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tradewind import codec
from tradewind.errors import NotFound
from tradewind.flows.store import FlowStore
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord
from tradewind.redis.index_sweep import BATCH, Entry, IndexFault, IndexSweep, Mode, index, kept, records
from tradewind.redis.scripts import Arg


class FlowSweep(IndexSweep):
    script = "flow_repair"
    families = (
        records(r"flow:(?!outbox$)([^:]+)"),
        records(r"flow:([^:]+:cycle:\d+)"),
        records(r"node_tasks:(.+)", "string"),
        index(r"flows|flows:(due|deadlines|unsent|held)|flow:[^:]+:cycles", "zset"),
        index(r"flow:[^:]+:running|flow:[^:]+:cycle:\d+:nodes|node_tasks_list|worker_tasks:.+", "set"),
        index(r"flows:(triggers|hosts)", "hash"),
        index(r"flows:ended|task:ended:flows", "list"),
        kept(r"flows:(queues|trigger-states|types)", "hash"),
    )

    def __init__(self, store: FlowStore) -> None:
        plane = store.plane
        super().__init__(plane.link, plane.keys, plane.scripts, plane.keys.flows())
        self._store = store
        self._plane = plane

    def head(self) -> list[Arg]:
        return self._plane.head()

    async def answer(self, mode: Mode, asked: Sequence[tuple[str, str]]) -> list[IndexFault]:
        """Deadlines and triggers follow from the plan of a flow, which the script does not read."""
        again: list[Entry] = []
        faults: list[IndexFault] = []
        for what, name in dict.fromkeys(asked):
            found = await (self._deadline(name) if what == "deadline" else self._trigger(name))
            if isinstance(found, IndexFault):
                faults.append(found)
            elif found is not None:
                again.append(found)
        for start in range(0, len(again), BATCH):
            faults += await self.decide(mode, again[start : start + BATCH], [])
        return faults

    async def _deadline(self, name: str) -> Entry | None:
        flow_id, _, cycle = name.rpartition(":")
        with translated(self.link):
            version, start = await self._redis.hmget(self.keys.cycle(flow_id, int(cycle)), "version", "start_ms")
        if version is None:
            return None
        timeout_s = self._plane.settings.cycle_timeout_s
        # A plan that is gone or spoilt is named with the flow; the cycle must end all the same.
        with contextlib.suppress(NotFound, SpoiltRecord):
            timeout_s = self._plane.cycle_timeout_s(await self._store.plan(flow_id, version.decode(errors="replace")))
        begun = int(start) if start and start.isdigit() else self._plane.clock.now_ms()
        return "<deadline>", name.encode(), b"%d" % (begun + int(timeout_s * 1000))

    async def _trigger(self, flow_id: str) -> Entry | IndexFault | None:
        try:
            plan = await self._store.plan(flow_id)
        except NotFound:
            return None
        except SpoiltRecord as error:
            what = f"no cycle of the flow can start: {error.message}. Apply the flow again"
            return IndexFault(self.keys.flow(flow_id), what, "n")
        text = codec.encode(plan.spec.triggers) if plan.spec.triggers else b""
        return "<trigger>", flow_id.encode(), b"%s %s" % (plan.version.encode(), text)
