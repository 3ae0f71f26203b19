"""Periodic tasks: definitions in Redis, slots fired by the leader, each slot exactly one task.

A slot's task has the id `{name}_{slot in ms}`, so that two leaders, or one that starts again, make one task of it.
Slots that passed while nobody led are not caught up: the latest one runs, the others are skipped.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog
from cronsim import CronSim
from redis.exceptions import RedisError

from tradewind import codec
from tradewind.cron import read_cron
from tradewind.errors import Conflict, Invalid, NotFound, Problem, TradewindError, Unavailable, error_text
from tradewind.ids import is_id
from tradewind.numerals import score_ms
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord, reading
from tradewind.redis.scripts import Arg
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import Request, Submission
from tradewind.tasks.store import TaskStore

log = structlog.get_logger(__name__)
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EVERY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
MIN_EVERY_MS, MAX_EVERY_MS = 100, 366 * 86_400_000
#: Longest sleep between two looks at the definitions.
LOOK_S = 1.0


class Schedule(msgspec.Struct, omit_defaults=True):
    """`every_ms` or `cron` (five fields, UTC), not both."""

    name: str
    type: str
    every_ms: int = 0
    cron: str = ""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    priority: str = "normal"
    max_attempts: int = 1
    timeout_ms: int = 0
    next_ms: int = 0

    def next_after(self, moment_ms: int) -> int:
        """The first slot after that moment; slots of an interval are counted from the epoch, so they never drift."""
        if self.every_ms:
            return (moment_ms // self.every_ms + 1) * self.every_ms
        return round(next(CronSim(self.cron, datetime.fromtimestamp(moment_ms / 1000, UTC))).timestamp() * 1000)

    def latest_at(self, moment_ms: int) -> int:
        """The last slot up to that moment, itself included."""
        if self.every_ms:
            return moment_ms // self.every_ms * self.every_ms
        after = datetime.fromtimestamp((moment_ms + 1) / 1000, UTC)
        return round(next(CronSim(self.cron, after, reverse=True)).timestamp() * 1000)


def parse_every(value: float | str) -> int:
    """Milliseconds of `30`, `"30s"`, `"5m"`, `"1h"`, `"1d"`. Raises Invalid."""
    number = 0.0
    if isinstance(value, str):
        match = _EVERY.fullmatch(value.strip())
        if match:
            number = float(match[1]) * (1 if match[2] == "ms" else _UNITS[match[2]])
    elif not isinstance(value, bool):
        number = value * 1000
    if not MIN_EVERY_MS <= number <= MAX_EVERY_MS:
        problem = Problem("bad_interval", "every", 'give seconds or "30s", "5m", "1h", "1d"; at least 0.1 s')
        raise Invalid(f"{value!r} is not an interval", hint=problem.hint, problems=[problem])
    return round(number)


def check_schedule(schedule: Schedule) -> None:
    """Raises Invalid with everything that is wrong."""
    problems = []
    if not is_id(schedule.name):
        problems.append(Problem("bad_name", "name", "letters, digits, _ and -, at most 64 characters"))
    if not is_id(schedule.type):
        problems.append(Problem("bad_type", "type", "letters, digits, _ and -, at most 64 characters"))
    if bool(schedule.every_ms) == bool(schedule.cron):
        problems.append(Problem("every_or_cron", "every", "give either every or cron"))
    elif schedule.every_ms and not MIN_EVERY_MS <= schedule.every_ms <= MAX_EVERY_MS:
        problems.append(Problem("bad_interval", "every", "at least 0.1 s, at most 366 days"))
    if schedule.cron:
        try:
            read_cron(schedule.cron)
        except ValueError as error:
            problems.append(Problem("bad_cron", "cron", f'five fields such as "*/5 * * * *": {error}'))
    if schedule.priority not in ("high", "normal"):
        problems.append(Problem("bad_priority", "priority", 'give "high" or "normal"'))
    if not 1 <= schedule.max_attempts <= 1000:
        problems.append(Problem("out_of_range", "max_attempts", "give a whole number from 1 to 1000"))
    if problems:
        raise Invalid("the schedule is not valid", hint="see problems", problems=problems)


class ScheduleStore:
    def __init__(self, plane: Plane) -> None:
        self.plane = plane

    async def list(self) -> list[Schedule]:
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            pipe = client.pipeline(transaction=True)
            pipe.hgetall(keys.schedules())
            pipe.zrange(keys.schedules_due(), 0, -1, withscores=True)
            definitions, due = await pipe.execute()
        slots = {name: score_ms(score) for name, score in due}
        found = []
        for name, text in sorted(definitions.items()):
            try:
                schedule = read_schedule(name, text)
            except SpoiltRecord as error:  # written by a stranger: it must not hide the others
                log.warning("schedule_unreadable", schedule=name.decode(errors="replace"), error=error.message)
                continue
            schedule.next_ms = slots.get(name, 0)
            found.append(schedule)
        return found

    async def get(self, name: str) -> Schedule:
        for schedule in await self.list():
            if schedule.name == name:
                return schedule
        raise _unknown(name)

    async def set(self, schedule: Schedule) -> Schedule:
        """Create or replace; the same definition keeps its next slot."""
        check_schedule(schedule)
        schedule = msgspec.structs.replace(schedule, next_ms=0)
        text = codec.encode(schedule)
        first = schedule.next_after(self.plane.clock.now_ms())
        keys = self.plane.keys
        args: list[Arg] = [schedule.name, text, first]
        slot = await self.plane.scripts.run("schedule_set", [keys.schedules(), keys.schedules_due(), keys.wake()], args)
        schedule.next_ms = int(slot)
        return schedule

    async def remove(self, name: str) -> None:
        keys = self.plane.keys
        with translated():
            pipe = self.plane.redis.pipeline(transaction=True)
            pipe.hdel(keys.schedules(), name)
            pipe.zrem(keys.schedules_due(), name)
            removed, _ = await pipe.execute()
        if not removed:
            raise _unknown(name)


class Periodic:
    """Fires due slots; run by the leader."""

    def __init__(self, plane: Plane, store: TaskStore) -> None:
        self.plane = plane
        self.store = store
        self.schedules = ScheduleStore(plane)
        #: What was logged of schedules that could not be fired.
        self._told: dict[bytes, str] = {}

    async def run(self) -> None:
        while True:
            now = self.plane.clock.now_ms()
            next_ms = await self.fire_due(now)
            wait_s = LOOK_S
            if next_ms:
                wait_s = min(LOOK_S, max(0.0, (next_ms - self.plane.clock.now_ms()) / 1000))
            await asyncio.sleep(max(0.005, wait_s))

    async def fire_due(self, now: int) -> int:
        """Submit the task of every due slot, then move on to the next slot; the ms of the nearest one to come, or 0.

        A schedule that cannot be fired holds up no other. Raises Unavailable.
        """
        keys = self.plane.keys
        with translated():
            due = await self.plane.redis.zrange(keys.schedules_due(), "-inf", now, byscore=True, withscores=True)
        told: dict[bytes, str] = {}
        for name, score in due:
            try:
                await self._fire(name, score_ms(score), now)
            except Unavailable:
                raise
            except (TradewindError, RedisError) as error:
                told[name] = error_text(error)
                if self._told.get(name) != told[name]:
                    log.error("schedule_not_fired", schedule=name.decode(errors="replace"), error=told[name])
        self._told = told
        with translated():
            nearest = await self.plane.redis.zrange(
                keys.schedules_due(), f"({now}", "+inf", byscore=True, withscores=True, offset=0, num=1
            )
        return score_ms(nearest[0][1]) if nearest else 0

    async def _fire(self, raw: bytes, slot: int, now: int) -> None:
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            text = await client.hget(keys.schedules(), raw)
        if text is None:
            return
        schedule = read_schedule(raw, text)
        name = schedule.name
        following, latest = schedule.next_after(now), max(slot, schedule.latest_at(now))
        request = Request(
            args=schedule.args,
            kwargs=schedule.kwargs,
            max_attempts=schedule.max_attempts,
            timeout_ms=schedule.timeout_ms,
            tags=["periodic", name],
        )
        task_id = f"{name}_{latest}"
        try:
            await self.store.submit(
                [Submission(task_id, schedule.type, request, codec.encode(request), schedule.priority)]
            )
        except Conflict:
            log.warning("a slot's task exists already with another request", schedule=name, task=task_id)
        args: list[Arg] = [name, slot, following, text]
        await self.plane.scripts.run("schedule_advance", [keys.schedules(), keys.schedules_due()], args)


def read_schedule(name: bytes, text: bytes) -> Schedule:
    """A field of `schedule:config`, which another program may have written. Raises SpoiltRecord."""
    with reading(f"the schedule {name.decode(errors='replace')!r}"):
        schedule = msgspec.json.decode(text, type=Schedule)
        if schedule.name.encode() != name:
            raise ValueError(f"its name is {schedule.name!r}")
        try:
            check_schedule(schedule)
        except Invalid as error:
            raise ValueError("; ".join(f"{p.path}: {p.hint}" for p in error.problems)) from error
    return schedule


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r}", code="schedule_not_found", hint="see schedule list")
