"""Nodes that read points and send commands: on a real board, with a device that does as it is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.nodes.host import Host, new_call, once, outputs, payloads, problems
from tests.points.command_bench import CHANNEL, Device
from tests.servers import Server
from tradewind.flows.call import NodeCall, Suspend
from tradewind.flows.node_errors import (
    NodeExecutionException,
    NodeResourceException,
    NodeTimeoutException,
    NodeValidationException,
)
from tradewind.nodes import points
from tradewind.nodes.points import use_points
from tradewind.points.board import Batch
from tradewind.points.command_run import CommandRunner
from tradewind.points.substitutions import SubstituteRequest
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.station_points import PointRoom

MODEL = {
    "name": "plant",
    "inputs": [{"name": "power", "source": "comsrv:1001:m:10001"}],
    "calculations": [{"id": "twice", "expression": "power * 2"}, {"id": "half", "expression": "power / 2"}],
    "outputs": [{"field": "twice", "source": "twice"}, {"field": "half", "source": "half"}],
    "controls": {"limit": {"address": "comsrv:1001:a:40001", "max": 50}},
}


class Plant:
    def __init__(self, room: PointRoom) -> None:
        self.room = room
        self.device = Device()
        self.runner = CommandRunner(room.commands.store, room.board, "me")

    async def show(self, key: str, **points: float) -> None:
        values = {name.removeprefix("p"): value for name, value in points.items()}
        await self.room.board.write([Batch(key, values)])

    async def carry_out(self) -> None:
        assert await self.runner.run_next(CHANNEL, self.device)

    async def commands(self) -> list[str]:
        return [command.value for command in await self.room.commands.list()]


@pytest.fixture
async def plant(redis_7: Server, key_prefix: str) -> AsyncIterator[Plant]:
    link = await open_link(RedisSettings(url=redis_7.url))
    room = PointRoom(link, Settings(key_prefix=key_prefix))
    await room.channels.put([CHANNEL])
    use_points(room)
    yield Plant(room)
    use_points(None)
    await room.close()
    await link.close()


async def resumed(call: NodeCall, host: Host | None = None) -> float:
    """Run until it suspends itself; how long it wants to wait."""
    with pytest.raises(Suspend) as caught:
        await once(call, host)
    call.state = caught.value.state
    return caught.value.delay_s


async def begun(config: dict[str, Any], value: Any = 20.0, **more: Any) -> NodeCall:
    """A command node that has sent its command and waits."""
    call = new_call("command", {"address": "comsrv:1001:a:40001", **config}, {"value": value}, **more)
    assert await resumed(call) == points.FIRST_LOOK_S
    return call


async def test_points_are_read_by_name(plant: Plant) -> None:
    await plant.show("comsrv:1001:m", p10001=25.5, p10002=3)
    config = {"addresses": {"pv": "comsrv:1001:m:10001", "load": "comsrv:1001:m:10002"}}
    assert await outputs("point_read", config) == {
        "pv": 25.5,
        "load": 3.0,
        "values": {"pv": 25.5, "load": 3.0},
        "value": 25.5,
        "quality": "good",
    }


async def test_points_of_a_list_go_by_their_addresses(plant: Plant) -> None:
    await plant.show("comsrv:1001:s", p20001=1)
    address = "comsrv:1001:s:20001"
    assert await outputs("point_read", {"addresses": [address]}) == {
        "value": 1.0,
        "values": {address: 1.0},
        "quality": "good",
    }


async def test_a_point_without_a_good_value_fails_the_node_and_is_named(plant: Plant) -> None:
    batch = Batch("comsrv:1001:m", {"10001": 5.0}, quality={"10001": "bad"})
    await plant.room.board.write([batch])
    config: dict[str, Any] = {"addresses": ["comsrv:1001:m:10001", "comsrv:1001:m:10002"]}
    with pytest.raises(NodeExecutionException) as caught:
        await outputs("point_read", config)
    assert caught.value.code == "bad_quality"
    assert "comsrv:1001:m:10001 is bad; comsrv:1001:m:10002 has no value" in caught.value.message
    taken = await outputs("point_read", {**config, "default": 1})
    assert (list(taken["values"].values()), taken["quality"]) == ([1.0, 1.0], "bad")
    assert (await outputs("point_read", {"addresses": config["addresses"][:1], "accept": "bad"}))["value"] == 5.0


async def test_a_substituted_point_is_only_taken_where_that_is_said(plant: Plant) -> None:
    address = "comsrv:1001:m:10001"
    await plant.room.substitutions.substitute(SubstituteRequest(address, 5, "sensor is broken"))
    with pytest.raises(NodeExecutionException, match="is substituted"):
        await outputs("point_read", {"addresses": [address]})
    for accept in ("substituted", "uncertain"):
        assert (await outputs("point_read", {"addresses": [address], "accept": accept}))["quality"] == "substituted"


async def test_a_stale_point_is_only_taken_where_that_is_said(plant: Plant) -> None:
    old_ms = int(time.time() * 1000) - 3_600_000
    await plant.room.board.write([Batch("comsrv:1001:m", {"10001": 5.0}, old_ms)])
    config = {"addresses": ["comsrv:1001:m:10001"]}
    with pytest.raises(NodeExecutionException, match=r"is stale \(3600\.\d s old\)"):
        await outputs("point_read", config)
    assert (await outputs("point_read", {**config, "accept": "uncertain"}))["quality"] == "uncertain"


async def test_a_model_is_read_as_a_whole_or_by_fields(plant: Plant) -> None:
    await plant.room.models.put(MODEL)
    with pytest.raises(NodeExecutionException, match="modsrv:plant:measurement:twice has no value"):
        await outputs("model_read", {"model": "plant"})
    await plant.show("modsrv:plant:measurement", twice=8.0, half=2.0)
    whole = await outputs("model_read", {"model": "plant"})
    assert whole == {"value": 8, "values": {"twice": 8, "half": 2}, "quality": "good", "twice": 8, "half": 2}
    assert (await outputs("model_read", {"model": "plant", "fields": ["half"]}))["values"] == {"half": 2}
    with pytest.raises(NodeExecutionException, match="no model 'other'"):
        await outputs("model_read", {"model": "other"})


async def test_a_command_is_sent_once_and_its_end_waited_for(plant: Plant) -> None:
    call = await begun({"reason": "dispatch"})
    assert await resumed(call) == points.LOOK_S  # nobody has carried it out
    await plant.carry_out()
    sent = payloads(await once(call))
    assert (sent["status"], sent["command"]["status"], sent["command"]["result"]) == ("success", "success", "done")
    assert plant.device.written == [("40001", 20.0)]
    command = await plant.room.commands.get(sent["command"]["id"])
    assert (command.source, command.who, command.reason) == ("flow", "flow f", "dispatch")


async def test_a_node_that_is_run_again_finds_its_command(plant: Plant) -> None:
    call = await begun({})
    call.state, call.attempt = None, 2  # its worker died before the suspension was stored
    await resumed(call)
    assert await plant.commands() == ["20.0"]
    await begun({})  # another cycle brings another signal
    assert await plant.commands() == ["20.0", "20.0"]


async def test_a_value_of_the_flow_is_sent_once_too(plant: Plant) -> None:
    call = new_call("command", {"address": "comsrv:1001:c:30001", "wait": False})
    call.given = {"value": True}
    assert await resumed(call) == 0
    sent = [payloads(await once(call)) for _ in range(2)]
    assert sent[0]["status"] == "pending"
    assert sent[0] == sent[1]
    assert await plant.commands() == ["1"]


async def test_a_command_without_waiting_goes_on_at_once(plant: Plant) -> None:
    sent = await outputs("command", {"address": "comsrv:1001:a:40001", "wait": False}, {"value": 10})
    assert sent["status"] == "pending"


async def test_a_command_that_fails_fails_the_node_or_not(plant: Plant) -> None:
    strict, lenient = await begun({}), await begun({"on_failure": "go_on"}, 30.0)
    await asyncio.gather(*(plant.room.commands.cancel(c.id) for c in await plant.room.commands.list()))
    with pytest.raises(NodeExecutionException, match="ended cancelled") as caught:
        await once(strict)
    assert caught.value.code == "command_failed"
    host = Host()
    assert payloads(await once(lenient, host))["status"] == "cancelled"
    assert host.logs[0][0] == "WARNING"


async def test_a_command_that_takes_too_long_is_given_up(plant: Plant) -> None:
    call = await begun({"timeout": 5})
    call.state["until"] = time.time() - 1
    with pytest.raises(NodeTimeoutException, match="is still pending"):
        await once(call)


async def test_a_control_of_a_model_is_commanded_within_its_bounds(plant: Plant) -> None:
    await plant.room.models.put(MODEL)
    target = {"address": "", "model": "plant", "field": "limit"}
    call = await begun(target, 49.5)
    await plant.carry_out()
    assert payloads(await once(call))["status"] == "success"
    with pytest.raises(NodeValidationException, match="value"):
        await once(new_call("command", target, {"value": 60}))


async def test_an_interlock_is_an_attempt_and_a_wrong_value_is_not(plant: Plant) -> None:
    with pytest.raises(NodeExecutionException) as caught:
        await once(new_call("command", {"address": "comsrv:1001:c:30003"}, {"value": 1}))
    assert (caught.value.code, caught.value.is_retryable) == ("interlocked", True)
    with pytest.raises(NodeValidationException):
        await once(new_call("command", {"address": "comsrv:1001:a:40001"}, {"value": 1000}))
    assert await plant.commands() == []


async def test_a_process_without_points_says_so() -> None:
    for kind, config in (("point_read", {"addresses": ["comsrv:1:m:1"]}), ("model_read", {"model": "m"})):
        with pytest.raises(NodeResourceException, match="has none"):
            await outputs(kind, config)


@pytest.mark.parametrize(
    ("kind", "config", "paths"),
    [
        ("point_read", {"addresses": ["comsrv:1:m:1", "comsrv:x:m:1", "m:1"]}, ["addresses[1]", "addresses[2]"]),
        ("point_read", {"addresses": {"pv": "nowhere"}}, ["addresses.pv"]),
        ("point_read", {"addresses": {"value": "comsrv:1:m:1", "a": "m"}}, ["addresses.value", "addresses.a"]),
        ("model_read", {"model": "status"}, ["model"]),
        ("command", {}, ["address"]),
        ("command", {"model": "plant"}, ["address"]),
        ("command", {"address": "comsrv:1:a:1", "model": "plant", "field": "x"}, ["address"]),
        ("command", {"address": "comsrv:1:m:1"}, ["address"]),
        ("command", {"address": "comsrv:1:a:1"}, []),
        ("command", {"model": "plant", "field": "limit"}, []),
    ],
)  # fmt: skip
def test_a_bad_config_is_named(kind: str, config: dict[str, Any], paths: list[str]) -> None:
    assert [problem.path for problem in problems(kind, config)] == paths


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("point_read", {"addresses": []}),
        ("point_read", {"addresses": ["comsrv:1:m:1"], "accept": "fine"}),
        ("model_read", {"model": "a b"}),
        ("command", {"address": "comsrv:1:a:1", "timeout": 0}),
    ],
)
async def test_a_config_against_the_schema_is_refused(plant: Plant, kind: str, config: dict[str, Any]) -> None:
    with pytest.raises(NodeValidationException):
        await outputs(kind, config, {"value": 1} if kind == "command" else {})
