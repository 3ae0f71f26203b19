"""Planning: routes, groups, quiet hours, follow-ups, escalation; without any server."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from tradewind.notify.guard import guard_of
from tradewind.notify.job import Job
from tradewind.notify.message import Message
from tradewind.notify.plan import AlarmFacts, Book, Planner, Told, heads
from tradewind.notify.policy import Policy
from tradewind.notify.policy_check import read_policy
from tradewind.settings import NotifySettings

SETTINGS = NotifySettings(group_wait_s=5, group_interval_s=300)
NOW = 1_700_000_000_000  # 22:13:20 UTC
HOOK = {"url": "https://example.com/hook"}
FACTS = AlarmFacts("New", False, "High", "alarm_1", "comsrv:1001:m:1")


def policy(**parts: Any) -> Policy:
    targets = {name: HOOK for name in ("a", "b", "c")} | parts.pop("targets", {})
    return read_policy({"targets": targets, "routes": [{"targets": ["a"]}]} | parts, Policy(), guard_of(SETTINGS))


class Desk:
    """Rounds over one book, as the keeper makes them."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.book = Book()
        self.told: dict[str, Told] = {}
        self.timers: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def round(self, *messages: Message, at: int = NOW, due: Mapping[str, AlarmFacts | None] | None = None) -> Planner:
        plan = Planner(self.policy, self.book, SETTINGS, at, self.told, lambda: f"j{next(self._numbers)}")
        for message in messages:
            plan.take(message)
        for alarm_id, facts in (due or {}).items():
            plan.escalate(alarm_id, facts)
        for alarm_id, told in plan.told.items():
            self.told.pop(alarm_id, None)
            if told is not None:
                self.told[alarm_id] = told
        for alarm_id, due_ms in plan.timers.items():
            self.timers.pop(alarm_id, None)
            if due_ms is not None:
                self.timers[alarm_id] = due_ms
        return plan

    def jobs(self) -> dict[str, list[str]]:
        """Target → what waits for it."""
        found: dict[str, list[str]] = {}
        for job in self.book.jobs.values():
            found.setdefault(job.target, []).extend(f"{one.event} {one.alarm_id}" for one in job.messages)
        return found

    def job(self, target: str) -> Job:
        (job,) = (job for job in self.book.jobs.values() if job.target == target)
        return job

    def end(self, target: str, *, is_sent: bool = True) -> None:
        job = self.job(target)
        del self.book.jobs[job.id]
        if not is_sent:
            self.book.failed.add(job.id)


def alarm(event: str = "raised", alarm_id: str = "alarm_1", **fields: Any) -> Message:
    status = {"raised": "New", "cleared": "Resolved", "acknowledged": "Acknowledged"}.get(event, "New")
    given = {"level": "High", "source": "comsrv:1001:m:1", "at": NOW, "status": status} | fields
    return Message(event=event, alarm_id=alarm_id, title=alarm_id, **given)


def test_every_route_that_fits_counts_and_each_target_is_told_once() -> None:
    routes = [
        {"targets": ["a", "b"], "match": {"level": "High"}},
        {"targets": ["b", "c"], "min_level": "Medium"},
        {"targets": ["d"], "min_level": "Critical"},
    ]
    desk = Desk(policy(routes=routes, targets={"d": HOOK}))
    desk.round(alarm())
    assert desk.jobs() == {"a": ["raised alarm_1"], "b": ["raised alarm_1"], "c": ["raised alarm_1"]}


def test_named_targets_go_before_routes_and_unknown_ones_lose_nothing() -> None:
    desk = Desk(policy())
    desk.round(alarm(targets=("b",)))
    plan = desk.round(alarm(alarm_id="alarm_2", targets=("nobody",)))
    assert desk.jobs() == {"b": ["raised alarm_1"], "a": ["raised alarm_2"]}
    assert plan.unknown == {"nobody"}


def test_a_target_that_is_off_or_wants_other_events_is_left_out() -> None:
    targets = {"off": HOOK | {"enabled": False}, "new": HOOK | {"events": ["raised"]}}
    desk = Desk(policy(targets=targets, routes=[{"targets": ["off", "new"]}]))
    desk.round(alarm(), alarm("cleared"))
    assert desk.jobs() == {"new": ["raised alarm_1"]}
    assert desk.round(Message(title="hello")).unrouted == 1


def test_a_fault_of_a_target_is_not_told_to_itself() -> None:
    desk = Desk(policy(routes=[{"targets": ["a", "b"]}]))
    desk.round(alarm(source="notify:a"))
    assert desk.jobs() == {"b": ["raised alarm_1"]}


def test_messages_of_a_target_gather_until_the_first_has_waited() -> None:
    desk = Desk(policy())
    desk.round(alarm())
    desk.round(alarm(alarm_id="alarm_2"), at=NOW + 3000)
    assert desk.job("a").due_ms == NOW + 5000
    assert desk.job("a").count == 2


def test_what_has_begun_takes_nothing_in() -> None:
    desk = Desk(policy())
    desk.round(alarm())
    first = desk.job("a")
    first.begun = True
    desk.round(alarm(alarm_id="alarm_2"), at=NOW + 6000)
    assert [job.count for job in desk.book.jobs.values()] == [1, 1]
    assert [job.id for job in heads(desk.book.jobs.values(), ())] == [first.id], "the next one waits its turn"
    assert heads(desk.book.jobs.values(), {"a"}) == []


def test_in_a_flood_a_target_is_told_once_in_an_interval() -> None:
    desk = Desk(policy())
    desk.book.last["a"] = NOW - 100_000
    desk.round(alarm(flood=True))
    assert desk.job("a").due_ms == NOW + 200_000
    desk.round(alarm(alarm_id="alarm_2"))
    assert desk.job("a").due_ms == NOW + 5000, "a message outside the flood does not wait for it"
    calm = Desk(policy())
    calm.round(alarm(flood=True))
    assert calm.job("a").due_ms == NOW + 5000, "the first of a flood is told soon"


def test_a_critical_one_waits_in_no_flood() -> None:
    desk = Desk(policy())
    desk.book.last["a"] = NOW
    desk.round(alarm(flood=True))
    assert desk.job("a").due_ms == NOW + 300_000
    desk.round(alarm("raised", "alarm_2", level="Critical", flood=True), at=NOW + 1000)
    assert desk.job("a").due_ms == NOW + 6000
    worse = Desk(policy())
    worse.book.last["a"] = NOW
    worse.round(alarm(flood=True))
    worse.round(alarm("level", level="Critical", flood=True), at=NOW + 1000)
    assert worse.job("a").due_ms == NOW + 6000, "also one that becomes so"


def test_the_waits_of_a_target_go_before_those_of_the_policy() -> None:
    desk = Desk(policy(group_wait_s=1, targets={"b": HOOK | {"group_wait_s": 0}}, routes=[{"targets": ["a", "b"]}]))
    desk.round(alarm())
    assert (desk.job("a").due_ms, desk.job("b").due_ms) == (NOW + 1000, NOW)


def test_quiet_hours_hold_all_but_the_worst() -> None:
    desk = Desk(policy(quiet_hours={"from": "22:00", "to": "06:00"}))
    desk.round(alarm(), alarm(alarm_id="alarm_2", level="Critical"), alarm("cleared"))
    held, now = sorted(desk.book.jobs.values(), key=lambda job: -job.due_ms)
    assert [one.event for one in held.messages] == ["raised", "cleared"]
    assert held.due_ms == 1_700_028_000_000  # 06:00
    assert [one.alarm_id for one in now.messages] == ["alarm_2"]
    assert now.due_ms == NOW + 5000


def test_a_route_has_quiet_hours_of_its_own_or_none() -> None:
    night = {"from": "22:00", "to": "06:00"}
    routes: list[Any] = [
        {"targets": ["a"], "quiet_hours": None},
        {"targets": ["b"]},
        {"targets": ["c"], "quiet_hours": {"from": "22:00", "to": "23:00"}},
    ]
    desk = Desk(policy(quiet_hours=night, routes=routes))
    desk.round(alarm())
    assert [desk.job(name).due_ms for name in "abc"] == [NOW + 5000, 1_700_028_000_000, 1_700_002_800_000]


@pytest.mark.parametrize("event", ["cleared", "resolved", "closed", "acknowledged", "shelved"])
def test_what_became_of_an_alarm_is_told_to_nobody_who_was_not_told_of_it(event: str) -> None:
    everything = HOOK | {"events": ["raised", "cleared", "acknowledged", "other"]}
    desk = Desk(policy(targets={"a": everything}))
    desk.round(alarm(event, status="Resolved"))
    assert desk.jobs() == {}
    desk.round(alarm())
    desk.end("a")
    desk.round(alarm(event, status="Resolved"))
    assert desk.jobs() == {"a": [f"{event} alarm_1"]}


def test_an_end_is_told_once_and_then_forgotten() -> None:
    desk = Desk(policy())
    desk.round(alarm())
    desk.round(alarm("cleared"), alarm("closed", status="Closed"))
    assert desk.jobs() == {"a": ["raised alarm_1", "cleared alarm_1"]}
    assert desk.told == {}


def test_a_latched_alarm_that_cleared_is_not_over() -> None:
    desk = Desk(policy())
    desk.round(alarm(), alarm("cleared", status="New"))
    assert "alarm_1" in desk.told
    desk.round(alarm("resolved", status="Resolved"))
    assert desk.jobs() == {"a": ["raised alarm_1", "cleared alarm_1", "resolved alarm_1"]}


def test_the_end_goes_where_the_beginning_went_whatever_the_routes_say_now() -> None:
    desk = Desk(policy(routes=[{"targets": ["a", "b"]}]))
    desk.round(alarm())
    desk.end("a")
    desk.end("b")
    desk.policy = policy(routes=[{"targets": ["c"]}])
    desk.round(alarm("cleared"))
    assert desk.jobs() == {"a": ["cleared alarm_1"], "b": ["cleared alarm_1"]}


def test_the_end_is_not_told_when_the_beginning_was_given_up() -> None:
    desk = Desk(policy())
    desk.round(alarm())
    desk.end("a", is_sent=False)
    desk.round(alarm("cleared"))
    assert desk.jobs() == {}


def test_the_end_waits_for_a_beginning_that_is_under_way() -> None:
    desk = Desk(policy())
    desk.round(alarm())
    first = desk.job("a")
    first.begun = True
    desk.round(alarm("cleared"))
    (second,) = (job for job in desk.book.jobs.values() if job is not first)
    assert second.waits == {first.id: 1}
    second.drop_after({first.id})
    assert second.count == 0


def test_released_and_unshelved_alarms_are_announced_but_not_suppressed_ones() -> None:
    desk = Desk(policy())
    desk.round(alarm("released"), alarm("unshelved", "alarm_2"), alarm("level", "alarm_3", status="Suppressed"))
    assert desk.jobs() == {"a": ["released alarm_1", "unshelved alarm_2"]}


CHAIN = [{"after_s": 60, "targets": ["b"]}, {"after_s": 300, "targets": ["c"]}]


def test_an_alarm_that_nobody_acknowledges_climbs_the_chain() -> None:
    desk = Desk(policy(escalation=CHAIN))
    desk.round(alarm())
    assert desk.timers == {"alarm_1": NOW + 60_000}
    desk.round(at=NOW + 60_000, due={"alarm_1": FACTS})
    assert desk.jobs() == {"a": ["raised alarm_1"], "b": ["escalated alarm_1"]}
    assert desk.job("b").messages[0].text == "not acknowledged for 60 s"
    assert desk.timers == {"alarm_1": NOW + 300_000}
    desk.round(at=NOW + 300_000, due={"alarm_1": FACTS})
    assert desk.jobs()["c"] == ["escalated alarm_1"]
    assert desk.timers == {}
    for name in "abc":
        desk.end(name)
    desk.round(alarm("cleared"))
    assert sorted(desk.jobs()) == ["a", "b", "c"], "all who were told hear of the end"


@pytest.mark.parametrize("status", ["Acknowledged", "Suppressed", "Resolved", "Closed", None])
def test_the_chain_ends_when_somebody_answered_or_the_alarm_is_over(status: str | None) -> None:
    facts = None if status is None else AlarmFacts(status, status == "Acknowledged", "High", "t")
    desk = Desk(policy(escalation=CHAIN))
    desk.round(alarm())
    desk.round(at=NOW + 60_000, due={"alarm_1": facts})
    assert desk.jobs() == {"a": ["raised alarm_1"]}
    assert desk.timers == {}


def test_acknowledged_while_escalated_counts() -> None:
    desk = Desk(policy(escalation=CHAIN))
    desk.round(alarm())
    desk.round(at=NOW + 60_000, due={"alarm_1": AlarmFacts("Escalated", True, "High", "t")})
    assert desk.timers == {}


@pytest.mark.parametrize("event", ["acknowledged", "cleared"])
def test_an_answer_stops_the_timer_at_once(event: str) -> None:
    desk = Desk(policy(escalation=CHAIN))
    desk.round(alarm())
    desk.round(alarm(event))
    assert desk.timers == {}


def test_a_late_keeper_does_not_run_through_the_chain_at_once() -> None:
    desk = Desk(policy(escalation=CHAIN))
    desk.round(alarm())
    desk.round(at=NOW + 1_000_000, due={"alarm_1": FACTS})
    assert desk.timers == {"alarm_1": NOW + 1_240_000}


def test_a_step_may_be_for_the_worst_only_and_a_chain_may_become_shorter() -> None:
    chain = [{"after_s": 60, "targets": ["b"], "min_level": "Critical"}, {"after_s": 300, "targets": ["c"]}]
    desk = Desk(policy(escalation=chain))
    desk.round(alarm())
    assert desk.timers == {"alarm_1": NOW + 300_000}
    desk.policy = policy()
    desk.round(at=NOW + 300_000, due={"alarm_1": FACTS})
    assert desk.timers == {} and desk.jobs() == {"a": ["raised alarm_1"]}


def test_an_alarm_that_nobody_wanted_does_not_escalate() -> None:
    desk = Desk(policy(routes=[], escalation=CHAIN))
    assert desk.round(alarm()).unrouted == 1
    assert desk.timers == {} and desk.told == {}


def test_who_escalates_by_hand_takes_the_next_step_also_after_an_acknowledgement() -> None:
    desk = Desk(policy(escalation=CHAIN))
    desk.round(alarm())
    desk.round(alarm("acknowledged"))
    assert desk.timers == {}
    by_hand = alarm("escalated", status="Escalated", who="ada", at=NOW + 1000)
    desk.round(by_hand, at=NOW + 1000)
    assert desk.jobs() == {"a": ["raised alarm_1", "escalated alarm_1"], "b": ["escalated alarm_1"]}
    assert desk.timers == {"alarm_1": NOW + 241_000}, "the step after it comes at its distance"
    desk.round(by_hand, at=NOW + 2000)
    assert desk.jobs()["c"] == ["escalated alarm_1"]
    assert desk.timers == {}, "nobody is left"


def test_an_escalation_by_timer_leaves_the_chain_as_it_is() -> None:
    desk = Desk(policy(escalation=CHAIN))
    desk.round(alarm())
    desk.round(alarm("escalated", status="Escalated", at=NOW + 1000), at=NOW + 1000)
    assert "b" not in desk.jobs()
    assert desk.timers == {"alarm_1": NOW + 60_000}


def test_an_alarm_that_gets_worse_meets_the_steps_of_its_new_level() -> None:
    chain = [{"after_s": 60, "targets": ["b"], "min_level": "Critical"}, {"after_s": 300, "targets": ["c"]}]
    desk = Desk(policy(escalation=chain))
    desk.round(alarm())
    desk.round(alarm("level", level="Critical", at=NOW + 1000), at=NOW + 1000)
    assert desk.timers == {"alarm_1": NOW + 60_000}
    desk.round(at=NOW + 60_000, due={"alarm_1": FACTS})
    assert desk.jobs()["b"] == ["escalated alarm_1"]
    desk.round(alarm("level", level="Critical", at=NOW + 61_000), at=NOW + 61_000)
    assert desk.timers == {"alarm_1": NOW + 300_000}, "a step is taken once"


def test_an_alarm_that_is_told_only_once_it_is_worse_climbs_the_chain() -> None:
    desk = Desk(policy(routes=[{"targets": ["a"], "min_level": "High"}], escalation=CHAIN))
    assert desk.round(alarm(level="Medium")).unrouted == 1
    desk.round(alarm("level", level="Critical", at=NOW + 1000), at=NOW + 1000)
    assert desk.timers == {"alarm_1": NOW + 61_000}


def test_an_acknowledged_alarm_that_gets_worse_is_told_and_does_not_climb() -> None:
    chain = [{"after_s": 60, "targets": ["b"], "min_level": "Critical"}]
    desk = Desk(policy(escalation=chain))
    desk.round(alarm())
    desk.round(alarm("acknowledged"))
    desk.round(alarm("level", level="Critical", status="Acknowledged"))
    assert desk.timers == {}


def test_an_alarm_that_is_told_only_when_it_escalates_climbs_the_chain() -> None:
    desk = Desk(policy(targets={"a": HOOK | {"events": ["escalated"]}}, escalation=CHAIN))
    assert desk.round(alarm()).unrouted == 1
    desk.round(alarm("escalated", status="Escalated", at=NOW + 1000), at=NOW + 1000)
    assert desk.timers == {"alarm_1": NOW + 61_000}
