"""The role alarmsrv: one process per station keeps the alarms: timers, retention, faults, journal, sweeper."""

from __future__ import annotations

import asyncio
import time

import msgspec
import structlog

from tradewind.alarms.clock_watch import ClockWatch
from tradewind.alarms.context import script_context
from tradewind.alarms.faults import FaultReader
from tradewind.alarms.journal import AlarmJournal
from tradewind.alarms.losses import JournalLosses
from tradewind.alarms.recorder import AlarmRecorder
from tradewind.alarms.sweep import AlarmSweep
from tradewind.errors import Unavailable
from tradewind.ids import short_random
from tradewind.points.plane import PointPlane
from tradewind.redis.index_sweep import SWEEP_S, sweep_for_ever
from tradewind.redis.scripts import Arg, Scripts
from tradewind.sql import Sql
from tradewind.tasks.leader import Leadership

log = structlog.get_logger(__name__)
#: Timers that one script carries out.
TIMERS = 100
TICK_S, SHORTEST_TICK_S = 1.0, 0.02
#: How often it is looked whether the journal has lost anything.
LOSSES_S = 1.0
FAULTS_WAIT_S = 1.0
TROUBLE_PAUSE_S = 1.0


class KeeperStats(msgspec.Struct):
    """Since this process keeps the alarms. `repaired`: entries of indexes that the sweeper found wrong."""

    timers: int = 0
    faults: int = 0
    repaired: int = 0


class AlarmKeeper:
    def __init__(self, plane: PointPlane, sql: Sql, *, keeper_id: str = "") -> None:
        self.plane = plane
        self.id = keeper_id or f"alarmsrv-{short_random()}"
        self.stats = KeeperStats()
        self.is_leading = False
        self._recorder = AlarmRecorder(plane, AlarmJournal(sql))
        self._faults = FaultReader(plane)
        self._losses = JournalLosses(plane)
        self._sweep = AlarmSweep(plane)
        self._scripts = Scripts(plane.link, "tradewind.alarms", plane.all_settings.redis.max_retries)
        self._context = script_context(plane.keys, plane.all_settings)
        self._clock = ClockWatch(plane, self._scripts)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; gives the lead up then. Everything it does is safe beside another keeper."""
        lead = Leadership(self.plane, self.id, self.plane.keys.alarms_leader(), self.plane.keys.alarms_epoch())
        await lead.serve(stop, lambda _: self._term(lead, stop), self._trouble)

    async def tick(self) -> float:
        """Carry out what is due; seconds until the next look. Raises Unavailable."""
        args: list[Arg] = [self._context, self.plane.clock.now_arg(), TIMERS]
        done, wait_ms = await self._scripts.run("alarm_tick", [self.plane.keys.alarm_timers()], args)
        self.stats.timers += int(done)
        if int(done) == TIMERS:
            return 0.0
        return min(TICK_S, max(SHORTEST_TICK_S, int(wait_ms) / 1000)) if int(wait_ms) >= 0 else TICK_S

    async def _term(self, lead: Leadership, stop: asyncio.Event) -> None:
        self.is_leading = True
        watch = lead.progress.watch
        jobs = {
            "timers": watch("timers", self._tick_for_ever()),
            "faults": watch("faults", self._read_faults()),
            "journal": watch("journal", self._recorder.run()),
            "sweep": sweep_for_ever(
                [self._sweep], "alarms", SWEEP_S, mended=self._mended
            ),  # sleeps for an hour by itself
        }
        tasks = [asyncio.create_task(job, name=f"alarms {name}") for name, job in jobs.items()]
        try:
            while lead.epoch and not stop.is_set():
                waits = [asyncio.create_task(event.wait()) for event in (stop, lead.changed)]
                done, _ = await asyncio.wait([*tasks, *waits], return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
                lead.changed.clear()
                for task in tasks:
                    if task in done:
                        task.result()  # these never end by themselves: what they raise is for the caller
        finally:
            self.is_leading = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _trouble(self, error: Unavailable) -> None:
        log.warning("alarms_wait", keeper=self.id, error=error.message)

    async def _tick_for_ever(self) -> None:
        looked = -LOSSES_S
        while True:
            try:
                wait_s = await self.tick()
                if time.monotonic() - looked >= LOSSES_S:  # here and not in the recorder: that waits while SQL is away
                    await self._clock.look()
                    await self._losses.tell()
                    looked = time.monotonic()
            except Unavailable as error:
                self._trouble(error)
                wait_s = TROUBLE_PAUSE_S
            await asyncio.sleep(wait_s)

    async def _read_faults(self) -> None:
        client = self.plane.link.new_client(FAULTS_WAIT_S)
        try:
            while True:
                try:
                    self.stats.faults += await self._faults.step(client, int(FAULTS_WAIT_S * 1000))
                except Unavailable:  # the timers say so
                    await asyncio.sleep(TROUBLE_PAUSE_S)
        finally:
            await client.aclose()

    def _mended(self, entries: int) -> None:
        self.stats.repaired += entries
