"""A flow's life: register again, start, pause, drain, stop, delete, and what is refused."""

from __future__ import annotations

import pytest

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage
from tests.flows.flow_nodes import flow
from tradewind.errors import Conflict, Invalid, NotFound


@pytest.mark.parametrize(("kind", "status"), [("e_send", "completed"), ("e_fail", "failed")])
async def test_a_one_shot_flow_ends_as_its_cycle(station: Engine, kind: str, status: str) -> None:
    flow_id = await station.register({"s": kind})
    assert (await station.flows.get(flow_id))["status"] == "registered"
    await station.flows.start(flow_id)
    await station.flow_is(flow_id, status)
    view = await station.flows.get(flow_id)
    assert (view["last_cycle"], view["next_execution"]) == (0, 0)
    assert await station.redis.zscore(station.keys.flows_due(), flow_id) is None
    await station.flows.start(flow_id)
    await station.cycle_begins(flow_id, 1)
    await station.flow_is(flow_id, status)


async def test_registering_again_keeps_the_history(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"})
    await station.end(flow_id, await station.run(flow_id))
    before = await station.flows.get(flow_id)
    view, is_new = await station.flows.register(flow({"s": "e_send", "t": "e_note"}, "s.a>t.x", id=flow_id))
    assert not is_new
    assert (view["last_cycle"], view["created_at"]) == (0, before["created_at"])
    assert view["version"] != before["version"]
    assert view["status"] == "completed"
    ended = await station.end(flow_id, await station.run(flow_id))
    assert (ended.cycle, set(ended.states)) == (1, {"s", "t"})


async def test_a_running_flow_takes_its_new_definition_at_the_next_slot(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block", "old": "e_note"}, "slow.a>old.x", interval=0.5)
    await station.flows.start(flow_id)
    await station.running(flow_id, "slow")
    await station.flows.register(flow({"new": "e_send"}, id=flow_id, interval=0.5))
    assert (await station.flows.get(flow_id))["status"] == "running"
    stage.gate(flow_id).set()
    first = await station.end(flow_id, 0)
    assert first.states == {"slow": "completed", "old": "completed"}
    await station.cycle_begins(flow_id, 1)
    assert (await station.end(flow_id, 1)).states == {"new": "completed"}
    assert (await station.end(flow_id, 0)).states == {"slow": "completed", "old": "completed"}
    await station.flows.stop(flow_id)


async def test_a_shorter_interval_of_a_running_flow_counts_at_once(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"}, interval=3600)
    await station.flows.start(flow_id)
    await station.cycle_begins(flow_id, 0)
    await station.flows.register(flow({"s": "e_send"}, id=flow_id, interval=0.2))
    await station.cycle_begins(flow_id, 2)
    await station.flows.stop(flow_id)


async def test_a_longer_interval_of_a_running_flow_counts_from_the_next_slot(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"}, interval=0.3)
    await station.flows.start(flow_id)
    await station.cycle_begins(flow_id, 0)
    await station.flows.register(flow({"s": "e_send"}, id=flow_id, interval=3600))

    async def look() -> bool:
        due = await station.redis.zscore(station.keys.flows_due(), flow_id)
        return due is not None and due / 1000 - float((await station.flows.get(flow_id))["next_execution"]) == 0

    await until(look)
    await station.cycle_begins(flow_id, 1)
    last = await station.last_cycle(flow_id)

    async def is_far() -> bool:
        due = await station.redis.zscore(station.keys.flows_due(), flow_id)
        now = station.station.plane.clock.now_ms()
        return due is not None and due - now > 1_000_000

    await until(is_far, "the long interval")
    assert await station.last_cycle(flow_id) <= last + 1


async def test_pause_lets_the_running_cycle_end_and_starts_no_other(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block"}, interval=0.2)
    await station.flows.start(flow_id)
    await station.running(flow_id, "slow")
    assert (await station.flows.pause(flow_id))["status"] == "paused"
    last = await station.last_cycle(flow_id)
    stage.gate(flow_id).set()
    for cycle in range(last + 1):
        assert (await station.end(flow_id, cycle)).status == "completed"
    view = await station.flows.get(flow_id)
    assert (view["status"], view["next_execution"], view["last_cycle"]) == ("paused", 0, last)
    assert await station.redis.zscore(station.keys.flows_due(), flow_id) is None
    assert (await station.flows.pause(flow_id))["status"] == "paused"
    assert (await station.flows.resume(flow_id))["status"] == "running"
    await station.cycle_begins(flow_id, last + 1)
    await station.flows.stop(flow_id)


async def test_drain_stops_the_flow_after_its_running_cycle(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block"}, interval=0.2)
    await station.flows.start(flow_id)
    await station.running(flow_id, "slow")
    assert (await station.flows.drain(flow_id))["status"] == "draining"
    stage.gate(flow_id).set()
    await station.flow_is(flow_id, "stopped")
    last = await station.last_cycle(flow_id)
    assert (await station.end(flow_id, last)).status == "completed"
    assert (await station.flows.drain(flow_id))["status"] == "stopped"


async def test_stop_ends_the_running_cycle(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x", interval=60)
    await station.flows.start(flow_id)
    await station.running(flow_id, "slow")
    assert (await station.flows.stop(flow_id))["status"] == "stopped"
    ended = await station.end(flow_id, 0)
    assert (ended.status, ended.states) == ("stopped", {"slow": "terminated", "d": "terminated"})
    assert (await station.flows.get(flow_id))["status"] == "stopped"
    await station.flows.start(flow_id)
    await station.cycle_begins(flow_id, 1)
    await station.flows.stop(flow_id)


async def test_starting_twice_is_starting_once(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"}, interval=3600)
    await station.flows.start(flow_id)
    due = await station.redis.zscore(station.keys.flows_due(), flow_id)
    assert (await station.flows.start(flow_id))["status"] == "running"
    await station.cycle_begins(flow_id, 0)
    await station.end(flow_id, 0)
    assert await station.last_cycle(flow_id) == 0
    assert due is None or await station.redis.zscore(station.keys.flows_due(), flow_id) >= due


@pytest.mark.parametrize("verb", ["pause", "resume", "drain"])
async def test_a_flow_that_does_not_run_cannot_be_paused(station: Engine, verb: str) -> None:
    flow_id = await station.register({"s": "e_send"}, interval=60)
    with pytest.raises(Conflict, match=f"cannot {verb}"):
        await getattr(station.flows, verb)(flow_id)
    assert (await station.flows.get(flow_id))["status"] == "registered"


async def test_a_running_flow_cannot_be_resumed_and_is_not_moved_by_it(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"}, interval=60)
    await station.flows.start(flow_id)
    assert (await station.flows.resume(flow_id))["status"] == "running"


async def test_what_does_not_exist_is_not_found(station: Engine) -> None:
    for call in (station.flows.start, station.flows.stop, station.flows.pause, station.flows.delete, station.flows.run):
        with pytest.raises(NotFound):
            await call("nobody")
    flow_id = await station.register({"s": "e_send"})
    for number in (-1, 7):
        with pytest.raises(NotFound):
            await station.flows.status.cycle(flow_id, number)
        with pytest.raises(NotFound):
            await station.flows.stop_cycle(flow_id, number)
    await station.end(flow_id, await station.run(flow_id))
    with pytest.raises(NotFound):
        await station.flows.terminate(flow_id, 0, "nobody")
    with pytest.raises(NotFound):
        await station.flows.stop_component(flow_id, 0, 9)


async def test_a_flow_that_exists_is_not_created_again(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"})
    with pytest.raises(Conflict, match="exists"):
        await station.flows.register(flow({"s": "e_send"}, id=flow_id), is_new=True)


async def test_a_bad_definition_changes_nothing(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"})
    before = await station.hash(station.keys.flow(flow_id))
    with pytest.raises(Invalid) as caught:
        await station.flows.register(flow({"s": "e_send", "t": "nothing"}, "s.a>t.x", "t.q>s.zzz", id=flow_id))
    assert len(caught.value.problems) >= 2
    assert await station.hash(station.keys.flow(flow_id)) == before


async def test_task_ids_of_two_flows_never_meet(station: Engine) -> None:
    one, two = station.new_id(), station.new_id()
    await station.register({"1_b": "e_send"}, id=one)
    with pytest.raises(Conflict) as caught:
        await station.register({"b": "e_send"}, id=f"{one}_1")
    assert caught.value.code == "flow_id_ambiguous"
    await station.register({"b": "e_send"}, id=f"{two}_1")
    with pytest.raises(Conflict):
        await station.register({"x_2_b": "e_send"}, id=two)
    await station.register({"b": "e_send"}, id=two)
    await station.flows.delete(one)
    await station.register({"b": "e_send"}, id=f"{one}_1")
