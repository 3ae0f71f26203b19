"""The writing side of `flow:outbox` for tests: records as the engine leaves them, and what SQL has of a flow."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from tradewind import codec
from tradewind.flows.recorder import FlowRecorder
from tradewind.redis.connection import Link
from tradewind.settings import Settings
from tradewind.sql import Sql
from tradewind.sql.tables import flow_cycles, flow_logs, flow_signals
from tradewind.tasks.plane import Plane

AT = 1_700_000_000_000


def log(flow: str, cycle: int, message: str = "work", **more: Any) -> dict[str, Any]:
    base = {"k": "log", "flow": flow, "cycle": cycle, "node": None, "level": "INFO", "source": "node", "meta": None}
    return {**base, "message": message, "at": AT + cycle, **more}


def signal(
    flow: str, cycle: int, source: str = "A", to: Any = (("B", "input"),), payload: Any = None, **more: Any
) -> dict[str, Any]:
    body = {"id": f"s{cycle}", "type": "ANY", "payload": payload, "timestamp": AT / 1000, "source_node": source}
    body |= {"source_handle": "out", "flow_id": flow, "cycle": cycle, **more}
    return {"k": "signal", "flow": flow, "cycle": cycle, "sig": body, "to": to}


def cycle(flow: str, number: int, status: str = "completed", **more: Any) -> dict[str, Any]:
    end = 0 if status == "running" else AT + number + 1
    counts = {"total": 2, "completed": 2, "failed": 0, "skipped": 0, "terminated": 0}
    base = {"k": "cycle", "flow": flow, "cycle": number, "status": status, "trigger": "schedule", "slot": AT}
    base |= {"start": AT + number, "end": end, "counts": counts, "stopped_by": "", "error": ""}
    return {**base, **more}


def gone(flow: str) -> dict[str, Any]:
    return {"k": "gone", "flow": flow}


class Outbox:
    """A recorder with the stream that feeds it."""

    def __init__(self, link: Link, sql: Sql, key_prefix: str, **flows: Any) -> None:
        self.plane = Plane(link, Settings(key_prefix=key_prefix, flows=flows))  # type: ignore[arg-type]
        self.sql = sql
        self.key = self.plane.keys.flow_outbox()
        self.recorder = FlowRecorder(self.plane, sql)

    async def add(self, *records: dict[str, Any]) -> str:
        """One entry; its id."""
        return await self.add_raw(codec.encode(records))

    async def add_raw(self, data: bytes) -> str:
        entry_id: bytes = await self.plane.redis.xadd(self.key, {"d": data})
        return entry_id.decode()

    async def drain(self) -> int:
        total = 0
        while moved := (await self.recorder.step()).entries:
            total += moved
        assert await self.waiting() == 0
        return total

    async def waiting(self) -> int:
        count: int = await self.plane.redis.xlen(self.key)
        return count

    async def messages(self, flow: str) -> list[str]:
        query = select(flow_logs.c.message).where(flow_logs.c.flow_id == flow).order_by(flow_logs.c.seq)
        async with self.sql.read("test") as connection:
            return list((await connection.execute(query)).scalars())

    async def cycles_in(self, flow: str) -> dict[str, list[int]]:
        """Cycles that each table has rows of; of the logs those that say `work`."""
        found = {}
        async with self.sql.read("test") as connection:
            for table in (flow_logs, flow_signals, flow_cycles):
                query = select(table.c.cycle).distinct().where(table.c.flow_id == flow).order_by(table.c.cycle)
                if table is flow_logs:
                    query = query.where(flow_logs.c.message == "work")
                found[table.name] = list((await connection.execute(query)).scalars())
        return found
