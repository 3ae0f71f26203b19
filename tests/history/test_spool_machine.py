"""The spool against a plain list: append, read, acknowledge, crash with a torn end, reopen, in any order."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.history.test_spool import BIG, LONG_S, NOW, drained, segments
from tests.soak import repeats
from tradewind.history import spool as spool_module
from tradewind.history.sample import Row
from tradewind.history.spool import Portion, Spool


class SpoolMachine(RuleBasedStateMachine):
    """`waiting`: rows that were appended and not acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tw-spool-"))
        self.normal = spool_module.SEGMENT_BYTES
        spool_module.SEGMENT_BYTES = 400  # several records a segment, many segments
        self.waiting: list[Row] = []
        self.made = 0
        self.read: Portion | None = None
        self._start()

    def _start(self) -> None:
        self.spool = Spool(self.folder, BIG, LONG_S)
        self.spool.open()
        self.read = None

    def teardown(self) -> None:
        assert drained(self.spool) == self.waiting
        assert segments(self.folder) == []
        self.spool.close()
        spool_module.SEGMENT_BYTES = self.normal
        shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 30))
    def append(self, count: int) -> None:
        rows = [Row(f"comsrv:1:m:{n % 5}", NOW + n, n * 1.1, n % 3) for n in range(self.made, self.made + count)]
        self.made += count
        self.spool.append(rows, NOW)
        self.waiting += rows

    @rule(max_rows=st.integers(1, 60))
    def peek(self, max_rows: int) -> None:
        self.read = self.spool.peek(max_rows)
        if self.read is None:
            assert self.waiting == []
        else:
            assert self.read.rows == self.waiting[: len(self.read.rows)]

    @precondition(lambda self: self.read is not None)
    @rule()
    def ack(self) -> None:
        assert self.read is not None
        self.spool.ack(self.read.upto)
        del self.waiting[: len(self.read.rows)]
        self.read = None

    @rule()
    def reopen(self) -> None:
        self.spool.close()
        self._start()

    @rule(torn=st.binary(min_size=1, max_size=60))
    def crash_while_appending(self, torn: bytes) -> None:
        """A kill in the middle of a write: some bytes of a record stand behind the last whole one."""
        self.spool.close()
        found = segments(self.folder)
        if found:
            with open(found[-1], "ab") as file:
                file.write(torn)
        self._start()

    @rule()
    def crash_with_a_lost_position(self) -> None:
        """What was acknowledged may come again, but only from segments that are still there."""
        self.spool.close()
        os.truncate(self.folder / "position", 3)
        self._start()
        again = self.spool.rows - len(self.waiting)
        assert again >= 0
        while again > 0:  # the oldest ones, once more
            portion = self.spool.peek(1)
            assert portion is not None
            again -= len(portion.rows)
            self.spool.ack(portion.upto)

    @invariant()
    def knows_what_waits(self) -> None:
        assert self.spool.rows == len(self.waiting)
        assert self.spool.is_empty == (not self.waiting)
        assert self.spool.dropped.corrupt == self.spool.dropped.bytes == self.spool.dropped.age == 0
        assert self.spool.size_bytes == sum(path.stat().st_size for path in segments(self.folder))


TestSpoolMachine = SpoolMachine.TestCase
TestSpoolMachine.settings = settings(max_examples=repeats(20), stateful_step_count=40, deadline=None)
