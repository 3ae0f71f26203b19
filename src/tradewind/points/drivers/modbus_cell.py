"""One point in the registers or bits of a Modbus device: where it stands, how its bytes are read and written. Pure."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tradewind.errors import Invalid, Problem
from tradewind.numerals import read_whole
from tradewind.points.convert import INTEGER_RANGES
from tradewind.points.spec import Kind, PointSpec

READ_BITS: Final = frozenset((1, 2))
READS: Final = frozenset((1, 2, 3, 4))
WRITES: Final = frozenset((5, 6, 15, 16))
#: The area that a written value can be read from again.
READ_OF_WRITE: Final = {5: 1, 15: 1, 6: 3, 16: 3}
#: Of how many registers a value is made, and its letter for struct.
TYPES: Final = {
    "int16": (1, "h"), "uint16": (1, "H"), "int32": (2, "i"), "uint32": (2, "I"), "int64": (4, "q"), "uint64": (4, "Q"),
    "float32": (2, "f"), "float64": (4, "d"), "bool": (1, "H"),
}  # fmt: skip
_ALIASES: Final = {
    "float": "float32", "double": "float64", "short": "int16", "ushort": "uint16", "int": "int16", "uint": "uint16",
    "long": "int32", "ulong": "uint32", "boolean": "bool", "bit": "bool", "coil": "bool",
}  # fmt: skip
#: Byte order → (bytes of each register swapped before, order of struct). A register alone has the order of its bytes.
ORDERS: Final = {"ABCD": (False, ">"), "DCBA": (False, "<"), "BADC": (True, ">"), "CDAB": (True, "<")}
_ORDER_ALIASES: Final = {"": "ABCD", "AB": "ABCD", "BA": "DCBA", "BIG": "ABCD", "LITTLE": "DCBA"}


@dataclass(frozen=True, slots=True)
class Cell:
    """`size` in registers, or 1 for functions 1, 2, 5, 15. `bit` is -1 unless the value is a bit of a register."""

    kind: Kind
    id: str
    slave: int
    function: int
    address: int
    type: str
    order: str = "ABCD"
    bit: int = -1

    @property
    def size(self) -> int:
        return 1 if self.is_bits else TYPES[self.type][0]

    @property
    def is_bits(self) -> bool:
        return self.function in (1, 2, 5, 15)


def cell_of(point: PointSpec, defaults: Mapping[str, Any], problems: list[Problem]) -> Cell | None:
    """The cell of a point's mapping, or None and what is wrong with it (paths like `mapping.function_code`)."""
    before = len(problems)
    given = {**{k: v for k, v in defaults.items() if k in ("slave_id", "byte_order")}, **point.mapping}
    is_read = point.kind in (Kind.MEASUREMENT, Kind.SIGNAL)
    is_switch = point.kind in (Kind.SIGNAL, Kind.CONTROL)
    address = _whole(given, "register_address", None, 0, 65535, problems)
    slave = _whole(given, "slave_id", 1, 0, 255, problems)
    bit = _whole(given, "bit_position", -1, -1, 15, problems)
    kind = str(given.get("data_type") or given.get("data_format") or ("bool" if is_switch else point.data_type)).lower()
    kind = _ALIASES.get(kind, kind)
    if kind not in TYPES:
        problems.append(Problem("bad_data_type", "mapping.data_type", f"{kind!r} is none of {', '.join(TYPES)}"))
        return None
    order = str(given.get("byte_order") or "").upper()
    order = _ORDER_ALIASES.get(order, order)
    if order not in ORDERS:
        problems.append(Problem("bad_byte_order", "mapping.byte_order", f"{order!r} is none of {', '.join(ORDERS)}"))
    default = (2 if kind == "bool" else 3) if is_read else (5 if kind == "bool" else 16)
    function = _whole(given, "function_code", default, 1, 16, problems)
    if not is_read:  # tables often name the area that is written by how it is read
        function = {1: 5, 3: 16}.get(function, function)
    if function not in (READS if is_read else WRITES):
        codes = "1, 2, 3 or 4" if is_read else "5, 6, 15 or 16"
        problems.append(Problem("bad_function_code", "mapping.function_code", f"{function} cannot be; give {codes}"))
    elif function == 6 and TYPES[kind][0] > 1:
        hint = f"6 writes one register and {kind} has {TYPES[kind][0]}; give 16"
        problems.append(Problem("bad_function_code", "mapping.function_code", hint))
    elif function in (1, 2, 5, 15):
        kind = "bool"
    if len(problems) > before:
        return None
    if kind != "bool" or function in (1, 2, 5, 15):
        bit = -1
    elif bit < 0 and is_read:
        bit = 0
    elif bit < 0:
        kind = "uint16"  # the whole register is the switch, and gets on_value or off_value
    cell = Cell(point.kind, point.id, slave, function, address, kind, order, bit)
    if address + cell.size > 65536:
        problems.append(Problem("bad_address", "mapping.register_address", "the value ends past register 65535"))
        return None
    return cell


def _whole(
    given: Mapping[str, Any], name: str, default: int | None, low: int, high: int, problems: list[Problem]
) -> int:
    value = given.get(name)
    if value is None or value == "":
        if default is not None:
            return default
        problems.append(Problem("missing", f"mapping.{name}", f"give a whole number from {low} to {high}"))
        return low
    try:
        number = read_whole(value.strip(), is_hex=True) if isinstance(value, str) else int(value)
        if number == float(number if isinstance(value, str) else value) and low <= number <= high:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    problems.append(Problem("bad_number", f"mapping.{name}", f"{value!r} is no whole number from {low} to {high}"))
    return low


def swapped(data: bytes) -> bytes:
    """The bytes of each register in the other order."""
    out = bytearray(data)
    out[0::2], out[1::2] = data[1::2], data[0::2]
    return bytes(out)


def registers_of(cell: Cell, raw: float) -> list[int]:
    """What to write for a value, rounded where the device has an integer. Raises Invalid when it does not fit."""
    size, letter = TYPES[cell.type]
    is_swapped, mark = ORDERS[cell.order]
    value: float = raw
    try:
        if letter not in "fd":
            value = int(raw) if abs(raw) >= 2**52 else int(math.copysign(math.floor(abs(raw) + 0.5), raw))
        low, high = INTEGER_RANGES.get(cell.type, (-math.inf, math.inf))
        if not low <= value <= high:
            raise OverflowError
        data = struct.pack(mark + letter, value)
    except (OverflowError, ValueError, struct.error):
        message = f"{raw!r} does not fit into {cell.type} (point {cell.id}, register {cell.address})"
        raise Invalid(
            message, code="does_not_fit", hint="write a smaller number, or correct scale and data_type"
        ) from None
    if is_swapped:
        data = swapped(data)
    return list(struct.unpack(f">{size}H", data))


def value_of(cell: Cell, registers: Sequence[int]) -> float:
    """The value in the registers of one cell."""
    size, letter = TYPES[cell.type]
    is_swapped, mark = ORDERS[cell.order]
    data = struct.pack(f">{size}H", *registers)
    value: float = struct.unpack(mark + letter, swapped(data) if is_swapped else data)[0]
    return float(int(value) >> cell.bit & 1) if cell.bit >= 0 else value
