"""The 0 of a pulse reaches the device whatever happens after the 1; what is not known of a point is shown so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests import servers
from tests.faults.points_plant import A, C, M, Plant
from tests.faults.proxy import faulty_proxy
from tests.faults.station_process import Site as Roles
from tests.points.modbus_server import modbus_server
from tests.points.site import modbus_channel, register
from tests.process import Server
from tradewind.points.address import Address
from tradewind.points.command_record import CommandStatus, Result
from tradewind.points.spec import ChannelSpec, PointSpec
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings

ADDRESS = "comsrv:1001:c:7"
TIMEOUT_MS = 500
#: No poll comes between.
RARELY = 60_000


def coil(number: int, name: str = "", **more: object) -> PointSpec:
    return PointSpec(C, name or str(number), mapping={"register_address": number, "function_code": 5}, **more)  # type: ignore[arg-type]


def pulse(ms: int, at: int = 7) -> PointSpec:
    return coil(at, "7", control_type="pulse", pulse_ms=ms)


def channel_of(server: Server, *points: PointSpec, port: int = 0, every_ms: int = 100) -> ChannelSpec:
    made = modbus_channel(server, "1001", register(5), *points, every_ms=every_ms, timeout_ms=TIMEOUT_MS)
    return msgspec.structs.replace(made, parameters={**made.parameters, "port": port or server.port})


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path

    def writes(self) -> list[tuple[int, int]]:
        """Register and value of each write that reached the device, in order."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(int(w[-2]), int(w[-1])) for line in lines if (w := line.split())[0] == "write"]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def device(ledger: Ledger) -> Iterator[Server]:
    with modbus_server(ledger=str(ledger.path)) as server:
        yield server


async def written(plant: Plant, ledger: Ledger, *expected: tuple[int, int]) -> None:
    async def is_so() -> bool:
        return ledger.writes()[: len(expected)] == list(expected)

    with contextlib.suppress(TimeoutError):
        await plant.until(is_so, "writes", 20)
    assert ledger.writes()[: len(expected)] == list(expected)


async def nothing_owed(plant: Plant) -> None:
    async def is_so() -> bool:
        return await plant.commands.owed() == []

    await plant.until(is_so, "nothing owed", 20)


async def faults(plant: Plant) -> list[tuple[str, str]]:
    """State and level of each report about the point."""
    rows = await plant.plane.redis.xrange(plant.plane.keys.faults())
    return [(row[b"state"].decode(), row[b"level"].decode()) for _, row in rows if row[b"source"] == ADDRESS.encode()]


async def outcome_of(plant: Plant, address: str = ADDRESS) -> tuple[str, str]:
    found = (await plant.commands.outcomes([Address.parse(address)]))[0]
    return (found.result, found.unsure) if found else ("", "")


async def test_killed_between_on_and_off_the_next_process_releases_first_of_all(
    plant: Plant, device: Server, ledger: Ledger
) -> None:
    await plant.store.put([channel_of(device, pulse(60_000), coil(8))])
    first = plant.start()
    await plant.online("1001")
    command = await plant.send(ADDRESS, 1, timeout_s=60)
    await written(plant, ledger, (7, 1))
    assert [str(owed.address) for owed in await plant.commands.owed()] == [ADDRESS]
    first.kill()
    other = await plant.send("comsrv:1001:c:8", 1, expiry_s=60)
    plant.start()
    await written(plant, ledger, (7, 1), (7, 0), (8, 1))
    assert (await plant.commands.wait(other, 20)).status is CommandStatus.SUCCESS
    assert (await plant.commands.wait(command, 20)).result is Result.LOST
    await nothing_owed(plant)
    await plant.shows("1001", {"7": 0}, C)
    assert await outcome_of(plant) == ("lost", ""), "the outcome is seen at the point, whose state is known again"
    assert ledger.writes().count((7, 1)) == 1, "never repeated"


async def test_an_output_that_nobody_releases_is_a_critical_alarm_until_somebody_does(
    plant: Plant, device: Server, ledger: Ledger
) -> None:
    from tradewind.alarms.listing import AlarmQuery
    from tradewind.alarms.store import AlarmStore

    await plant.store.put([channel_of(device, pulse(1000))])
    plant.start("scheduler", "alarmsrv")
    first = plant.start()
    await plant.online("1001")
    await plant.done(ADDRESS, 0)
    await plant.shows("1001", {"7": 0}, C)
    await plant.send(ADDRESS, 1, timeout_s=60)
    await written(plant, ledger, (7, 0), (7, 1))
    first.kill()
    alarms = AlarmStore(plant.plane)

    async def shown() -> list[tuple[str, str]]:
        page = await alarms.list(AlarmQuery())
        return [(alarm.level, alarm.status) for alarm in page.alarms]

    async def is_raised() -> bool:
        return await shown() == [("Critical", "New")]

    await plant.until(is_raised, "an alarm", 30)
    await plant.shows("1001", {"7": 0}, C, quality="uncertain")
    plant.start()
    await written(plant, ledger, (7, 0), (7, 1), (7, 0))
    await plant.shows("1001", {"7": 0}, C)

    async def is_over() -> bool:
        return [status for _, status in await shown()] in (["Resolved"], [])

    await plant.until(is_over, "its end", 30)


@pytest.mark.parametrize("fault", ["cut", "lost_reply"])
async def test_a_connection_lost_after_the_on_leaves_nothing_on(
    plant: Plant, device: Server, ledger: Ledger, fault: str
) -> None:
    async with faulty_proxy(device.port) as proxy:
        every_ms = 100 if fault == "cut" else RARELY
        await plant.store.put([channel_of(device, pulse(800), port=proxy.port, every_ms=every_ms)])
        plant.start()
        await plant.shows("1001", {"5": 5})
        if fault == "lost_reply":
            proxy.lose_replies(1)
        command = await plant.send(ADDRESS, 1)
        await written(plant, ledger, (7, 1))
        if fault == "cut":
            proxy.cut()
        assert (await plant.commands.wait(command, 20)).result is Result.UNKNOWN
        await written(plant, ledger, (7, 1), (7, 0))
        await nothing_owed(plant)
        await plant.shows("1001", {"7": 0}, C)
        assert await faults(plant) == [("raise", "Critical"), ("clear", "Critical")]


async def test_an_on_that_a_frozen_device_does_not_answer_is_released_when_it_is_back(
    plant: Plant, device: Server, ledger: Ledger
) -> None:
    await plant.store.put([channel_of(device, pulse(50), every_ms=RARELY)])
    plant.start()
    await plant.shows("1001", {"5": 5})
    await plant.done(ADDRESS, 0)
    device.pause()
    command = await plant.send(ADDRESS, 1)
    assert (await plant.commands.wait(command, 20)).result is Result.UNKNOWN
    assert [str(owed.address) for owed in await plant.commands.owed()] == [ADDRESS]
    assert (await plant.values("1001", C))["7"].quality != "good"
    assert (await outcome_of(plant))[0] == "unknown"
    assert ("raise", "Critical") in await faults(plant)
    device.resume()
    await nothing_owed(plant)
    assert ledger.writes()[-1] == (7, 0), "the last that the device heard"
    await plant.shows("1001", {"7": 0}, C)


@pytest.mark.parametrize("change", ["disabled", "removed", "moved", "pushed"])
async def test_what_is_owed_goes_to_the_device_that_was_switched_on(
    plant: Plant, device: Server, ledger: Ledger, change: str
) -> None:
    """Whatever has become of the channel's definition since."""
    spec = channel_of(device, pulse(60_000), coil(8))
    await plant.store.put([spec])
    first = plant.start()
    await plant.online("1001")
    await plant.send(ADDRESS, 1, timeout_s=60)
    await written(plant, ledger, (7, 1))
    first.kill()
    if change == "removed":
        await plant.store.remove(["1001"])
    else:
        changed = {
            "disabled": msgspec.structs.replace(spec, enabled=False),
            "moved": channel_of(device, pulse(60_000, at=9), coil(8)),
            "pushed": ChannelSpec("1001", protocol="http", points=(PointSpec(C, "7"),)),
        }
        await plant.store.put([changed[change]])
    plant.start()
    await written(plant, ledger, (7, 1), (7, 0))
    await nothing_owed(plant)
    if change == "moved":
        ended = await plant.done("comsrv:1001:c:8", 1)
        assert ended.status is CommandStatus.SUCCESS
    assert (9, 0) not in ledger.writes()


async def test_a_restart_of_redis_forgets_nothing_that_is_owed(
    make_site: Callable[..., Roles], device: Server, ledger: Ledger
) -> None:
    with servers.redis_server(appendonly=True, extra=("--appendfsync", "always")) as server:
        link = await open_link(RedisSettings(url=server.url))
        plant = Plant(link, server, make_site(server.url, points_lease_s=1.5))
        await plant.store.put([channel_of(device, pulse(60_000))])
        first = plant.start()
        await plant.online("1001")
        await plant.send(ADDRESS, 1, timeout_s=60)
        await written(plant, ledger, (7, 1))
        first.kill()
        server.kill()
        server.start()
        plant.start()
        await written(plant, ledger, (7, 1), (7, 0))
        plant.roles.stop()
        await plant.plane.close()
        await link.close()


async def test_a_process_that_stops_ends_its_pulse(plant: Plant, device: Server, ledger: Ledger) -> None:
    await plant.store.put([channel_of(device, pulse(60_000))])
    first = plant.start()
    await plant.online("1001")
    await plant.send(ADDRESS, 1, timeout_s=60)
    await written(plant, ledger, (7, 1))
    first.terminate()
    await written(plant, ledger, (7, 1), (7, 0))
    await nothing_owed(plant)
    await plant.shows("1001", {"7": 0}, C)


async def test_a_write_that_was_not_answered_leaves_the_point_uncertain_until_it_is_read_back(
    plant: Plant, device: Server, ledger: Ledger
) -> None:
    setpoint = "comsrv:1001:a:60"
    async with faulty_proxy(device.port) as proxy:
        spec = channel_of(device, register(60, A), port=proxy.port, every_ms=RARELY)
        await plant.store.put([spec])
        plant.start()
        await plant.shows("1001", {"5": 5})
        assert (await plant.done(setpoint, 11)).status is CommandStatus.SUCCESS
        await plant.shows("1001", {"60": 11}, A)
        proxy.lose_replies(1)
        assert (await plant.done(setpoint, 12)).result is Result.UNKNOWN
        await plant.shows("1001", {"60": 12}, A)
        assert await outcome_of(plant, setpoint) == ("unknown", "")
        marks = [entry["q"] for entry in await plant.feed() if entry["k"] == "comsrv:1001:a" and "q" in entry]
        assert "60:uncertain" in marks, "between"


async def test_one_dead_unit_holds_up_nobody_and_its_point_stays_uncertain(plant: Plant, ledger: Ledger) -> None:
    with modbus_server(ledger=str(ledger.path), units=[1, 2], silent=[2]) as server:
        dead = register(60, A, mapping={"slave_id": 2})
        await plant.store.put([channel_of(server, register(6), dead, pulse(50))])
        plant.start()
        await plant.shows("1001", {"5": 5, "6": 6})
        assert (await plant.done("comsrv:1001:a:60", 12, timeout_s=2)).result is Result.UNKNOWN

        async def is_uncertain() -> bool:
            marks = await plant.plane.redis.hgetall(plant.plane.keys.points_quality("1001", "a"))
            return marks == {b"60": b"uncertain"}

        await plant.until(is_uncertain, "the point uncertain")
        await plant.has_quality("1001", "good", (M,))
        assert (await plant.done(ADDRESS, 1, expiry_s=60)).status is CommandStatus.SUCCESS
        await plant.until(is_uncertain, "the point still uncertain")
        result, unsure = await outcome_of(plant, "comsrv:1001:a:60")
        assert (result, bool(unsure)) == ("unknown", True)


async def test_commands_expire_without_a_scheduler(plant: Plant, device: Server) -> None:
    """And so does one for a channel whose device is away."""
    await plant.store.put([channel_of(device, coil(8))])
    plant.start()
    await plant.online("1001")
    device.pause()
    await plant.has_quality("1001", "bad")
    waiting = await plant.send("comsrv:1001:c:8", 1, expiry_s=0.5)
    assert (await plant.commands.wait(waiting, 10)).result is Result.EXPIRED
    device.resume()


async def test_what_is_owed_can_be_dismissed(plant: Plant, device: Server, ledger: Ledger) -> None:
    await plant.store.put([channel_of(device, pulse(60_000))])
    first = plant.start()
    await plant.online("1001")
    await plant.send(ADDRESS, 1, timeout_s=60)
    await written(plant, ledger, (7, 1))
    first.kill()
    assert await plant.commands.dismiss(ADDRESS, "ann", "the device is gone for good")
    assert not await plant.commands.dismiss(ADDRESS, "ann", "again")
    last = (await plant.commands.store.journal(1))[0]
    assert (last["to"], last["who"]) == ("dismissed", "ann") and "gone for good" in last["message"]
    plant.start()
    await plant.online("1001")
    assert ledger.writes() == [(7, 1)]
