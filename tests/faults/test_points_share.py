"""Channels among each other and among processes: a frozen device, hot reload, an even share, a lost process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import psutil

from tests.faults.points_plant import Plant
from tests.faults.station_process import RoleProcess
from tests.points.modbus_server import modbus_server
from tests.points.site import modbus_channel, register, virtual_channel
from tradewind.points.channel_status import request_reload

EVERY_S = 0.1
LEASE_S = 1.5
SLACK_S = 1.0


async def test_a_frozen_device_delays_none_of_nine_others(plant: Plant) -> None:
    healthy = [str(n) for n in range(1, 10)]
    with modbus_server() as fast, modbus_server() as frozen:
        points = [register(n) for n in range(10)]
        every_ms = int(EVERY_S * 1000)
        channels = [modbus_channel(fast, name, *points, every_ms=every_ms, timeout_ms=2000) for name in healthy]
        await plant.store.put([*channels, modbus_channel(frozen, "10", *points, every_ms=every_ms, timeout_ms=2000)])
        plant.start()
        for name in (*healthy, "10"):
            await plant.online(name)

        async def polls() -> dict[str, int]:
            return {name: await plant.figure(name, "polls") for name in (*healthy, "10")}

        frozen.pause()
        await asyncio.sleep(1.2)  # the figures are written once a second
        began, before = time.monotonic(), await polls()
        await asyncio.sleep(4)
        took_s, after = time.monotonic() - began, await polls()
        frozen.resume()
        due = (took_s - 1) / EVERY_S
        assert after["10"] - before["10"] <= 1, "it is frozen"
        late = {name: after[name] - before[name] for name in healthy if after[name] - before[name] < due * 0.6}
        assert not late, f"{due:.0f} polls were due"


async def watch_connections(processes: list[RoleProcess], port: int, stop: asyncio.Event) -> int:
    """The most connections to a device that the processes had at one moment."""
    most = 0
    while not stop.is_set():
        held = 0
        for process in processes:
            for connection in psutil.Process(process.pid).net_connections("tcp"):
                is_open = connection.status in (psutil.CONN_ESTABLISHED, psutil.CONN_SYN_SENT)
                held += bool(is_open and connection.raddr and connection.raddr.port == port)
        most = max(most, held)
        await asyncio.sleep(0.003)
    return most


async def test_hot_reload_while_polling_never_runs_two_pollers(plant: Plant) -> None:
    with modbus_server() as server:

        async def put(scale: int) -> None:
            points = [register(n, scale=float(scale)) for n in range(1, 100)]
            await plant.store.put([modbus_channel(server, "1001", *points, every_ms=20)])

        await put(1)
        comsrv = plant.start()
        await plant.shows("1001", {"9": 9})
        stop = asyncio.Event()
        watch = asyncio.create_task(watch_connections([comsrv], server.port, stop))
        for scale in range(2, 8):
            await put(scale)
            if scale % 2:
                await request_reload(plant.plane, "1001", str(scale))
            await plant.shows("1001", {"9": 9 * scale})
        stop.set()
        assert await watch == 1
        assert await plant.figure("1001", "failures") == 0


async def shared_as(plant: Plant, is_right: Callable[[Counter[str]], bool], what: str, timeout_s: float = 20) -> float:
    """Wait until the leases are held so, and every channel is polled by who holds it."""

    async def is_so() -> bool:
        owners = await plant.owners()
        if not is_right(Counter(owners.values())):
            return False
        statuses = {channel: await plant.status(channel) for channel in owners}
        return all(s.get("online") == "1" and s.get("owner") == owners[channel] for channel, s in statuses.items())

    return await plant.until(is_so, what, timeout_s)


async def test_processes_share_channels_evenly_and_one_takes_over_from_a_killed_one(plant: Plant) -> None:
    with modbus_server() as server:
        names = [str(n) for n in range(1, 8)]
        await plant.store.put([modbus_channel(server, name, register(int(name)), every_ms=100) for name in names])
        first = plant.start()
        await shared_as(plant, lambda held: list(held.values()) == [7], "all with one process")
        second = plant.start()
        stop = asyncio.Event()
        watch = asyncio.create_task(watch_connections([first, second], server.port, stop))
        await shared_as(plant, lambda held: sorted(held.values()) == [3, 4], "an even share")
        await plant.store.put([virtual_channel("8")])
        await shared_as(plant, lambda held: sorted(held.values()) == [4, 4], "one channel more")
        await asyncio.sleep(LEASE_S)
        assert sorted(Counter((await plant.owners()).values()).values()) == [4, 4], "and it stays so"
        stop.set()
        assert await watch <= len(names), "two processes polled one channel"

        first.kill()
        took_s = await shared_as(plant, lambda held: list(held.values()) == [8], "take-over")
        assert took_s < 1.5 * LEASE_S + 1 + SLACK_S, "and a second at most until the status says so"
        assert second.exit_code is None


async def test_a_process_that_stops_hands_its_channels_over_at_once(plant: Plant) -> None:
    await plant.store.put([virtual_channel(str(n)) for n in range(1, 5)])
    first = plant.start(points_lease_s=6)
    await shared_as(plant, lambda held: list(held.values()) == [4], "all with one process")
    second = plant.start(points_lease_s=6)
    second.says("acquisition begins")
    await plant.until(lambda: _counts(plant, 2), "two that poll")
    first.terminate()
    assert first.wait(20) == 0
    assert await shared_as(plant, lambda held: list(held.values()) == [4], "take-over") < 6 / 4 + 1 + SLACK_S


async def _counts(plant: Plant, pollers: int) -> bool:
    return bool(await plant.plane.redis.zcard(plant.plane.keys.channel_pollers()) == pollers)
