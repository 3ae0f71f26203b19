"""A random life of the task room against a real Redis with a fake clock; checked after every step (see standing.py).

The steps of workers and leaders are real scripts called by hand, so that any order can happen, also that of the dead.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.tasks.standing import Ledger, Standing, read_standing, wipe
from tradewind import codec
from tradewind.clock import FakeClock
from tradewind.errors import Conflict
from tradewind.redis.connection import Link
from tradewind.redis.scripts import Scripts
from tradewind.settings import SchedulerSettings, Settings, TaskSettings
from tradewind.tasks.control import TaskControl
from tradewind.tasks.leader_store import Deposed, LeaderStore
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import TERMINAL, Request, Status, Submission
from tradewind.tasks.store import TaskStore
from tradewind.tasks.worker_store import Ending, Lost, Taken, WorkerStore

T = TypeVar("T")
KINDS = ("a", "b", "c")
LEASE_S = 10
#: Leases and records end by the fake clock only: the server's own clock must never end one in the middle of a run.
SCHEDULER = SchedulerSettings(leader_ttl_s=3600, lease_s=LEASE_S, heartbeat_ttl_s=3600)
TASKS = TaskSettings(max_stalls=2, default_timeout_s=60)
MOST_TASKS = 14

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


class TaskMachine(RuleBasedStateMachine):
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

    @initialize()
    def start(self) -> None:
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

    @precondition(lambda self: self.last_submit and all(s.id in self.ledger.known for s in self.last_submit))
    @rule()
    def submit_again_after_a_lost_reply(self) -> None:
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

    @rule(which=pick)
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

    @rule(which=pick)
    def read_and_wait(self, which: int) -> None:
        task_id = self.any_task(which)
        if task_id is not None:
            self.run(self.store.wait("client", [task_id]))
            shown = codec.decode(self.run(self.store.view(task_id)))
            assert shown["status"] == self.look().status(task_id), "a cache outlived a transition"

    # workers

    @rule(which=st.sampled_from(["w1", "w2", "w3"]), kinds=st.sets(st.sampled_from(KINDS), min_size=1),
          capacity=st.integers(1, 3), window=st.integers(0, 2), labels=st.sampled_from(["", "gpu"]))  # fmt: skip
    def register(self, which: str, kinds: set[str], capacity: int, window: int, labels: str) -> None:
        store = WorkerStore(self.plane, which, secrets.token_hex(3))
        fields = {"capacity": capacity, "window": window, "labels": labels, "status": "active", "pull": "1"}
        self.run(store.register(fields, {kind: b"{}" for kind in kinds}))
        self.workers[which] = store
        before = self.look()
        assert self.run(store.register(fields, {kind: b"{}" for kind in kinds})) == 0  # a lost reply
        self.unchanged(before)

    def worker(self, which: int) -> WorkerStore | None:
        names = sorted(self.workers)
        return self.workers[names[which % len(names)]] if names else None

    def is_registered(self, store: WorkerStore) -> bool:
        return bool(self.look().values.get(f"worker:{store.id}", {}).get("gen") == store.generation)

    @rule(which=pick)
    def beat(self, which: int) -> None:
        if (store := self.worker(which)) is not None:
            before, is_known = self.look(), self.is_registered(store)
            try:
                self.run(store.beat())
                assert is_known
            except Lost:
                assert not is_known
                self.unchanged(before)

    @rule(which=pick, many=st.integers(1, 3))
    def take(self, which: int, many: int) -> None:
        if (store := self.worker(which)) is None:
            return
        before, is_known = self.look(), self.is_registered(store)
        try:
            taken = self.run(store.take(many))
        except Lost:
            assert not is_known
            self.unchanged(before)
            return
        for t in taken:
            record = before.tasks[t.id]
            assert record["status"] == Status.ASSIGNED and record["worker"] == store.id
            assert int(t.token) > before.number("task:token"), "a token that was given before"
            assert int(record.get("ddl", self.clock.ms + 1)) > self.clock.ms, "it started after its deadline"
            assert f"task:cancel:{t.id}" not in before.values, "it started although it was cancelled"
            assert self.look().status(t.id) == Status.PROCESSING
        self.runs = [*self.runs, *((store, t) for t in taken)][-10:]

    @precondition(lambda self: self.runs)
    @rule(which=pick, status=st.sampled_from(["SUCCESS", "SUCCESS", "FAILED", "DEAD", "TIMEOUT", "CANCELLED", "RETRYING"]))
    def finish(self, which: int, status: str) -> None:
        store, taken = self.runs[which % len(self.runs)]
        ending = Ending(taken.id, taken.token, taken.type, Status(status), taken.request, b"{}", 1000, "it failed")
        self.last_finish = (store, ending)
        before = self.look()
        record = before.tasks.get(taken.id, {})
        is_ours = record.get("status") == Status.PROCESSING and record["tok"] == taken.token
        verdict = self.run(store.finish([ending]))[0]
        if not is_ours:
            assert verdict != 1, "a stale token was accepted"
            self.unchanged(before)
            return
        assert verdict == 1
        is_flagged = f"task:cancel:{taken.id}" in before.values
        wanted = "CANCELLED" if is_flagged and status != "SUCCESS" else status
        assert self.look().status(taken.id) == wanted

    @precondition(lambda self: self.last_finish is not None)
    @rule()
    def finish_again_after_a_lost_reply(self) -> None:
        assert self.last_finish is not None
        before = self.look()
        store, ending = self.last_finish
        assert self.run(store.finish([ending]))[0] != 1
        self.unchanged(before)

    @rule(which=pick, all_of_it=st.booleans())
    def release(self, which: int, all_of_it: bool) -> None:
        if (store := self.worker(which)) is not None:
            held = [(t.id, t.token) for s, t in self.runs[-3:] if s is store]
            self.run(store.release(held, queue_too=all_of_it))

    @rule(which=pick)
    def leave(self, which: int) -> None:
        if (store := self.worker(which)) is not None:
            before = self.look()
            if self.run(store.leave()):
                assert f"worker:{store.id}" not in self.look().values
            else:
                self.unchanged(before)

    # the leader

    @rule(limit=st.sampled_from([1, 3, 50]))
    def assign(self, limit: int) -> None:
        before = self.look()
        done = self.run(self.leader.assign(limit))
        after = self.look()
        fresh = [i for i in after.tasks if after.status(i) == "ASSIGNED" and before.status(i) != "ASSIGNED"]
        assert len(fresh) == done.assigned <= limit
        paused = set(before.values.get("queue:paused", []))
        for task_id in fresh:
            task = after.tasks[task_id]
            assert task["pri"] not in paused and f"type:{task['type']}" not in paused, "assigned although paused"
            record = after.values[f"worker:{task['worker']}"]
            assert task["worker"] in after.values[f"worker:type:{task['type']}"]
            assert task.get("lab", "") in ("", record["labels"])
            load = len(after.values.get(f"worker:{task['worker']}:queue", []))
            load += len(after.values.get(f"worker:{task['worker']}:inflight", {}))
            assert load <= int(record["capacity"]) + int(record["window"])
            assert int(after.values["workers"][task["worker"]]) > self.clock.ms, "assigned to a worker that is lost"

    @rule()
    def evict_the_lost(self) -> None:
        for worker_id in self.run(self.leader.expired_workers()):
            self.run(self.leader.evict(worker_id))
            values = self.look().values
            assert not {f"worker:{worker_id}", f"worker:{worker_id}:queue", f"worker:{worker_id}:inflight"} & set(values)

    @rule(which=pick)
    def reap(self, which: int) -> None:
        if (store := self.worker(which)) is not None:
            self.run(self.leader.reap(store.id))

    @precondition(lambda self: len(self.deposed) < 3)
    @rule()
    def leader_changes(self) -> None:
        self.run(self.plane.redis.delete(self.plane.keys.leader()))
        self.deposed.append(self.leader)
        self.leader = self.elect()

    @precondition(lambda self: self.deposed)
    @rule(which=pick, verb=st.sampled_from(["assign", "reap", "evict", "metrics"]))
    def deposed_leader_wakes_up(self, which: int, verb: str) -> None:
        old, before = self.deposed[which % len(self.deposed)], self.look()
        calls = {
            "assign": lambda: old.assign(50), "reap": lambda: old.reap("w1"), "evict": lambda: old.evict("w1"),
            "metrics": old.write_metrics,
        }  # fmt: skip
        try:
            self.run(calls[verb]())
        except Deposed:
            self.unchanged(before)
        else:
            raise AssertionError(f"a deposed leader may {verb}")

    # operators, time, the archive

    @rule(name=st.sampled_from(["high", "normal", "type:a"]), is_on=st.booleans())
    def pause_or_resume(self, name: str, is_on: bool) -> None:
        self.run(self.control.pause(name) if is_on else self.control.resume(name))

    @rule(limit=st.sampled_from([0, 1, 2]))
    def limit_rate(self, limit: int) -> None:
        if limit:
            self.run(self.control.set_rate_limit("b", limit, 1))
        else:
            self.run(self.plane.redis.hdel(self.plane.keys.rate_config(), "b"))

    @rule(seconds=st.sampled_from([0.1, 0.6, 1, 3, LEASE_S + 1, 70, 3700]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(is_forgotten=st.booleans())
    def archive(self, is_forgotten: bool) -> None:
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
        for task_id in ended if is_forgotten else []:
            if "tomb" not in before.tasks[task_id] and task_id not in still_due:
                self.run(self.plane.redis.delete(keys.task(task_id), keys.body(task_id)))
                self.ledger.forget(task_id)
