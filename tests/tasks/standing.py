"""Everything that Redis holds under one key prefix, read in one step, and the rules that must hold for it at any time.

`Standing` is one reading. `Ledger` remembers what was accepted, ended and archived, and compares reading after reading.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tradewind.redis.keys import Keys
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import DEAD_LETTERS, TERMINAL

_READ = """
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind = redis.call('TYPE', key).ok
  local value
  if kind == 'string' then value = redis.call('GET', key)
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key) table.sort(value)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else value = redis.call('XRANGE', key, '-', '+') end
  out[#out + 1] = { key, kind, value }
end
return out
"""
_WIPE = "for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end"


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else [_text(v) for v in value]


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Standing:
    """One reading. `values` maps each key without the prefix to its content; lists keep their order."""

    def __init__(self, keys: Keys, raw: list[Any]) -> None:
        self.values: dict[str, Any] = {}
        self.tasks: dict[str, dict[str, str]] = {}
        self.places: dict[str, list[str]] = {}
        self.entries: list[tuple[str, list[str]]] = []
        for key, kind, value in _text(raw):
            name = key[len(keys.p) :]
            if kind in ("hash", "zset"):
                value = _pairs(value)
            self.values[name] = value
            head, _, rest = name.partition(":")
            if head == "task" and kind == "hash" and ":" not in rest and rest != "types":
                self.tasks[rest] = value
            elif name.endswith((":queue", ":inflight")) or (head == "queue" and (kind == "list" or rest == "delayed")):
                for task_id in value:
                    self.places.setdefault(task_id, []).append(name)
            elif name == "task:outbox":
                self.entries = [(entry, _pairs(fields)["ids"].split()) for entry, fields in value]

    def status(self, task_id: str) -> str:
        return self.tasks[task_id]["status"] if task_id in self.tasks else ""

    def number(self, name: str) -> int:
        return int(self.values.get(name, 0))

    def without_wake(self) -> dict[str, Any]:
        """For comparing two readings: a leader may be woken for nothing, and counters of a second expire by the
        server's clock."""
        apart = ("scheduler:wake", "ratelimit:task:")
        return {name: value for name, value in self.values.items() if not name.startswith(apart)}


async def read_standing(plane: Plane) -> Standing:
    raw = await plane.redis.eval(_READ, 1, plane.keys.token(), plane.keys.p)
    return Standing(plane.keys, raw)


async def wipe(plane: Plane) -> None:
    await plane.redis.eval(_WIPE, 1, plane.keys.token(), plane.keys.p)


def misplaced(task_id: str, task: dict[str, str], places: list[str]) -> str:
    """What is wrong with where a task stands; empty when nothing is."""
    status, worker = task["status"], task.get("worker", "")
    if status == "QUEUED":
        route = task["type"] + (f"@{task['lab']}" if "lab" in task else "")
        wanted = {f"queue:{task['pri']}", f"queue:parked:{task['pri']}:{route}"}
    elif status in ("PENDING", "RETRYING"):
        wanted = {"queue:delayed"}
    elif status == "ASSIGNED":
        wanted = {f"worker:{worker}:queue"}
    elif status == "PROCESSING":
        wanted = {f"worker:{worker}:inflight"}
    elif "tomb" in task:
        is_fine = len(places) == 1 and places[0].startswith("queue:") and places[0] != "queue:delayed"
        return "" if is_fine else f"tombstone {task_id} stands in {places}"
    else:
        return f"{status} task {task_id} stands in {places}" if places else ""
    return "" if len(places) == 1 and places[0] in wanted else f"{status} task {task_id} stands in {places}"


class Ledger:
    """What must be true of reading after reading. `forgotten`: records that expired after their archive."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.forgotten: set[str] = set()
        self.submitted = 0
        self.archived = 0
        self.ends: Counter[str] = Counter()
        self._status: dict[str, str] = {}
        self._token: dict[str, int] = {}
        self._top = 0

    def accept(self, task_id: str) -> None:
        self.submitted += 1
        self.known.add(task_id)
        self.forgotten.discard(task_id)
        self._status.pop(task_id, None)

    def forget(self, task_id: str) -> None:
        self.known.discard(task_id)
        self.forgotten.add(task_id)
        self._status.pop(task_id, None)

    def check(self, seen: Standing, brought_back: set[str]) -> None:
        """Raises AssertionError. `brought_back`: ids that an operator retried since the last check."""
        assert set(seen.tasks) == self.known, f"lost or invented: {set(seen.tasks) ^ self.known}"
        strangers = set(seen.places) - self.known - self.forgotten
        assert not strangers, f"unknown ids in lists: {strangers}"
        for task_id, task in seen.tasks.items():
            wrong = misplaced(task_id, task, seen.places.get(task_id, []))
            assert not wrong, f"{wrong}; record {task}"
            self._check_life(task_id, task, task_id in brought_back)
        self._check_tokens(seen)
        self._check_counts(seen)
        self._check_parking(seen)
        self._check_locks(seen)
        self._check_dead(seen)

    def _check_life(self, task_id: str, task: dict[str, str], is_brought_back: bool) -> None:
        status, before = task["status"], self._status.get(task_id)
        if before in TERMINAL and status != before:
            assert is_brought_back, f"{task_id} went from {before} to {status}"
        if status in TERMINAL and (before not in TERMINAL or is_brought_back):
            self.ends[status] += 1
        assert (status in TERMINAL) == ("end" in task), f"{task_id} is {status} with {task}"
        self._status[task_id] = status

    def _check_tokens(self, seen: Standing) -> None:
        top = seen.number("task:token")
        assert top >= self._top, f"the counter of tokens went back from {self._top} to {top}"
        self._top = top
        running = Counter(t["tok"] for t in seen.tasks.values() if t["status"] == "PROCESSING")
        assert all(n == 1 for n in running.values()), f"a token is used twice: {running}"
        for task_id, task in seen.tasks.items():
            token = int(task.get("tok", 0))
            if token:
                assert self._token.get(task_id, 0) <= token <= top, f"{task_id}: token {token} of {top}"
                self._token[task_id] = token
            if task["status"] == "PROCESSING":
                score = seen.values[f"worker:{task['worker']}:inflight"][task_id]
                assert int(score) == token > 0, f"{task_id} runs with token {token}, in-flight {score}"

    def _check_counts(self, seen: Standing) -> None:
        assert seen.number("metrics:task:count:submitted") == self.submitted
        for status in TERMINAL:
            counted = seen.number(f"metrics:task:count:{status.lower()}")
            assert counted == self.ends[status], f"{status}: counted {counted}, seen {self.ends[status]}"
        waiting = sum(len(ids) for _, ids in seen.entries)
        assert waiting == seen.number("task:outbox:count")
        assert waiting + self.archived == sum(self.ends.values()), "outbox + archived is not what has ended"

    def _check_parking(self, seen: Standing) -> None:
        full = {name.removeprefix("queue:parked:") for name in seen.values if name.startswith("queue:parked:")}
        assert full == set(seen.values.get("queue:parked", [])), "queue:parked does not name the parking lists"

    def _check_locks(self, seen: Standing) -> None:
        running = [t for t in seen.tasks.values() if t["status"] == "PROCESSING" and "lock" in t]
        held = {t["lock"]: t["worker"] for t in running}
        assert len(held) == len(running), "two exclusive tasks of one name run at once"
        locks = {n.removeprefix("lock:task:"): v for n, v in seen.values.items() if n.startswith("lock:task:")}
        assert locks == held, f"locks {locks}, but running are {held}"

    def _check_dead(self, seen: Standing) -> None:
        dead = set(seen.values.get("queue:dead", {})) & self.known
        assert dead == {i for i, t in seen.tasks.items() if t["status"] in DEAD_LETTERS}
        marked = set(seen.values.get("task:marked", []))
        ended = {i for i in marked if seen.status(i) in TERMINAL or i not in self.known}
        assert not ended, f"ended tasks stay marked: {ended}"
