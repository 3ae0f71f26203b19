"""The acquisition engine with real Modbus servers in other processes and a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.points.modbus_server import COUNTER, modbus_server
from tests.points.site import Site, modbus_channel, register
from tests.process import Server
from tradewind.points.convert import to_raw
from tradewind.points.drivers.modbus import ModbusTcp
from tradewind.points.spec import Kind
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings


@pytest.fixture
async def site(redis_7: Server, key_prefix: str) -> AsyncIterator[Site]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield Site(link, key_prefix)
    await link.close()


async def test_a_thousand_registers_arrive_scaled_and_on_time(site: Site) -> None:
    with modbus_server() as server:
        points = [register(n, scale=0.1, offset=-5) for n in range(999)]
        await site.store.put([modbus_channel(server, "1001", *points, register(COUNTER))])
        async with site.running() as engine:
            await site.online("1001")

            async def polled_20() -> bool:
                return bool(engine.statistics()[0]["polls"] >= 20)

            took = await site.until(polled_20, "20 polls")
            found = await site.values("1001")
            assert {n: found[str(n)].value for n in range(999)} == {n: round(n * 0.1 - 5, 6) for n in range(999)}
            assert {point.quality for point in found.values()} == {"good"}
            assert took < 10
            counted = found[str(COUNTER)].value
            assert counted is not None
            assert counted >= 999 + 15  # what changes is written with each poll
            raw = await site.plane.redis.hget(site.plane.keys.points("1001", "m"), "7")
            assert raw == b"-4.300000"

            async def is_counted() -> bool:
                return int((await site.status("1001")).get("polls", 0)) >= 20

            await site.until(is_counted, "status")
            status = await site.status("1001")
            assert status["owner"] == engine.owner
            assert status["points"] == "1000"
            assert (status["failures"], status["error"]) == ("0", "")
            assert 0 < float(status["poll_ms"]) <= float(status["poll_ms_max"])


async def test_a_killed_server_makes_all_points_bad_and_good_again_after_its_return(site: Site) -> None:
    with modbus_server() as server:
        await site.store.put([modbus_channel(server, "1001", *(register(n) for n in range(100)), every_ms=100)])
        async with site.running():
            await site.online("1001")
            before = await site.values("1001")
            server.kill()

            async def is_bad() -> bool:
                return await site.qualities("1001") == {"bad"}

            assert await site.until(is_bad, "bad quality") < 2.5  # its time-out is 1 s
            gone = await site.values("1001")
            assert {n: (p.value, p.ts) for n, p in gone.items()} == {n: (p.value, p.ts) for n, p in before.items()}

            async def is_offline() -> bool:
                return (await site.status("1001"))["online"] == "0"

            await site.until(is_offline, "offline")
            assert "127.0.0.1" in (await site.status("1001"))["error"]
            server.start()

            async def is_good() -> bool:
                return await site.qualities("1001") == {"good"}

            await site.until(is_good, "good quality")
            await site.online("1001")
            after = await site.values("1001")
            assert all((p.ts or 0) > (gone[n].ts or 0) for n, p in after.items())


async def test_a_device_that_is_not_there_from_the_start_makes_what_is_left_of_it_bad(site: Site) -> None:
    with modbus_server() as server:
        channel = modbus_channel(server, "1001", *(register(n) for n in range(5)), every_ms=100)
        await site.store.put([channel])
        async with site.running():
            await site.online("1001")
        assert await site.qualities("1001") == {"good"}
        server.kill()
        async with site.running():

            async def is_bad() -> bool:
                return await site.qualities("1001") == {"bad"}

            await site.until(is_bad, "bad quality")
        server.start()


async def test_a_refused_register_is_bad_alone(site: Site) -> None:
    with modbus_server(holes=[3]) as server:
        await site.store.put([modbus_channel(server, "1001", *(register(n) for n in range(10)), every_ms=100)])
        async with site.running():
            await site.online("1001")
            marks = await site.plane.redis.hgetall(site.plane.keys.points_quality("1001", "m"))
            assert marks == {b"3": b"bad"}
            assert sorted(await site.values("1001"), key=int) == [str(n) for n in range(10) if n != 3]


async def test_a_slow_device_does_not_delay_a_fast_one(site: Site) -> None:
    with modbus_server(delay_ms=700) as slow, modbus_server() as fast:
        await site.store.put(
            [
                modbus_channel(slow, "1", register(1), every_ms=100, timeout_ms=5000),
                modbus_channel(fast, "2", *(register(n) for n in range(100)), every_ms=100),
            ]
        )
        async with site.running() as engine:
            await site.online("1")
            await site.online("2")

            def polls(channel: str) -> int:
                return int(next(s["polls"] for s in engine.statistics() if s["channel"] == channel))

            slow_before, fast_before = polls("1"), polls("2")

            async def has_polled() -> bool:
                return polls("2") >= fast_before + 30

            took_s = await site.until(has_polled, "30 fast polls")
            assert polls("1") - slow_before <= took_s / 0.7 + 1
            figures = {s["channel"]: s for s in engine.statistics()}
            assert figures["1"]["missed"] >= 10  # skipped, not made up for
            assert figures["1"]["failures"] == 0


async def test_what_a_driver_writes_comes_back_with_the_next_poll(site: Site) -> None:
    with modbus_server() as server:
        setpoint = register(50, Kind.ADJUSTMENT, scale=0.1)
        channel = modbus_channel(server, "1001", register(50, scale=0.1), setpoint, every_ms=100)
        await site.store.put([channel])
        async with site.running():
            await site.online("1001")
            driver = ModbusTcp(channel)
            await driver.connect()
            await driver.write(setpoint, to_raw(setpoint, 4228.9))
            await driver.close()

            async def is_seen() -> bool:
                return (await site.values("1001"))["50"].value == 4228.9

            await site.until(is_seen, "the written value")


async def test_hot_reload_never_runs_two_pollers(site: Site) -> None:
    with modbus_server() as server:
        live: set[int] = set()
        most = 0

        class Counted(ModbusTcp):
            async def connect(self) -> None:
                nonlocal most
                live.add(id(self))
                most = max(most, len(live))
                await super().connect()

            async def close(self) -> None:
                await super().close()
                live.discard(id(self))

        async with site.running() as engine:
            engine._bench.drivers.add(Counted)
            for step in range(1, 6):
                points = [register(n, scale=float(step)) for n in range(10)]
                await site.store.put([modbus_channel(server, "1001", *points, every_ms=50)])

                async def is_scaled(step: int = step) -> bool:
                    found = await site.values("1001")
                    return "9" in found and found["9"].value == 9 * step

                await site.until(is_scaled, f"scale {step}")
                engine.reload("1001")
            await site.store.remove(["1001"])

            async def is_gone() -> bool:
                owners = await site.plane.redis.hlen(site.plane.keys.channel_owners())
                return not engine.statistics() and not live and await site.status("1001") == {} and owners == 0

            await site.until(is_gone, "the end of the channel")
            assert most == 1
