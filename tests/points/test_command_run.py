"""Carrying commands out: writes, pulses, interlocks, read-backs, and every way in which the outcome stays unknown."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.points.command_bench import CHANNEL, PushDevice, Workbench
from tests.process import die_with_parent, wait_for
from tests.servers import redis_server
from tradewind.clock import now_ms
from tradewind.errors import Conflict, Invalid
from tradewind.points.command_record import CommandStatus, Result
from tradewind.points.command_run import CommandRunner
from tradewind.points.driver import DeviceTrouble
from tradewind.points.spec import Kind, PointSpec
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings

SUCCESS, FAILED, TIMEOUT = CommandStatus.SUCCESS, CommandStatus.FAILED, CommandStatus.TIMEOUT


@pytest.fixture
async def bench(link: Link, key_prefix: str) -> AsyncIterator[Workbench]:
    bench = Workbench(link, key_prefix)
    await bench.online()
    yield bench
    await bench.plane.close()


async def test_a_success_is_on_the_board(bench: Workbench) -> None:
    command = await bench.carry_out("a", "40001", 55.5)
    assert (command.status, command.result) == (SUCCESS, Result.DONE)
    assert bench.device.written == [("40001", 55.5)]
    assert await bench.stored("a", "40001") == "55.500000"
    point = (await bench.board.read(["comsrv:1001:a:40001"]))[0]
    assert point.ts == command.updated_at
    assert (await bench.carry_out("c", "30001", 1)).value == "1"
    assert await bench.stored("c", "30001") == "1"
    assert await bench.plane.redis.exists(bench.plane.keys.command_effects()) == 0


async def test_raw_values_are_rounded_and_reversed(bench: Workbench) -> None:
    bench.device.follows = {"40003": ("m", "10002")}
    assert (await bench.carry_out("a", "40003", 422.89)).result is Result.VERIFIED
    await bench.carry_out("c", "30005", 1)
    assert bench.device.written == [("40003", 4229), ("30005", 0)]
    assert await bench.stored("c", "30005") == "1"


async def test_nothing_waits(bench: Workbench) -> None:
    assert not await bench.runner.run_next(CHANNEL, bench.device)


async def test_a_refusal_of_the_device_is_a_failure(bench: Workbench) -> None:
    for error in (Invalid("illegal address"), Conflict("busy")):
        bench.device.trouble = error
        command = await bench.carry_out("a", "40001", 1)
        assert (command.status, command.result) == (FAILED, Result.REFUSED)
        assert error.message in command.message
    assert await bench.stored("a", "40001") is None


async def test_no_answer_is_an_unknown_outcome_and_is_not_repeated(bench: Workbench) -> None:
    accepted = await bench.send("a", "40001", 1)
    bench.device.trouble = DeviceTrouble("gone")
    with pytest.raises(DeviceTrouble):
        await bench.runner.run_next(CHANNEL, bench.device)
    command = await bench.commands.get(accepted.id)
    assert (command.status, command.result) == (TIMEOUT, Result.UNKNOWN)
    assert not await bench.runner.run_next(CHANNEL, bench.device)
    assert bench.device.written == [("40001", 1)] and await bench.stored("a", "40001") is None


async def test_a_device_that_hangs_is_given_up(bench: Workbench) -> None:
    accepted = await bench.send("a", "40001", 1, timeout_s=0.05)
    bench.device.hangs.clear()
    with pytest.raises(DeviceTrouble):
        await bench.runner.run_next(CHANNEL, bench.device)
    assert (await bench.commands.get(accepted.id)).result is Result.UNKNOWN


async def test_a_driver_that_crashes_leaves_the_outcome_unknown(bench: Workbench) -> None:
    bench.device.trouble = ZeroDivisionError("a bug")
    command = await bench.carry_out("a", "40001", 1)
    assert (command.status, command.result) == (TIMEOUT, Result.UNKNOWN)


async def test_a_stop_in_the_middle_leaves_the_outcome_unknown(bench: Workbench) -> None:
    accepted = await bench.send("a", "40001", 1)
    bench.device.hangs.clear()
    running = asyncio.create_task(bench.runner.run_next(CHANNEL, bench.device))
    await bench.device.began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    command = await bench.commands.get(accepted.id)
    assert (command.status, command.result) == (TIMEOUT, Result.UNKNOWN)


async def test_the_definition_counts_when_it_is_carried_out(bench: Workbench) -> None:
    accepted = await bench.send("a", "40001", 90)
    points = tuple(msgspec.structs.replace(p, max=80.0) if p.id == "40001" else p for p in CHANNEL.points)
    await bench.runner.run_next(msgspec.structs.replace(CHANNEL, points=points), bench.device)
    command = await bench.commands.get(accepted.id)
    assert (command.status, command.result) == (FAILED, Result.REFUSED) and "at most 80" in command.message
    gone = await bench.send("a", "40001", 1)
    await bench.runner.run_next(msgspec.structs.replace(CHANNEL, points=()), bench.device)
    assert (await bench.commands.get(gone.id)).result is Result.REFUSED
    assert bench.device.written == []


async def test_the_interlock_counts_when_it_is_carried_out(bench: Workbench) -> None:
    await bench.show("s", "20001", 0)
    await bench.show("m", "10001", 1)
    accepted = await bench.send("c", "30003", 1)
    await bench.show("s", "20001", 1, now_ms() + 5)
    await bench.runner.run_next(CHANNEL, bench.device)
    command = await bench.commands.get(accepted.id)
    assert (command.status, command.result) == (FAILED, Result.INTERLOCKED)
    assert bench.device.written == []


async def test_a_pulse_goes_on_and_off(bench: Workbench) -> None:
    command = await bench.carry_out("c", "30002", 1)
    assert (command.status, command.timeout_ms) == (SUCCESS, 10_050)
    assert bench.device.written == [("30002", 1), ("30002", 0)]
    assert await bench.stored("c", "30002") == "0"


async def test_a_pulse_that_is_read_back_stands_at_0(bench: Workbench) -> None:
    pulse = PointSpec(Kind.CONTROL, "30006", control_type="pulse", pulse_ms=20, read_back="s20001")
    channel = msgspec.structs.replace(CHANNEL, points=(*CHANNEL.points, pulse))
    await bench.online(channel)
    bench.device.follows["30006"] = ("s", "20001")
    accepted = await bench.send("c", "30006", 1)
    assert await bench.runner.run_next(channel, bench.device)
    assert (await bench.commands.get(accepted.id)).result is Result.VERIFIED
    assert bench.device.written == [("30006", 1), ("30006", 0)] and await bench.stored("c", "30006") == "0"


async def test_a_pulse_that_is_stopped_still_goes_off(bench: Workbench) -> None:
    accepted = await bench.send("c", "30002", 1)
    running = asyncio.create_task(bench.runner.run_next(CHANNEL, bench.device))
    await bench.device.began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.device.written == [("30002", 1), ("30002", 0)]
    assert (await bench.commands.get(accepted.id)).result is Result.UNKNOWN


@pytest.mark.parametrize("can_read", [True, False])
async def test_read_back_within_tolerance(bench: Workbench, can_read: bool) -> None:
    """Through `read`, or through `poll` where the protocol cannot read one point."""
    bench.device.can_read = can_read
    bench.device.values["m", "10001"] = 55.6
    command = await bench.carry_out("a", "40002", 55.5)
    assert (command.status, command.result, command.actual) == (SUCCESS, Result.VERIFIED, 55.6)
    assert await bench.stored("a", "40002") == "55.500000"


async def test_read_back_waits_for_a_slow_device(bench: Workbench) -> None:
    bench.device.values["m", "10001"] = 0
    accepted = await bench.send("a", "40002", 55.5)
    running = asyncio.create_task(bench.runner.run_next(CHANNEL, bench.device))
    await bench.device.began.wait()
    bench.device.values["m", "10001"] = 55.5
    await running
    assert (await bench.commands.get(accepted.id)).result is Result.VERIFIED


async def test_a_read_back_that_differs_is_a_failure(bench: Workbench) -> None:
    bench.device.values["m", "10001"] = 40
    command = await bench.carry_out("a", "40002", 55.5, timeout_s=0.15)
    assert (command.status, command.result, command.actual) == (FAILED, Result.DIFFERS, 40)
    assert "shows 40, not 55.5" in command.message
    assert await bench.stored("a", "40002") is None


async def test_a_read_back_that_shows_nothing_is_an_unknown_outcome(bench: Workbench) -> None:
    command = await bench.carry_out("a", "40002", 55.5, timeout_s=0.15)
    assert (command.status, command.result) == (TIMEOUT, Result.UNVERIFIED)


async def test_read_back_of_a_pushed_point_needs_a_newer_value(bench: Workbench) -> None:
    bench.device = PushDevice()
    await bench.show("m", "10001", 55.5)  # the old value must not count
    command = await bench.carry_out("a", "40002", 55.5, timeout_s=0.15)
    assert (command.status, command.result) == (TIMEOUT, Result.UNVERIFIED)
    accepted = await bench.send("a", "40002", 55.5)
    bench.device.began.clear()
    running = asyncio.create_task(bench.runner.run_next(CHANNEL, bench.device))
    await bench.device.began.wait()
    await bench.show("m", "10001", 55.5, now_ms() + 1)
    await running
    assert (await bench.commands.get(accepted.id)).result is Result.VERIFIED


async def test_a_known_outcome_survives_that_redis_is_away(key_prefix: str) -> None:
    with redis_server(appendonly=True) as server:
        link = await open_link(RedisSettings(url=server.url, read_timeout_s=0.3))
        bench = Workbench(link, key_prefix, redis={"max_retries": 0})
        await bench.online()
        accepted = await bench.send("a", "40001", 7)
        bench.device.hangs.clear()
        running = asyncio.create_task(bench.runner.run_next(CHANNEL, bench.device))
        await bench.device.began.wait()
        server.kill()
        bench.device.hangs.set()
        done, _ = await asyncio.wait([running], timeout=0.7)
        assert not done, "the outcome is known here only"
        server.start()
        assert await asyncio.wait_for(running, 10)
        command = await bench.commands.get(accepted.id)
        assert (command.status, command.result) == (SUCCESS, Result.DONE)
        assert await bench.stored("a", "40001") == "7.000000"
        await link.close()


async def test_an_end_that_comes_too_late_is_not_applied(bench: Workbench) -> None:
    accepted = await bench.send("a", "40001", 7)
    bench.device.hangs.clear()
    running = asyncio.create_task(bench.runner.run_next(CHANNEL, bench.device))
    await bench.device.began.wait()
    other = CommandRunner(bench.store, bench.board, "somebody else")
    assert await other.take("1001") is None  # it has the channel now
    bench.device.hangs.set()
    assert await running
    command = await bench.commands.get(accepted.id)
    assert (command.status, command.result) == (TIMEOUT, Result.LOST)
    assert await bench.stored("a", "40001") is None
    assert (await bench.store.journal(1))[0]["result"] == "late"


async def test_kill_9_in_the_middle_of_a_write(
    bench: Workbench, key_prefix: str, any_redis: object, tmp_path: Path
) -> None:
    """The device saw it once, the command ends timeout, and the next one is carried out by the next process."""
    first, second = await bench.send("a", "40001", 1), await bench.send("a", "40001", 2)
    written = tmp_path / "written"
    argv = [sys.executable, "-m", "tests.points.command_process", any_redis.url, key_prefix, str(written)]  # type: ignore[attr-defined]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, preexec_fn=die_with_parent)

    process = start()
    wait_for(lambda: written.exists() and written.read_text() == "40001=1.0\n", "the first write")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (await bench.commands.get(first.id)).status is CommandStatus.EXECUTING
    process = start()
    wait_for(lambda: written.read_text() == "40001=1.0\n40001=2.0\n", "the second write")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    ended = await bench.commands.get(first.id)
    assert (ended.status, ended.result) == (TIMEOUT, Result.LOST)
    assert (await bench.commands.get(second.id)).status is CommandStatus.EXECUTING
    assert written.read_text().count("40001=1.0") == 1
