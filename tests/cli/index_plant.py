"""A store with something in every index of every room, made through the stores; and a picture of all its keys."""

from __future__ import annotations

import json
from typing import Any

import msgspec

import tradewind.nodes
from tests.alarms.alarm_room import hot
from tests.flows.flow_nodes import flow
from tests.points.command_bench import Workbench
from tests.tasks.room import Room, ending
from tradewind.alarms.store import AlarmStore
from tradewind.cli.examine_indexes import sweeps_of
from tradewind.clock import FakeClock, iso, now_ms
from tradewind.flows.control import FlowControl
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.node_record import NodeTask
from tradewind.flows.node_registry import discover, node_types
from tradewind.flows.plane import FlowPlane
from tradewind.flows.redis_state_store import RedisStateStore
from tradewind.flows.store import FlowStore
from tradewind.notify.job import Job
from tradewind.notify.plan import Told
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.store import NotifyStore
from tradewind.points.board import Batch
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link
from tradewind.redis.index_sweep import IndexFault, IndexSweep, Mode
from tradewind.rules.store import RuleStore
from tradewind.settings import Settings
from tradewind.tasks.periodic import Schedule, ScheduleStore
from tradewind.tasks.plane import Plane

#: What changes whenever somebody is told of a change.
NEWS = (
    "scheduler:", "flows:wake", "rulesrv:version", "points:feed", "aside:", "station:", "alarm:journal",
    "notify:outbox", "cmd:journal",
)  # fmt: skip
POLICY = {
    "targets": {"web": {"url": "json://203.0.113.1/"}},
    "routes": [{"targets": ["web"]}],
    "escalation": [{"after_s": 600, "targets": ["web"]}],
}


def settings_of(prefix: str, url: str = "", **groups: Any) -> Settings:
    document: dict[str, Any] = {
        "key_prefix": prefix,
        "notify": {"allow_private": True},
        "scheduler": {"lease_s": 900, "heartbeat_ttl_s": 900},
        **groups,
    }
    return Settings.model_validate(document | ({"redis": {"url": url}} if url else {}))


class IndexPlant:
    def __init__(self, link: Link, prefix: str) -> None:
        self.link = link
        self.prefix = prefix
        self.clock = FakeClock(now_ms())
        self.settings = settings_of(prefix)
        self.plane = Plane(link, self.settings, self.clock)
        self.keys = self.plane.keys
        self.redis: Any = link.client
        self.sweeps: dict[str, IndexSweep] = sweeps_of(self.plane)

    async def build(self) -> None:
        await self._tasks()
        await self._flows()
        await self._points()
        await self._rules()
        await self._alarms()
        await self._notify()
        self.clock.advance(60)  # nothing is being written any more

    async def _tasks(self) -> None:
        room = Room(self.link, self.settings, self.clock)
        names = json.dumps(["a"])
        worker = await room.join("w1", ["a"], capacity=2, supported_types=names)
        await room.submit("a", exclusive="l1", deadline=iso(self.clock.ms + 9_000_000), id="running")
        await room.submit("a", id="ended")
        ran = await room.start(worker)
        await worker.finish([ending(taken) for taken in ran if taken.id == "ended"])
        await room.submit("a", id="assigned")
        await room.assign()
        for n in range(3):
            await room.submit("a", id=f"queued-{n}", priority="high" if n else "normal")
        await room.submit("nobody", id="parked-1")
        await room.submit("nobody", id="parked-2", priority="high")
        await room.join("w2", ["b"], capacity=1, supported_types=json.dumps(["b"]))
        await room.assign()
        await room.submit("a", id="late", delay_s=3600)
        await room.submit("a", id="late-2", delay_s=7200)
        await room.control.pause("type:a")
        await room.submit("a", id="queued-last")
        await ScheduleStore(self.plane).set(Schedule(name="every", type="a", cron="0 0 1 1 *"))
        await room.control.set_rate_limit("a", 10, 60)

    async def _flows(self) -> None:
        discover()  # beside those of the package
        assert tradewind.nodes
        control = self._flow_control(self.plane)
        await control.register(_flow("plain"))
        await control.register(_flow("timed", schedule={"interval": "1h"}))
        await control.start("timed")
        await control.run("plain")
        trigger = {"type": "point", "address": "comsrv:1001:m:10001"}
        await control.register(_flow("watched", triggers=[trigger]))
        amqp = Plane(self.link, settings_of(self.prefix, signals={"transport": "amqp"}), self.clock)
        over = self._flow_control(amqp)
        await over.register(_flow("broker"))
        held = await over.run("broker")
        declared = await over.run("broker")
        await self.redis.zrem(self.keys.flows_held(), f"broker:{declared}")
        await self.redis.hset(self.keys.flows_queues(), f"broker:{declared}", "one two")
        await self.redis.hset(self.keys.flows_hosts(), f"broker:{declared}", "w1")
        await self.redis.hset(self.keys.cycle_unsent("broker", held), "flow.broker.x", "{}")
        await self.redis.zadd(self.keys.flows_unsent(), {f"broker:{held}": 0})
        store = RedisStateStore(self.link, self.keys, self.clock)
        await store.register_node_task(NodeTask("foreign_1_n", "foreign", 1, "n", "constant", "w1"))

    def _flow_control(self, plane: Plane) -> FlowControl:
        flows = FlowPlane(plane)
        return FlowControl(FlowStore(flows), KnownTypes(flows, node_types), None)

    async def _points(self) -> None:
        bench = Workbench(self.link, self.prefix, self.clock)
        await bench.online()
        await bench.board.write([Batch.of_channel("2002", "m", {"1": 1.0})])
        await bench.send("a", "40001", 5)
        await bench.store.take("1001", "me")
        await bench.send("a", "40001", 6)
        await bench.send("a", "40001", 7)
        await bench.plane.close()

    async def _rules(self) -> None:
        store = RuleStore(self.link, self.keys, self.settings, self.clock)
        rule = {
            "conditions": [{"field": "t", "operator": ">", "value": 5, "source": "comsrv:1001:m:10001"}],
            "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": "hot"}}],
        }
        rules = [{**rule, "id": "alone"}, {**rule, "id": "inside", "group_id": "g"}]
        await store.apply(rules, groups=[{"id": "g", "name": "group"}])

    async def _alarms(self) -> None:
        store = AlarmStore(PointPlane(self.link, self.settings, self.clock))
        raised = await store.raise_many([hot(f"a:{n}", escalate_ms=9_000_000) for n in range(3)])
        await store.resolve(raised[0].id, "li")
        await store.acknowledge(raised[0].id, "li")
        await store.shelve(raised[1].id, "li", duration_s=6000)
        await store.raise_(hot("b:1", rule_id="child", inhibited_by=["rule_1"]))
        self.alarm_id = raised[2].id

    async def _notify(self) -> None:
        plane = NotifyPlane(self.link, self.settings, self.clock)
        await NotifyStore(plane).put(POLICY)
        at = self.clock.now_ms()
        job = Job("job-1", "web", at + 5000)
        await self.redis.hset(self.keys.notify_jobs(), job.id, msgspec.json.encode(job))
        await self.redis.zadd(self.keys.notify_due(), {job.id: job.due_ms})
        told = Told({"web": job.id}, step=0, since=at)
        await self.redis.hset(self.keys.notify_told(), self.alarm_id, msgspec.json.encode(told))
        await self.redis.zadd(self.keys.notify_timers(), {self.alarm_id: at + 600_000})

    async def run(self, mode: Mode) -> list[IndexFault]:
        return [fault for sweep in self.sweeps.values() for fault in await sweep.run(mode)]

    async def picture(self) -> dict[str, Any]:
        """All keys without the prefix: sets and lists as sorted members, zsets and hashes as dicts. The queues of a
        priority are one: a task that was lost goes to its queue, not to where it was parked."""
        keys = [key async for key in self.redis.scan_iter(match=f"{_glob(self.keys.p)}*", count=1000)]
        pipe = self.redis.pipeline(transaction=False)
        for key in keys:
            pipe.type(key)
        kinds = [kind.decode() for kind in await pipe.execute()]
        for key, kind in zip(keys, kinds, strict=True):
            _read(pipe, kind, key)
        found: dict[str, Any] = {}
        for key, kind, raw in zip(keys, kinds, await pipe.execute(), strict=True):
            name = key.decode().removeprefix(self.keys.p)
            if not name.startswith(NEWS):
                found[name] = _held(kind, raw)
        found.get("points:channels:versions", {}).pop(b"word", None)
        if isinstance(found.get("workers"), dict):
            found["workers"] = sorted(found["workers"])
        places = {name.removeprefix("queue:parked:") for name in found if name.startswith("queue:parked:")}
        is_sound = places == {place.decode() for place in found.pop("queue:parked", ())}
        for priority in ("high", "normal"):
            lists = [
                name for name in found if name == f"queue:{priority}" or name.startswith(f"queue:parked:{priority}:")
            ]
            found[f"queues {priority}"] = sorted(member for name in lists for member in found.pop(name))
        return {**found, "parked": is_sound}


def _read(pipe: Any, kind: str, key: bytes) -> None:
    match kind:
        case "set":
            pipe.smembers(key)
        case "list":
            pipe.lrange(key, 0, -1)
        case "zset":
            pipe.zrange(key, 0, -1, withscores=True)
        case "hash":
            pipe.hgetall(key)
        case "stream":
            pipe.xrange(key)
        case _:
            pipe.get(key)


def _held(kind: str, raw: Any) -> Any:
    match kind:
        case "set" | "list":
            return sorted(raw)
        case "zset":
            return {member: round(score, 3) for member, score in raw}
        case "stream":
            return sorted(tuple(fields.items()) for _, fields in raw)
        case _:
            return raw


def _flow(flow_id: str, **more: Any) -> dict[str, Any]:
    made = flow({"one": ("constant", {"value": 1}), "two": ("log", {"message": "x"})}, "one.value>two.value")
    return {**{k: v for k, v in made.items() if k != "interval"}, "schedule": {"manual": True}, "id": flow_id, **more}


def _glob(text: str) -> str:
    return "".join(f"\\{c}" if c in "*?[]\\^" else c for c in text)
