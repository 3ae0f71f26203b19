"""Modbus TCP, and RTU frames over TCP (serial gateways), through pymodbus.

Points are read in blocks (modbus_plan). A block that the device refuses is split until only the bad registers are
bad. Behind a gateway one dead unit makes only its own points bad, and is asked again after a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar

from pymodbus.client import AsyncModbusTcpClient
from pymodbus.exceptions import ConnectionException, ModbusException
from pymodbus.framer import FramerType
from pymodbus.pdu import ModbusPDU

from tradewind.errors import Invalid, Problem
from tradewind.points.driver import DeviceTrouble, Driver
from tradewind.points.drivers.modbus_cell import READ_BITS, READ_OF_WRITE, Cell, cell_of, registers_of, value_of
from tradewind.points.drivers.modbus_plan import MAX_BITS, MAX_GAP, MAX_REGISTERS
from tradewind.points.drivers.modbus_poll import Limits, PollPlan
from tradewind.points.drivers.modbus_reply import BYTES, explain
from tradewind.points.drivers.parameters import unknown_names, whole_numbers
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality, Reading

# pymodbus logs each failed connect and each lost answer; the channel's status and its own log line say that already.
logging.getLogger("pymodbus").setLevel(logging.CRITICAL)

ILLEGAL_FUNCTION, BUSY, UNIT_GONE = 1, frozenset((5, 6)), frozenset((10, 11))
READ_KINDS = frozenset((Kind.MEASUREMENT, Kind.SIGNAL))
PARAMETERS = {  # name: (default, lowest, highest)
    "port": (502, 1, 65535),
    "max_gap": (MAX_GAP, 0, 124),
    "max_registers": (MAX_REGISTERS, 4, MAX_REGISTERS),
    "max_bits": (MAX_BITS, 1, MAX_BITS),
    "pause_ms": (0, 0, 60_000),
    "response_timeout_ms": (0, 0, 600_000),
}


class _Refused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Silent(Exception):
    """No answer to one request in its time; the connection still stands."""


class ModbusTcp(Driver):
    """Parameters: host, port 502, slave_id 1 and byte_order ABCD (for points that name none), max_gap 8,
    max_registers 125, max_bits 2000, pause_ms 0 between requests, response_timeout_ms (timeout_ms; a quarter of it
    when there are several units)."""

    protocol: ClassVar[str] = "modbus_tcp"
    framer: ClassVar[FramerType] = FramerType.SOCKET

    def __init__(self, channel: ChannelSpec) -> None:
        super().__init__(channel)
        given = channel.parameters
        said = {name: value for name, value in given.items() if value is not None}
        options = {name: int(said.get(name, default)) for name, (default, _, _) in PARAMETERS.items()}
        self._pause_s = options["pause_ms"] / 1000
        self._timeout_s = channel.timeout_ms / 1000
        cells = [cell for point in channel.points if (cell := cell_of(point, given, [])) is not None]
        self._cells = {(cell.kind, cell.id): cell for cell in cells}
        limits = Limits(options["max_gap"], options["max_registers"], options["max_bits"])
        self._plan = PollPlan((cell for cell in cells if cell.kind in READ_KINDS), limits)
        self._unmapped = [
            Reading(point.kind, point.id, 0.0, quality=Quality.BAD)
            for point in channel.points
            if point.kind in READ_KINDS and (point.kind, point.id) not in self._cells
        ]
        share = 4 if len(self._plan.units) > 1 else 1
        self._answer_s = min(options["response_timeout_ms"] / 1000 or self._timeout_s / share, self._timeout_s)
        self._address = (str(given.get("host", "127.0.0.1")), options["port"])
        self._client: AsyncModbusTcpClient | None = None

    @classmethod
    def check(cls, channel: ChannelSpec) -> list[Problem]:
        problems: list[Problem] = []
        host = channel.parameters.get("host")
        if not isinstance(host, str) or not host:
            problems.append(Problem("missing", "parameters.host", "name the device's address"))
        bounds = {name: (low, high) for name, (_, low, high) in PARAMETERS.items()}
        problems += whole_numbers(channel.parameters, bounds)
        problems += unknown_names(channel.parameters, ("host", "slave_id", "byte_order", *PARAMETERS))
        for index, point in enumerate(channel.points):
            found: list[Problem] = []
            cell_of(point, channel.parameters, found)
            problems += [Problem(p.code, f"points[{index}].{p.path}", p.hint) for p in found]
        return problems

    async def connect(self) -> None:
        client = AsyncModbusTcpClient(
            self._address[0],
            port=self._address[1],
            framer=self.framer,
            timeout=self._timeout_s,
            retries=0,  # a write whose answer was lost must not be repeated
            reconnect_delay=0,
            trace_connect=self._connection_changed,
        )
        for reply in BYTES:
            client.register(reply)
        self._client = client
        if not await self._guarded(client.connect()):
            raise self._trouble("does not accept a connection")
        client.ctx.comm_params.timeout_connect = self._answer_s

    async def poll(self) -> Sequence[Reading]:
        client, plan = self._connected(), self._plan
        now = time.monotonic()
        deadline = now + self._timeout_s
        plan.start(now)
        is_first = True
        while (block := plan.next(now)) is not None:
            if not is_first:
                if deadline - now < self._answer_s / 2:
                    plan.put_back(block)
                    break
                if self._pause_s:
                    await asyncio.sleep(self._pause_s)
            is_first = False
            client.ctx.comm_params.timeout_connect = min(self._answer_s, max(0.01, deadline - time.monotonic()))
            try:
                data = await self._read(block.slave, block.function, block.start, block.count)
                plan.good(block, block.readings(data))
            except _Refused as refused:
                if refused.code in BUSY:
                    plan.busy(block)
                else:
                    plan.refused(block, now, is_divisible=refused.code != ILLEGAL_FUNCTION)
            except _Silent:
                if len(plan.units) == 1:
                    raise self._trouble(f"unit {block.slave} does not answer") from None
                plan.silent(block, time.monotonic())
                if self.framer is FramerType.RTU:
                    # These frames carry no number: a late answer would be taken for that of the next request.
                    await self.close()
                    await self.connect()
                    client = self._connected()
            except ValueError as error:
                raise self._trouble(f"answers with {error}") from None
            now = time.monotonic()
        client.ctx.comm_params.timeout_connect = self._answer_s
        if plan.blocks and not plan.is_heard:
            raise self._trouble("has no unit that answers")
        return [*plan.finish(), *self._unmapped]

    async def write(self, point: PointSpec, raw: float) -> None:
        cell = self._cell(point)
        client, unit = self._connected(), cell.slave
        if cell.is_bits:
            state = raw != 0
            if cell.function == 5:
                call: Awaitable[Any] = client.write_coil(cell.address, state, device_id=unit)
            else:
                call = client.write_coils(cell.address, [state], device_id=unit)
        else:
            values = registers_of(cell, raw)
            if cell.bit >= 0:
                held = (await self._asked(cell, 3))[0]
                values = [held | 1 << cell.bit if raw else held & ~(1 << cell.bit)]
            if cell.function == 6:
                call = client.write_register(cell.address, values[0], device_id=unit)
            else:
                call = client.write_registers(cell.address, values, device_id=unit)
        try:
            await self._request(call)
        except _Refused as refused:
            raise self._refusal(cell, refused) from None
        except _Silent:
            raise self._trouble(f"did not confirm a write to register {cell.address}") from None

    async def read(self, point: PointSpec) -> Reading | None:
        cell = self._cell(point)
        function = READ_OF_WRITE.get(cell.function, cell.function)
        return Reading(point.kind, point.id, value_of(cell, await self._asked(cell, function)))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def _asked(self, cell: Cell, function: int) -> list[int]:
        """The registers (or the bit) of one cell, for read-backs. Raises DeviceTrouble, Invalid."""
        try:
            data = await self._read(cell.slave, function, cell.address, cell.size)
        except _Refused as refused:
            raise self._refusal(cell, refused) from None
        except _Silent:
            raise self._trouble(f"unit {cell.slave} does not answer") from None
        if function in READ_BITS:
            return [data[0] & 1]
        return [int.from_bytes(data[at : at + 2]) for at in range(0, cell.size * 2, 2)]

    async def _read(self, slave: int, function: int, start: int, count: int) -> bytes:
        client = self._connected()
        ask = (client.read_coils, client.read_discrete_inputs, client.read_holding_registers,
               client.read_input_registers)[function - 1]  # fmt: skip
        reply = await self._request(ask(start, count=count, device_id=slave))
        data: bytes = reply.data
        return data

    async def _request(self, call: Awaitable[Any]) -> Any:
        try:
            reply: ModbusPDU = await self._guarded(call)
        except ConnectionException as error:
            raise self._trouble("closed the connection") from error
        except ModbusException as error:
            if self._client is None or not self._client.connected:
                raise self._trouble("closed the connection") from error
            raise _Silent from error
        if reply.isError():
            code = reply.exception_code
            if code in UNIT_GONE:
                raise _Silent
            raise _Refused(code)
        return reply

    async def _guarded(self, call: Awaitable[Any]) -> Any:
        """Keeps our cancellations and those of pymodbus apart: it may let one of its own out when a connection breaks,
        and its wait_for (before Python 3.12) swallows ours when the answer comes at the same moment."""
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            reply = await call
        except asyncio.CancelledError:
            if task is None or task.cancelling() > before:
                raise
            raise self._trouble("closed the connection") from None
        except OSError as error:
            raise self._trouble(str(error)) from error
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return reply

    def _connection_changed(self, is_connected: bool) -> None:
        """pymodbus would let a request wait for its whole time after the connection is gone."""
        client = self._client
        if is_connected or client is None:
            return
        waiting = getattr(client.ctx, "response_future", None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionException("connection lost"))
            waiting.exception()  # looked at, in case that nobody waits

    def _connected(self) -> AsyncModbusTcpClient:
        if self._client is None or not self._client.connected:
            raise self._trouble("closed the connection")
        return self._client

    def _cell(self, point: PointSpec) -> Cell:
        cell = self._cells.get((point.kind, point.id))
        if cell is None:
            message = f"channel {self.channel.id} has no usable mapping for point {point.kind}:{point.id}"
            raise Invalid(message, code="no_mapping", hint="correct the mapping table of the channel")
        return cell

    def _refusal(self, cell: Cell, refused: _Refused) -> Invalid:
        message = f"{self._name()} refused register {cell.address}: {explain(refused.code)}"
        return Invalid(message, code="device_refused", hint="check register_address, function_code and slave_id")

    def _trouble(self, what: str) -> DeviceTrouble:
        return DeviceTrouble(f"{self._name()} {what}", hint="check the device, its address and the network")

    def _name(self) -> str:
        return f"Modbus device {self._address[0]}:{self._address[1]}"


class ModbusRtuOverTcp(ModbusTcp):
    protocol: ClassVar[str] = "modbus_rtu_tcp"
    framer: ClassVar[FramerType] = FramerType.RTU
