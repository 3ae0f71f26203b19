"""Modbus devices of two makes that die, freeze and return, polled and commanded by a real comsrv process."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.faults.points_plant import A, C, M, Plant
from tests.points.libmodbus_server import libmodbus_server
from tests.points.modbus_server import modbus_server
from tests.points.site import modbus_channel, register
from tests.process import Server
from tradewind.points.spec import ChannelSpec, PointSpec

COUNT = 1000
EVERY_S, TIMEOUT_S = 0.25, 1.0
#: What a busy machine may add before we look.
SLACK_S = 1.0


def channel_of(server: Server) -> ChannelSpec:
    return modbus_channel(
        server,
        "1001",
        *(register(n, scale=0.1, offset=-5) for n in range(COUNT)),
        register(50, A, scale=0.1),
        register(51, A, scale=0.1, offset=-5, read_back="m:51"),
        PointSpec(C, "7", mapping={"register_address": 7, "function_code": 5}),
        every_ms=int(EVERY_S * 1000),
        timeout_ms=int(TIMEOUT_S * 1000),
    )


def writes(ledger: Path) -> list[tuple[int, int]]:
    """Register and value of each write, in order."""
    found = [line.split() for line in ledger.read_text().splitlines() if line.startswith("write")]
    return [(int(words[-2]), int(words[-1])) for words in found]


@pytest.mark.parametrize("make", ["pymodbus", "libmodbus"])
async def test_a_thousand_registers_through_kill_freeze_and_return(plant: Plant, tmp_path: Path, make: str) -> None:
    ledger = tmp_path / "writes"
    ledger.touch()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            libmodbus_server(ledger) if make == "libmodbus" else modbus_server(ledger=str(ledger))
        )
        await plant.store.put([channel_of(server)])
        plant.start()
        # register 999 of the pymodbus server counts reads
        expected = {str(n): round(n * 0.1 - 5, 6) for n in range(COUNT - 1)}
        await plant.shows("1001", expected)
        before = await plant.figure("1001", "polls")
        await asyncio.sleep(2)
        assert await plant.figure("1001", "polls") - before >= 4, "half of the polls that two seconds hold"
        assert await plant.figure("1001", "failures") == 0

        # 12.34 of tenths is 123.4: rounded; the second has an offset, and is read back
        for address, value in (("a:50", 12.34), ("a:51", 42.28), ("c:7", 1)):
            ended = await plant.done(f"comsrv:1001:{address}", value)
            assert (ended.status, ended.message) == ("success", "")
        coil = 0xFF00 if make == "libmodbus" else 1
        assert writes(ledger) == [(50, 123), (51, 473), (7, coil)]
        await plant.shows("1001", {"50": 7.3, "51": 42.3})
        await plant.shows("1001", {"50": 12.34, "51": 42.28}, A)

        limit_s = TIMEOUT_S + EVERY_S + SLACK_S
        server.kill()
        assert await plant.has_quality("1001", "bad", (M, C, A)) < limit_s
        assert (await plant.values("1001"))["50"].value == 7.3, "the value stays"
        server.start()
        await plant.has_quality("1001", "good", (M, C, A))
        assert (await plant.values("1001"))["50"].value == 0, "the device has forgotten it, and says so"

        server.pause()
        assert await plant.has_quality("1001", "bad", (M, C, A)) < limit_s
        server.resume()
        await plant.has_quality("1001", "good", (M, C, A))
        assert len(writes(ledger)) == 3, "nothing is written again"


async def test_not_a_number_from_a_device_makes_its_point_bad_and_keeps_the_value(plant: Plant) -> None:
    from pymodbus.client import AsyncModbusTcpClient

    with modbus_server() as server:
        real = PointSpec(M, "1", mapping={"register_address": 100, "data_type": "float32"})
        await plant.store.put([modbus_channel(server, "1001", real, register(5), every_ms=100)])
        device = AsyncModbusTcpClient("127.0.0.1", port=server.port)
        await device.connect()
        await device.write_registers(100, [0x4148, 0])  # 12.5
        plant.start()
        await plant.shows("1001", {"1": 12.5, "5": 5})
        for words in ([0x7FC0, 0], [0x7F80, 0], [0xFF80, 0]):  # NaN, +inf, -inf
            await device.write_registers(100, words)
            await plant.shows("1001", {"1": 12.5}, quality="bad")
            await plant.shows("1001", {"5": 5})
            await device.write_registers(100, [0x4148, 0])
            await plant.shows("1001", {"1": 12.5})
        assert not any("nan" in entry["d"] or "inf" in entry["d"] for entry in await plant.feed())
        device.close()
