"""Slots: when cycles start by themselves, what happens to late ones and to those that meet a running cycle."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
import structlog

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage
from tradewind.flows.scheduler import FlowScheduler


async def _late(station: Engine, flow_id: str, slots: float, interval_ms: int) -> None:
    """As if nobody had looked for that many slots: the anchor and the next slot lie in the past."""
    now = station.station.plane.clock.now_ms()
    due = now - int(slots * interval_ms)
    await station.redis.hset(station.keys.flow(flow_id), "anchor_ms", due)
    await station.redis.zadd(station.keys.flows_due(), {flow_id: due})
    await station.redis.lpush(station.keys.flows_wake(), "1")


async def _begun(station: Engine, **more: Any) -> str:
    """An hourly flow whose first cycle has ended."""
    flow_id = await station.register({"s": "e_send"}, **{"interval": 3600, **more})
    await station.flows.start(flow_id)
    await station.cycle_begins(flow_id, 0)
    await station.end(flow_id, 0)
    return flow_id


#: However late a slot starts on a machine that others use, it starts.
EVERY = {"misfire": "all", "overlap": "allow"}


async def test_slots_do_not_drift(station: Engine) -> None:
    """Slot k is the anchor and k intervals, whenever the slots before it started."""
    before = station.station.plane.clock.now_ms()
    flow_id = await station.register({"s": "e_send"}, interval=0.2, schedule=EVERY)
    await station.flows.start(flow_id)
    anchor = int(await station.text(station.keys.flow(flow_id), "anchor_ms") or 0)
    assert before <= anchor <= station.station.plane.clock.now_ms()
    await station.cycle_begins(flow_id, 3)
    async with _hold_up(station, 0.7):  # the leader is late by more than three slots
        await asyncio.sleep(0.7)
    await station.cycle_begins(flow_id, 14)
    await station.flows.stop(flow_id)
    raw = [await station.hash(station.keys.cycle(flow_id, n)) for n in range(14)]
    assert {cycle["trigger"] for cycle in raw} == {"schedule"}
    assert [int(cycle["slot_ms"]) for cycle in raw] == [anchor + 200 * k for k in range(14)]
    assert all(int(cycle["start_ms"]) >= int(cycle["slot_ms"]) for cycle in raw)
    assert await station.text(station.keys.flow(flow_id), "anchor_ms") == str(anchor)


@contextlib.asynccontextmanager
async def _hold_up(station: Engine, seconds: float) -> AsyncIterator[None]:
    """Redis writes nothing for so long: whoever wants to, waits."""
    await station.redis.client_pause(int(seconds * 1000), all=False)
    try:
        yield
    finally:
        await station.redis.client_unpause()


async def test_slots_are_punctual(station: Engine) -> None:
    """Measured against a clock in the same process that does nothing but wait for the same moments and ask Redis once:
    a busy machine makes both late."""
    flow_id = await station.register({"s": "e_send"}, interval=0.2, schedule=EVERY)
    await station.flows.start(flow_id)
    anchor = int(await station.text(station.keys.flow(flow_id), "anchor_ms") or 0)
    clock, plain = station.station.plane.clock, []
    for k in range(3, 18):
        await asyncio.sleep(max(0, anchor + 200 * k - clock.now_ms()) / 1000)
        await station.redis.ping()
        plain.append(clock.now_ms() - (anchor + 200 * k))
    await station.cycle_begins(flow_id, 18)
    await station.flows.stop(flow_id)
    raw = [await station.hash(station.keys.cycle(flow_id, n)) for n in range(3, 18)]
    late = [int(cycle["start_ms"]) - int(cycle["slot_ms"]) for cycle in raw]
    told = f"{sorted(late)} beside {sorted(plain)}"
    assert 0 <= min(late) <= 100 + 2 * statistics.median(plain), told
    assert statistics.median(late) <= 100 + 4 * statistics.median(plain), told


async def test_a_slot_of_a_flow_that_is_gone_is_dropped_and_holds_up_nobody(station: Engine) -> None:
    await station.redis.zadd(station.keys.flows_due(), {"gone": 1})
    flow_id = await station.register({"s": "e_send"}, interval=0.2)
    with structlog.testing.capture_logs() as told:
        await station.flows.start(flow_id)
        await station.cycle_begins(flow_id, 2)
    await station.flows.stop(flow_id)
    assert await station.redis.zscore(station.keys.flows_due(), "gone") is None
    assert not [line for line in told if line["log_level"] in ("error", "critical")], told


async def test_a_slot_is_told_in_the_status(station: Engine) -> None:
    flow_id = await _begun(station)
    view = await station.flows.status.cycle(flow_id, 0)
    slot = datetime.fromisoformat(view["slot"]).timestamp()
    assert abs(slot - datetime.fromisoformat(view["start_time"]).timestamp()) < 2
    assert (await station.flows.get(flow_id))["next_execution"] == pytest.approx(slot + 3600)


async def test_the_latest_of_missed_slots_runs(station: Engine) -> None:
    flow_id = await _begun(station)
    await _late(station, flow_id, 5.5, 3_600_000)
    await station.cycle_begins(flow_id, 1)
    view = await station.flows.get(flow_id)
    assert (view["last_cycle"], view["missed_slots"]) == (1, 5)
    now = station.station.plane.clock.now_ms()
    assert 0 < await station.redis.zscore(station.keys.flows_due(), flow_id) - now <= 1_800_000


async def test_missed_slots_are_given_up(station: Engine) -> None:
    flow_id = await _begun(station, schedule={"misfire": "skip"})
    await _late(station, flow_id, 5.5, 3_600_000)

    async def counted() -> bool:
        return bool((await station.flows.get(flow_id))["missed_slots"] == 6)

    await until(counted, "the count")
    assert await station.last_cycle(flow_id) == 0
    assert await station.redis.zscore(station.keys.flows_due(), flow_id) > station.station.plane.clock.now_ms()


async def test_a_slot_within_its_grace_is_not_missed(station: Engine) -> None:
    flow_id = await _begun(station, schedule={"misfire": "skip", "grace": 60})
    await _late(station, flow_id, 10_000 / 3_600_000, 3_600_000)
    await station.cycle_begins(flow_id, 1)
    assert (await station.flows.get(flow_id))["missed_slots"] == 0


async def test_every_missed_slot_is_made_up_for_one_at_a_time(station: Engine) -> None:
    flow_id = await _begun(station, schedule={"misfire": "all"})
    await _late(station, flow_id, 4.5, 3_600_000)
    await station.cycle_begins(flow_id, 5)
    slots = [int((await station.hash(station.keys.cycle(flow_id, n)))["slot_ms"]) for n in range(1, 6)]
    assert {b - a for a, b in pairwise(slots)} == {3_600_000}
    raw = [await station.hash(station.keys.cycle(flow_id, n)) for n in range(1, 6)]
    assert all(a["end_time"] <= b["start_time"] for a, b in pairwise(raw))
    assert (await station.flows.get(flow_id))["missed_slots"] == 0


async def _meets_a_running_one(station: Engine, overlap: str) -> str:
    flow_id = await station.register({"slow": "e_block"}, interval=3600, schedule={"overlap": overlap})
    await station.flows.start(flow_id)
    await station.running(flow_id, "slow")

    async def moved() -> bool:
        score = await station.redis.zscore(station.keys.flows_due(), flow_id)
        return bool(score > station.station.plane.clock.now_ms())

    for _ in range(3):
        await _late(station, flow_id, 0.001, 3_600_000)
        await until(moved, "the next slot")
    return flow_id


async def test_a_slot_that_meets_a_running_cycle_is_skipped(station: Engine) -> None:
    flow_id = await _meets_a_running_one(station, "skip")
    stage.gate(flow_id).set()
    await station.end(flow_id, 0)
    view = await station.flows.get(flow_id)
    assert (view["last_cycle"], view["skipped_slots"]) == (0, 3)


async def test_the_last_slot_that_met_a_running_cycle_is_kept(station: Engine) -> None:
    flow_id = await _meets_a_running_one(station, "buffer_latest")
    slot = int(await station.text(station.keys.flow(flow_id), "buffered_ms") or 0)
    assert await station.last_cycle(flow_id) == 0
    stage.gate(flow_id).set()
    await station.cycle_begins(flow_id, 1)
    raw = await station.hash(station.keys.cycle(flow_id, 1))
    assert (int(raw["slot_ms"]), raw["trigger"]) == (slot, "schedule")
    await station.end(flow_id, 1)
    await asyncio.sleep(0.1)
    view = await station.flows.get(flow_id)
    assert (view["last_cycle"], view["missed_slots"]) == (1, 2)
    assert await station.text(station.keys.flow(flow_id), "buffered_ms") is None


async def test_a_newer_slot_takes_over(station: Engine) -> None:
    flow_id = await _meets_a_running_one(station, "cancel_previous")
    await station.cycle_begins(flow_id, 3)
    for n in range(3):
        ended = await station.end(flow_id, n)
        assert (ended.status, ended.states) == ("stopped", {"slow": "terminated"})
    stage.gate(flow_id).set()
    assert (await station.end(flow_id, 3)).status == "completed"


async def test_cycles_may_overlap(station: Engine) -> None:
    flow_id = await _meets_a_running_one(station, "allow")
    await station.cycle_begins(flow_id, 3)
    running = {int(n) for n in await station.redis.smembers(station.keys.flow_running(flow_id))}
    assert running == {0, 1, 2, 3}
    stage.gate(flow_id).set()
    for n in range(4):
        assert (await station.end(flow_id, n)).status == "completed"


async def test_a_manual_run_does_not_move_the_schedule(station: Engine) -> None:
    flow_id = await _begun(station)
    due = await station.redis.zscore(station.keys.flows_due(), flow_id)
    await station.end(flow_id, await station.run(flow_id))
    assert await station.redis.zscore(station.keys.flows_due(), flow_id) == due
    assert (await station.flows.get(flow_id))["status"] == "running"


async def test_a_manual_flow_has_no_slots(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"}, schedule={"manual": True}, interval=None)
    await station.flows.start(flow_id)
    assert await station.redis.zscore(station.keys.flows_due(), flow_id) is None
    assert (await station.end(flow_id, await station.run(flow_id))).status == "completed"
    assert (await station.flows.get(flow_id))["status"] == "running"


async def test_a_slot_of_a_flow_that_has_gone_is_dropped(station: Engine) -> None:
    await station.redis.zadd(station.keys.flows_due(), {"nobody": 1})
    await station.redis.lpush(station.keys.flows_wake(), "1")

    async def dropped() -> bool:
        return await station.redis.zscore(station.keys.flows_due(), "nobody") is None

    await until(dropped)
    assert (await station.go({"s": "e_send"})).status == "completed"


async def test_a_failed_cycle_does_not_stop_the_schedule(station: Engine) -> None:
    flow_id = await station.register({"bad": "e_fail"}, interval=0.2)
    await station.flows.start(flow_id)
    await station.cycle_begins(flow_id, 3)
    view = await station.flows.get(flow_id)
    assert view["status"] == "running"
    assert view["failures_in_a_row"] >= 2
    await station.flows.stop(flow_id)


async def test_news_that_comes_during_a_round_calls_for_another_one(
    station: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_id = await station.register({"s": "e_send"}, interval=3600)
    fire_due, has_started = FlowScheduler.fire_due, asyncio.Event()

    async def is_heard() -> bool:
        return not await station.redis.exists(station.keys.flows_wake())

    async def fire_and_start(scheduler: FlowScheduler) -> int | None:
        next_ms = await fire_due(scheduler)
        if not has_started.is_set():
            has_started.set()
            await station.flows.start(flow_id)
            await until(is_heard, "the news being heard", 2)
        return next_ms

    monkeypatch.setattr(FlowScheduler, "fire_due", fire_and_start)
    await station.redis.lpush(station.keys.flows_wake(), "1")
    await asyncio.wait_for(has_started.wait(), 10)
    await station.cycle_begins(flow_id, 0, timeout_s=3)
