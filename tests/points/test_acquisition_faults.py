"""A channel that is gone for its timeout is a fault of the station; one that is back, or not to be polled, is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import pytest

from tests.points.site import Site, virtual_channel
from tradewind.points.driver import DeviceTrouble, Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.spec import Kind, PointSpec, Reading
from tradewind.redis.connection import Link

pytestmark = pytest.mark.parametrize("any_redis", ["redis_7", "cluster3"], indirect=True)


class Fragile(Driver):
    protocol = "fragile"
    is_well: ClassVar[bool] = True

    async def connect(self) -> None: ...

    async def poll(self) -> Sequence[Reading]:
        if not Fragile.is_well:
            raise DeviceTrouble("no answer")
        return [Reading(Kind.MEASUREMENT, "1", 1)]

    async def write(self, point: PointSpec, raw: float) -> None: ...


async def test_a_channel_that_goes_is_reported_and_one_that_comes_back_or_is_switched_off(
    link: Link, key_prefix: str
) -> None:
    site = Site(link, key_prefix)
    drivers = DriverRegistry()
    drivers.add(Fragile)
    Fragile.is_well = True
    channel = virtual_channel("1", PointSpec(Kind.MEASUREMENT, "1"), protocol="fragile")
    await site.store.put([channel])

    async def reports() -> list[tuple[str, str, str]]:
        rows = await site.plane.redis.xrange(site.plane.keys.faults())
        names = (b"state", b"code", b"source")
        found = [(f[names[0]].decode(), f[names[1]].decode(), f[names[2]].decode()) for _, f in rows]
        return [report for report in found if report[1] == "channel_offline"]

    async def comes(*states: str) -> None:
        async def is_so() -> bool:
            return [state for state, *_ in await reports()] == list(states)

        try:
            await site.until(is_so, "reports")
        except TimeoutError:
            raise AssertionError(f"{await reports()} instead of {states}") from None

    async with site.running(drivers=drivers):
        await site.online("1")
        await comes("clear")  # whatever a former owner said
        Fragile.is_well = False
        await comes("clear", "raise")
        Fragile.is_well = True
        await comes("clear", "raise", "clear")
        Fragile.is_well = False
        await comes("clear", "raise", "clear", "raise")
        await site.store.put([msgspec.structs.replace(channel, enabled=False)])
        await comes("clear", "raise", "clear", "raise", "clear")
        assert {row[1:] for row in await reports()} == {("channel_offline", "comsrv:1")}
    assert len(await reports()) == 5, "the end of a process is no news of its channels"
    await site.plane.close()
