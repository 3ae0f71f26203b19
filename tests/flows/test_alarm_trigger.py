"""Alarms start cycles: which transitions fit, and each that does starts one cycle with what happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage
from tradewind.alarms.journal_entry import JournalEntry
from tradewind.alarms.record import NewAlarm
from tradewind.errors import Invalid
from tradewind.flows.alarm_trigger import payload_of, read_trigger, trigger_problems
from tradewind.flows.alarm_watch import CURSOR, AlarmWatch

ENTRY = JournalEntry(
    "alarm_1", 1, "raised", "", "New", 1_704_103_200_000, "", "", "hot", "comsrv:1001:m:10001", "High", "heat", 1,
    "85.6", "too hot",
)  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "fits"),
    [
        ({}, True),
        ({"rule_id": "hot"}, True),
        ({"rule_id": ["cold", "hot"]}, True),
        ({"rule_id": "cold"}, False),
        ({"level": "high"}, True),
        ({"level": "Major"}, True),
        ({"level": ["Critical", "Low"]}, False),
        ({"category": "heat"}, True),
        ({"category": "general"}, False),
        ({"status": "new"}, True),
        ({"status": ["Resolved", "Closed"]}, False),
        ({"source": "comsrv:1001:*"}, True),
        ({"source": "comsrv:1001:m:1"}, False),
        ({"rule_id": "hot", "level": "High", "status": "Resolved"}, False),
    ],
)
def test_which_transitions_fit(raw: dict[str, Any], fits: bool) -> None:
    assert read_trigger({"type": "alarm", **raw}).fits(ENTRY) is fits


def test_a_cycle_sees_what_happened() -> None:
    seen = payload_of(ENTRY)
    assert (seen["id"], seen["event"], seen["from"], seen["status"]) == ("alarm_1", "raised", None, "New")
    assert (seen["rule_id"], seen["source"], seen["actual_value"]) == ("hot", "comsrv:1001:m:10001", "85.6")


def test_everything_wrong_with_triggers_is_named() -> None:
    triggers = (
        {"type": "webhook", "level": "Loud"},
        {"type": "alarm", "level": "Loud", "status": ["New", "Gone"], "rule_id": 7, "colour": "red"},
        {"type": "alarm", "to": "a.b"},
    )
    found = {problem.path for problem in trigger_problems(triggers)}
    assert found == {"triggers[1].level", "triggers[1].status", "triggers[1].rule_id", "triggers[1].colour"}
    with pytest.raises(Invalid):
        read_trigger(triggers[1])


async def _triggered(station: Engine, **trigger: object) -> str:
    flow_id = await station.register(
        {"n": ("e_note", {}, {"external": ["x"]})},
        triggers=[{"type": "alarm", **trigger}],
        interval=None,
        schedule={"manual": True},
    )
    await station.flows.start(flow_id)

    async def look() -> bool:
        return bool(await station.redis.hexists(station.keys.cursors(), CURSOR))

    await until(look, "the alarms being watched")
    return flow_id


async def _raise(station: Engine, source: str, **more: Any) -> str:
    alarms = station.station.rules.alarms
    return (await alarms.raise_(NewAlarm(rule_id="external", source=source, title="t", **more))).id


async def _seen(station: Engine, flow_id: str, *expected: tuple[str, str]) -> None:
    async def look() -> bool:
        return sorted((got["source"], got["status"]) for got in stage.got(flow_id, "n")) == sorted(expected)

    await until(look, f"{expected} being seen, not {stage.got(flow_id, 'n')}")


async def test_a_transition_starts_a_cycle_and_others_do_not(station: Engine) -> None:
    raised = await _triggered(station, status="New", level="High")
    every = await _triggered(station)
    alarm = await _raise(station, "a", level="High")
    await _raise(station, "b", level="Low")
    await _raise(station, "a", level="High")  # counted up: no transition
    await station.station.rules.alarms.resolve(alarm, "ada", "mended")
    await _seen(station, raised, ("a", "New"))
    await _seen(station, every, ("a", "New"), ("b", "New"), ("a", "Resolved"))
    (end,) = [got for got in stage.got(every, "n") if got["status"] == "Resolved"]
    assert (end["id"], end["from"], end["who"], end["note"]) == (alarm, "New", "ada", "mended")
    assert (await station.flows.status.cycle(raised, 0))["trigger"] == "alarm"


async def test_a_second_reader_of_the_same_transitions_starts_nothing_twice(station: Engine) -> None:
    flow_id = await _triggered(station)
    before = await station.redis.hget(station.keys.cursors(), CURSOR)
    await _raise(station, "a")
    await _seen(station, flow_id, ("a", "New"))

    async def moved() -> bool:
        return bool(await station.redis.hget(station.keys.cursors(), CURSOR) != before)

    await until(moved, "the cursor")
    after = await station.redis.hget(station.keys.cursors(), CURSOR)
    await station.redis.hset(station.keys.cursors(), CURSOR, before)  # as if it had died before it stored its place
    again = asyncio.create_task(AlarmWatch(station.flows, station.station.points.plane).run())

    async def is_there() -> bool:
        assert not again.done(), again
        return bool(await station.redis.hget(station.keys.cursors(), CURSOR) == after)

    await until(is_there, "the second reader")
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
    assert len(await station.flows.cycles(flow_id)) == 1


async def test_what_was_raised_before_anybody_watched_starts_nothing(station: Engine) -> None:
    flow_id = await _triggered(station)
    idle = await station.register(
        {"n": ("e_note", {}, {"external": ["x"]})}, triggers=[{"type": "alarm"}], interval=None,
        schedule={"manual": True},
    )  # fmt: skip
    await _raise(station, "a")
    await _seen(station, flow_id, ("a", "New"))
    assert stage.got(idle, "n") == []  # it was not started
    await station.flows.start(idle)
    await _raise(station, "b")
    await _seen(station, idle, ("b", "New"))


async def test_a_flow_with_a_bad_trigger_is_refused(station: Engine) -> None:
    with pytest.raises(Invalid) as caught:
        await station.register(
            {"n": ("e_note", {}, {"external": ["x"]})}, triggers=[{"type": "alarm", "level": "Loud"}]
        )
    assert [problem.path for problem in caught.value.problems] == ["triggers[0].level"]


async def test_only_triggers_that_fit_give_the_transition_to_their_handles(station: Engine) -> None:
    flow_id = await station.register(
        {"n": ("e_note_all", {}, {"external": ["all", "high", "other"]})},
        triggers=[
            {"type": "alarm", "status": "New", "to": "n.all"},
            {"type": "alarm", "level": "High", "status": "New", "to": "n.high"},
            {"type": "alarm", "source": "elsewhere:*", "to": "n.other"},
        ],
        interval=None,
        schedule={"manual": True},
    )  # fmt: skip
    await station.flows.start(flow_id)

    async def is_watched() -> bool:
        keys = station.station.points.plane.keys
        return bool(await station.redis.hexists(keys.cursors(), CURSOR))

    await until(is_watched, "the watch")
    await _raise(station, "comsrv:1:m:1", level="High")

    async def both() -> bool:
        return len(stage.got(flow_id, "n")) == 2  # two triggers fit: two cycles

    await until(both, "two cycles")
    for given in stage.got(flow_id, "n"):
        assert given["all"]["source"] == given["high"]["source"] == "comsrv:1:m:1"
        assert given["other"] is None
