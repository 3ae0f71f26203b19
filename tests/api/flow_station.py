"""A whole station in this process, with scheduler and worker, for tests of flows over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from httpx2 import AsyncClient, Response

from tradewind.settings import RedisSettings, Settings, WorkerSettings
from tradewind.station import Station, open_station

PRICE = {"id": "price", "type": "constant", "config": {"value": 42}}
DOUBLE = {"id": "double", "type": "expression", "config": {"expression": "price * 2"}}
BROKEN = {"id": "double", "type": "expression", "config": {"expression": "price / 0"}}
ASK = {"id": "ask", "type": "approval", "config": {"message": "Buy?"}}
LATER = {"id": "later", "type": "delay", "config": {"seconds": 600}}


def edge(source: str, target: str, handle: str, source_handle: str = "value") -> dict[str, str]:
    return {"source": source, "source_handle": source_handle, "target": target, "target_handle": handle}


def flow(
    flow_id: str, *nodes: dict[str, Any], edges: list[dict[str, str]] | None = None, **more: Any
) -> dict[str, Any]:
    return {"id": flow_id, "schedule": {"manual": True}, "nodes": list(nodes), "edges": edges or [], **more}


DOUBLING = flow("f1", PRICE, DOUBLE, edges=[edge("price", "double", "price")])


@asynccontextmanager
async def running_station(url: str, prefix: str, folder: Path) -> AsyncIterator[Station]:
    settings = Settings(
        data_dir=folder,
        key_prefix=prefix,
        redis=RedisSettings(url=url),
        worker=WorkerSettings(id="w-1", concurrency=20),
    )
    async with open_station(settings, frozenset({"scheduler", "worker", "api"})) as station:
        stop = asyncio.Event()
        running = asyncio.create_task(station.run(stop))
        try:
            async with asyncio.timeout(20):
                while not await station.control.workers() or not await station.control.leader():
                    assert not running.done(), running
                    await asyncio.sleep(0.02)
            yield station
        finally:
            stop.set()
            await running


class Flows:
    """Short words for requests; each answer is checked for its status."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client

    async def ask(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        answer: Response = await self.client.request(method, f"/api/v1{path}", **options)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def get(self, path: str, **params: Any) -> Any:
        return await self.ask("GET", path, params=params)

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        options = {} if body is None else {"json": body}
        return await self.ask("POST", path, status, **options)

    async def error(self, method: str, path: str, status: int, **options: Any) -> str:
        """The code of the error, and the paths of its problems."""
        error = (await self.ask(method, path, status, **options))["error"]
        assert error["message"], error
        code: str = error["code"]
        return code

    async def run(self, flow_id: str, body: Any = None, status: str = "completed") -> int:
        """Run it to its end."""
        found = await self.post(f"/flows/{flow_id}/cycles?wait=20", body, 201)
        assert found["status"] == status, await self.get(f"/flows/{flow_id}/status")
        cycle: int = found["cycle"]
        return cycle
