"""The rules, alarms and notifications of a station, on the plane of its points."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tradewind.alarms.faults import READER
from tradewind.alarms.losses import DROPPED
from tradewind.alarms.statistics import AlarmStatistics, PeriodStatistics, read_statistics
from tradewind.alarms.store import AlarmStore
from tradewind.clock import now_ms
from tradewind.errors import Conflict, Invalid
from tradewind.health_part import Part
from tradewind.history.sink import Sink
from tradewind.ids import short_random
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.store import NotifyStore
from tradewind.points.feed_count import id_of
from tradewind.rules.spec import Rule
from tradewind.rules.store import RuleStore
from tradewind.station_parts import leading, missing, unneeded
from tradewind.station_points import PointRoom
from tradewind.tasks.gate import RedisGate
from tradewind.tasks.plane import Plane
from tradewind.tasks.progress import Report, read_report

if TYPE_CHECKING:  # heavy, and not every role needs them
    from tradewind.alarms.journal import AlarmJournal
    from tradewind.alarms.keeper import AlarmKeeper
    from tradewind.notify.keeper import NotifyKeeper
    from tradewind.rules.backtest_series import Series
    from tradewind.rules.dry_run import DryRun
    from tradewind.rules.engine import RuleEngine
    from tradewind.sql import Sql

#: Samples of a source that a back-test takes, and that are read at once.
MAX_SAMPLES, PIECE = 5_000_000, 100_000


class RuleRoom:
    """`sql`: for the journal of alarms; without it only what is on its way there can be read, and no keeper made.
    `sink`: makes a reader of the history, for back-tests; None when there is no history."""

    def __init__(self, points: PointRoom, sql: Sql | None = None, sink: Callable[[], Sink] | None = None) -> None:
        plane = points.plane
        self.points = points
        self.plane = plane
        self.rules = RuleStore(plane.link, plane.keys, plane.all_settings)
        self.alarms = AlarmStore(plane, _journal(sql) if sql is not None else None)
        self.notify = NotifyStore(NotifyPlane(plane.link, plane.all_settings))
        self._sql = sql
        self._sink = sink

    async def judge(self, stop: asyncio.Event) -> None:
        """Judge the rules and carry out their actions until `stop` is set: the role rulesrv. Raises Unavailable."""
        gate = RedisGate(self.plane.all_settings, Plane(self.plane.link, self.plane.all_settings, self.plane.clock))
        await gate.open()
        try:
            await self.engine(gate).run(stop)
        finally:
            await gate.close()

    def engine(self, gate: RedisGate) -> RuleEngine:
        from tradewind.rules.actions import ActionRunner
        from tradewind.rules.engine import RuleEngine

        runner = ActionRunner(self.plane, self.points.commands, self.points.models, gate)
        return RuleEngine(self.plane, self.rules, runner, ages=self._ages)

    async def keep(self, stop: asyncio.Event) -> None:
        """Keep alarms and notifications until `stop` is set: the role alarmsrv. Raises Unavailable."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.keeper().run(stop), name="alarms")
            group.create_task(self.notify_keeper().run(stop), name="notifications")

    def keeper(self) -> AlarmKeeper:
        """Raises Conflict without SQL: nobody would keep the journal."""
        if self._sql is None:
            raise Conflict("alarms are kept with a journal in SQL, and there is none", code="no_sql")
        from tradewind.alarms.keeper import AlarmKeeper

        return AlarmKeeper(self.plane, self._sql, keeper_id=f"alarmsrv-{short_random()}")

    def notify_keeper(self) -> NotifyKeeper:
        from tradewind.notify.keeper import NotifyKeeper

        return NotifyKeeper(NotifyPlane(self.plane.link, self.plane.all_settings))

    async def test(self, rule: Rule) -> DryRun:
        """What the rule says of the plant now; nothing is done. Raises Unavailable."""
        from tradewind.rules.dry_run import dry_run

        return await dry_run(self.plane, rule, self._ages)

    async def recorded(self, addresses: Sequence[str], from_ms: int, to_ms: int) -> dict[str, Series]:
        """What the history has of these sources, both times included. Raises Conflict when there is no history,
        Invalid when it is too much, Unavailable."""
        if self._sink is None:
            raise Conflict(
                "this station has no history", code="no_history", hint="set history.enabled, or send samples"
            )
        sink = self._sink()
        await sink.open()
        try:
            return {address: await _read(sink, address, from_ms, to_ms) for address in addresses if _is_kept(address)}
        finally:
            await sink.close()

    async def statistics(self, talkers: int = 10) -> AlarmStatistics:
        """Raises Unavailable."""
        return await read_statistics(self.plane, talkers)

    async def period(self, from_ms: int, to_ms: int, talkers: int = 10) -> PeriodStatistics:
        """What happened then, both times included. Raises Conflict without SQL, Unavailable."""
        if self._sql is None:
            raise Conflict("the journal of alarms is in SQL, and there is none", code="no_sql")
        from tradewind.alarms.period import read_period

        return await read_period(self.plane, _journal(self._sql), from_ms, to_ms, talkers)

    async def look(self) -> dict[str, Part]:
        """The roles for health. Raises Unavailable."""
        keys = self.plane.keys
        leads = (keys.rules_leader(), keys.alarms_leader(), keys.notify_leader())
        found = await self.plane.home.ask(
            [
                *(("GET", key) for key in leads),
                *(("GET", keys.progress(key)) for key in leads),
                ("SCARD", keys.rules()),
                ("HLEN", keys.alarm_open()),
                ("XLEN", keys.alarm_journal()),
                ("HGET", keys.alarm_figures(), f"{DROPPED}sql"),
                ("HGET", keys.notify_figures(), "dropped"),
                ("XLEN", keys.notify_outbox()),
                ("XREVRANGE", keys.faults(), "+", "-", "COUNT", 1),
                ("HGET", keys.cursors(), READER),
            ]
        )
        leaders, reports, (rules, is_open, waiting, unrecorded, untold, unsent, last, read) = (
            found[:3],
            [read_report(text) for text in found[3:6]],
            found[6:],
        )
        lost = (
            f"; dropped: {int(unrecorded or 0)} transitions, {int(untold or 0)} messages"
            if unrecorded or untold
            else ""
        )
        unread = bool(last) and (not read or id_of(last[0][0].decode()) > id_of(read.decode()))
        work = f"{is_open} alarms open{lost}" + ("; reports of faults wait" if unread else "")
        is_needed = bool(is_open or waiting or unread or unsent)
        return {
            "rulesrv": _state("rulesrv", leaders[0], reports[0], bool(rules), f"{rules} rules"),
            "alarmsrv": _state("alarmsrv", leaders[1], reports[1], is_needed, work),
            "notify": _state("alarmsrv", leaders[2], reports[2], bool(unsent), f"{unsent} messages wait"),
        }

    async def _ages(self) -> dict[str, int]:
        return await self.points.channels.ages()


def _is_kept(address: str) -> bool:
    """Whether anybody may have recorded it: alarms are read by rules, too, and have no samples."""
    return address.startswith(("comsrv:", "modsrv:"))


def _journal(sql: Sql) -> AlarmJournal:
    from tradewind.alarms.journal import AlarmJournal

    return AlarmJournal(sql)


async def _read(sink: Sink, address: str, from_ms: int, to_ms: int) -> Series:
    from tradewind.rules.backtest_series import Series

    times: list[int] = []
    values: list[float] = []
    words: list[int] = []
    while True:
        rows = (await sink.read([address], from_ms, to_ms + 1, PIECE))[address]
        for ts_ms, value, quality in rows:
            times.append(ts_ms)
            values.append(value)
            words.append(quality)
        if len(rows) < PIECE:
            return Series.of(times, values, words)
        if len(times) >= MAX_SAMPLES:
            message = f"{address} has more than {MAX_SAMPLES} samples in that time"
            raise Invalid(message, code="too_many_samples", hint="give a shorter time")
        from_ms = times[-1] + 1


def _state(role: str, leader: bytes | None, report: Report | None, is_needed: bool, what: str) -> Part:
    if leader:
        return leading(leader.decode(), what, report, now_ms())
    return missing(role, f"no process has this role, {what}") if is_needed else unneeded(what)
