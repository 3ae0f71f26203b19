"""A random life of the task room against a real Redis with a fake clock; checked after every step (see standing.py).

The steps of workers and leaders are real scripts called by hand, so that any order can happen, also that of the dead.
"""

from __future__ import annotations

import secrets
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.tasks.machine_callers import KINDS, Callers, new_task, pick
from tradewind.tasks.leader_store import Deposed
from tradewind.tasks.record import Status
from tradewind.tasks.worker_store import Ending, Lost, WorkerStore

ENDINGS = ("SUCCESS", "FAILED", "DEAD", "TIMEOUT", "CANCELLED", "RETRYING")


class TaskMachine(Callers):
    """`runner`, `link` and `scripts` are set by the test before it starts."""

    @initialize(first=st.lists(new_task, min_size=3, max_size=8))
    def start(self, first: list[dict[str, Any]]) -> None:
        self.open()
        self.register("w1", {"a", "b", "c"}, 3, 1, "gpu")
        self.submit(first)

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
            self.register(store.id, set(KINDS), 2, 1, "gpu")
            return
        for t in taken:
            record = before.tasks[t.id]
            assert record["status"] == Status.ASSIGNED and record["worker"] == store.id
            assert int(t.token) > before.number("task:token"), "a token that was given before"
            assert int(record.get("ddl", self.clock.ms + 1)) > self.clock.ms, "it started after its deadline"
            assert f"task:cancel:{t.id}" not in before.values, "it started although it was cancelled"
            assert self.look().status(t.id) == Status.PROCESSING
        self.runs = [*self.runs, *((store, t) for t in taken)][-10:]

    @rule(which=pick, status=st.sampled_from(["", *ENDINGS]))
    def work_goes_on(self, which: int, status: str) -> None:
        """The usual way, so that random lives get far: assigned, taken, and one of those that run ends."""
        self.assign(50)
        busy = [n for n, name in enumerate(sorted(self.workers)) if f"worker:{name}:queue" in self.look().values]
        self.take(busy[which % len(busy)] if busy else which, 3)
        if status and (running := self.running()):
            self.finish(running[which % len(running)], status)

    @rule(which=pick)
    def worker_dies(self, which: int) -> None:
        """kill -9 in the middle of work: its lease ends and the leader takes its work back."""
        if (store := self.worker(which)) is not None:
            values = self.look().values
            self.clock.advance(max(0, int(values.get("workers", {}).get(store.id, 0)) - self.clock.ms) / 1000)
            self.evict_the_lost()

    @precondition(lambda self: self.runs)
    @rule(which=pick, status=st.sampled_from(["SUCCESS", *ENDINGS]))
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

    def running(self) -> list[int]:
        """Which of `runs` hold their task still."""
        tasks = self.look().tasks
        return [
            number
            for number, (_, taken) in enumerate(self.runs)
            if (task := tasks.get(taken.id)) and task["status"] == Status.PROCESSING and task["tok"] == taken.token
        ]

    def finish_again_after_a_lost_reply(self, _which: int) -> None:
        if self.last_finish is None:
            return
        before = self.look()
        store, ending = self.last_finish
        assert self.run(store.finish([ending]))[0] != 1
        self.unchanged(before)

    def release(self, which: int) -> None:
        if (store := self.worker(which)) is not None:
            held = [(t.id, t.token) for s, t in self.runs[-3:] if s is store]
            self.run(store.release(held, queue_too=bool(which % 2)))

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
            gone = {f"worker:{worker_id}", f"worker:{worker_id}:queue", f"worker:{worker_id}:inflight"}
            assert not gone & set(self.look().values)

    def reap(self, which: int) -> None:
        """Attempts run past their time; of a worker that runs something, if there is one."""
        busy = [w for w in sorted(self.workers) if f"worker:{w}:inflight" in self.look().values] or sorted(self.workers)
        self.clock.advance(66)
        self.run(self.leader.reap(busy[which % len(busy)]))

    def leader_changes(self, which: int) -> None:
        self.run(self.plane.redis.delete(self.plane.keys.leader()))
        self.deposed.append(self.leader)
        self.leader = self.elect()
        self.deposed_leader_wakes_up(which)

    def deposed_leader_wakes_up(self, which: int) -> None:
        if not self.deposed:
            return
        old, before = self.deposed[which % len(self.deposed)], self.look()
        for verb in (lambda: old.assign(50), lambda: old.reap("w1"), lambda: old.evict("w1"), old.write_metrics):
            try:
                self.run(verb())
            except Deposed:
                self.unchanged(before)
            else:
                raise AssertionError("a deposed leader may act")
