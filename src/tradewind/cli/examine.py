"""The checks of `tradewind doctor`. Each reads a little and decides: ok, warn or fail. They change nothing; with
`--repair` the indexes are mended before."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tradewind.cli.check import Check, bounded, of_part
from tradewind.cli.examine_flows import flows
from tradewind.cli.examine_history import history
from tradewind.cli.examine_indexes import definitions, indexes, key_types, repair
from tradewind.cli.examine_plant import channels, feed, models, substitutions
from tradewind.cli.examine_rules import alarms, notifications, rules
from tradewind.cli.times import span
from tradewind.clock import iso, now_ms
from tradewind.errors import TradewindError
from tradewind.points.values import whole
from tradewind.recovery.watch import RESTORE, Loss
from tradewind.redis.connection import Link, open_link, server_facts, translated
from tradewind.redis.embedded import socket_of
from tradewind.redis.index_sweep import IndexFault
from tradewind.redis.keys import Keys
from tradewind.redis.urls import target_of
from tradewind.settings import Settings
from tradewind.station_health import UNREADABLE
from tradewind.station_parts import leading, missing
from tradewind.tasks.control import TaskControl
from tradewind.tasks.offers import Offers
from tradewind.tasks.plane import Plane
from tradewind.tasks.progress import read_report
from tradewind.tasks.waiting import Wanted, reasons

READY_S = 5.0
#: How many keys the search for forgotten ones looks at.
MAX_KEYS = 200_000
SCAN = 1000
#: An apply that has said nothing for so long was interrupted; one of its steps may take a minute.
RELEASE_S = 90.0
CLOCK_WARN_S, CLOCK_FAIL_S = 1.0, 5.0
#: Keys that always expire, by what follows the prefix; see keys.py.
EXPIRING = re.compile(
    r"task:(idem|cancel|cache|status|types):.+|lock:task:.+|scheduler:leader|ratelimit:task:.+|worker:(?!types$)[^:]+"
    r"|node_tasks:.+|trading_flow:node:.+|flow:[^:]+:cycle:.+"
)
TASK = re.compile(r"task:(?P<id>[A-Za-z0-9_-]+)")
NOT_TASKS = frozenset({"task:token", "task:types", "task:outbox"})
#: One look of the doctor; its name is that of the check when it cannot be made.
Look = Callable[[Plane], Awaitable[list[Check]]]
ENDED = frozenset({b"SUCCESS", b"FAILED", b"CANCELLED", b"TIMEOUT", b"DEAD"})


async def examine(settings: Settings, repaired: list[IndexFault] | None = None) -> list[Check]:
    """All checks; those that could not be made are `unknown`. `repaired`: mend the indexes first, and add to this list
    what was changed. Raises Invalid for wrong settings."""
    own: tuple[Look, ...] = (
        _station,
        _release,
        _server,
        _writes,
        _memory,
        _clock,
        _leader,
        _workers,
        _types,
        _unserved,
        _queues,
        _outbox,
    )
    looks: tuple[Look, ...] = (
        *own, flows, channels, substitutions, feed, models, rules, alarms, notifications, history, indexes,
        definitions, key_types, _keys,
    )  # fmt: skip
    sql = await _sql(settings)
    try:
        link = await _open(settings)
    except TradewindError as error:
        checks = [Check("redis", "fail", error.message, error.hint), sql]
        return checks + [Check(_name(look), "unknown", "not known: Redis cannot be reached") for look in looks]
    try:
        plane = Plane(link, settings)
        checks = [Check("redis", "ok", f"reachable at {link}"), sql]
        if repaired is not None:
            changed, trouble = await repair(plane)
            repaired += changed
            checks += trouble
        for look in looks:
            try:
                checks += await look(plane)
            except TradewindError as error:
                checks.append(Check(_name(look), "unknown", f"not known: {error.message}", error.hint))
            except UNREADABLE as error:
                hint = "a key of another type, or a record that somebody else wrote; see docs/redis-schema.md"
                checks.append(Check(_name(look), "unknown", f"not known: {error}", hint))
        return checks
    finally:
        await link.close()


def _name(look: Look) -> str:
    return getattr(look, "__name__", "check").strip("_")


async def _open(settings: Settings) -> Link:
    """The Redis of the settings, or that of the station that runs on the data folder; none is started here."""
    redis = settings.redis
    if target_of(redis) is None:
        redis = redis.model_copy(update={"url": f"unix://{socket_of(settings.data_dir)}"})
    link = await open_link(redis.model_copy(update={"min_idle": 0}))
    try:
        await link.wait_ready(READY_S)
    except TradewindError as error:
        if error.code == "redis_disk":  # it answers; the check of writes says so
            return link
        await link.close()
        raise
    return link


async def _station(plane: Plane) -> list[Check]:
    """Whose Redis this is, and whether a process of the station has found that its data are gone."""
    with translated(plane.link):
        found, mark = await plane.redis.mget(plane.keys.station_id(), plane.keys.station_loss())
    if found:
        return [Check("station", "ok", found.decode(errors="replace"))]
    if mark:
        try:
            detail = str(msgspec.json.decode(mark, type=Loss))
        except msgspec.MsgspecError:
            detail = "Redis came back without the data of this station"
        return [Check("station", "fail", detail, f"{RESTORE}; see docs/recovery.md")]
    hint = "start it with the scheduler, api or alarmsrv role, which have SQL; if it runs, its data may be gone"
    return [Check("station", "warn", "no station has an id in this Redis", hint)]


async def _release(plane: Plane) -> list[Check]:
    """An `apply` that was interrupted leaves kinds at different versions."""
    with translated(plane.link):
        names = ("note", "state", "beat_ms", "done", "total")
        note, state, *numbers = await plane.redis.hmget(plane.keys.release(), names)
    if state is None or state == b"preparing":
        return []
    beat_ms, done, total = (int(text) if text and len(text) < 16 and text.isdigit() else 0 for text in numbers)
    since_s = time.time() - beat_ms / 1000
    if since_s < RELEASE_S:
        return [Check("release", "ok", f"an apply is under way: {done} of {total} steps")]
    found = f"an apply ({(note or b'').decode(errors='replace')}) stopped {since_s:.0f} s ago after {done} steps"
    return [Check("release", "warn", f"{found} of {total}", "`tradewind apply --resume`, or `--rollback`")]


async def _server(plane: Plane) -> list[Check]:
    facts = await server_facts(plane.link.client)
    evicts = facts.maxmemory_policy.startswith("allkeys-")
    return [
        Check("version", "ok", f"{facts.name} {facts.version}"),
        Check(
            "eviction policy",
            "fail" if evicts else "ok",
            facts.maxmemory_policy,
            "set maxmemory-policy to noeviction: a full server would drop tasks" if evicts else "",
        ),
        Check(
            "append-only file",
            "ok" if facts.appendonly else "warn",
            "on" if facts.appendonly else "off",
            "" if facts.appendonly else "set appendonly yes: a restart loses what was not saved",
        ),
    ]


async def _writes(plane: Plane) -> list[Check]:
    """Whether the server takes writes and brings them to its disk."""
    hint = "is its disk full? what it holds is kept, nothing new is taken"
    with translated(plane.link):
        info = await plane.link.client.info("persistence")
    try:
        with translated(plane.link):
            await plane.redis.set(plane.keys.health_probe(), "doctor", px=60_000)
    except TradewindError as error:
        return [Check("redis writes", "fail", error.message, error.hint or hint)]
    states = {name: str(info.get(name, "ok")) for name in ("aof_last_write_status", "rdb_last_bgsave_status")}
    bad = ", ".join(f"{name} {state}" for name, state in states.items() if state != "ok")
    return [Check("redis writes", "fail" if bad else "ok", bad or "taken", hint if bad else "")]


async def _sql(settings: Settings) -> Check:
    """Whether SQL takes writes; it is neither created nor migrated here."""
    from tradewind.sql import probe_url

    if not settings.tasks.archive:
        return Check("sql", "ok", "tasks.archive is off")
    try:
        found = await probe_url(settings.sql.url, settings.data_dir)
    except TradewindError as error:
        return Check("sql", "fail", error.message, error.hint)
    return Check("sql", "ok", f"{found} takes writes" if found else "not made yet: the first start does")


async def _memory(plane: Plane) -> list[Check]:
    with translated(plane.link):
        info = await plane.link.client.info("memory")
    used, most = int(info["used_memory"]), int(info.get("maxmemory", 0))
    if not most:
        return [Check("memory", "ok", f"{used / 1e6:.1f} MB, no bound")]
    is_tight = used > 0.9 * most
    hint = "raise maxmemory, or remove data" if is_tight else ""
    return [Check("memory", "warn" if is_tight else "ok", f"{used / 1e6:.1f} of {most / 1e6:.1f} MB", hint)]


async def _clock(plane: Plane) -> list[Check]:
    before = time.time()
    with translated(plane.link):
        seconds, micros = await plane.link.client.time()
    apart_s = abs((before + time.time()) / 2 - (seconds + micros / 1e6))
    status = "fail" if apart_s > CLOCK_FAIL_S else "warn" if apart_s > CLOCK_WARN_S else "ok"
    hint = "" if status == "ok" else "keep the clocks of all hosts in step (NTP)"
    found = [Check("clock", status, f"{apart_s * 1000:.0f} ms apart from Redis", hint)]
    with translated(plane.link):
        known = await plane.redis.hmget(plane.keys.station_clock(), "by_ms", "at_ms")
    by_ms, at_ms = (whole(text.decode()) if text else 0 for text in known)
    if by_ms and seconds * 1000 < at_ms + by_ms:  # it shows again what it has shown before
        detail = f"the clock of Redis was set back by {span(by_ms / 1000)} at {iso(at_ms)}"
        hint = "history of that time is written over and schedules wait until it is over: keep the clock in step (NTP)"
        found.append(Check("clock", "warn", detail, hint))
    return found


async def _leader(plane: Plane) -> list[Check]:
    lead = plane.keys.leader()
    with translated(plane.link):
        leader, report = await plane.redis.mget(lead, plane.keys.progress(lead))
    if leader is None:
        return [of_part("leader", missing("scheduler", "no scheduler leads"))]
    return [of_part("leader", leading(leader.decode(), "", read_report(report), now_ms()))]


async def _workers(plane: Plane) -> list[Check]:
    """The index holds when each lease ends; a member past it waits for the leader's reaper."""
    with translated(plane.link):
        leases: Any = await plane.link.client.zrange(plane.keys.workers(), 0, -1, withscores=True)
        seconds, _ = await plane.link.client.time()
    if not leases:
        return [Check("workers", "warn", "none", "start one: `tradewind up` or `tradewind run worker`")]
    late = [
        f"{worker.decode()} (lease ended {iso(int(end_ms))})" for worker, end_ms in leases if end_ms < seconds * 1000
    ]
    if late:
        hint = "the leader takes their tasks back; if they stay in this list, look at the leader"
        return [Check("workers", "warn", f"{len(late)} of {len(leases)} are late: {', '.join(late[:5])}", hint)]
    return [Check("workers", "ok", f"{len(leases)} with a live lease")]


async def _unserved(plane: Plane) -> list[Check]:
    """Tasks that wait for a worker that is not there: a type, or labels, that nobody serves."""
    with translated():
        places = sorted(place.decode() for place in await plane.redis.smembers(plane.keys.parked()))
    wanted = []
    for place in places:
        priority, _, route = place.partition(":")
        kind, _, labels = route.partition("@")
        wanted.append(Wanted(kind, priority, tuple(word for word in labels.split(",") if word)))
    lacking = sorted({why for why in (await reasons(plane, wanted)).values() if why and "no live worker" in why})
    if not lacking:
        return [Check("waiting tasks", "ok", "a worker is there for each that waits")]
    more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
    return [
        Check("waiting tasks", "warn", "; ".join(lacking[:5]) + more, "start a worker with the code of these types")
    ]


async def _types(plane: Plane) -> list[Check]:
    """Types that live workers offer with different signatures: half of a roll-out, or two programs with one name."""
    found: dict[str, dict[bytes, list[str]]] = {}
    for offer in await Offers(plane).read():
        for name, data in offer.entries.items():
            found.setdefault(name, {}).setdefault(data, []).append(offer.worker_id)
    several = {name: list(workers.values()) for name, workers in found.items() if len(workers) > 1}
    if not several:
        return [Check("types", "ok", f"{len(found)} offered, each with one signature")]
    told = [f"{name} ({' | '.join(', '.join(w[:3]) for w in workers)})" for name, workers in sorted(several.items())]
    hint = "bring all workers to one version; until then what fits either signature is accepted"
    more = f" and {len(told) - 5} more" if len(told) > 5 else ""
    return [Check("types", "warn", f"different signatures at once: {'; '.join(told[:5])}{more}", hint)]


async def _queues(plane: Plane) -> list[Check]:
    queues = {queue.name: queue for queue in await TaskControl(plane).queues()}
    waiting, most = queues["high"].length + queues["normal"].length, plane.settings.max_queued
    paused = [name for name, queue in queues.items() if queue.is_paused]
    checks = [bounded("queued tasks", waiting, most, "start more workers, or raise tasks.max_queued")]
    if paused:
        checks.append(
            Check("paused", "warn", ", ".join(paused), "`tradewind queue resume NAME` when this is not meant")
        )
    return checks


async def _outbox(plane: Plane) -> list[Check]:
    with translated(plane.link):
        count = int(await plane.link.client.get(plane.keys.outbox_count()) or 0)
    return [
        bounded("outbox", count, plane.settings.outbox_max, "is the SQL database reachable? see `tradewind status`")
    ]


async def _keys(plane: Plane) -> list[Check]:
    """Keys that should expire and do not: a few may be met in the middle of a change, so they are looked at twice."""
    client, suspects, looked = plane.link.client, [], 0
    with translated(plane.link):
        async for key in client.scan_iter(match=f"{_glob(plane.keys.p)}*", count=SCAN):
            looked += 1
            if kind_of(key.decode(errors="replace"), plane.keys) is not None:
                suspects.append(key)
            if looked >= MAX_KEYS:
                break
        for _ in range(2):
            suspects = await _without_ttl(plane, suspects)
    if not suspects:
        return [Check("expiry", "ok", f"{looked} keys, none forgotten")]
    kinds = Counter(kind_of(key.decode(errors="replace"), plane.keys) for key in suspects)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    example = suspects[0].decode(errors="replace")
    hint = f"such as {example}; a leader's hourly sweep removes them, otherwise report it"
    return [Check("expiry", "warn", f"keys that never expire although they should: {listed}", hint)]


def kind_of(key: str, keys: Keys) -> str | None:
    """The family of a key that must have a TTL (a task: once it has ended), or None."""
    name = key.removeprefix(keys.p)
    if EXPIRING.fullmatch(name):
        return name.rpartition(":")[0] if name.startswith(("task:", "ratelimit:", "lock:")) else name.partition(":")[0]
    return "task" if TASK.fullmatch(name) and name not in NOT_TASKS else None


async def _without_ttl(plane: Plane, found: list[bytes]) -> list[bytes]:
    """Those that exist, have no TTL and, for tasks, have ended and are not waiting in the outbox."""
    client, kept = plane.link.client, []
    waiting = await _in_outbox(plane)
    for start in range(0, len(found), SCAN):
        part = found[start : start + SCAN]
        pipe = client.pipeline(transaction=False)
        for key in part:
            pipe.ttl(key)
            if _is_task(key, plane):
                pipe.hget(key, "status")
            else:
                pipe.echo("")
        replies = await pipe.execute(raise_on_error=False)
        for key, ttl, status in zip(part, replies[::2], replies[1::2], strict=True):
            if ttl != -1:
                continue
            if not _is_task(key, plane) or (status in ENDED and key.rpartition(b":")[2] not in waiting):
                kept.append(key)
    return kept


def _is_task(key: bytes, plane: Plane) -> bool:
    return kind_of(key.decode(errors="replace"), plane.keys) == "task"


async def _in_outbox(plane: Plane) -> set[bytes]:
    entries: Any = await plane.link.client.xrange(plane.keys.outbox(), count=MAX_KEYS)
    return {task_id for _, fields in entries for task_id in fields.get(b"ids", b"").split()}


def _glob(text: str) -> str:
    """The prefix as SCAN's pattern takes it literally."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)
