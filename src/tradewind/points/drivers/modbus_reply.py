"""Answers to Modbus reads that keep their bytes, and words for exception codes.

pymodbus unpacks registers and bits one by one; a block takes its values out of the bytes at once, many times faster.
"""

from __future__ import annotations

from pymodbus.pdu import ModbusPDU

EXCEPTIONS = {
    1: "illegal function",
    2: "illegal data address",
    3: "illegal data value",
    4: "device failure",
    5: "acknowledged, still working",
    6: "device busy",
    7: "negative acknowledge",
    8: "memory parity error",
    10: "gateway path unavailable",
    11: "device behind the gateway does not answer",
}


def explain(code: int) -> str:
    return f"{EXCEPTIONS.get(code, 'exception')} ({code})"


class _Bytes(ModbusPDU):
    rtu_byte_count_pos = 2
    data: bytes = b""

    def decode(self, data: bytes) -> None:
        self.data = data[1 : 1 + data[0]]


class ReadCoilsBytes(_Bytes):
    function_code = 1


class ReadDiscreteInputsBytes(_Bytes):
    function_code = 2


class ReadHoldingRegistersBytes(_Bytes):
    function_code = 3


class ReadInputRegistersBytes(_Bytes):
    function_code = 4


BYTES: tuple[type[_Bytes], ...] = (
    ReadCoilsBytes,
    ReadDiscreteInputsBytes,
    ReadHoldingRegistersBytes,
    ReadInputRegistersBytes,
)
