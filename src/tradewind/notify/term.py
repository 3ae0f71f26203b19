"""One term of the keeper: from when the lead is won until it is lost or Redis fails; then everything is read again."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import msgspec
import redis.asyncio
import structlog

from tradewind.notify.courier import Courier
from tradewind.notify.desk import Desk
from tradewind.notify.failure import DeliveryFailed, wait_ms
from tradewind.notify.job import Job, parcel
from tradewind.notify.plan import FAULT_SOURCE, Book, Planner, heads
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.policy import Policy
from tradewind.notify.store import NotifyStore
from tradewind.redis.faults import report
from tradewind.redis.losses import Losses

log = structlog.get_logger(__name__)
FAULT = "notification_failed"
#: What went from a full outbox before it was planned. The source is no `notify:…`: these are targets.
DROPPED, DROPPED_FAULT, DROPPED_SOURCE = "dropped", "notification_dropped", "notifications:outbox"
#: Only closed alarms leave Redis.
GONE = "Closed"
SWEEP_S = 3600.0
#: How often it is looked whether the outbox has lost anything.
LOSSES_S = 1.0
MESSAGES = 1000
#: A target that failed so often, one delivery after all these tries, is reported: within about two minutes.
REPORT_AFTER = 6
#: Deliveries at the same time, to different targets.
AT_ONCE = 16


class NotifyStats(msgspec.Struct):
    """Since this process started. `unrouted`: messages that no target wanted."""

    planned: int = 0
    unrouted: int = 0
    sent: int = 0
    retried: int = 0
    given_up: int = 0


class Term:
    def __init__(
        self, plane: NotifyPlane, desk: Desk, store: NotifyStore, courier: Courier, stats: NotifyStats
    ) -> None:
        self.book = Book()
        self._plane = plane
        self._desk = desk
        self._store = store
        self._courier = courier
        self._stats = stats
        self._policy = Policy()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._swept = 0.0
        self._looked = -LOSSES_S
        self._losses = Losses(plane.link, plane.keys, plane.keys.notify_figures())

    async def open(self) -> None:
        self.book = await self._desk.book()

    async def close(self) -> None:
        """Let what is under way end: each delivery has a time limit of its own."""
        tasks = list(self._running.values())
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()

    async def round(self, client: redis.asyncio.Redis, tick_ms: int) -> None:
        """Plan what has come and what is due, start deliveries. Raises what a delivery could not deal with."""
        self._reap()
        now_ms = await self._plane.now_ms()
        ids, messages = await self._desk.messages(client, MESSAGES, self._patience_ms(now_ms, tick_ms))
        now_ms = await self._plane.now_ms()
        self._policy = await self._store.policy()
        due = await self._desk.due_alarms(now_ms, MESSAGES)
        if ids or due:
            told = await self._desk.told([*(one.alarm_id for one in messages if one.alarm_id), *due])
            plan = Planner(self._policy, self.book, self._plane.settings, now_ms, told)
            for message in messages:
                plan.take(message)
            facts = await self._desk.facts(due)
            for alarm_id in due:
                if alarm_id not in plan.timers:  # what has just come decides
                    plan.escalate(alarm_id, facts.get(alarm_id))
            await self._desk.store(ids, plan)
            self._count(len(messages), plan)
        await self._tell_losses()
        await self._forget_removed()
        if time.monotonic() >= self._swept + SWEEP_S or not self._swept:
            await self._sweep()
        await self._start(now_ms)

    async def _tell_losses(self) -> None:
        if time.monotonic() < self._looked + LOSSES_S:
            return
        self._looked = time.monotonic()
        what = "messages were dropped from the full outbox before they were planned: nobody was told"
        await self._losses.tell(DROPPED, DROPPED_FAULT, DROPPED_SOURCE, what)

    async def _forget_removed(self) -> None:
        """No delivery will ever clear the fault of a target that the policy has no more."""
        for name in self.book.failing - self._policy.targets.keys():
            await self._report(name, "it was removed", "clear")
            self.book.failing.discard(name)
            self._swept = 0.0

    async def _sweep(self) -> None:
        self._swept = time.monotonic()
        before = set(self.book.failed)
        self.book.failed -= before - await self._desk.failed()  # others may fail meanwhile
        await self._desk.sweep(self._policy.targets)

    def _patience_ms(self, now_ms: int, tick_ms: int) -> int:
        if len(self._running) >= AT_ONCE:
            return tick_ms
        waits = [job.due_ms - now_ms for job in heads(self.book.jobs.values(), self._running)]
        return max(1, min([tick_ms, *waits]))

    def _count(self, messages: int, plan: Planner) -> None:
        stats = self._stats
        stats.planned += messages
        stats.unrouted += plan.unrouted
        if plan.unknown:
            log.warning("unknown_targets", targets=sorted(plan.unknown), hint="see the notification policy")

    async def _start(self, now_ms: int) -> None:
        for job in heads(self.book.jobs.values(), self._running):
            if job.due_ms > now_ms or len(self._running) >= AT_ONCE:
                break
            is_again = job.begun
            if not job.begun:
                job.begun = True  # from now on its content stands; the next message opens another one
                await self._desk.keep(job)
            self._running[job.target] = asyncio.create_task(self._deliver(job, is_again), name=f"notify {job.id}")

    def _reap(self) -> None:
        for target, task in list(self._running.items()):
            if task.done():
                del self._running[target]
                task.result()

    async def _deliver(self, job: Job, is_again: bool) -> None:
        target = self._policy.targets.get(job.target)
        job.drop_after(self.book.failed)
        if target is None or not target.enabled or job.count <= 0:
            job.error = "the target was removed" if target is None else job.error if target.enabled else "it is off"
            await self._end(job, "dropped")
            return
        failure: DeliveryFailed | None = None
        try:
            await self._courier.deliver(target, parcel(job, await self._statuses(job), is_again=is_again))
        except DeliveryFailed as error:
            failure = error
        job.attempts += 1
        stats = self._stats
        if failure is None:
            job.error = ""
            if job.target in self.book.failing:
                await self._report(job.target, "works again", "clear")
            await self._end(job, "sent")
            stats.sent += 1
            return
        job.error = str(failure)[:500]
        if failure.is_final or job.attempts >= self._plane.settings.max_attempts:
            log.error("notification_given_up", target=job.target, delivery=job.id, messages=job.count, error=job.error)
            # Before the end is stored: a crash between the two reports it twice, not never.
            await self._report(job.target, f"{job.count} messages were not delivered: {job.error}", "raise")
            await self._end(job, "given_up")
            stats.given_up += 1
            return
        log.warning("notification_fails", target=job.target, delivery=job.id, attempts=job.attempts, error=job.error)
        if job.attempts >= REPORT_AFTER and job.target not in self.book.failing:
            # Long before it is given up, and before it is noted: a crash between the two reports it twice, not never.
            await self._report(job.target, f"tried {job.attempts} times: {job.error}", "raise")
            await self._desk.fails(job.target)
            self.book.failing.add(job.target)
        job.due_ms = await self._plane.now_ms() + wait_ms(job.attempts, failure.retry_after_s)
        await self._desk.keep(job)
        stats.retried += 1

    async def _statuses(self, job: Job) -> dict[str, str] | None:
        """Of the alarms of a late delivery, as they are now."""
        if not job.is_late(await self._plane.now_ms()):
            return None
        ids = {message.alarm_id for message in job.messages if message.alarm_id}
        facts = await self._desk.facts(ids)
        return {id: facts[id].status if id in facts else GONE for id in ids}

    async def _end(self, job: Job, status: str) -> None:
        now_ms = await self._plane.now_ms()
        await self._desk.done(job, status, now_ms)
        del self.book.jobs[job.id]
        if status == "sent":
            self.book.last[job.target] = now_ms
            self.book.failing.discard(job.target)
        elif status == "given_up":
            self.book.failed.add(job.id)
            self.book.failing.add(job.target)

    async def _report(self, target: str, message: str, state: Literal["raise", "clear"]) -> None:
        source = FAULT_SOURCE + target
        text = f"notification target {target}: {message}"
        await report(self._plane.link, self._plane.keys, FAULT, source, text, state=state)
