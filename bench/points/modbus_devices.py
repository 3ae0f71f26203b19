"""Modbus TCP servers of pymodbus, all in this process, until it is ended: `modbus_devices.py PORT …`.

Each has 1,000 holding registers that all change with every read. Register 0 holds the lower 16 bits of the clock in ms
at the moment of the answer.
"""

from __future__ import annotations

import asyncio
import sys
import time

from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

REGISTERS = 1000
STAMP = 0


async def act(function: int, start: int, address: int, count: int, registers: list[int], _: object) -> None:
    if function != 3:
        return
    now_ms = time.time_ns() // 1_000_000
    first = address - start
    registers[first : first + count] = [now_ms // 10 % 65536] * count
    if address == STAMP:
        registers[first] = now_ms % 65536


async def serve(ports: list[int]) -> None:
    for port in ports:
        data = [SimData(0, values=[0] * REGISTERS, datatype=DataType.REGISTERS)]
        server = ModbusTcpServer([SimDevice(1, simdata=data, action=act)], address=("127.0.0.1", port))
        await server.serve_forever(background=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve([int(text) for text in sys.argv[1:]]))
