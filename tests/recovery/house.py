"""A station with something of every kind, on a key prefix of its own that can be emptied."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tradewind import codec
from tradewind.alarms.record import NewAlarm
from tradewind.points.channel_store import validate_channel
from tradewind.recovery.copier import Copier
from tradewind.recovery.copy_table import CopyTable
from tradewind.recovery.kinds import Definitions
from tradewind.recovery.station_table import StationTable
from tradewind.settings import RedisSettings, Settings, SqlSettings
from tradewind.station import Station, open_station
from tradewind.tasks.periodic import Schedule

CHANNEL = {
    "id": "1001",
    "name": "Meter",
    "protocol": "virtual",
    "points": [{"kind": "m", "id": "1", "name": "power", "unit": "kW", "mapping": {"expression": "5"}}],
}
PUSHED = {"id": "1002", "name": "Hall", "protocol": "http_push", "points": []}
MODEL: dict[str, Any] = {
    "name": "total",
    "inputs": [{"name": "a", "source": "comsrv:1001:m:1"}],
    "calculations": [{"id": "p", "expression": "a * 2"}],
    "outputs": [{"field": "power", "source": "p"}],
}
TEMPLATE: dict[str, Any] = {
    "name": "doubled",
    "properties": {"point": {"type": "integer"}},
    "inputs": [{"name": "a", "source": "comsrv:1001:m:{point}"}],
    "calculations": [{"id": "p", "expression": "a * 2"}],
    "outputs": [{"field": "power", "source": "p"}],
}
INSTANCE = {"name": "second", "template": "doubled", "properties": {"point": 1}}
GROUP = {"id": "plant", "name": "Plant"}
RULE: dict[str, Any] = {
    "id": "hot",
    "group_id": "plant",
    "conditions": [{"field": "t", "operator": ">", "value": 75, "source": "comsrv:1001:m:1"}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": "hot"}}],
}
POLICY = {
    "targets": {"office": {"url": "https://example.com/hook/secret-word"}},
    "routes": [{"targets": ["office"]}],
}
FLOW = {"interval": "1h", "nodes": [{"id": "a", "type": "constant", "config": {"value": 1}}], "edges": []}


class House:
    def __init__(self, station: Station) -> None:
        self.station = station
        assert station.sql is not None
        self.table = StationTable(station.sql, station.settings.key_prefix)
        self.copies = CopyTable(station.sql)
        self.definitions = Definitions(station.plane)
        self.now_s = 1000.0

    @property
    def id(self) -> str:
        return self.station.recovery.watch.expected

    def copier(self) -> Copier:
        return Copier(self.definitions, self.copies, self.table, self.id, now_s=lambda: self.now_s)

    async def fill(self) -> str:
        """Something of every kind; the id of an open alarm that Ann has acknowledged after it was raised twice."""
        station = self.station
        await station.points.channels.put([validate_channel(CHANNEL), validate_channel(PUSHED)])
        await station.points.models.apply([MODEL, INSTANCE], templates=[TEMPLATE])
        await station.rules.rules.apply([RULE], groups=[GROUP])
        await station.rules.notify.put(POLICY)
        await station.history.store.put_policy({"batch_config": {"size": 500}})
        await station.schedules.set(Schedule("nightly", "echo", cron="0 3 * * *", args=["x"]))
        await station.control.set_rate_limit("echo", 5, 60)
        await station.control.pause("type:echo")
        for name in ("running", "waiting", "halted", "idle"):
            await station.flows.register({**FLOW, "id": name}, name)
        await station.flows.start("running")
        await station.flows.start("waiting")
        await station.flows.pause("waiting")
        await station.flows.start("halted")
        await station.flows.stop("halted")
        wanted = NewAlarm(rule_id="hot", source="comsrv:1001:m:1", title="hot", level="High", actual="80")
        alarm = (await station.rules.alarms.raise_(wanted)).id
        await station.rules.alarms.raise_(wanted)
        await station.rules.alarms.acknowledge(alarm, "ann", "seen")
        return alarm

    async def wipe(self) -> None:
        """The key prefix is deleted, as FLUSHALL would do it to a Redis of its own."""
        plane = self.station.plane
        keys = [key async for key in plane.redis.scan_iter(match=f"{plane.keys.p}*", count=1000)]
        if keys:
            await plane.redis.delete(*keys)

    async def bodies(self) -> dict[str, dict[str, Any]]:
        """What stands in Redis, by kind and id, as it is copied."""
        found: dict[str, dict[str, Any]] = {}
        for kind in self.definitions.kinds:
            names = await kind.digests()
            bodies = await kind.bodies(names)
            readable = kind.name not in ("limits", "paused")
            found[kind.name] = {name: codec.decode(body) if readable else body for name, body in bodies.items()}
        return found

    async def restored(self, *kinds: str, **options: Any) -> dict[str, Any]:
        """Restore, and wait for its end."""
        from tradewind.recovery.kind_names import KINDS

        begun = await self.station.recovery.start_restore(kinds or KINDS, **options)
        end = time.monotonic() + 60
        while True:
            view = await self.station.recovery.view()
            assert view["restore"]["id"] == begun["id"]
            if view["restore"]["state"] != "running":
                found: dict[str, Any] = view["restore"]
                return found
            assert time.monotonic() < end, view
            await asyncio.sleep(0.05)


@asynccontextmanager
async def open_house(redis_url: str, prefix: str, folder: Path, sql_url: str = "") -> AsyncIterator[House]:
    settings = Settings(
        data_dir=folder, key_prefix=prefix, redis=RedisSettings(url=redis_url), sql=SqlSettings(url=sql_url)
    )
    async with open_station(settings, frozenset({"scheduler", "api"})) as station:
        yield House(station)
