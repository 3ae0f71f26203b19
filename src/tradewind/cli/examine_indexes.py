"""What `tradewind doctor` looks at in the indexes of all rooms, and what `doctor --repair` mends; records that nobody
can read, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tradewind.alarms.sweep import AlarmSweep
from tradewind.cli.check import Check
from tradewind.cli.examine_plant import named
from tradewind.errors import TradewindError
from tradewind.flows.plane import FlowPlane
from tradewind.flows.store import FlowStore
from tradewind.flows.sweep import FlowSweep
from tradewind.models.store import ModelStore
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.store import NotifyStore
from tradewind.notify.sweep import NotifySweep
from tradewind.points.channel_store import ChannelStore
from tradewind.points.plane import PointPlane
from tradewind.points.sweep import PointSweep
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord
from tradewind.redis.index_sweep import IndexFault, IndexSweep
from tradewind.redis.key_types import expected_type
from tradewind.rules.sweep import RuleSweep
from tradewind.tasks.periodic import read_schedule
from tradewind.tasks.plane import Plane
from tradewind.tasks.sweep import TaskSweep

#: Rows of the table about indexes, and faults of one key and kind that a row names.
ROWS, NAMED = 50, 3
_SCAN = 1000
#: Keys whose type is looked at.
MAX_KEYS = 200_000
MENDS = "`tradewind doctor --repair` mends it, and so does the sweep of the leader within the hour"
LOST = (
    "bring the record back (apply it again, or `tradewind restore --from sql`); `tradewind doctor --repair` gives it up"
)
ASIDE = "`tradewind doctor --repair` sets it aside"
OTHERS = "look at it with redis-cli TYPE, then rename or remove it; see docs/troubleshooting.md"


def sweeps_of(plane: Plane) -> dict[str, IndexSweep]:
    """All that there are, by room."""
    settings = plane.all_settings
    points = PointPlane(plane.link, settings, plane.clock)
    return {
        "tasks": TaskSweep(plane),
        "flows": FlowSweep(FlowStore(FlowPlane(plane))),
        "points": PointSweep(points),
        "rules": RuleSweep(plane.link, plane.keys, settings),
        "alarms": AlarmSweep(points),
        "notifications": NotifySweep(NotifyPlane(plane.link, settings, plane.clock)),
    }


async def repair(plane: Plane) -> tuple[list[IndexFault], list[Check]]:
    """Mend everything that can be: what was changed, and the rooms that could not be looked at."""
    changed, checks = [], []
    for room, sweep in sweeps_of(plane).items():
        try:
            changed += [fault for fault in await sweep.run("repair") if fault.is_mended]
        except TradewindError as error:
            checks.append(Check(f"repair of {room}", "fail", error.message, error.hint or "try again"))
    return changed, checks


async def indexes(plane: Plane) -> list[Check]:
    """Whether the indexes of all rooms say what the records say."""
    checks: list[Check] = []
    rooms = 0
    for room, sweep in sweeps_of(plane).items():
        try:
            found = await sweep.run("look")
        except TradewindError as error:
            checks.append(Check(f"indexes of {room}", "unknown", f"not known: {error.message}", error.hint or OTHERS))
            continue
        rooms += 1
        checks += _rows(found)
    if not any(check.status != "ok" for check in checks):
        checks.append(Check("indexes", "ok", f"those of {rooms} rooms agree with the records"))
    return checks if len(checks) <= ROWS else [*checks[:ROWS], _more(len(checks) - ROWS)]


def _rows(faults: Sequence[IndexFault]) -> list[Check]:
    """One for each key and kind of fault."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for fault in faults:
        verb = " ".join(fault.what.split()[:2])
        groups.setdefault((fault.key, fault.flag, verb), []).append(fault.what)
    rows = []
    for (key, flag, _), texts in groups.items():
        texts = list(dict.fromkeys(texts))
        more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
        detail = f"{key} {'; '.join(texts[:NAMED])}{more}"
        if flag == "t":
            rows.append(Check("index leftovers", "ok", f"{detail}: it has expired"))
        elif flag == "n":
            rows.append(Check("record", "warn", detail, OTHERS))
        elif texts[0].startswith("is a "):
            rows.append(Check("index", "fail", detail, MENDS if flag == "m" else f"{OTHERS}; {ASIDE}"))
        else:
            rows.append(Check("index", "warn", detail, MENDS if flag == "m" else LOST))
    return rows


def _more(count: int) -> Check:
    return Check("index", "warn", f"and {count} more", "`tradewind doctor --repair`, then look again")


async def key_types(plane: Plane) -> list[Check]:
    """Keys of ours that hold a value of another type."""
    prefix, looked = plane.keys.p, 0
    wrong: list[str] = []
    client: Any = plane.link.client
    cursor = 0
    pattern = "".join(f"\\{c}" if c in "*?[]\\^" else c for c in prefix) + "*"
    while True:
        with translated(plane.link):
            cursor, keys = await client.scan(cursor, match=pattern, count=_SCAN)
            wanted = [(key, expected_type(key.decode(errors="replace"), prefix)) for key in keys]
            known = [(key, kind) for key, kind in wanted if kind is not None]
            pipe = client.pipeline(transaction=False)
            for key, _ in known:
                pipe.type(key)
            types = await pipe.execute() if known else []
        for (key, kind), found in zip(known, types, strict=True):
            if found.decode() not in ("none", kind):
                wrong.append(f"{key.decode(errors='replace')} is a {found.decode()} and should be a {kind}")
        looked += len(keys)
        if not cursor or looked >= MAX_KEYS:
            break
    if wrong:
        cut = f"; of the first {looked} keys, the rest was not looked at" if cursor else ""
        return [Check("key types", "fail", f"{named(sorted(wrong))}{cut}", OTHERS)]
    if cursor:
        detail = f"the first {looked} keys are of their types; the rest was not looked at"
        return [Check("key types", "unknown", detail, "the sweep of each room looks at all of its own keys")]
    return [Check("key types", "ok", f"{looked} keys, all of their types")]


async def definitions(plane: Plane) -> list[Check]:
    """Definitions that nobody can read. Rules, tasks, commands and others are named with their indexes."""
    broken: dict[str, str] = {}
    keys, client = plane.keys, plane.redis
    for name, why in (await ChannelStore(plane.link, keys).broken()).items():
        broken[f"{keys.channels()} {name}"] = why
    for problem in (await ModelStore(plane.link, keys).load()).problems:
        broken[f"{keys.models()} {problem.path}"] = problem.hint
    with translated(plane.link):
        schedules = await client.hgetall(keys.schedules())
        versions = await client.mget(keys.models_version(), keys.rules_version())
    for name, text in schedules.items():
        try:
            read_schedule(name, text)
        except SpoiltRecord as error:
            broken[f"{keys.schedules()} {name.decode(errors='replace')}"] = str(error.__cause__ or error)
    for key, value in zip((keys.models_version(), keys.rules_version()), versions, strict=True):
        if value is not None and not value.isdigit():
            broken[key] = "is no number: nothing can be changed until it is one that it has not had"
    try:
        await NotifyStore(NotifyPlane(plane.link, plane.all_settings)).policy()
    except (TradewindError, msgspec.MsgspecError) as error:
        broken[keys.notify_policy()] = str(error)
    hint = "write it anew (`tradewind apply`, or the command of its kind), or remove it; the others are not held up"
    return [Check("record", "warn", f"{key} cannot be read: {why}", hint) for key, why in list(broken.items())[:ROWS]]
