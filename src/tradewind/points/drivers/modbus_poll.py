"""What one poll of a Modbus channel reads next, and what it learns from each answer for the polls after it. Pure.

Refused blocks are split until only the bad registers are left out; those are tried again after REFUSED_S. A unit that
is silent while others answer is left alone for a growing pause. What a poll had no time for comes first in the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tradewind.points.drivers.modbus_cell import Cell
from tradewind.points.drivers.modbus_plan import MAX_BITS, MAX_GAP, MAX_REGISTERS, Block, plan_blocks, split
from tradewind.points.spec import Quality, Reading

#: How long registers that the device refused are left alone.
REFUSED_S = 60.0
#: The first and the longest pause of a unit that does not answer, while others behind the same gateway do.
QUIET_S, MAX_QUIET_S = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    max_gap: int = MAX_GAP
    max_registers: int = MAX_REGISTERS
    max_bits: int = MAX_BITS


class PollPlan:
    def __init__(self, cells: Iterable[Cell], limits: Limits | None = None) -> None:
        most = limits or Limits()
        self.blocks = plan_blocks(cells, max_gap=most.max_gap, max_registers=most.max_registers, max_bits=most.max_bits)
        self.units = frozenset(block.slave for block in self.blocks)
        #: True once a unit has answered anything in this poll.
        self.is_heard = False
        self._left: deque[Block] = deque()
        self._whole: list[Block] = []
        self._pieces: list[Block] = []
        self._split: set[Block] = set()
        self._refused: list[Cell] = []
        self._refused_until = 0.0
        self._quiet: dict[int, tuple[float, float]] = {}  # unit → until when, and how long the pause is
        self._readings: list[Reading] = []

    def start(self, now: float) -> None:
        if self._refused and now >= self._refused_until:
            self.blocks += plan_blocks(self._refused, max_gap=0)
            self._refused = []
        self._left = deque(self.blocks)
        self._whole, self._pieces, self._readings = [], [], []
        self._split.clear()
        self.is_heard = False

    def next(self, now: float) -> Block | None:
        """The next block to read; None when all are done."""
        while self._left:
            block = self._left.popleft()
            if now >= self._quiet.get(block.slave, (0.0, 0.0))[0]:
                return block
            self._keep(block, bad(block.cells))
        return None

    def put_back(self, block: Block) -> None:
        """There is no time for it in this poll."""
        self._left.appendleft(block)

    def good(self, block: Block, readings: Sequence[Reading]) -> None:
        self._hear(block)
        self._keep(block, readings)

    def busy(self, block: Block) -> None:
        """The device cannot answer just now; nothing is wrong with the block."""
        self._hear(block)
        self._keep(block, bad(block.cells))

    def refused(self, block: Block, now: float, *, is_divisible: bool) -> None:
        self._hear(block)
        smaller = split(block) if is_divisible else []
        self._split.update(smaller)
        self._left.extendleft(reversed(smaller))
        if not smaller:
            self._refused += block.cells
            self._refused_until = now + REFUSED_S

    def silent(self, block: Block, now: float) -> None:
        pause_s = min(MAX_QUIET_S, self._quiet.get(block.slave, (0.0, 0.0))[1] * 2 or QUIET_S)
        self._quiet[block.slave] = (now + pause_s, pause_s)
        self._keep(block, bad(block.cells))

    def finish(self) -> list[Reading]:
        """The readings of this poll; the next one reads what this one has found out to work."""
        merged: list[Block] = []
        if self._pieces:
            # Never longer than what the device has answered: it may have refused the length, not a register.
            most = max(piece.count for piece in self._pieces)
            cells = [cell for piece in self._pieces for cell in piece.cells]
            merged = plan_blocks(cells, max_gap=0, max_registers=max(most, 4), max_bits=most)
        self.blocks = [*self._left, *self._whole, *merged]
        return [*self._readings, *bad(self._refused)]

    def _hear(self, block: Block) -> None:
        self.is_heard = True
        self._quiet.pop(block.slave, None)

    def _keep(self, block: Block, readings: Sequence[Reading]) -> None:
        (self._pieces if block in self._split else self._whole).append(block)
        self._readings += readings


def bad(cells: Iterable[Cell]) -> list[Reading]:
    return [Reading(cell.kind, cell.id, 0.0, quality=Quality.BAD) for cell in cells]
