"""What rules do: each kind of action, what is told of it, refusals, loops, repetition after a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.points.command_bench import CHANNEL, Device
from tests.rules.rule_room import SEED_MS, SOURCE, RuleRoom, rule, until
from tradewind.clock import Clock, FakeClock, now_ms
from tradewind.errors import Unavailable
from tradewind.points.board import Batch
from tradewind.points.command_run import CommandRunner
from tradewind.redis.connection import Link
from tradewind.rules import actions as actions_module
from tradewind.rules.actions import ActionRunner
from tradewind.rules.engine import RuleEngine
from tradewind.rules.store import RuleStore
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import Request
from tradewind.tasks.store import TaskStore

MODEL = {
    "name": "battery",
    "inputs": [{"name": "t", "source": "comsrv:1001:m:1"}],
    "outputs": [{"field": "t", "source": "t"}],
    "controls": {"mode": {}, "power": {"min": 0, "max": 100}},
}


def acting(*actions: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return rule(actions=[{"type": kind, "parameters": given} for kind, given in actions], **more)


async def offer(room: RuleRoom, *types: str) -> None:
    """As a worker does."""
    offered = {name: json.dumps({"var_kwargs": True, "var_args": True}) for name in types}
    await room.plane.redis.hset(room.keys.types(), mapping=offered)


async def register_flow(room: RuleRoom, flow_id: str) -> None:
    await room.plane.redis.hset(room.keys.flow(flow_id), mapping={"id": flow_id, "status": "idle"})


async def fire(room: RuleRoom) -> None:
    await room.show(70)
    await room.show(80, 0.001)


@asynccontextmanager
async def device(room: RuleRoom) -> AsyncIterator[Device]:
    """The owner of channel 1001, who carries commands out."""
    await room.channels.put([CHANNEL])
    await room.plane.at("1001").redis.hset(room.keys.channel_status("1001"), "online", "1")
    found, runner = Device(), CommandRunner(room.commands.store, room.board, "owner")

    async def serve() -> None:
        while True:
            if not await runner.run_next(CHANNEL, found):
                await asyncio.sleep(0.005)

    task = asyncio.create_task(serve())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def tasks(room: RuleRoom) -> list[tuple[str, Request]]:
    """Type and request of every task that waits."""
    store = TaskStore(Plane(room.link, room.settings, room.clock))
    ids = await room.plane.redis.lrange(room.keys.queue("normal"), 0, -1)
    found = await store.read_live([one.decode().rpartition("|")[2] for one in ids])
    return [(task.type, task.request) for task in found if task is not None]


async def test_a_control_goes_through_the_command_path_and_its_end_is_told(room: RuleRoom) -> None:
    on = ("send_control", {"channel_id": 1001, "point_id": 30001, "value": 1})
    power = ("send_control", {"channel_id": 1001, "point_id": 40001, "value": "=min(value, 50) / 2"})
    await room.store.put(acting(on, power))
    async with device(room) as found, room.leading():
        await fire(room)
        told = (await room.told("hot", 1))[0]
        assert found.written == [("30001", 1.0), ("40001", 25.0)]
    assert told["success"] and told["actions_executed"] == ["send_control", "send_control"]
    command = await room.commands.get(told["results"][0]["id"])
    assert (command.source, command.who, command.key) == ("rule-hot", "rule:hot", f"{told['id']}:0")
    assert command.address == "comsrv:1001:c:30001"


async def test_a_control_that_an_interlock_refuses_is_told_with_why(room: RuleRoom) -> None:
    locked = ("send_control", {"channel_id": 1001, "point_id": 30003, "value": 1})
    source = [{"operator": ">", "value": 75, "source": SOURCE}]
    await room.store.put(acting(locked, ("create_alarm", {"level": "High", "title": "x"}), conditions=source))
    async with device(room) as found, room.leading():
        await room.board.write([Batch.of_channel("1001", "s", {"20001": 0}, SEED_MS)])
        for value in (70.0, 80.0):
            await room.board.write([Batch.of_channel("1001", "m", {"10001": value}, SEED_MS + int(value))])
        told = (await room.told("hot", 1))[0]
        await room.alarms_become("New")
        assert found.written == []
    assert told["success"] is False and told["actions_executed"] == ["create_alarm"]
    assert told["results"][0]["code"] == "interlocked"
    assert "m:10001" in told["error_message"] or "10001" in told["error_message"]


async def test_bad_data_starts_no_control(room: RuleRoom) -> None:
    """`on_bad: true` raises the alarm of a rule whose data is bad; the device is left alone."""
    on = ("send_control", {"channel_id": 1001, "point_id": 30001, "value": 1})
    await room.store.put(acting(on, ("create_alarm", {"level": "High", "title": "x"}), on_bad="true"))
    await room.show(70)
    async with device(room) as found, room.leading():
        await room.write(room.clock.now_ms() + 1, {"1": 70.0}, _1="bad")
        await room.alarms_become("New")
        told = (await room.told("hot", 1))[0]
        assert found.written == []
    assert told["results"] == [
        {
            "type": "send_control",
            "success": False,
            "code": "bad_data",
            "error": "bad or missing data decided: it starts no action",
        }
    ]


async def test_tasks_and_flows_are_submitted_once_with_their_values(room: RuleRoom) -> None:
    await offer(room, "report", "flow_start")
    await register_flow(room, "cool_down")
    report = ("submit_task", {"type": "report", "args": ["{rule.id}", "=value * 2"], "kwargs": {"at": "{source}"}})
    flow = ("start_flow", {"flow_id": "cool_down", "payload": {"value": "=value"}})
    await room.store.put(acting(report, flow))
    async with room.leading():
        await fire(room)
        told = (await room.told("hot", 1))[0]
    assert told["success"], told
    found = dict(await tasks(room))
    assert found["report"].args == ["hot", 160.0] and found["report"].kwargs == {"at": "comsrv:1001:m:1"}
    assert found["flow_start"].kwargs == {
        "flow_id": "cool_down",
        "payload": {"value": 80.0},
        "run_id": f"{told['id']}-1",
    }
    assert found["report"].idempotency_key == f"{told['id']}:0"


async def test_control_values_notifications_and_log_entries(room: RuleRoom) -> None:
    await room.store.put(
        acting(
            ("set_value", {"model": "battery", "field": "power", "value": "=value - 30"}),
            ("send_notification", {"recipients": ["ops"], "message": "{rule.name}: {value:.1f} of {threshold}"}),
            ("log_event", {"level": "warning", "message": "{source} is {value}"}),
            name="Heat",
        )
    )
    await room.models.put(MODEL)
    async with room.leading():
        await fire(room)
        told = (await room.told("hot", 1))[0]
    assert told["success"], told
    assert sorted(told["actions_executed"]) == ["log_event", "send_notification", "set_value"]
    assert (await room.models.controls("battery"))["power"].value == "50.0"
    entries = await room.plane.redis.xrange(room.keys.notify_outbox())
    fields = {name.decode(): value.decode() for name, value in entries[0][1].items()}
    assert len(entries) == 1
    assert (fields["kind"], fields["event"], fields["rule_id"]) == ("rule", "message", "hot")
    assert fields["text"] == "Heat: 80.0 of 75" and fields["targets"] == '["ops"]'
    assert fields["key"] == f"{told['id']}:1"


async def test_what_cannot_be_done_is_told_and_the_rest_is_done(room: RuleRoom) -> None:
    nowhere = ("set_value", {"model": "nowhere", "field": "x", "value": 1})
    await room.store.put(acting(nowhere, ("log_event", {"message": "still said"})))
    async with room.leading():
        await fire(room)
        told = (await room.told("hot", 1))[0]
    assert told["success"] is False and told["actions_executed"] == ["log_event"]
    assert told["results"][0]["code"] == "unknown_model" and "nowhere" in told["error_message"]
    assert (await room.history.figures(["hot"]))["hot"].failed == 1


async def test_a_task_that_is_refused_is_told_with_why(room: RuleRoom) -> None:
    await room.store.put(acting(("submit_task", {"type": "no_such_type"})))
    async with room.leading():
        await fire(room)
        told = (await room.told("hot", 1))[0]
    assert told["results"][0]["code"] == "unknown_type"
    assert "no_such_type" in told["error_message"] and told["error_message"] == told["results"][0]["error"]


async def test_a_flow_that_does_not_exist_is_told_and_no_task_is_made_for_it(room: RuleRoom) -> None:
    await offer(room, "flow_start")
    await room.store.put(acting(("start_flow", {"flow_id": "nowhere"}), ("log_event", {"message": "still said"})))
    async with room.leading():
        await fire(room)
        told = (await room.told("hot", 1))[0]
        assert told["success"] is False and told["actions_executed"] == ["log_event"]
        assert told["results"][0] == {
            "type": "start_flow",
            "success": False,
            "code": "flow_not_found",
            "error": "there is no flow 'nowhere'",
        }
        assert told["error_message"] == "there is no flow 'nowhere'"
        assert await tasks(room) == []
        await register_flow(room, "nowhere")  # it may be loaded later
        for value in (70, 80):
            await room.show(value, 0.001)
        again = [one for one in await room.told("hot", 3) if one["triggered"]][-1]
    assert again["success"] and [kind for kind, _ in await tasks(room)] == ["flow_start"]


async def test_an_expression_that_acts_is_carried_out_and_told_with_its_truth(room: RuleRoom) -> None:
    formula = {"field": "hot", "type": "expression", "expression": "t > 75", "inputs": {"t": "comsrv:1001:m:1"}}
    await room.store.put(acting(("log_event", {"message": "{hot}"}), conditions=[formula]))
    async with room.leading():
        await fire(room)
        told = (await room.told("hot", 1))[0]
    assert told["success"] and told["actions_executed"] == ["log_event"]
    assert told["conditions_result"] == {"hot": {"matched": True, "actual_value": True}}
    assert (await room.history.read("hot"))[0].conditions_result["hot"].actual_value is True


async def test_a_job_that_cannot_be_read_is_dropped_and_the_next_one_is_done(room: RuleRoom) -> None:
    await room.store.put(acting(("log_event", {"message": "x"})))
    await room.plane.redis.xadd(room.keys.rule_outbox(), {"rule_id": "hot", "body": b'{"execution": 7}'})
    async with room.leading():
        await fire(room)
        assert (await room.told("hot", 1))[0]["success"]
    assert not await _waits(room)


async def test_an_action_has_the_edge_that_it_is_for(room: RuleRoom) -> None:
    document = rule(
        actions=[
            {"type": "log_event", "on": on, "parameters": {"level": "info", "message": "{edge}"}}
            for on in ("rise", "fall", "both")
        ]
    )
    await room.store.put(document)
    async with room.leading():
        await fire(room)
        await room.show(70, 0.001)
        rise, fall = await room.told("hot", 2)
    assert len(rise["actions_executed"]) == 2 and len(fall["actions_executed"]) == 2
    assert (rise["triggered"], fall["triggered"]) == (True, False)


async def test_a_rule_that_feeds_itself_is_stopped_and_reported_until_it_is_enabled(
    link: Link, key_prefix: str
) -> None:
    if link.cluster:
        pytest.skip("the guard is the same everywhere")
    room = RuleRoom(link, key_prefix, Clock(), rules={"loop_depth": 4, "loop_window_s": 60})
    swing = {"type": "change", "field": "x", "source": "comsrv:1001:c:30001"}
    turn = {"channel_id": 1001, "point_id": 30001, "value": "=1 - value"}
    await room.store.put(acting(("send_control", turn), conditions=[swing]))
    async with device(room) as found, room.leading() as engine:
        for value in (0, 1):
            await room.board.write([Batch.of_channel("1001", "c", {"30001": value}, now_ms())])
        told = await room.told("hot", 5)
        assert sum(one["success"] for one in told) == 4
        last = next(one for one in told if not one["success"])
        assert "acted 5 times within 60 s and is stopped" in last["error_message"]
        assert last["results"][0]["code"] == "loop"
        assert len(found.written) == 4
        assert (await room.history.figures(["hot"]))["hot"].stopped_ms
        fault = (await room.plane.redis.xrange(room.keys.faults()))[0][1]
        assert (fault[b"code"], fault[b"source"], fault[b"state"]) == (b"rule_loop", b"rulesrv:hot", b"raise")
        await room.board.write([Batch.of_channel("1001", "c", {"30001": 1 - found.written[-1][1]}, now_ms() + 1)])
        await room.told("hot", 6)
        assert len(found.written) == 4
        version = await room.store.version()
        await room.store.enable("hot")
        assert await room.store.version() != version
        assert not (await room.history.figures(["hot"]))["hot"].stopped_ms
        assert (await room.plane.redis.xrevrange(room.keys.faults(), count=1))[0][1][b"state"] == b"clear"
        await until(lambda: _judges(engine, room))
        await room.board.write([Batch.of_channel("1001", "c", {"30001": found.written[-1][1]}, now_ms() + 2)])
        await until(lambda: _wrote(found, 5))
    await room.plane.close()


async def test_a_slow_loop_of_two_rules_is_stopped_by_its_depth(link: Link, key_prefix: str) -> None:
    """Control values are looked at once a second: never more than one action within the window."""
    if link.cluster:
        pytest.skip("the guard is the same everywhere")
    room = RuleRoom(link, key_prefix, Clock(), rules={"loop_depth": 3, "loop_window_s": 0.1})
    await room.models.put(MODEL)
    await room.models.set_control("battery", "power", 0, "test")
    for name, limit, value in (("up", "<", 9), ("down", ">", 1)):
        condition = {"field": name, "source": "modsrv:battery:control:power", "operator": limit, "value": 5}
        action = ("set_value", {"model": "battery", "field": "power", "value": value})
        await room.store.put(acting(action, id=name, conditions=[condition]))
    async with room.leading() as engine:
        await until(lambda: _judges(engine, room))
        await room.models.set_control("battery", "power", 8, "test")
        await until(lambda: _is_any_stopped(room, ["up", "down"]), 30)
        rows = [await room.plane.redis.lrange(room.keys.rule_history(name), 0, -1) for name in ("up", "down")]
        told = [json.loads(row) for row in (*rows[0], *rows[1])]
    assert sum("set_value" in one["actions_executed"] for one in told) == 3
    why = next(one["error_message"] for one in told if not one["success"])
    assert "3 actions of rules" in why and "modsrv:battery:control:power" in why
    await room.plane.close()


async def test_an_action_is_tried_again_while_something_does_not_answer(
    room: RuleRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions_module, "PAUSE_S", 0.01)

    class Away:
        """A path to tasks that does not answer for a while."""

        def __init__(self, fails: int) -> None:
            self.fails = fails
            self.keys: list[str] = []

        async def submit(self, raws: Sequence[dict[str, Any]]) -> list[str]:
            self.keys += [raw["idempotency_key"] for raw in raws]
            if len(self.keys) <= self.fails:
                raise Unavailable("no answer", code="away")
            return ["t1"]

    await room.store.put(acting(("submit_task", {"type": "report"})))
    for fails, is_done in ((2, True), (99, False)):
        path = Away(fails)
        runner = ActionRunner(room.plane, room.commands, room.models, path)
        stop = asyncio.Event()
        store = RuleStore(room.link, room.keys, room.settings, room.clock)
        engine = RuleEngine(room.plane, store, runner)
        running = asyncio.create_task(engine.run(stop))
        await until(lambda engine=engine: _judges(engine, room))  # type: ignore[misc]
        await room.show(70, 0.001)
        await room.show(80, 0.001)
        rises = [one for one in await room.told("hot", 1 if is_done else 3) if one["triggered"]]
        assert rises[-1]["success"] is is_done
        assert rises[-1]["error_message"] == (None if is_done else "no answer")
        assert set(path.keys) == {f"{rises[-1]['id']}:0"} and len(path.keys) == (3 if is_done else 4)
        stop.set()
        await running


async def test_a_job_that_is_begun_again_sends_no_second_command(room: RuleRoom) -> None:
    on = ("send_control", {"channel_id": 1001, "point_id": 30001, "value": 1})
    await room.store.put(acting(on))
    async with device(room) as found:
        found.hangs.clear()
        async with room.leading():
            await fire(room)
            await found.began.wait()
        assert await room.plane.redis.xlen(room.keys.rule_outbox()) == 1, "the engine ended before the action did"
        found.hangs.set()
        async with room.leading():
            told = (await room.told("hot", 1))[0]
        assert told["success"] and found.written == [("30001", 1.0)]
    assert await room.plane.redis.xlen(room.keys.rule_outbox()) == 0
    assert len(await room.commands.list()) == 1


async def test_a_control_that_could_not_be_sent_in_time_is_not_sent_late(room: RuleRoom) -> None:
    await room.store.put(acting(("send_control", {"channel_id": 1001, "point_id": 30001, "value": 1})))
    async with device(room) as found:
        store = RuleStore(room.link, room.keys, room.settings, room.clock)
        stop = asyncio.Event()
        engine = RuleEngine(room.plane, store)  # without actions, as if it died before they began
        running = asyncio.create_task(engine.run(stop))
        await until(lambda: _judges(engine, room))
        await fire(room)
        await until(lambda: _waits(room))
        stop.set()
        await running
        assert isinstance(room.clock, FakeClock)
        room.clock.advance(31)
        async with room.leading():
            told = (await room.told("hot", 1))[0]
        assert told["results"][0]["code"] == "expired" and found.written == []


async def test_history_is_bounded_and_lasts_seven_days(link: Link, key_prefix: str) -> None:
    room = RuleRoom(link, key_prefix, rules={"history_keep": 5})
    await room.store.put(rule())
    key = room.keys.rule_history("hot")
    async with room.leading():
        for n in range(4):
            await room.show(70, 0.001)
            await room.show(80, 0.001)
            await until(lambda n=n: _figure(room, 2 * n + 1))  # type: ignore[misc]
        assert await room.plane.redis.llen(key) == 5
        week_ms = 7 * 86_400_000
        assert week_ms - 60_000 < await room.plane.redis.pttl(key) <= week_ms
        await room.show(80, 7 * 86_400 + 1)
        await room.show(70, 0.001)
        await until(lambda: _figure(room, 8))
        assert len(await room.told("hot", 1)) == 1, "what is older than a week goes"
    await room.plane.close()


async def _judges(engine: RuleEngine, room: RuleRoom) -> bool:
    """With the rules as they are now."""
    return engine.is_leading and engine.stats.rounds > 0 and engine.version == await room.store.version()


async def _is_any_stopped(room: RuleRoom, names: list[str]) -> bool:
    return any(one.stopped_ms for one in (await room.history.figures(names)).values())


async def _waits(room: RuleRoom) -> bool:
    return bool(await room.plane.redis.xlen(room.keys.rule_outbox()))


async def _wrote(found: Device, count: int) -> bool:
    return len(found.written) >= count


async def _figure(room: RuleRoom, executions: int) -> bool:
    return (await room.history.figures(["hot"]))["hot"].executions >= executions
