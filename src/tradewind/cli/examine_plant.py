"""What `tradewind doctor` looks at among channels, models and those who should see to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tradewind.api.channel_book import ChannelBook, channel_view
from tradewind.cli.check import Check, of_part
from tradewind.cli.times import span
from tradewind.clock import now_ms
from tradewind.points.channel_claim import taken_beyond_share
from tradewind.points.plane import PointPlane
from tradewind.points.values import whole
from tradewind.redis.connection import translated
from tradewind.station_parts import leading, missing, unneeded
from tradewind.station_points import PointRoom
from tradewind.tasks.plane import Plane
from tradewind.tasks.progress import read_report

#: How many are named.
NAMED = 5


async def channels(plane: Plane) -> list[Check]:
    room = PointRoom(plane.link, plane.all_settings)
    try:
        book = ChannelBook(room.board, room.channels)
        declared = await book.glances()
        statuses = await book.statuses(list(declared))
        (seconds, _), claims = await room.plane.home.ask([("TIME",), ("HGETALL", plane.keys.channel_claims())])
    finally:
        await room.close()
    views = {name: channel_view(name, glance, statuses[name]) for name, glance in declared.items()}
    if not views:
        return [Check("channels", "ok", "none")]
    by_state: dict[str, list[str]] = {}
    for name, view in views.items():
        state = _state(view, seconds * 1000, plane.all_settings.points.stale_s)
        by_state.setdefault(state, []).append(name)
    found = [Check("channels", "ok", ", ".join(f"{len(names)} {state}" for state, names in by_state.items()))]
    for name in by_state.get("offline", [])[:NAMED]:
        detail = f"{name} is offline: {views[name]['status']['error'] or 'no answer'}"
        hint = f"are the device and its parameters right? `tradewind channel show {name}`"
        found.append(Check("channel offline", "warn", detail, hint))
    found += _more("channel offline", by_state.get("offline", []))
    if late := by_state.get("late", []):
        ages = [f"{name} ({_age(views[name], seconds * 1000)})" for name in late[:NAMED]]
        hint = "they are connected and send nothing: look at the device, or raise points.stale_s"
        found.append(Check("channel age", "warn", f"{len(late)} past their age: {', '.join(ages)}", hint))
    if lost := {name: _lost(view) for name, view in views.items() if _lost(view)}:
        hint = "they came faster than they could be written, or are too large: `tradewind channel status`"
        found.append(Check("readings lost", "warn", named([f"{name} ({count})" for name, count in lost.items()]), hint))
    if left := by_state.get("unattended", []):
        hint = "nobody polls them: `tradewind up` or `tradewind run comsrv`"
        found.append(Check("comsrv", "fail", f"{len(left)} unattended: {named(left)}", hint))
    for process, count in taken_beyond_share(claims, seconds * 1000).items():
        hint = "another comsrv lives and does not claim its share: look at the log of the one with fewer channels"
        found.append(Check("comsrv", "warn", f"{process} polls {count} channels beyond its share", hint))
    return found


async def substitutions(plane: Plane) -> list[Check]:
    """Points that show what people say instead of their devices."""
    room = PointRoom(plane.link, plane.all_settings)
    try:
        found = await room.substitutions.standing()
    finally:
        await room.close()
    if not found:
        return []
    said = [f"{item.address} = {item.value:g} ({item.reason}; {item.who or item.source})" for item in found]
    hint = "`tradewind point substitutions` shows them all, `tradewind point release` ends one"
    return [Check("substituted points", "warn", f"{len(found)}: {named(said)}", hint)]


async def models(plane: Plane) -> list[Check]:
    points = PointPlane(plane.link, plane.all_settings)
    keys = plane.keys
    lead = keys.models_leader()
    count, leader, report = await points.home.ask(
        [("HLEN", keys.models()), ("GET", lead), ("GET", keys.progress(lead))]
    )
    return [role("modsrv", leader, report, f"{count} models", is_needed=bool(count))]


async def feed(plane: Plane) -> list[Check]:
    """Readers of the change feed that have missed some of it."""
    with translated(plane.link):
        missed: Any = await plane.redis.hgetall(plane.keys.feed_missed())
    all_of = {name.decode(errors="replace"): whole(count) for name, count in missed.items() if b"@" not in name}
    lost = {name: count for name, count in all_of.items() if count}
    hint = "it reads too slowly, or was away: raise points.feed_max_bytes, or see to the role"
    return [Check("feed", "warn", f"{name} has missed {count} entries", hint) for name, count in lost.items()]


def _lost(view: dict[str, Any]) -> int:
    return int(view["status"]["dropped"] + view["status"]["refused"])


def role(name: str, leader: bytes | None, report: bytes | None, what: str, *, is_needed: bool) -> Check:
    """Who holds the lease of a role and whether it goes on, or that nobody does although there is work. `report`: of
    its progress, as stored."""
    if leader:
        return of_part(name, leading(leader.decode(), what, read_report(report), now_ms()))
    return of_part(name, missing(name, f"no process has this role, {what}") if is_needed else unneeded(what))


def named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _more(check: str, names: Sequence[str]) -> list[Check]:
    more = len(names) - NAMED
    return [Check(check, "warn", f"and {more} more", "`tradewind channel list` shows them all")] if more > 0 else []


def _state(view: dict[str, Any], now_ms: int, stale_s: float) -> str:
    status = view["status"]
    heard = max(status["last_ms"] or 0, status["heard_ms"] or 0)
    is_late = view["state"] == "online" and heard and now_ms - heard > stale_s * 1000
    return "late" if is_late else str(view["state"])


def _age(view: dict[str, Any], now_ms: int) -> str:
    status = view["status"]
    return f"heard {span((now_ms - max(status['last_ms'] or 0, status['heard_ms'] or 0)) / 1000)} ago"
