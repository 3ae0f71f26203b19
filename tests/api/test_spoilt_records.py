"""What another program, or somebody by hand, has spoilt in Redis is refused by itself: no route that reads fails, and
what lists many still lists the others."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from tests.api import hostile
from tests.api.conftest import SmallStation, ask
from tests.api.flow_station import Flows
from tradewind.api import create_app, door

NOT_UTF8, NO_DIGIT, HUGE = b"\xff\xfe", "²".encode(), b"9" * 5000
#: Each key gets one of them in its turn. All for each take minutes: TRADEWIND_ALL_HOSTILE=1.
DAMAGES = ("type", NOT_UTF8, NO_DIGIT, HUGE, b"", b"{}", "fields")
IS_ALL = bool(os.environ.get("TRADEWIND_ALL_HOSTILE"))
GROUPS = 4
#: Whose `id` or `name` is asked for.
KNOWN = {
    "tasks": "t1", "flows": "f1", "channels": "1", "models": "m", "model-templates": "meter", "rules": "hot",
    "rule-groups": "g", "schedules": "s", "release": "x",
}  # fmt: skip
SERIES = "series=comsrv:7:m:1&from=-1h"
QUERIES = {
    "/api/v1/points": "channel=7&address=comsrv:1:m:1&model=m", "/api/v1/history": SERIES,
    "/api/v1/history/latest": "series=comsrv:7:m:1", "/api/v1/history/statistics": SERIES,
    "/api/v1/history/export": SERIES,
}  # fmt: skip
CHANNEL = {
    "id": 1, "protocol": "virtual", "parameters": {},
    "points": [{"kind": kind, "id": i + 1, "name": kind} for i, kind in enumerate("mmsca")],
}  # fmt: skip
MODEL = {
    "name": "m", "inputs": [{"name": "a", "source": "comsrv:1:m:1"}],
    "calculations": [{"id": "c", "expression": "a * 2"}], "outputs": [{"field": "c", "source": "c"}],
}  # fmt: skip
RULE = {
    "id": "hot", "group_id": "g", "conditions": [{"source": "comsrv:1:m:1", "operator": ">", "value": 1}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": "hot"}}],
}  # fmt: skip
FLOW = {"id": "f1", "interval": "1h", "nodes": [{"id": "n", "type": "constant", "config": {"value": 1}}], "edges": []}


async def _fill(api: Flows) -> dict[str, str]:
    """One of everything; the ids that only the station knows."""
    await api.ask("PUT", "/channels/1", 201, json=CHANNEL)
    await api.ask("POST", "/points", 200, json={"channels": {"7": {"m": {"1": 1, "2": 2}, "s": {"3": 1}}}})
    await api.ask("PUT", "/models/m", 201, json=MODEL)
    await api.ask("PUT", "/model-templates/meter", 201, json=hostile.TEMPLATE)
    await api.ask("PUT", "/rule-groups/g", 201, json={"id": "g", "name": "g"})
    await api.ask("PUT", "/rules/hot", 201, json=RULE)
    alarm = await api.ask("POST", "/alarms", 201, json={"title": "x", "level": "High", "source": "here"})
    await api.ask("POST", "/tasks", 201, json={"type": "echo", "args": [1], "id": "t1"})
    await api.ask("POST", "/tasks", 201, json={"type": "echo", "args": [1], "id": "t2", "delay_s": 600})
    await api.ask("PUT", "/schedules/s", 200, json={"type": "echo", "every": "60s"})
    await api.ask("PUT", "/rate-limits/echo", 200, json={"limit": 5})
    await api.ask("PUT", "/flows/f1", 201, json=FLOW)
    await api.ask("POST", "/flows/f1/cycles", 201, json={})
    command = await api.ask("POST", "/commands", 202, json={"address": "comsrv:1:c:4", "value": 1})
    policy = {"targets": {"t": {"url": "https://hooks.example.com/x"}}, "routes": []}
    await api.ask("PUT", "/notifications/policy", 200, json=policy)
    await api.ask("POST", "/release", 201, json={"changes": {"channels": ["1"]}, "note": "x"})
    return {**KNOWN, "alarms": alarm["id"], "commands": command["id"]}


def _questions(app: FastAPI, ids: dict[str, str]) -> list[tuple[str, set[int]]]:
    """Every route that reads and ends, and the statuses that it describes."""
    found = []
    for path, operations in app.openapi()["paths"].items():
        if "get" not in operations or path.endswith(("/live", "/events", "/logs", "/signals")):
            continue
        url = path.replace("{n}", "0").replace("{node}", "n")
        for room, name in ids.items():
            if url.startswith(f"/api/v1/{room}/"):
                url = url.replace("{id}", name).replace("{name}", name)
        found.append((f"{url}?{QUERIES.get(path, '')}".rstrip("?"), set(map(int, operations["get"]["responses"]))))
    return found


async def _spoil(client: Any, key: bytes, kind: str, damage: bytes | str) -> None:
    if damage == "type":
        await client.delete(key)
        await (client.set(key, "x") if kind == "list" else client.rpush(key, "x"))
        return
    if damage == "fields":
        if kind == "hash":
            await client.hdel(key, *(await client.hkeys(key))[::2])
        return
    spoil: dict[str, Callable[[], Awaitable[Any]]] = {
        "string": lambda: client.set(key, damage),
        "list": lambda: client.lset(key, 0, damage),
        "set": lambda: client.sadd(key, damage),
        "zset": lambda: client.zadd(key, {damage: 1}),
        "stream": lambda: client.xadd(key, {"ids": damage}),
    }
    if kind == "hash":
        await client.hset(key, mapping={field: damage for field in await client.hkeys(key)})
    else:
        await spoil[kind]()


class _Places:
    """In place of the log of the door: where the last request failed, instead of pages of traces."""

    last = ""

    def exception(self, *words: object, **fields: object) -> None:
        error = sys.exc_info()[1]
        frames = (
            [frame for frame in traceback.extract_tb(error.__traceback__) if "tradewind" in frame.filename]
            if error
            else []
        )
        self.last = " ".join([repr(error)[:80], *(f"{Path(f.filename).name}:{f.lineno}" for f in frames[-3:])])


@pytest.mark.timeout(3600 if IS_ALL else 300)
@pytest.mark.parametrize("group", range(GROUPS))
async def test_a_spoilt_record_fails_no_route_that_reads(
    station: SmallStation, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = _Places()
    monkeypatch.setattr(door, "logger", places)
    app, redis = create_app(station), station.plane.link.client
    async with ask(app) as client:
        questions = _questions(app, await _fill(Flows(client)))
        prefix = station.plane.keys.p
        failed = [f"unspoilt: {url}" for url, _ in questions if (await client.get(url)).status_code >= 500]
        keys = sorted([key async for key in redis.scan_iter(match=f"{prefix}*", count=1000)])
        assert len(keys) > 60
        for at, key in enumerate(keys):
            stored, kind = await redis.dump(key), (await redis.type(key)).decode()
            for damage in DAMAGES if IS_ALL else DAMAGES[at % len(DAMAGES) :][:1]:
                if at % GROUPS != group or stored is None:
                    continue
                await _spoil(redis, key, kind, damage)
                for url, described in questions:
                    answer = await client.get(url)
                    # 503 says that something stored must be mended before this can be answered at all.
                    if answer.status_code == 500 or answer.status_code not in described:
                        name = key.decode().removeprefix(prefix)
                        failed.append(f"{name} {damage!r:.20}: {url} {answer.status_code} {places.last}")
                await redis.restore(key, 0, stored, replace=True)
    assert not failed, "\n".join(failed[: 400 if IS_ALL else 60])


async def test_one_spoilt_record_is_left_out_and_named_when_asked_for(
    client: AsyncClient, station: SmallStation
) -> None:
    api, redis, keys = Flows(client), station.plane.link.client, station.plane.keys
    await _fill(api)
    await redis.hset(keys.task("t1"), mapping={"status": "²"})
    await redis.zadd(keys.workers(), {NOT_UTF8: 1})
    await redis.hset(keys.rate_config(), "other", "no limit")
    assert {task["id"] for task in (await api.get("/tasks"))["items"]} == {"t2", "f1_0_n"}
    assert await api.error("GET", "/tasks/t1", 409) == "spoilt_record"
    assert [limit["type"] for limit in (await api.get("/rate-limits"))["items"]] == ["echo"]
    assert [worker["id"] for worker in (await api.get("/workers"))["items"]] == ["by-hand"]
    await redis.hset(f"{keys.p}comsrv:7:m", "1", NOT_UTF8)
    items = {item["address"]: item for item in (await api.get("/points", channel="7"))["items"]}
    assert items["comsrv:7:m:1"]["value"] is None and items["comsrv:7:m:2"]["value"] == 2
