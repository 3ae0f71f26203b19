"""The alarm part of a station on any Redis, with a key prefix of its own; and the audit: indexes against records."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import msgspec

from tradewind import codec
from tradewind.alarms.faults import FaultReader
from tradewind.alarms.journal import AlarmJournal
from tradewind.alarms.keeper import AlarmKeeper
from tradewind.alarms.record import NewAlarm
from tradewind.alarms.store import AlarmStore
from tradewind.clock import Clock, FakeClock
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link
from tradewind.settings import Settings
from tradewind.sql import Sql

#: 2024-01-01T10:00:00Z, the time of the seed's examples.
SEED_MS = 1_704_103_200_000
PRIORITIES = {"Critical": "5", "High": "4", "Medium": "3", "Low": "2", "Info": "1"}
OPEN = ("New", "Acknowledged", "Escalated", "Suppressed")
DAY_S = 86_400
#: Short leases, so that a takeover is seen soon.
LEASES = {"leader_ttl_s": 1.5, "renew_s": 0.4}


#: Everything at once: the state machine looks after each step.
PICTURE = """
local READ = { hash = { 'HGETALL' }, set = { 'SMEMBERS' }, zset = { 'ZRANGE', 0, -1, 'WITHSCORES' },
  stream = { 'XRANGE', '-', '+' }, string = { 'GET' } }
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local read = READ[kind]
  found[#found + 1] = { key, kind, redis.call(read[1], key, unpack(read, 2)) }
end
return cmsgpack.pack(found)
"""


def settings_of(prefix: str, **alarms: Any) -> Settings:
    return Settings.model_validate({"key_prefix": prefix, "scheduler": LEASES, "alarms": alarms})


def hot(source: str = "comsrv:1001:m:10001", rule_id: str = "rule_1", **more: Any) -> NewAlarm:
    more = {"title": "too hot", "level": "High", "category": "temperature", **more}
    return NewAlarm(rule_id=rule_id, source=source, **more)


class AlarmRoom:
    def __init__(
        self, link: Link, prefix: str, clock: Clock | None = None, sql: Sql | None = None, **alarms: Any
    ) -> None:
        self.clock = clock or FakeClock(SEED_MS)
        self.plane = PointPlane(link, settings_of(prefix, **alarms), self.clock)
        self.keys = self.plane.keys
        self.redis = self.plane.redis
        self.sql = sql
        self.journal = AlarmJournal(sql) if sql is not None else None
        self.store = AlarmStore(self.plane, self.journal)
        self.faults = FaultReader(self.plane)

    @property
    def keeper(self) -> AlarmKeeper:
        return AlarmKeeper(self.plane, self.sql)  # type: ignore[arg-type] # timers need no SQL

    def advance(self, seconds: float) -> None:
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(seconds)

    async def tick(self) -> None:
        """Carry out everything that is due."""
        keeper = self.keeper
        while await keeper.tick() == 0:
            pass

    async def record(self, alarm_id: str) -> dict[str, str]:
        found = await self.redis.hgetall(self.keys.alarm(alarm_id))
        return {name.decode(): value.decode() for name, value in found.items()}

    async def status(self, alarm_id: str) -> str:
        return (await self.store.get(alarm_id)).status.value

    async def outbox(self) -> list[dict[str, str]]:
        rows = await self.redis.xrange(self.keys.notify_outbox())
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in rows]

    async def events(self, alarm_id: str) -> list[str]:
        return [entry.event for entry in await self.store.history(alarm_id)]

    async def audit(self, picture: dict[str, Any] | None = None) -> dict[str, dict[str, str]]:
        """Every index is exactly what the records say; the records, by id. `picture`: of an instant just now."""
        found = await self.picture() if picture is None else picture
        records = {k.removeprefix("alarm:"): v for k, v in found.items() if k.startswith("alarm:alarm_")}
        wanted = expected(records, self.plane.all_settings.alarms.retention_days * DAY_S * 1000)
        others = ("figures", "talkers", "recent", "journal", "nonce", "leader", "epoch")
        found = {
            k: v
            for k, v in found.items()
            if k.startswith("alarm:") and not k.split(":")[1].startswith(("alarm_", *others))
        }
        if "alarm:timers" in found:
            found["alarm:timers"] = {m: s for m, s in found["alarm:timers"].items() if not m.startswith("release:")}
        wrong = sorted(k for k in found.keys() | wanted.keys() if (found.get(k) or None) != wanted.get(k))
        assert not wrong, f"indexes disagree with the records: {[(k, found.get(k), wanted.get(k)) for k in wrong]}"
        return records

    async def picture(self) -> dict[str, Any]:
        """All keys, without the prefix, with what they hold, at one instant: of a stream a list of (id, fields)."""
        pattern = "".join(f"\\{c}" if c in "*?[]\\^" else c for c in self.keys.p) + "*"
        packed = await self.redis.eval(PICTURE, 1, self.keys.alarm_open(), pattern)
        return {name.removeprefix(self.keys.p): _held(*raw) for name, *raw in msgspec.msgpack.decode(packed)}

    async def names(self, family: str = "alarm:") -> list[str]:
        names: set[str] = set()
        cursor = 0
        while True:
            cursor, some = await self.redis.scan(cursor, match=f"{self.keys.p}{family}*", count=1000)
            names |= {key.decode() for key in some}
            if not cursor:
                return sorted(names)

    async def wipe(self) -> None:
        names = await self.names("")
        if names:
            await self.redis.unlink(*names)


def _held(kind: str, raw: Any) -> Any:
    if kind == "stream":
        return [(entry_id, _pairs(flat)) for entry_id, flat in raw]
    if kind == "zset":
        return {member: int(float(score)) for member, score in _pairs(raw).items()}
    return set(raw) if kind == "set" else _pairs(raw) if kind == "hash" else raw


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def expected(records: dict[str, dict[str, str]], retention_ms: int) -> dict[str, Any]:
    """What all indexes must hold, from the records alone."""
    sets: dict[str, Any] = defaultdict(set)
    orders: dict[str, Any] = defaultdict(dict)
    for alarm_id, h in records.items():
        assert h["id"] == alarm_id
        assert h["priority"] == PRIORITIES[h["level"]], f"the priority is not that of the level: {h}"
        created = int(h["first_seen"])
        at = datetime.fromtimestamp(created / 1000, UTC)
        iso = at.isoformat(timespec="milliseconds" if created % 1000 else "seconds").replace("+00:00", "Z")
        assert h["created_at"] == iso
        is_open = h["status"] in OPEN
        for name in (
            f"category:{h['category']}",
            f"level:{h['level']}",
            f"status:{h['status']}",
            f"date:{at:%Y-%m-%d}",
        ):
            sets[f"alarm:{name}"].add(alarm_id)
        compact = {
            n: h[n] for n in ("id", "level", "status", "category", "source_point", "rule_id", "title", "created_at")
        }
        orders[f"alarm:buckets:{at:%Y%m%d%H}"][alarm_id] = codec.encode(
            compact | {"version": int(h["version"])}
        ).decode()
        orders["alarm:order:all"][alarm_id] = created
        if not is_open:
            orders["alarm:order:ended"][alarm_id] = created
        else:
            orders["alarm:order:open"][alarm_id] = orders[f"alarm:order:open:{h['level']}"][alarm_id] = created
            live = {n: h[n] for n in ("id", "level", "created_at")}
            orders["alarm:realtime"][f"{h['category']}:{alarm_id}"] = codec.encode(live).decode()
            slot = f"{h['rule_id']}|{h['source_point']}"
            assert slot not in orders["alarm:open"], "two open alarms of one rule and source"
            orders["alarm:open"][slot] = alarm_id
            sets[f"alarm:rule:{h['rule_id']}"].add(alarm_id)
            if "cause" in h:
                sets[f"alarm:effects:{h['cause']}"].add(alarm_id)
        is_held = any(name in h for name in ("cause", "held_by", "shelved_until"))
        assert (h["status"] == "Suppressed") == is_held
        if h["status"] == "New" and "escalate_ms" in h:
            orders["alarm:timers"][f"escalate:{alarm_id}"] = int(h["announced_ms"]) + int(h["escalate_ms"])
        if "shelved_until" in h:
            orders["alarm:timers"][f"unshelve:{alarm_id}"] = int(h["shelved_until"])
        if h["status"] == "Closed" or (h["status"] == "Resolved" and "acknowledged_at" in h):
            orders["alarm:timers"][f"close:{alarm_id}"] = int(h["ended_ms"]) + retention_ms
    return {**sets, **orders}
