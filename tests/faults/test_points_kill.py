"""`kill -9` of comsrv again and again, at any moment: whole batches only, and no command is carried out twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

from tests.faults.points_plant import A, Plant
from tests.faults.station_process import RoleProcess
from tests.points.modbus_server import modbus_server
from tests.points.site import modbus_channel, register
from tests.process import wait_for
from tests.soak import repeats
from tradewind.points.command_record import CommandStatus, Result

KILLS = repeats(4)
COUNT = 500
CHANNEL = "1001"
SETPOINT = f"comsrv:{CHANNEL}:a:7"
#: How long the device takes to confirm a write: long enough to die in the middle of it.
WRITE_S = 0.15


def values_written(ledger: Path) -> list[int]:
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [int(line.split()[-1]) for line in lines if line.startswith("write 2 7 ")]


async def owner_of(plant: Plant, processes: list[RoleProcess]) -> RoleProcess:
    """The process that polls now: its log says so."""
    found: list[RoleProcess] = []

    async def is_polled() -> bool:
        owner = (await plant.owners()).get(CHANNEL, "?")
        found[:] = [p for p in processes if p.exit_code is None and owner in p.output]
        return bool(found) and (await plant.status(CHANNEL)).get("owner") == owner

    await plant.until(is_polled, "a process that polls")
    return found[0]


async def check_batches(plant: Plant) -> None:
    """In each batch all registers hold the same number: the board and every entry of the feed show whole ones."""
    feed = [entry for entry in await plant.feed() if entry["k"] == f"comsrv:{CHANNEL}:m" and entry["d"]]
    for entry in feed:
        points = dict(pair.split(":") for pair in entry["d"].split(","))
        assert len(points) == COUNT and len(set(points.values())) == 1, f"half a batch: {entry['d'][:200]}"
        assert "p" not in entry, "one time for all"
    redis, keys = plant.plane.redis, plant.plane.keys
    async with redis.pipeline(transaction=True) as pipe:  # at one moment
        pipe.hgetall(keys.points(CHANNEL, "m")).hgetall(keys.points_ts(CHANNEL, "m")).xrevrange(keys.feed(), count=50)
        board, times, newest = await pipe.execute()
    assert len(board) == len(times) == COUNT
    assert len(set(board.values())) == len(set(times.values())) == 1
    last = next(fields for _, fields in newest if fields[b"k"] == f"comsrv:{CHANNEL}:m".encode() and fields[b"d"])
    assert dict(pair.split(b":") for pair in last[b"d"].split(b",")) == board
    assert {last[b"t"]} == set(times.values())


async def test_killed_again_and_again_it_leaves_no_half_batch_and_repeats_no_command(
    plant: Plant, tmp_path: Path
) -> None:
    chance = random.Random(20240407)
    ledger = tmp_path / "ledger"
    options = {"units": [1, 2], "counting": True, "write_delay_ms": int(WRITE_S * 1000), "ledger": str(ledger)}
    with modbus_server(**options) as server:
        setpoint = register(7, A, mapping={"slave_id": 2})
        points = [register(n) for n in range(COUNT)]
        await plant.store.put([modbus_channel(server, CHANNEL, *points, setpoint, every_ms=50)])
        processes = [plant.start(points_lease_s=0.8) for _ in range(2)]  # one polls, one waits for its end
        sent: dict[str, int] = {}
        in_flight: list[str] = []
        for kill in range(KILLS):
            owner = await owner_of(plant, processes)
            is_cut = kill % 2 == 0
            for _ in range(1 + is_cut):
                value = len(sent) + 1
                sent[await plant.send(SETPOINT, value, expiry_s=60, timeout_s=5)] = value
            if is_cut:  # in the middle of the last command that was sent
                last, value = list(sent.items())[-1]
                wait_for(lambda value=value: value in values_written(ledger), "the write", 15)  # type: ignore[misc]
                in_flight.append(last)
            else:
                await asyncio.sleep(chance.uniform(0, 0.3))
            owner.kill()
            await check_batches(plant)
            processes.append(plant.start(points_lease_s=0.8))
        value = len(sent) + 1
        sent[await plant.send(SETPOINT, value, expiry_s=60)] = value
        ends = {command_id: await plant.commands.wait(command_id, 20) for command_id in sent}
        await check_batches(plant)

    written = Counter(values_written(ledger))
    assert max(written.values()) == 1, f"written twice: {written}"
    for command_id, command in ends.items():
        count = written[sent[command_id]]
        assert command.status in (CommandStatus.SUCCESS, CommandStatus.TIMEOUT), command
        assert count == 1 or command.status is CommandStatus.TIMEOUT, "a success that never reached the device"
    for command_id in in_flight:
        assert (ends[command_id].status, ends[command_id].result) == (CommandStatus.TIMEOUT, Result.LOST)
    assert ends[list(sent)[-1]].status is CommandStatus.SUCCESS, "and life goes on"
    assert not any("Traceback" in process.output for process in processes), plant.roles.logs()
