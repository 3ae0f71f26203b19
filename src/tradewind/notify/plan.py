"""Which target gets which message, in which delivery, when. Deciding only: the caller stores what has changed.

Every route that fits counts. Messages for a target gather in one delivery until it is due. What became of an alarm is
told to those who were told of the alarm, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from tradewind.ids import new_id
from tradewind.notify.job import Job
from tradewind.notify.message import LEVELS, Message
from tradewind.notify.policy import Policy
from tradewind.settings import NotifySettings

#: Who reports that a target cannot be reached; the target itself is not bothered with it.
FAULT_SOURCE = "notify:"
#: What a flood does not hold back.
WORST = LEVELS[-1]
#: An alarm in one of these states, not acknowledged, still asks for somebody.
UNANSWERED = frozenset({"New", "Escalated"})


class Told(msgspec.Struct, omit_defaults=True):
    """Of one alarm: target → the delivery that told of it; the step of the escalation chain that comes next (-1: none)
    and since when it counts (ms); `passed`: steps before this one were taken."""

    targets: dict[str, str] = {}
    step: int = -1
    since: int = 0
    passed: int = 0


class AlarmFacts(msgspec.Struct, frozen=True):
    """What its record says now."""

    status: str
    is_acknowledged: bool
    level: str
    title: str
    source: str = ""
    rule_id: str = ""
    category: str = ""


@dataclass
class Book:
    """All deliveries that have not ended, ids of those given up, when each target was last told (ms)."""

    jobs: dict[str, Job] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)


class Planner:
    """One round. Changes deliveries of the book; `jobs`, `told` and `timers` are to be stored (None: removed)."""

    def __init__(
        self,
        policy: Policy,
        book: Book,
        settings: NotifySettings,
        now_ms: int,
        told: Mapping[str, Told],
        make_id: Callable[[], str] = new_id,
    ) -> None:
        self.jobs: dict[str, Job] = {}
        self.told: dict[str, Told | None] = {}
        self.timers: dict[str, int | None] = {}
        self.unrouted = 0
        self.unknown: set[str] = set()
        self._policy = policy
        self._book = book
        self._settings = settings
        self._now_ms = now_ms
        self._known = dict(told)
        self._make_id = make_id
        self._open = {(job.target, job.lane): job for job in book.jobs.values() if not job.begun}

    def take(self, message: Message) -> None:
        if message.alarm_id and not message.is_announcement:
            self._follow_up(message)
            return
        places = self._places(message)
        step = self._step_by_hand(message)
        if message.alarm_id and message.event == "escalated":
            known = self._known.get(message.alarm_id)
            next_ones = self._policy.escalation[step].targets if step is not None else ()
            for name in (*(known.targets if known else ()), *next_ones):
                places.setdefault(name, self._held(message, name))
        used = self._tell(message, places)
        if not used:
            self.unrouted += 1
        elif message.event == "level":
            self._rise(message)
        elif step is not None:
            self._chain_after(message.alarm_id, message.level, step, self._record(message.alarm_id).since)
        elif message.alarm_id and (message.word == "raised" or not self._record(message.alarm_id).since):
            self._chain(message.alarm_id, message.level, 0, message.at or self._now_ms)

    def escalate(self, alarm_id: str, facts: AlarmFacts | None) -> None:
        """A step of the chain is due for that alarm."""
        told = self._known.get(alarm_id)
        is_open = facts is not None and facts.status in UNANSWERED and not facts.is_acknowledged
        if facts is None or told is None or not is_open or not 0 <= told.step < len(self._policy.escalation):
            self.timers[alarm_id] = None
            return
        index, steps = told.step, self._policy.escalation
        message = Message(
            event="escalated",
            level=facts.level,
            title=facts.title,
            text=f"not acknowledged for {_lasting(self._now_ms - told.since)}",
            at=self._now_ms,
            key=f"{alarm_id}:step:{index}",
            kind="alarm",
            alarm_id=alarm_id,
            rule_id=facts.rule_id,
            source=facts.source,
            category=facts.category,
            status=facts.status,
        )
        self._tell(message, {name: self._held(message, name) for name in steps[index].targets})
        self._chain_after(alarm_id, facts.level, index, told.since)

    def _step_by_hand(self, message: Message) -> int | None:
        """An operator who escalates takes the next step of the chain now, also when an acknowledgement had ended it."""
        told = self._known.get(message.alarm_id)
        if message.event != "escalated" or not message.who or told is None:
            return None
        return self._policy.next_step(message.level, told.passed)

    def _rise(self, message: Message) -> None:
        """A worse level may concern steps that the one before did not."""
        told = self._record(message.alarm_id)
        first, since = (told.passed, told.since) if told.since else (0, message.at or self._now_ms)
        if message.status in UNANSWERED and self._policy.next_step(message.level, first) not in (None, told.step):
            self._chain(message.alarm_id, message.level, first, since)

    def _chain_after(self, alarm_id: str, level: str, step: int, since: int) -> None:
        """By the distance between the steps: a keeper that comes late does not run through the chain at once."""
        steps, following = self._policy.escalation, self._policy.next_step(level, step + 1)
        gap_ms = 0 if following is None else int((steps[following].after_s - steps[step].after_s) * 1000)
        self._chain(alarm_id, level, step + 1, since, self._now_ms + gap_ms)

    def _chain(self, alarm_id: str, level: str, first: int, since: int, due_ms: int = 0) -> None:
        step = self._policy.next_step(level, first)
        told = self._record(alarm_id)
        told.step, told.since, told.passed = -1 if step is None else step, since, first
        self.timers[alarm_id] = None
        if step is not None:
            self.timers[alarm_id] = due_ms or since + int(self._policy.escalation[step].after_s * 1000)

    def _follow_up(self, message: Message) -> None:
        told = self._known.get(message.alarm_id)
        for name, first in (told.targets if told else {}).items():
            if first in self._book.failed or not self._wants(name, message):
                continue
            job = self._book.jobs.get(first)
            if job is not None and not job.begun:
                self._add(job, message)  # it has not left yet: both arrive together, in order
            else:
                self._join(name, message, self._held(message, name), first if job is not None else "")
        if message.is_end:
            if told is not None:
                self.told[message.alarm_id] = None
                del self._known[message.alarm_id]
            self.timers[message.alarm_id] = None
        elif message.word == "acknowledged":
            self.timers[message.alarm_id] = None

    def _places(self, message: Message) -> dict[str, int]:
        """Target → when it may be told (0: now). Named targets come first; if none of them exists, routes decide."""
        known = [name for name in message.targets if name in self._policy.targets]
        self.unknown.update(name for name in message.targets if name not in self._policy.targets)
        if known:
            return {name: self._held(message, name) for name in known}
        places: dict[str, int] = {}
        for name, quiet in self._policy.routed(message):
            until = quiet.until_ms(message.level, self._now_ms) if quiet else 0
            places[name] = min(places.get(name, until), until)
        return places

    def _held(self, message: Message, target: str) -> int:
        """By the routes that lead there, or by the quiet hours of the policy when none does."""
        quiets = [quiet for name, quiet in self._policy.routed(message) if name == target] or [self._policy.quiet_hours]
        return min(quiet.until_ms(message.level, self._now_ms) if quiet else 0 for quiet in quiets)

    def _tell(self, message: Message, places: Mapping[str, int]) -> bool:
        used = False
        for name, until in places.items():
            if not self._wants(name, message):
                continue
            used = True
            job = self._join(name, message, until)
            if message.alarm_id:
                targets = self._record(message.alarm_id).targets
                if name not in targets or targets[name] in self._book.failed:
                    targets[name] = job.id
        return used

    def _wants(self, name: str, message: Message) -> bool:
        target = self._policy.targets.get(name)
        if target is None or not target.enabled or message.source == FAULT_SOURCE + name:
            return False
        return message.word in target.events

    def _record(self, alarm_id: str) -> Told:
        told = self._known.setdefault(alarm_id, Told())
        self.told[alarm_id] = told
        return told

    def _join(self, name: str, message: Message, until: int, after: str = "") -> Job:
        lane = str(until) if until else ""
        due_ms = until or self._due_ms(name, message)
        job = self._open.get((name, lane))
        if job is None:
            job = self._open[name, lane] = Job(self._make_id(), name, due_ms, lane)
            self._book.jobs[job.id] = job
        job.due_ms = min(job.due_ms, due_ms)
        self._add(job, message, after)
        return job

    def _add(self, job: Job, message: Message, after: str = "") -> None:
        job.add(message, after)
        self.jobs[job.id] = job

    def _due_ms(self, name: str, message: Message) -> int:
        target, policy, settings = self._policy.targets[name], self._policy, self._settings
        wait_s = _first(target.group_wait_s, policy.group_wait_s, settings.group_wait_s)
        due_ms = self._now_ms + int(wait_s * 1000)
        if message.flood and message.level != WORST:
            interval_s = _first(target.group_interval_s, policy.group_interval_s, settings.group_interval_s)
            due_ms = max(due_ms, self._book.last.get(name, 0) + int(interval_s * 1000))
        return due_ms


def heads(jobs: Iterable[Job], busy: Container[str]) -> list[Job]:
    """What each target that is not busy gets next: the oldest that has begun, else the one that is due first; by time.

    A delivery that is being tried again keeps the later ones of its target waiting, so that they arrive in order.
    """
    found: dict[str, Job] = {}
    for job in jobs:
        head = found.get(job.target)
        if job.target not in busy and (head is None or _order(job) < _order(head)):
            found[job.target] = job
    return sorted(found.values(), key=lambda job: (job.due_ms, job.id))


def _order(job: Job) -> tuple[bool, int, str]:
    return not job.begun, job.due_ms, job.id


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _lasting(ms: int) -> str:
    seconds = max(0, ms) // 1000
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
