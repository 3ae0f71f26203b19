"""Indexes harmed by hand: doctor names them, `doctor --repair` mends them, and so does the sweep of whoever leads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from tests.cli.conftest import Cli
from tests.cli.index_plant import IndexPlant, settings_of
from tests.servers import Server
from tests.tasks.room import Room
from tradewind.cli import examine_indexes
from tradewind.cli.examine_indexes import sweeps_of
from tradewind.clock import FakeClock, now_ms
from tradewind.redis.connection import Link, open_link
from tradewind.redis.index_sweep import IndexFault, IndexSweep
from tradewind.rules.store import RuleStore
from tradewind.settings import RedisSettings, Settings
from tradewind.station import open_station

GHOST = b"ghost"
#: What is taken out of these does not come back to where it was: a task goes back to its queue, a command that lost its
#: turn ends failed, the broker's keeper finds another host.
MOVED = ("worker:w1:queue", "comsrv:1001:todo")
KEPT_BY_OTHERS = ("flows:hosts",)


@pytest.fixture
async def plant(redis_7: Server, key_prefix: str) -> AsyncIterator[IndexPlant]:
    async with _planted(redis_7.url, key_prefix) as plant:
        yield plant


@contextlib.asynccontextmanager
async def _planted(url: str, prefix: str) -> AsyncIterator[IndexPlant]:
    link = await open_link(RedisSettings(url=url))
    try:
        yield await _build(link, prefix)
    finally:
        await link.close()


async def _build(link: Link, prefix: str) -> IndexPlant:
    plant = IndexPlant(link, prefix)
    await plant.build()
    return plant


async def _indexes(plant: IndexPlant) -> list[tuple[IndexSweep, str, str]]:
    """Sweep, name, type of the derived indexes that there are, one of each sort."""
    found = {}
    for sweep in plant.sweeps.values():
        async for name, kind, family in sweep._keys(is_record=False):
            first, *rest = name.split(":")
            sort = (first, rest[-1:]) if first in ("flow", "comsrv") else (first, rest[:1], len(rest))
            if family.is_derived:
                found.setdefault(str(sort), (sweep, name, kind))
    return list(found.values())


async def _take_one_out(plant: IndexPlant, key: str, kind: str) -> bool:
    redis = plant.redis
    match kind:
        case "set":
            return bool(await redis.srem(key, sorted(await redis.smembers(key))[0]))
        case "zset":
            return bool(await redis.zpopmin(key))
        case "hash":
            fields = [field for field in await redis.hkeys(key) if field != b"word"]
            return bool(await redis.hdel(key, sorted(fields)[0]))
        case "list":
            return bool(await redis.rpop(key))
        case "stream":
            return bool(await redis.xdel(key, (await redis.xrange(key))[0][0]))
        case _:
            return bool(await redis.set(key, 7))


async def _put_a_ghost_in(plant: IndexPlant, key: str, kind: str) -> bool:
    """False: nothing of that sort can be put in there."""
    redis = plant.redis
    match kind:
        case "set":
            return bool(await redis.sadd(key, GHOST))
        case "zset":
            return bool(await redis.zadd(key, {GHOST: 9e12}))
        case "hash":
            return bool(await redis.hset(key, GHOST, GHOST))
        case "list":
            return bool(await redis.lpush(key, GHOST))
    return False


def _named(faults: list[IndexFault], key: str) -> list[str]:
    return [fault.what for fault in faults if fault.key == key]


async def test_a_sound_store_has_no_faults_and_every_room_has_indexes(plant: IndexPlant) -> None:
    before = await plant.picture()
    assert await plant.run("look") == []
    assert await plant.run("repair") == []
    assert await plant.picture() == before
    for sweep in plant.sweeps.values():
        names = [name async for name, _, _ in sweep._keys(is_record=False)]
        for family in sweep.families:
            if family.is_derived and not family.is_record and "owners" not in family.pattern.pattern:
                is_there = any(family.pattern.fullmatch(name) for name in names)
                assert is_there or family.pattern.pattern in ("flows:ended|task:ended:flows", "points:pollers"), family


async def test_types_of_keys_that_were_not_looked_at_are_not_called_sound(
    plant: IndexPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant.redis.delete(f"{plant.keys.p}task:ended:body")  # of a task whose id makes it read as another key
    (whole,) = await examine_indexes.key_types(plant.plane)
    assert whole.status == "ok" and "all of their types" in whole.detail, whole
    monkeypatch.setattr(examine_indexes, "MAX_KEYS", 1)
    monkeypatch.setattr(examine_indexes, "_SCAN", 1)
    (cut,) = await examine_indexes.key_types(plant.plane)
    assert cut.status == "unknown" and "not looked at" in cut.detail, cut


async def test_a_member_that_was_taken_out_of_any_index_is_named_and_comes_back(plant: IndexPlant) -> None:
    before = await plant.picture()
    for sweep, name, kind in await _indexes(plant):
        key = f"{plant.keys.p}{name}"
        if name in (*MOVED, *KEPT_BY_OTHERS):
            continue
        assert await _take_one_out(plant, key, kind), name
        found = await sweep.run("look")
        # What misses in the list of those that are parked belongs into the queue itself.
        assert found if name.startswith("queue:parked:") else _named(found, key), (name, found)
        mended = await sweep.run("sweep")
        assert mended and all(fault.is_mended for fault in mended) and {f.key for f in mended} <= {f.key for f in found}
    assert await plant.picture() == before
    assert await plant.run("look") == []


async def test_a_member_without_a_record_is_named_and_leaves(plant: IndexPlant) -> None:
    before = await plant.picture()
    for sweep, name, kind in await _indexes(plant):
        key = f"{plant.keys.p}{name}"
        if not await _put_a_ghost_in(plant, key, kind):
            continue
        found = await sweep.run("look")
        assert any("ghost" in what for what in _named(found, key)), (name, found)
        await sweep.run("repair")
    assert await plant.picture() == before
    assert await plant.run("look") == []


async def test_an_index_of_another_type_is_named_set_aside_and_made_anew(plant: IndexPlant) -> None:
    before = await plant.picture()
    for sweep, name, kind in await _indexes(plant):
        key = f"{plant.keys.p}{name}"
        if name in (*MOVED, *KEPT_BY_OTHERS):
            continue
        await plant.redis.delete(key)
        await (plant.redis.hset(key, "a", "b") if kind == "string" else plant.redis.set(key, "mine"))
        assert _named(await sweep.run("look"), key) == [
            f"is a {'hash' if kind == 'string' else 'string'} and should be a {kind}"
        ]
        await sweep.run("sweep")
        assert 6 * 86_400 < await plant.redis.ttl(f"{plant.keys.p}aside:{name}") <= 7 * 86_400
    assert await plant.picture() == before
    assert await plant.run("look") == []


async def test_what_lost_its_place_among_the_work_of_others_goes_back_or_ends(plant: IndexPlant) -> None:
    redis, keys = plant.redis, plant.keys
    await redis.delete(keys.worker_queue("w1"))
    command = (await redis.rpop(keys.channel_todo("1001"))).decode()
    faults = await plant.run("repair")
    assert _named(faults, keys.worker_queue("w1")) == ["misses task assigned, which goes back to its queue"]
    assert await redis.hget(keys.task("assigned"), "status") == b"QUEUED"
    assert await redis.lindex(keys.queue("normal"), -1) == b"assigned"
    assert len(_named(faults, keys.channel_todo("1001"))) == 1
    ended = await redis.hmget(keys.command(command), "status", "result")
    assert ended == [b"failed", b"refused"] and await redis.zscore(keys.commands_open(), command) is None
    assert await plant.run("look") == []


async def test_lost_tasks_go_to_the_head_of_their_queue_the_oldest_first(plant: IndexPlant) -> None:
    redis, keys = plant.redis, plant.keys
    for age, name in enumerate(("queued-1", "parked-2", "queued-2")):
        await redis.hset(keys.task(name), "at", 1000 + age)
    for key in (keys.parking("high", "a"), keys.parking("high", "nobody"), keys.queue("high")):
        await redis.delete(key)
    await redis.rpush(keys.queue("high"), "other")
    await plant.sweeps["tasks"].run()
    assert (await redis.lrange(keys.queue("high"), 0, -1))[::-1] == [b"queued-1", b"parked-2", b"queued-2"]


async def test_a_task_whose_worker_is_gone_without_a_trace_goes_back_by_the_leader(plant: IndexPlant) -> None:
    redis, keys = plant.redis, plant.keys
    await redis.delete(keys.worker("w1"), keys.worker_inflight("w1"), keys.worker_type("a"))
    await redis.zrem(keys.workers(), "w1")
    await plant.run("sweep")
    assert await redis.zscore(keys.workers(), "w1") == 0
    room = Room(plant.link, plant.settings, plant.clock)
    leader = await room.lead()
    assert await leader.expired_workers() == ["w1"] and await leader.evict("w1") == 2
    assert await redis.hmget(keys.task("running"), "status", "stalls") == [b"QUEUED", b"1"]
    assert await plant.run("look") == []


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ("task:assigned", "worker:w1:queue names task assigned which has no record"),
        ("task:queued-last", "queue:normal names task queued-last which has no record"),
        ("task:late", "queue:delayed names task late which has no record"),
        ("task:late:body", "task:late:body is gone"),
        ("worker:w1", "workers names worker w1 which has no record"),
        ("flow:timed", "flows names flow timed which has no record"),
        ("flow:plain:cycle:0", "flow:plain:running names cycle plain:0 which has no record"),
        ("flow:plain", "flow:plain is gone, but cycle 0 of it is there"),
        ("rulesrv:rule:alone", "rulesrv:rules names rule alone which has no record"),
        ("rulesrv:group:g", "rulesrv:groups names group g which has no record"),
        ("node_tasks:plain_0_one", "node_tasks_list names node task plain_0_one which has no record"),
        ("points:channels", "points:channels:versions names channel 1001 which has no definition"),
        ("schedule:config", "schedule:due names schedule every which has no definition"),
        ("notify:jobs", "notify:due names delivery job-1 which has no record"),
        ("notify:told", "notify:timers names alarm"),
        ("comsrv:2002:m", "points:pushed names 2002:m of which there is no value"),
    ],
)
async def test_a_deleted_record_is_named_and_never_invented(plant: IndexPlant, record: str, named: str) -> None:
    await plant.redis.delete(f"{plant.keys.p}{record}")
    said = [f"{fault.key.removeprefix(plant.keys.p)} {fault.what}" for fault in await plant.run("look")]
    assert any(text.startswith(named) for text in said), said
    await plant.run("repair")
    assert not await plant.redis.exists(f"{plant.keys.p}{record}")
    left = [fault for fault in await plant.run("look") if fault.flag != "n"]
    assert left == [] or record == "worker:w1"


async def test_the_sweep_leaves_lost_definitions_to_people(plant: IndexPlant) -> None:
    """A rule that is gone is named until somebody brings it back or gives it up."""
    await plant.redis.delete(plant.keys.rule("alone"), plant.keys.rule_group("g"), plant.keys.flow("timed"))
    assert {fault.is_mended for fault in await plant.run("sweep") if fault.flag == "d"} == {False}
    still = {fault.key for fault in await plant.run("look") if fault.flag == "d"}
    assert still == {plant.keys.rules(), plant.keys.rule_groups(), plant.keys.flows()}
    await plant.run("repair")
    assert [fault for fault in await plant.run("look") if fault.flag == "d"] == []


async def test_everything_at_once_on_every_server(link: Link, key_prefix: str) -> None:
    plant = await _build(link, key_prefix)
    before = await plant.picture()
    for _, name, kind in await _indexes(plant):
        # In a cluster values of channels are on other nodes: they are noted again as they are written.
        if name not in (*MOVED, *KEPT_BY_OTHERS) and not (link.cluster and name == "points:pushed"):
            await _put_a_ghost_in(plant, f"{plant.keys.p}{name}", kind)
            await _take_one_out(plant, f"{plant.keys.p}{name}", kind)
    await plant.run("repair")
    await plant.run("repair")  # what followed from an index that was mended
    assert await plant.picture() == before
    assert await plant.run("look") == []


async def test_foreign_members_of_rules_hide_no_rule(plant: IndexPlant) -> None:
    store = RuleStore(plant.link, plant.keys, plant.settings)
    await plant.redis.sadd(plant.keys.rules(), b"\xff", "ghost")
    await plant.redis.sadd(plant.keys.rule_groups(), b"\xff", "ghost")
    assert set((await store.load()).specs) == {"alone", "inside"}
    assert await store.ids() >= {"alone", "inside"}
    await plant.run("repair")
    assert await plant.redis.scard(plant.keys.rules()) == 2


def test_doctor_names_what_is_wrong_and_repair_says_what_it_changed(
    cli: Cli, redis_7: Server, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def build() -> IndexPlant:
        async with _planted(redis_7.url, key_prefix) as plant:
            return plant

    keys, client = asyncio.run(build()).keys, redis.Redis.from_url(redis_7.url)
    monkeypatch.setenv("TRADEWIND_REDIS_URL", redis_7.url)
    monkeypatch.setenv("TRADEWIND_KEY_PREFIX", key_prefix)
    sound = cli("doctor", "--json").json["checks"]
    assert [check["status"] for check in sound if check["name"] == "indexes"] == ["ok"]
    client.srem(keys.rules(), "alone")
    client.zrem(keys.flows(), "timed")
    client.lrem(keys.queue("normal"), 0, "queued-last")
    client.delete(keys.alarm_order("open"))
    client.set(keys.alarm_order("open"), "mine")
    client.hset(keys.task("broken"), "pri", "low")
    client.hset(keys.schedules(), "broken", "{")
    client.hset(keys.channels(), "7", "{")
    client.hset(keys.models(), "broken", "{")
    client.hset(keys.notify_jobs(), "broken", "{")
    client.hset(keys.command("broken"), "status", "pending")
    client.hset(keys.commands_owed(), "comsrv:1001:c:1", "1")
    client.set(keys.rule("broken"), "{")
    client.set(keys.flow("broken"), "mine")
    client.hset(keys.alarm("alarm_broken"), "level", "High")
    client.set(keys.points_quality("1001", "m"), "mine")
    ran = cli("doctor", "--json")
    said = [check["detail"] for check in ran.json["checks"] if check["status"] != "ok"]
    assert all(check["hint"] for check in ran.json["checks"] if check["status"] != "ok")
    wanted = [
        f"{keys.rules()} misses rule alone",
        f"{keys.flows()} misses flow timed",
        f"{keys.queue('normal')} misses task queued-last",
        f"{keys.alarm_order('open')} is a string and should be a zset",
        f"{keys.task('broken')} is no task",
        f"{keys.schedules()} broken cannot be read",
        f"{keys.channels()} 7 cannot be read",
        f"{keys.models()} broken",
        f"{keys.notify_jobs()} has a delivery broken that cannot be read",
        f"{keys.command('broken')} is no command",
        f"{keys.commands_owed()} has an entry comsrv:1001:c:1 that cannot be read",
        f"{keys.rule('broken')} is no JSON object",
        f"{keys.flow('broken')} is a string",
        f"{keys.points_quality('1001', 'm')} is a string and should be a hash",
    ]
    words = [text.partition(" ") for text in wanted]
    missing = [key + what for key, _, what in words if not any(f"{key} " in text and what in text for text in said)]
    assert missing == [], said
    repaired = cli("doctor", "--repair", "--json").json["repaired"]
    changed = {entry["key"] for entry in repaired}
    assert {keys.rules(), keys.flows(), keys.queue("normal"), keys.alarm_order("open"), keys.notify_jobs()} <= changed
    assert client.sismember(keys.rules(), "alone") and client.zscore(keys.flows(), "timed") == 0
    assert client.zcard(keys.alarm_order("open")) > 0
    assert client.hexists(keys.commands_owed(), "comsrv:1001:c:1")  # a device may wait for it: never dropped
    assert cli("doctor", "--repair", "--json").json["repaired"] == []
    assert "nothing was to be repaired" in cli("doctor", "--repair").out
    after = cli("doctor", "--json").json["checks"]
    assert [check for check in after if check["name"] == "index"] == []
    partial = f"{keys.alarm('alarm_broken')} is only a part of an alarm"  # hidden before by an index of a wrong type
    assert any(partial in check["detail"] for check in after)


async def test_leaders_mend_their_indexes_by_themselves(
    redis_7: Server, key_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start as well as later, within the period of the sweep."""
    for module in ("tasks.scheduler", "station", "alarms.keeper", "rules.engine", "notify.keeper"):
        monkeypatch.setattr(f"tradewind.{module}.SWEEP_S", 0.2)
    monkeypatch.setattr("tradewind.redis.index_sweep.LEADS_S", 0.2)
    settings = settings_of(key_prefix, redis_7.url, data_dir=tmp_path)
    async with _planted(redis_7.url, key_prefix) as plant:
        alarm = (await plant.picture())["alarm:order:open"].popitem()[0]
    async with open_station(settings, frozenset({"scheduler", "rulesrv", "alarmsrv"})) as station:
        stop = asyncio.Event()
        running = asyncio.create_task(station.run(stop))
        client, keys = station.plane.redis, station.plane.keys

        async def is_mended() -> bool:
            return bool(
                await client.zscore(keys.delayed(), "late")
                and not await client.sismember(keys.worker_types(), "ghost")
                and await client.zscore(keys.flows(), "timed") is not None
                and await client.hexists(keys.channel_versions(), "1001")
                and await client.sismember(keys.rules(), "inside")
                and await client.zscore(keys.alarm_order("open"), alarm)
                and await client.zscore(keys.notify_due(), "ghost") is None
            )

        try:
            for _ in range(2):
                await client.zrem(keys.delayed(), "late")
                await client.sadd(keys.worker_types(), "ghost")
                await client.zrem(keys.flows(), "timed")
                await client.hdel(keys.channel_versions(), "1001")
                await client.srem(keys.rules(), "inside")
                await client.zrem(keys.alarm_order("open"), alarm)
                await client.zadd(keys.notify_due(), {"ghost": 9e12})
                async with asyncio.timeout(30):
                    while not await is_mended():  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
        finally:
            stop.set()
            await asyncio.wait_for(running, 30)


async def test_looking_and_mending_beside_live_work_finds_nothing_and_loses_nothing(
    redis_7: Server, key_prefix: str, tmp_path: Path
) -> None:
    settings = Settings.model_validate({"key_prefix": key_prefix, "redis": {"url": redis_7.url}, "data_dir": tmp_path})
    async with open_station(settings, frozenset({"scheduler", "worker"})) as station:
        stop = asyncio.Event()
        running = asyncio.create_task(station.run(stop))
        sweeps = sweeps_of(station.plane)
        made = Room(station.link, settings, FakeClock(now_ms()))
        found: list[IndexFault] = []
        ids: list[str] = []
        try:
            for n in range(20):
                batch = [made.submission("echo", i) for i in range(50)]
                ids += [each.id for each in await station.tasks.submit(batch)]
                for room in ("tasks", "flows"):
                    found += await sweeps[room].run("repair" if n % 2 else "look")
            async with asyncio.timeout(60):
                while {(await station.tasks.get(name)).status for name in ids} != {"SUCCESS"}:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        finally:
            stop.set()
            await asyncio.wait_for(running, 30)
    assert found == []
