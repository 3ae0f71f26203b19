"""Commands and polls of a channel take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.points.modbus_server import modbus_server
from tests.points.site import Site, modbus_channel, register, virtual_channel
from tests.process import Server
from tradewind.points.acquisition import new_owner
from tradewind.points.address import Address
from tradewind.points.command_record import CommandRequest
from tradewind.points.command_run import CommandRunner
from tradewind.points.commands import Commands
from tradewind.points.driver import Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers.virtual import VirtualDriver
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Reading
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings

M = Kind.MEASUREMENT


class NothingOwed:
    """The rest of a CommandSource, for tests that are about commands in the queue."""

    def unsure(self, channel: str) -> frozenset[Address]:
        return frozenset()

    async def settle(self, channel: ChannelSpec, driver: Driver) -> None: ...

    async def release_former(self, channel: str, now: ChannelSpec | None, drivers: DriverRegistry) -> bool:
        return True

    async def adopt(self, channel: str) -> None: ...

    async def sweep(self) -> None: ...


@pytest.fixture
async def site(redis_7: Server, key_prefix: str) -> AsyncIterator[Site]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield Site(link, key_prefix)
    await link.close()


async def test_commands_run_between_polls_and_never_two_at_once(site: Site) -> None:
    busy = 0
    overlaps = 0
    done: list[str] = []
    todo = ["a", "b", "c"]

    class Watched(VirtualDriver):
        async def poll(self) -> Sequence[Reading]:
            nonlocal overlaps
            overlaps += busy
            return await super().poll()

    class Commands(NothingOwed):
        async def run_next(self, channel: ChannelSpec, driver: Driver) -> bool:
            nonlocal busy, overlaps
            if not todo:
                return False
            overlaps += busy
            busy += 1
            await asyncio.sleep(0.12)
            busy -= 1
            done.append(todo.pop(0))
            return True

    drivers = DriverRegistry()
    drivers.add(Watched)
    await site.store.put([virtual_channel()])
    async with site.running(drivers=drivers, commands=Commands()) as engine:
        await site.online("1")

        async def are_done() -> bool:
            return len(done) == 3

        await site.until(are_done, "commands")  # left by a former owner: found without being woken
        todo += ["d"]
        keys = site.plane.keys
        await site.plane.redis.zadd(keys.commands_open(), {"d": 1})
        await site.plane.redis.lpush(keys.channel_todo("1"), "d")

        async def is_done() -> bool:
            return len(done) == 4

        await site.until(is_done, "the command that was queued")
        assert done == ["a", "b", "c", "d"]
        assert overlaps == 0
        assert engine.statistics()[0]["commands"] == 4
        assert engine.statistics()[0]["missed"] > 0


async def test_a_reload_waits_for_the_command_that_is_being_carried_out(site: Site) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    ends: list[str] = []

    class Commands(NothingOwed):
        async def run_next(self, channel: ChannelSpec, driver: Driver) -> bool:
            if begun.is_set():
                return False
            begun.set()
            try:
                await may_end.wait()
                ends.append("done")
            except asyncio.CancelledError:
                ends.append("cut short")
                raise
            return True

    await site.store.put([virtual_channel()])
    async with site.running(commands=Commands()) as engine:
        await asyncio.wait_for(begun.wait(), 10)
        before = engine._posts["1"].runner
        engine.reload("1")
        await asyncio.sleep(0.1)
        assert engine._posts["1"].runner is before
        may_end.set()

        async def is_new() -> bool:
            return engine._posts["1"].runner not in (before, None)

        await site.until(is_new, "reload")
        assert ends == ["done"]


async def test_a_command_reaches_the_registers_of_a_real_device_rounded(site: Site) -> None:
    with modbus_server() as server:
        setpoint = register(50, Kind.ADJUSTMENT, scale=0.1, read_back="comsrv:1001:m:50", max=5000)
        breaker = PointSpec(Kind.CONTROL, "7", mapping={"register_address": 7, "function_code": 5})
        shown = PointSpec(Kind.SIGNAL, "7", mapping={"register_address": 7, "function_code": 1})
        channel = modbus_channel(server, "1001", register(50, scale=0.1), setpoint, breaker, shown, every_ms=500)
        await site.store.put([channel])
        commands = Commands(site.plane, site.board, site.store)
        owner = new_owner()
        source = CommandRunner(commands.store, site.board, owner)
        async with site.running(commands=source, owner=owner):
            await site.online("1001")
            for address, value in (("comsrv:1001:a:50", 4228.9), ("comsrv:1001:c:7", 1)):
                accepted = await commands.submit(CommandRequest(address=address, value=value, reason="test"))
                ended = await commands.wait(accepted.id, 10)
                assert (ended.status, ended.message) == ("success", "")

            async def is_shown() -> bool:
                values = (await site.values("1001"))["50"].value, (await site.values("1001", Kind.SIGNAL))["7"].value
                return values == (4228.9, 1)

            await site.until(is_shown, "the values in a poll")
            assert (await site.values("1001", Kind.ADJUSTMENT))["50"].value == 4228.9
            assert (await site.values("1001", Kind.CONTROL))["7"].value == 1
