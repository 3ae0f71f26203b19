"""Commands as a caller sees them: what is refused and why, keys, selections, waiting, sweeping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.points.command_bench import CHANNEL, Workbench
from tradewind.clock import now_ms
from tradewind.errors import Conflict, Invalid, TimedOut
from tradewind.points.command_check import Control, check_safety
from tradewind.points.command_record import CommandRequest, CommandStatus, Outcome, Result
from tradewind.points.spec import Kind, PointSpec, Quality
from tradewind.points.substitutions import SubstituteRequest, Substitutions
from tradewind.redis.connection import Link

POWER = Control("comsrv:1001:a:40001", max=80, unit="kW")


async def find_control(model: str, field: str) -> Control | None:
    return POWER if (model, field) == ("battery", "power") else None


@pytest.fixture
async def bench(link: Link, key_prefix: str) -> AsyncIterator[Workbench]:
    bench = Workbench(link, key_prefix, find_control=find_control)
    await bench.online()
    yield bench
    await bench.plane.close()


async def refused(bench: Workbench, **request: object) -> set[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        await bench.commands.submit(CommandRequest(**request))  # type: ignore[arg-type]
    assert await bench.store.waiting("1001") == 0
    return {(problem.code, problem.path) for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("address", "value", "code", "path"),
    [
        ("comsrv:9:a:1", 1, "unknown_channel", "address"),
        ("comsrv:1001:a:9", 1, "unknown_point", "address"),
        ("comsrv:1001:m:10001", 1, "not_writable", "address"),
        ("comsrv:1001:s:20001", 1, "not_writable", "address"),
        ("comsrv:1001:x:1", 1, "bad_address", "address"),
        ("modsrv:battery:control:power", 1, "not_writable", "address"),
        ("", 1, "no_target", "address"),
        ("comsrv:1001:c:30001", 0.5, "not_a_switch", "value"),
        ("comsrv:1001:c:30001", 2, "not_a_switch", "value"),
        ("comsrv:1001:a:40001", float("nan"), "not_finite", "value"),
        ("comsrv:1001:a:40001", float("inf"), "not_finite", "value"),
        ("comsrv:1001:a:40001", -1, "below_min", "value"),
        ("comsrv:1001:a:40001", 100.5, "above_max", "value"),
        ("comsrv:1001:a:40001", 10.3, "off_step", "value"),
        ("comsrv:1001:a:40003", 4000, "does_not_fit", "value"),
    ],
)
async def test_what_a_point_cannot_take_is_refused(
    bench: Workbench, address: str, value: float, code: str, path: str
) -> None:
    assert await refused(bench, address=address, value=value) == {(code, path)}


async def test_all_problems_come_at_once(bench: Workbench) -> None:
    found = await refused(
        bench, address="comsrv:1001:a:40001", value=1000.3, source="a:b", reason="x" * 501, timeout_s=0, expiry_s=1e9,
        idempotency_key="a key",
    )  # fmt: skip
    assert found == {
        ("above_max", "value"), ("off_step", "value"), ("bad_source", "source"), ("too_long", "reason"),
        ("out_of_range", "timeout_s"), ("out_of_range", "expiry_s"), ("bad_key", "idempotency_key"),
    }  # fmt: skip


async def test_a_disabled_channel_takes_no_commands(bench: Workbench) -> None:
    await bench.channels.put([msgspec.structs.replace(CHANNEL, enabled=False)])
    assert await refused(bench, address="comsrv:1001:a:40001", value=1) == {("channel_disabled", "address")}


async def test_a_channel_without_a_device_takes_no_commands(bench: Workbench) -> None:
    await bench.channels.put([msgspec.structs.replace(CHANNEL, protocol="http")])
    assert await refused(bench, address="comsrv:1001:a:40001", value=1) == {("no_device", "address")}


async def test_a_command_to_a_bare_point_has_the_channels_name(bench: Workbench) -> None:
    accepted = await bench.send("a", "40001", 55.5, reason="peak", who="ann")
    command = await bench.commands.get(accepted.id)
    assert (command.model_name, command.field_name, command.value) == ("channel_1001", "a_40001", "55.5")
    assert (command.who, command.reason, command.timeout_ms) == ("ann", "peak", 10_000)
    assert accepted.status is CommandStatus.PENDING and accepted.note == ""
    assert [c.id for c in await bench.commands.list("channel_1001")] == [command.id]
    assert [c.id for c in await bench.commands.list()] == [command.id]


async def test_a_models_control_has_its_own_bounds_beside_the_points(bench: Workbench) -> None:
    assert await refused(bench, model="battery", field="power", value=90) == {("above_max", "value")}
    assert await refused(bench, model="battery", field="other", value=1) == {("unknown_control", "field")}
    assert await refused(bench, model="battery", value=1) == {("no_target", "field")}
    assert await refused(bench, model="battery", field="power", address="comsrv:1:a:1", value=1) == {
        ("two_targets", "address")
    }
    accepted = await bench.commands.submit(CommandRequest(model="battery", field="power", value=75))
    command = await bench.commands.get(accepted.id)
    assert (command.model_name, command.field_name, command.address) == ("battery", "power", POWER.address)
    await bench.runner.run_next(CHANNEL, bench.device)
    raw = await bench.plane.redis.hget(bench.plane.keys.model_values("battery", "control"), "power")
    assert raw.decode().startswith("75.0:") and raw.decode().endswith(":api_request")
    assert await bench.stored("a", "40001") == "75.000000"


async def test_the_same_key_is_one_command(bench: Workbench) -> None:
    first = await bench.send("a", "40001", 1, idempotency_key="k")
    again = await bench.send("a", "40001", 1, idempotency_key="k")
    assert (again.id, again.is_new, first.is_new) == (first.id, False, True)
    with pytest.raises(Conflict):
        await bench.send("a", "40001", 2, idempotency_key="k")
    await bench.runner.run_next(CHANNEL, bench.device)
    await bench.channels.remove(["1001"])
    assert (await bench.send("a", "40001", 1, idempotency_key="k")).status is CommandStatus.SUCCESS
    assert bench.device.written == [("40001", 1)]


async def test_the_same_key_sent_many_times_at_once_is_written_once(bench: Workbench) -> None:
    found = await asyncio.gather(*(bench.send("a", "40001", 1, idempotency_key="k") for _ in range(20)))
    assert len({accepted.id for accepted in found}) == 1 and sum(accepted.is_new for accepted in found) == 1
    while await bench.runner.run_next(CHANNEL, bench.device):
        pass
    assert bench.device.written == [("40001", 1)]


async def test_an_offline_channel_accepts_and_lets_expire(bench: Workbench) -> None:
    await bench.plane.at("1001").redis.hset(bench.plane.keys.channel_status("1001"), "online", "0")
    accepted = await bench.send("a", "40001", 1, expiry_s=0.05)
    assert accepted.note == "channel 1001 is offline"
    assert "offline" in (await bench.commands.get(accepted.id)).message
    await asyncio.sleep(0.06)
    assert await bench.commands.sweep() == [accepted.id]
    assert (await bench.commands.get(accepted.id)).result is Result.EXPIRED
    assert not await bench.runner.run_next(CHANNEL, bench.device) and bench.device.written == []


async def test_an_interlock_needs_good_values(bench: Workbench) -> None:
    async def why() -> str:
        with pytest.raises(Conflict) as caught:
            await bench.send("c", "30003", 1)
        assert caught.value.code == "interlocked"
        return caught.value.message

    assert "has no value" in await why()
    await bench.show("s", "20001", 0)
    await bench.show("m", "10001", 60)
    assert "does not hold" in await why()
    await bench.show("m", "10001", 40, quality="uncertain")
    assert "uncertain" in await why()
    await bench.show("m", "10001", 40, now_ms() + 1)
    await bench.show("s", "20001", 0, now_ms() - 3_600_000)
    await bench.show("s", "20001", 1, now_ms() + 1)
    assert "comsrv:1001:s:20001 = 1" in await why()
    await bench.show("s", "20001", 0, now_ms() + 2)
    assert (await bench.send("c", "30003", 1)).is_new


async def test_an_interlock_refuses_what_is_stale(link: Link, key_prefix: str) -> None:
    bench = Workbench(link, key_prefix)
    await bench.online()
    await bench.show("s", "20001", 0, now_ms() - 60_000)
    await bench.show("m", "10001", 1, now_ms() - 60_000)
    with pytest.raises(Conflict, match="stale"):
        await bench.send("c", "30003", 1)
    await bench.plane.close()


async def test_an_interlock_trusts_substituted_values_only_where_its_point_says_so(bench: Workbench) -> None:
    await bench.show("s", "20001", 0)
    await bench.show("m", "10001", 60)
    substitutions = Substitutions(bench.board, bench.channels)
    await substitutions.substitute(SubstituteRequest("comsrv:1001:m:10001", 40, "sensor is broken", "ada", for_s=60))
    with pytest.raises(Conflict, match="comsrv:1001:m:10001, which is substituted by ada: sensor is broken"):
        await bench.send("c", "30003", 1)
    points = tuple(
        msgspec.structs.replace(point, interlock_accepts=(Quality.GOOD, Quality.SUBSTITUTED))
        if point.interlock
        else point
        for point in CHANNEL.points
    )
    trusting = msgspec.structs.replace(CHANNEL, points=points)
    await bench.channels.put([trusting])
    accepted = await bench.send("c", "30003", 1)
    await substitutions.release("comsrv:1001:m:10001")
    assert await bench.runner.run_next(trusting, bench.device)  # the device says 60 again
    assert (await bench.commands.get(accepted.id)).result is Result.INTERLOCKED and bench.device.written == []


async def test_select_before_operate(bench: Workbench) -> None:
    operate = CommandRequest(address="comsrv:1001:c:30004", value=1, who="ann")
    with pytest.raises(Conflict) as caught:
        await bench.commands.submit(operate)
    assert caught.value.code == "not_selected"
    with pytest.raises(Invalid):
        await bench.commands.select(msgspec.structs.replace(operate, who=""))
    with pytest.raises(Invalid):
        await bench.commands.select(msgspec.structs.replace(operate, value=3))
    selection = await bench.commands.select(operate)
    assert selection.owner == "ann" and selection.until_ms > now_ms() + 20_000
    with pytest.raises(Conflict) as caught:
        await bench.commands.submit(msgspec.structs.replace(operate, value=0))
    assert caught.value.code == "selected_other_value"
    assert (await bench.commands.submit(operate)).is_new
    await bench.commands.select(operate)
    assert await bench.commands.release(operate.address, "ann")
    with pytest.raises(Conflict):
        await bench.commands.submit(operate)


async def test_waiting_for_the_end(bench: Workbench) -> None:
    accepted = await bench.send("a", "40001", 1)
    with pytest.raises(TimedOut):
        await bench.commands.wait(accepted.id, 0.02)
    waiting = asyncio.create_task(bench.commands.wait(accepted.id, 5))
    await bench.runner.run_next(CHANNEL, bench.device)
    assert (await waiting).status is CommandStatus.SUCCESS
    cancelled = await bench.send("a", "40001", 1)
    assert (await bench.commands.cancel(cancelled.id, "bob")).status is CommandStatus.CANCELLED


async def test_the_sweeper_shows_what_a_lost_process_did_not(bench: Workbench) -> None:
    accepted = await bench.send("a", "40001", 12.5)
    command = await bench.runner.take("1001")
    assert command is not None and command.id == accepted.id
    await bench.store.finish(command, Outcome(CommandStatus.SUCCESS, Result.DONE))  # and then it is gone
    assert await bench.stored("a", "40001") is None
    key = bench.plane.keys.command_effects()
    await bench.plane.redis.hset(key, command.id, f"{command.address} 12.5 {now_ms() - 10_000}")
    await bench.commands.sweep()
    assert await bench.stored("a", "40001") == "12.500000"
    assert await bench.plane.redis.exists(key) == 0


def test_bad_interlocks_and_read_backs_are_found_beforehand() -> None:
    points = (
        PointSpec(Kind.CONTROL, "1", interlock="1 +"),
        PointSpec(Kind.CONTROL, "2", interlock="pump == 0"),
        PointSpec(Kind.CONTROL, "3", interlock="{comsrv:1:x:1} == 0"),
        PointSpec(Kind.ADJUSTMENT, "4", read_back="somewhere"),
        PointSpec(Kind.ADJUSTMENT, "5", read_back="m:77"),
        PointSpec(Kind.ADJUSTMENT, "6", read_back="comsrv:2:m:77", interlock="value < 10 and m4 > 1"),
    )
    assert [(p.code, p.path) for p in check_safety(points, "1")] == [
        ("bad_interlock", "points[0].interlock"),
        ("bad_interlock", "points[1].interlock"),
        ("bad_interlock", "points[2].interlock"),
        ("bad_read_back", "points[3].read_back"),
        ("unknown_point", "points[4].read_back"),
    ]
    assert check_safety(CHANNEL.points, "1001") == []
