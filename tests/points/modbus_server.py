"""A Modbus TCP server of pymodbus in a process of its own. As a program: `modbus_server.py PORT OPTIONS-as-JSON`.

Each unit has 1,000 holding registers (register n holds n), 1,000 input registers (n + 10000), 1,000 coils and discrete
inputs (on where n is divisible by 3). Holding register 999 counts the reads that cover it. Options: `units`, `rtu`,
`delay_ms` before each answer, `holes` (registers that are refused), `most` (registers in one read), `gone` (units that
the gateway cannot reach), `silent` (units whose answers get lost), `write_delay_ms` before the answer to a write,
`counting` (all holding registers of unit 1 hold how often register 0 was read), `ledger` (a file that each write and
each connection is noted in: `write UNIT ADDRESS VALUE…`, `open`, `close`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pymodbus.constants import ExcCodes
from pymodbus.framer import FramerType
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from tests.process import Server, accepts, free_port, running

SIZE = 1000
COUNTER = 999


async def act(options: dict[str, Any], unit: int, function: int, start: int, address: int, count: int,
              registers: list[int], values: Any) -> ExcCodes | None:  # fmt: skip
    if function in (5, 6, 15, 16) and values is not None:  # None: it looks at what it has written
        note(options, "write", unit, address, *(int(value) for value in values))
        await asyncio.sleep(options.get("write_delay_ms", 0) / 1000)
    await asyncio.sleep(options.get("delay_ms", 0) / 1000)
    if unit in options.get("gone", ()):
        return ExcCodes.GATEWAY_NO_RESPONSE
    if function == 3:
        if count > options.get("most", 125):
            return ExcCodes.ILLEGAL_VALUE
        if any(address <= hole < address + count for hole in options.get("holes", ())):
            return ExcCodes.ILLEGAL_ADDRESS
        if options.get("counting") and unit == 1:
            if address == 0:
                options["reads"] = options.get("reads", 0) % 65535 + 1
            registers[address - start : address - start + count] = [options["reads"]] * count
        elif address <= COUNTER < address + count:
            registers[COUNTER - start] = (registers[COUNTER - start] + 1) % 65536
    return None


def note(options: dict[str, Any], *words: object) -> None:
    if options.get("ledger"):
        with open(options["ledger"], "a") as ledger:
            ledger.write(" ".join(map(str, words)) + "\n")


def device(unit: int, options: dict[str, Any]) -> SimDevice:
    def registers(base: int) -> list[SimData]:
        return [SimData(0, values=[base + n for n in range(SIZE)], datatype=DataType.REGISTERS)]

    def bits() -> list[SimData]:
        return [SimData(0, values=[n % 3 == 0 for n in range(SIZE)], datatype=DataType.BITS)]

    return SimDevice(
        unit, simdata=(bits(), bits(), registers(0), registers(10_000)), action=partial(act, options, unit)
    )


async def serve(port: int, options: dict[str, Any]) -> None:
    devices = [device(unit, options) for unit in options.get("units", [1])]
    framer = FramerType.RTU if options.get("rtu") else FramerType.SOCKET
    place = 0 if options.get("rtu") else 6

    def cut(is_sent: bool, packet: bytes) -> bytes:
        return b"" if is_sent and packet[place] in options.get("silent", ()) else packet

    def connected(is_open: bool) -> None:
        note(options, "open" if is_open else "close")

    server = ModbusTcpServer(
        devices, framer=framer, address=("127.0.0.1", port), trace_packet=cut, trace_connect=connected
    )
    await server.serve_forever()


@contextlib.contextmanager
def modbus_server(**options: Any) -> Iterator[Server]:

    def make(folder: Path) -> Server:
        port = free_port()
        argv = [sys.executable, "-m", "tests.points.modbus_server", str(port), json.dumps(options)]
        return Server(argv, port=port, url=f"tcp://127.0.0.1:{port}", folder=folder, is_ready=lambda: accepts(port))

    with running(make) as server:
        yield server


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), json.loads(sys.argv[2])))
