"""Ten Modbus TCP servers of 1,000 holding registers each, polled every 250 ms by the acquisition role: no poll missed?

    .venv/bin/python bench/points/modbus.py [--quick] [--valkey]

Takes a good minute and writes nothing. Three kinds of processes: the devices (modbus_devices.py), the role
(modbus_role.py) and Redis. All registers change with each read, so each poll writes all of its points. Register 0 tells
when the device answered; the id of an entry of the feed tells when Redis had it: between them lies how late a value is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from modbus_devices import REGISTERS, STAMP
from pymodbus.client import AsyncModbusTcpClient
from shared import HERE, REPO, accepts, cpu_s, free_port, percentile, quiet_logs, server_of, servers
from tests.points.site import register

from tradewind.points.channel_store import ChannelStore
from tradewind.points.plane import PointPlane
from tradewind.points.spec import ChannelSpec
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings

EVERY_MS = 250
#: What one request may ask for.
BLOCK = 125
#: After all channels are on-line, before the clock starts.
WARM_S = 2.0


@dataclass(frozen=True, slots=True)
class ModbusFigures:
    """`expected`: polls in that time; `missed` and `failures` as in the status of channels. `late_ms`: from the answer
    of the device to the value on the board. `gap_ms`: between two batches of a channel. Shares are of one core."""

    server: str
    devices: int
    registers: int
    seconds: float
    expected: int
    polls: int
    missed: int
    failures: int
    poll_p50_ms: float
    poll_p99_ms: float
    bare_p50_ms: float
    late_p50_ms: float
    late_p99_ms: float
    late_most_ms: float
    gap_p99_ms: float
    gap_most_ms: float
    batches: int
    role_share: float
    server_share: float
    devices_share: float


class Role:
    """The acquisition process; it answers each line with its figures."""

    def __init__(self, url: str, log: Path) -> None:
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "modbus_role.py"), url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._log = log
        self.pid = self._process.pid

    def ask(self) -> dict[str, Any]:
        """`channels`: figures as in their status; `took`: ms of each poll since the last question."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the acquisition role ended: {self._log.read_text()[-2000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def devices(count: int, folder: Path) -> Iterator[tuple[list[int], int]]:
    """Ports and pid: all in one process."""
    ports: list[int] = []
    while len(ports) < count:
        port = free_port()
        if port not in ports:
            ports.append(port)
    with (folder / "devices.log").open("wb") as log:
        command = [sys.executable, str(HERE / "modbus_devices.py"), *map(str, ports)]
        process = subprocess.Popen(command, cwd=REPO, stdout=log, stderr=log)
    try:
        servers.wait_for(lambda: process.poll() is not None or all(map(accepts, ports)), "the devices", 30)
        if process.poll() is not None:
            raise RuntimeError(f"the devices ended: {(folder / 'devices.log').read_text()[-2000:]}")
        yield ports, process.pid
    finally:
        process.terminate()
        process.wait(10)


async def bare_poll_ms(port: int, registers: int, times: int) -> float:
    """Median of what reading all registers takes a bare client of pymodbus: the floor of a poll."""
    client = AsyncModbusTcpClient("127.0.0.1", port=port)
    await client.connect()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        for start in range(0, registers, BLOCK):
            answer = await client.read_holding_registers(start, count=min(BLOCK, registers - start))
            assert not answer.isError()
        took.append((time.perf_counter() - began) * 1000)
    client.close()
    return percentile(took, 0.5)


async def define(url: str, ports: list[int], registers: int) -> None:
    link = await open_link(RedisSettings(url=url))
    points = tuple(register(number) for number in range(registers))
    channels = [
        ChannelSpec(
            str(1001 + at),
            protocol="modbus_tcp",
            poll_interval_ms=EVERY_MS,
            timeout_ms=1000,
            parameters={"host": "127.0.0.1", "port": port},
            points=points,
        )
        for at, port in enumerate(ports)
    ]
    plane = PointPlane(link, Settings())
    await ChannelStore(link, plane.keys).put(channels)
    await link.close()


class FeedWatch:
    """Reads what was written, each second or so, and lets it go."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.late_ms: list[float] = []
        self.gap_ms: list[float] = []
        self._at = "$"
        self._before: dict[bytes, int] = {}
        self.skip()

    def skip(self) -> None:
        """Begin here."""
        found: Any = self._client.xrevrange("points:feed", count=1)
        self._at = found[0][0].decode() if found else "0-0"
        self._before.clear()

    def read(self) -> None:
        while True:
            found: Any = self._client.xread({"points:feed": self._at}, count=100)
            if not found:
                break
            for name, fields in found[0][1]:
                self._take(int(name.partition(b"-")[0]), fields)
                self._at = name.decode()
        self._client.xtrim("points:feed", minid=self._at)

    def _take(self, at_ms: int, fields: dict[bytes, bytes]) -> None:
        field, _, text = fields[b"d"].partition(b",")[0].partition(b":")
        if field != b"%d" % STAMP:
            return
        self.late_ms.append((at_ms - int(float(text))) % 65536)  # the register holds the lower 16 bits
        key = fields[b"k"]
        if key in self._before:
            self.gap_ms.append(at_ms - self._before[key])
        self._before[key] = at_ms


def _sum(found: dict[str, Any], name: str) -> int:
    return int(sum(channel[name] for channel in found["channels"]))


def measure(
    *, is_valkey: bool = False, is_quick: bool = False, count: int = 10, registers: int = REGISTERS
) -> ModbusFigures:
    quiet_logs()
    seconds = 2.0 if is_quick else 60.0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-bench-")))
        server = stack.enter_context(server_of(is_valkey=is_valkey))
        ports, devices_pid = stack.enter_context(devices(count, folder))
        bare = asyncio.run(bare_poll_ms(ports[0], registers, 20 if is_quick else 100))
        asyncio.run(define(server.url, ports, registers))
        role = Role(server.url, folder / "role.log")
        stack.callback(role.stop)
        client = stack.enter_context(contextlib.closing(redis.Redis(port=server.port)))

        def is_online() -> bool:
            channels = role.ask()["channels"]
            return len(channels) == count and all(channel["online"] for channel in channels)

        servers.wait_for(is_online, "all channels on-line", 30)
        time.sleep(WARM_S)
        pids = (role.pid, server.pid, devices_pid)
        watch, before = FeedWatch(client), role.ask()
        spent, began = [cpu_s(pid) for pid in pids], time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            watch.read()
        took_s = time.monotonic() - began
        after = role.ask()
        shares = [(cpu_s(pid) - was) / took_s for pid, was in zip(pids, spent, strict=True)]
        watch.read()
    late, gaps, polls = watch.late_ms, watch.gap_ms, after["took"]
    return ModbusFigures(
        server=server.name,
        devices=count,
        registers=registers,
        seconds=took_s,
        expected=round(count * took_s * 1000 / EVERY_MS),
        **{name: _sum(after, name) - _sum(before, name) for name in ("polls", "missed", "failures")},
        poll_p50_ms=percentile(polls, 0.5),
        poll_p99_ms=percentile(polls, 0.99),
        bare_p50_ms=bare,
        late_p50_ms=percentile(late, 0.5),
        late_p99_ms=percentile(late, 0.99),
        late_most_ms=max(late, default=float("nan")),
        gap_p99_ms=percentile(gaps, 0.99),
        gap_most_ms=max(gaps, default=float("nan")),
        batches=len(late),
        role_share=shares[0],
        server_share=shares[1],
        devices_share=shares[2],
    )


def main() -> None:
    import goals
    import report

    import parts

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument("--valkey", action="store_true", help="the embedded server instead of redis-server")
    options = parser.parse_args()
    found = measure(is_valkey=options.valkey, is_quick=options.quick)
    print(f"{parts.verdict_table(goals.of_modbus(found))}\n\n{report.modbus_text(found)}")


if __name__ == "__main__":
    main()
