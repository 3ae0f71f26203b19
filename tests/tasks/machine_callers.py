"""The half of the state machine that callers, operators, the archive and time play; machine.py has the other half."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.tasks.standing import Ledger, Standing, read_standing, wipe
from tradewind import codec
from tradewind.clock import FakeClock
from tradewind.errors import Conflict
from tradewind.redis.connection import Link
from tradewind.redis.scripts import Scripts
from tradewind.settings import SchedulerSettings, Settings, TaskSettings
from tradewind.tasks.control import TaskControl
from tradewind.tasks.leader_store import LeaderStore
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import TERMINAL, Request, Status, Submission
from tradewind.tasks.store import TaskStore
from tradewind.tasks.worker_store import Ending, Taken, WorkerStore

T = TypeVar("T")
KINDS = ("a", "b", "c")
LEASE_S = 10
#: Leases and records end by the fake clock only: the server's own clock must never end one in the middle of a run.
SCHEDULER = SchedulerSettings(leader_ttl_s=3600, lease_s=LEASE_S, heartbeat_ttl_s=3600)
TASKS = TaskSettings(max_stalls=2, default_timeout_s=60)
MOST_TASKS = 14
ASIDE = (
    "submit_again_after_a_lost_reply",
    "finish_again_after_a_lost_reply",
    "flag_by_hand",
    "read_and_wait",
    "pause_or_resume",
    "limit_rate",
    "long_time_passes",
    "archive",
    "beat",
    "release",
    "leave",
    "reap",
    "leader_changes",
    "deposed_leader_wakes_up",
)

pick = st.integers(min_value=0, max_value=1000)
new_task = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KINDS),
        "priority": st.sampled_from(["high", "normal", "normal"]),
        "delay": st.sampled_from([0, 0, 0, 2, 4000]),
        "attempts": st.sampled_from([1, 1, 2, 3]),
        "deadline": st.sampled_from([0, 0, 0, 5, 30]),
        "lock": st.sampled_from(["", "", "", "l1"]),
        "labels": st.sampled_from([[], [], [], ["gpu"]]),
        "key": st.sampled_from(["", "", "", "k1", "k2"]),
    }
)


class Callers(RuleBasedStateMachine):
    """`runner`, `link` and `scripts` are set by the test before it starts."""

    runner: ClassVar[asyncio.Runner]
    link: ClassVar[Link]
    scripts: ClassVar[type[Scripts]] = Scripts

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self.seen = None
        return self.runner.run(coroutine)

    def look(self) -> Standing:
        if self.seen is None:
            self.seen = self.runner.run(read_standing(self.plane))
        return self.seen

    def open(self) -> None:
        self.clock = FakeClock()
        settings = Settings(key_prefix=f"m{secrets.token_hex(4)}:", tasks=TASKS, scheduler=SCHEDULER)
        self.plane = Plane(self.link, settings, self.clock)
        self.plane.scripts = self.scripts(self.link, "tradewind.tasks")
        self.store, self.control = TaskStore(self.plane), TaskControl(self.plane)
        self.ledger = Ledger()
        self.seen: Standing | None = None
        self.brought_back: set[str] = set()
        self.workers: dict[str, WorkerStore] = {}
        self.runs: list[tuple[WorkerStore, Taken]] = []
        self.deposed: list[LeaderStore] = []
        self.last_submit: list[Submission] = []
        self.last_finish: tuple[WorkerStore, Ending] | None = None
        self.made = 0
        self.leader = self.elect()

    def elect(self) -> LeaderStore:
        keys, name = self.plane.keys, f"s{len(self.deposed)}"
        args = [name, 3_600_000]
        epoch = self.run(self.plane.scripts.run("leader_acquire", [keys.leader(), keys.epoch()], args))
        assert epoch == len(self.deposed) + 1
        return LeaderStore(self.plane, name, epoch)

    def teardown(self) -> None:
        if hasattr(self, "plane"):
            self.run(wipe(self.plane))

    @invariant()
    def everything_stands_in_its_place(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.check(self.look(), self.brought_back)
            self.brought_back = set()

    def unchanged(self, before: Standing) -> None:
        assert self.look().without_wake() == before.without_wake()

    def any_task(self, which: int) -> str | None:
        known = sorted(self.ledger.known)
        return known[which % len(known)] if known else None

    # callers

    @precondition(lambda self: len(self.ledger.known) < MOST_TASKS)
    @rule(wanted=st.lists(new_task, min_size=1, max_size=4))
    def submit(self, wanted: list[dict[str, Any]]) -> None:
        batch = []
        for w in wanted:
            self.made += 1
            request = Request(
                args=[w["delay"]], max_attempts=w["attempts"], labels=w["labels"], exclusive=w["lock"],
                idempotency_key=w["key"], deadline_ms=self.clock.ms + w["deadline"] * 1000 if w["deadline"] else 0,
            )  # fmt: skip
            line = codec.encode(request)
            batch.append(
                Submission(f"t{self.made:03}", w["kind"], request, line, w["priority"], delay_ms=w["delay"] * 1000)
            )
        before = self.look()
        try:
            accepted = self.run(self.store.submit(batch))
        except Conflict:
            self.unchanged(before)
            return
        for answer in accepted:
            if answer.is_new:
                self.ledger.accept(answer.id)
        self.last_submit = [s for s, a in zip(batch, accepted, strict=True) if a.is_new and s.id == a.id]

    def submit_again_after_a_lost_reply(self, _which: int) -> None:
        if not all(s.id in self.ledger.known for s in self.last_submit):
            return
        before = self.look()
        again = self.run(self.store.submit(self.last_submit))
        assert [a.id for a in again] == [s.id for s in self.last_submit]
        self.unchanged(before)

    @rule(which=pick)
    def cancel(self, which: int) -> None:
        task_id = self.any_task(which)
        if task_id is None:
            return
        was = self.look().status(task_id)
        answer = self.run(self.store.cancel([task_id]))[0]
        now = self.look().status(task_id)
        if was in TERMINAL:
            assert answer.status == was == now
        elif was == Status.PROCESSING:
            assert answer.is_done and now == was and f"task:cancel:{task_id}" in self.look().values
        else:
            assert answer.is_done and now == Status.CANCELLED

    def flag_by_hand(self, which: int) -> None:
        task_id = self.any_task(which)
        if task_id is not None and self.look().status(task_id) not in TERMINAL:
            self.run(self.plane.redis.set(self.plane.keys.cancel(task_id), "1", ex=3600))

    @rule(which=pick)
    def retry(self, which: int) -> None:
        task_id = self.any_task(which)
        if task_id is None:
            return
        before = self.look()
        was = before.status(task_id)
        try:
            self.run(self.store.retry(task_id))
        except Conflict:
            assert was not in TERMINAL or was == Status.SUCCESS
            self.unchanged(before)
            return
        assert was in TERMINAL and was != Status.SUCCESS
        assert self.look().status(task_id) == Status.QUEUED
        self.brought_back.add(task_id)

    def read_and_wait(self, which: int) -> None:
        task_id = self.any_task(which)
        if task_id is not None:
            self.run(self.store.wait("client", [task_id]))
            shown = codec.decode(self.run(self.store.view(task_id)))
            assert shown["status"] == self.look().status(task_id), "a cache outlived a transition"

    # operators, time, the archive

    @rule(which=pick, what=st.sampled_from(ASIDE))
    def meanwhile(self, which: int, what: str) -> None:
        """What happens now and then; one rule for all, so that tasks get on between."""
        getattr(self, what)(which)

    def pause_or_resume(self, which: int) -> None:
        name = ("high", "normal", "type:a")[which % 3]
        self.run(self.control.pause(name) if which % 2 else self.control.resume(name))

    def limit_rate(self, which: int) -> None:
        if which % 3:
            self.run(self.control.set_rate_limit("b", which % 3, 1))
        else:
            self.run(self.plane.redis.hdel(self.plane.keys.rate_config(), "b"))

    def long_time_passes(self, which: int) -> None:
        self.clock.advance((LEASE_S + 1, 70, 3700)[which % 3])

    @rule(seconds=st.sampled_from([0.1, 0.6, 1, 3]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def archive(self, which: int) -> None:
        before = self.look()
        if not before.entries:
            return
        entry, ids = before.entries[0]
        ended = [i for i in dict.fromkeys(ids) if before.status(i) in TERMINAL]
        pairs = [item for i in ended for item in (i, before.tasks[i]["end"])]
        keys, args = self.plane.keys, [self.plane.keys.p, 300_000, 1, entry, *pairs]
        names = [keys.outbox(), keys.outbox_count()]
        assert self.run(self.plane.scripts.run("task_archived", names, args)) == 1
        once = self.look()
        assert self.run(self.plane.scripts.run("task_archived", names, args)) == 0  # a lost reply
        self.unchanged(once)
        self.ledger.archived += len(ids)
        still_due = {i for _, rest in before.entries[1:] for i in rest}
        for task_id in ended if which % 2 else []:
            if "tomb" not in before.tasks[task_id] and task_id not in still_due:
                self.run(self.plane.redis.delete(keys.task(task_id), keys.body(task_id)))
                self.ledger.forget(task_id)
