"""Figures of the alarm system: how many, how fast they are handled, who talks most, whether there is a flood."""

from __future__ import annotations

import msgspec

from tradewind.alarms.losses import dropped_of
from tradewind.alarms.record import LEVELS
from tradewind.alarms.transitions import Status
from tradewind.numerals import stored_whole
from tradewind.points.plane import PointPlane

#: An alarm that is open for longer is standing.
STANDING_MS = 86_400_000


class Talker(msgspec.Struct, frozen=True):
    rule_id: str
    source: str
    raised: int


class Handling(msgspec.Struct, frozen=True, kw_only=True):
    """How alarms were handled. Times are means in seconds, None while there is nothing to take a mean of.
    `resolve_rate` is a share of 1."""

    raised: int
    raised_by_level: dict[str, int]
    acknowledged: int
    resolved: int
    acknowledge_s: float | None
    resolve_s: float | None
    resolve_rate: float | None
    talkers: list[Talker]


class AlarmStatistics(Handling, frozen=True, kw_only=True):
    """`open` by level; `statuses` of all that Redis has; `raised`, … since `since_ms` (None: nothing was ever raised).

    `journal_waiting`: transitions that not all readers have; `journal_dropped`: per reader, those that it never had
    (`sql`: that are not in the journal in SQL); `outbox_waiting`, `outbox_dropped`: messages to be told, never told.
    """

    open: dict[str, int]
    statuses: dict[str, int]
    standing: int
    recent: int
    is_flood: bool
    flood_since_ms: int | None
    floods: int
    flood_share: float
    since_ms: int | None
    journal_waiting: int
    journal_dropped: dict[str, int]
    outbox_waiting: int
    outbox_dropped: int


class PeriodStatistics(Handling, frozen=True, kw_only=True):
    """What happened from `from_ms` to `to_ms`, both included. Of `talkers`, `raised` counts new alarms.

    `resolve_rate`: the share of the alarms raised in the period that ended by its end. `recorded_until_ms`: transitions
    from then on are still on their way to SQL and not counted; None: all are there.
    """

    from_ms: int
    to_ms: int
    recorded_until_ms: int | None


async def read_statistics(plane: PointPlane, talkers: int = 10) -> AlarmStatistics:
    """All at one instant. Raises Unavailable."""
    keys, now = plane.keys, plane.clock.now_ms()
    window_ms = int(plane.all_settings.alarms.flood_window_s * 1000)
    commands: list[tuple[str | int, ...]] = [("ZCARD", keys.alarm_order(f"open:{level}")) for level in LEVELS]
    commands += [("SCARD", keys.alarm_status(status)) for status in Status]
    commands += [
        ("HGETALL", keys.alarm_figures()),
        ("ZRANGE", keys.alarm_talkers(), 0, talkers - 1, "REV", "WITHSCORES"),
        ("ZCOUNT", keys.alarm_order("open"), "-inf", f"({now - STANDING_MS}"),
        ("ZCOUNT", keys.alarm_recent(), f"({now - window_ms}", "+inf"),
        ("XLEN", keys.alarm_journal()),
        ("XLEN", keys.notify_outbox()),
        ("HGET", keys.notify_figures(), "dropped"),
    ]
    replies = await plane.home.ask_raw(commands)
    by_level = {level.value: int(n) for level, n in zip(LEVELS, replies, strict=False)}
    statuses = {status.value: int(n) for status, n in zip(Status, replies[len(LEVELS) :], strict=False)}
    flat, busiest, standing, recent, journal, outbox, untold = replies[-7:]
    figures = {name.decode(errors="replace"): stored_whole(n) for name, n in zip(flat[::2], flat[1::2], strict=True)}
    raised, resolved, acked = (figures.get(name, 0) for name in ("raised", "resolved", "acknowledged"))
    since, flood_since = figures.get("since_ms"), figures.get("flood_since")
    flood_ms = figures.get("flood_ms", 0) + (max(0, now - flood_since) if flood_since is not None else 0)
    return AlarmStatistics(
        open=by_level,
        statuses=statuses,
        raised=raised,
        raised_by_level={level.value: figures.get(f"level:{level}", 0) for level in LEVELS},
        acknowledged=acked,
        resolved=resolved,
        acknowledge_s=figures.get("ack_ms", 0) / acked / 1000 if acked else None,
        resolve_s=figures.get("resolve_ms", 0) / resolved / 1000 if resolved else None,
        resolve_rate=resolved / raised if raised else None,
        talkers=[_talker(name, n) for name, n in zip(busiest[::2], busiest[1::2], strict=True)],
        standing=int(standing),
        recent=int(recent),
        is_flood=flood_since is not None,
        flood_since_ms=flood_since,
        floods=figures.get("floods", 0),
        flood_share=min(1.0, flood_ms / (now - since)) if since is not None and now > since else 0.0,
        since_ms=since,
        journal_waiting=int(journal),
        journal_dropped=dropped_of(figures),
        outbox_waiting=int(outbox),
        outbox_dropped=int(untold or 0),
    )


def _talker(name: bytes, raised: bytes) -> Talker:
    rule_id, _, source = name.decode(errors="replace").partition("|")
    return Talker(rule_id, source, int(float(raised)))
