"""Which reads get all points of a Modbus device: few blocks of registers or bits instead of one read per point. Pure.

A block takes its values out of the bytes of the answer in one go: one struct for all values of a byte order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from tradewind.points.drivers.modbus_cell import ORDERS, READ_BITS, TYPES, Cell, swapped
from tradewind.points.spec import Reading

MAX_REGISTERS: Final = 125
MAX_BITS: Final = 2000
MAX_GAP: Final = 8


class Block:
    """One read: `count` registers or bits from `start`. Its cells are in the order of their addresses."""

    __slots__ = ("_layers", "cells", "count", "function", "slave", "start")

    def __init__(self, cells: Sequence[Cell]) -> None:
        first = cells[0]
        self.slave, self.function, self.start = first.slave, first.function, first.address
        self.count = max(cell.address + cell.size for cell in cells) - self.start
        self.cells = tuple(cells)
        self._layers: list[_Layer] | None = None

    def __repr__(self) -> str:
        end = self.start + self.count - 1
        return f"Block(slave {self.slave}, function {self.function}, {self.start}-{end}, {len(self.cells)} points)"

    def readings(self, data: bytes) -> list[Reading]:
        """The values in the answer's bytes (without its byte count). Raises ValueError when it is not the answer."""
        if self.function in READ_BITS:
            if len(data) * 8 < self.count:
                raise ValueError(f"{len(data)} bytes for {self.count} bits")
            bits, start = int.from_bytes(data, "little"), self.start
            return [Reading(c.kind, c.id, bits >> (c.address - start) & 1) for c in self.cells]
        if len(data) != self.count * 2:
            raise ValueError(f"{len(data)} bytes for {self.count} registers")
        if self._layers is None:
            self._layers = _layers(self)
        other = swapped(data) if any(layer.is_swapped for layer in self._layers) else b""
        found: list[Reading] = []
        for layer in self._layers:
            values = layer.form.unpack_from(other if layer.is_swapped else data)
            if layer.has_bits:
                found += [
                    Reading(c.kind, c.id, value if c.bit < 0 else int(value) >> c.bit & 1)
                    for c, value in ((c, values[at]) for c, at in layer.places)
                ]
            else:
                found += [Reading(c.kind, c.id, value) for (c, _), value in zip(layer.places, values, strict=True)]
        return found


class _Layer:
    """Values of one byte order that do not overlap; `places`: each cell and where its value stands in the tuple."""

    __slots__ = ("end", "form", "has_bits", "is_swapped", "letters", "mark", "places", "shared", "values")

    def __init__(self, order: str) -> None:
        self.is_swapped, self.mark = ORDERS[order]
        self.letters: list[str] = []
        self.places: list[tuple[Cell, int]] = []
        self.shared: dict[tuple[int, str], int] = {}
        self.end = self.values = 0
        self.has_bits = False
        self.form = struct.Struct("")

    def take(self, cell: Cell, start: int) -> bool:
        """False when another value stands in its way. Points of one register (bits) share its value."""
        at, (size, letter) = cell.address - start, TYPES[cell.type]
        place = self.shared.get((at, letter))
        if place is None:
            if at < self.end:
                return False
            if at > self.end:
                self.letters.append(f"{(at - self.end) * 2}x")
            self.letters.append(letter)
            place = self.shared[at, letter] = self.values
            self.values += 1
            self.end = at + size
        else:
            self.has_bits = True  # several points of one value: places and values no longer run side by side
        self.has_bits = self.has_bits or cell.bit >= 0
        self.places.append((cell, place))
        return True


def _layers(block: Block) -> list[_Layer]:
    by_order: dict[str, list[_Layer]] = {}
    for cell in block.cells:
        layers = by_order.setdefault(cell.order, [])
        if not any(layer.take(cell, block.start) for layer in layers):
            layers.append(_Layer(cell.order))
            layers[-1].take(cell, block.start)
    done = [layer for layers in by_order.values() for layer in layers]
    for layer in done:
        layer.form = struct.Struct(layer.mark + "".join(layer.letters))
    return done


def plan_blocks(
    cells: Iterable[Cell], *, max_gap: int = MAX_GAP, max_registers: int = MAX_REGISTERS, max_bits: int = MAX_BITS
) -> list[Block]:
    """As few reads as possible: one slave and function each, at most `max_gap` registers or bits that nobody wants
    between two wanted ones, never half a value."""
    blocks: list[Block] = []
    group: list[Cell] = []
    end = 0
    for cell in sorted(cells, key=lambda c: (c.slave, c.function, c.address, c.size, c.bit)):
        if group:
            first = group[0]
            most = max_bits if cell.is_bits else max_registers
            is_near = cell.address <= end + max_gap and max(end, cell.address + cell.size) - first.address <= most
            if (cell.slave, cell.function) != (first.slave, first.function) or not is_near:
                blocks.append(Block(group))
                group = []
        if not group:
            end = cell.address
        group.append(cell)
        end = max(end, cell.address + cell.size)
    if group:
        blocks.append(Block(group))
    return blocks


def split(block: Block) -> list[Block]:
    """Smaller reads for a block that the device refused: without its gaps if it has some, else halves; one value (or
    several of the same registers) cannot be split and gives an empty list."""
    whole = plan_blocks(block.cells, max_gap=0)
    if len(whole) > 1:
        return whole
    middle = len(block.cells) // 2
    while 0 < middle < len(block.cells) and block.cells[middle].address == block.cells[middle - 1].address:
        middle += 1
    if middle in (0, len(block.cells)):
        middle = next((i for i, cell in enumerate(block.cells) if cell.address != block.start), 0)
    if middle == 0:
        return []
    return [Block(block.cells[:middle]), Block(block.cells[middle:])]
