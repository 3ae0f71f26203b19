"""Samples that wait on disk for a sink that is away: appended in batches, read and taken away in order.

What `append` has taken survives a crash and a power cut. At least once: what was read and not yet acknowledged is read
again. Blocking; call it in a thread. One process at a time has a folder open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import structlog

from tradewind.clock import now_ms as wall_ms
from tradewind.errors import Unavailable
from tradewind.history.columns import Columns
from tradewind.history.sample import Row
from tradewind.history.spool_disk import SpoolFull, is_at, sync_folder, trouble
from tradewind.history.spool_file import packed, read_heads, record, without_torn_tail
from tradewind.history.spool_position import Dropped, Position
from tradewind.history.spool_segment import Segment
from tradewind.private_files import make_folder

log = structlog.get_logger(__name__)
#: A segment is closed at this size, or at an eighth of the bound.
SEGMENT_BYTES = 8_000_000
SHARE = 8


class Portion(msgspec.Struct, frozen=True):
    """The oldest rows; `upto` is what `ack` takes. `is_late`: another recorder has stored newer ones since."""

    rows: Columns
    upto: int
    is_late: bool = False


class Spool:
    """`max_bytes` on disk, `max_age_s` since the append: beyond either the oldest segment is dropped, and counted.

    Ages are by a clock of its own, `steady_ms`, which goes while the spool is open and nobody can set: a segment must
    not look old since it was written before the time of the machine was set, or since the process was down.
    """

    def __init__(self, folder: Path, max_bytes: int, max_age_s: float) -> None:
        self.folder = folder
        self.torn_bytes = 0
        self._max_bytes = max_bytes
        self._max_age_ms = int(max_age_s * 1000)
        self._segment_bytes = max(1, min(SEGMENT_BYTES, max_bytes // SHARE))
        self._lock = threading.Lock()
        self._segments: deque[Segment] = deque()
        self._active = -1  # descriptor of the last segment while it is appended to
        self._folder_lock = -1
        self._place: Position | None = None
        self._next_row = self._number = 0
        self._steady_from_ms = 0

    def open(self, term: int | None = None) -> None:
        """Find what a former process left, without its torn tail. `term`: of the recorder that opens it to append; what
        waits here is late unless this term or the one before it wrote it. Without one everything that waits is late.
        Raises Unavailable: `spool_taken`, `spool_broken`."""
        with self._guarded():
            try:
                self._open()
                self._judge_age(term)
            except BaseException:
                self._close()
                raise

    def close(self) -> None:
        with self._lock:
            self._close()

    @property
    def is_open(self) -> bool:
        return self._place is not None

    def steady_ms(self) -> int:
        """Now, for `append` and `expire`."""
        return self._steady_from_ms + time.monotonic_ns() // 1_000_000

    @property
    def term(self) -> int:
        """Of the recorder that appended last; 0 when it is not known."""
        return self._position.term

    @property
    def dropped(self) -> Dropped:
        return self._position.dropped

    @property
    def rows(self) -> int:
        """How many wait."""
        return sum(head.rows for segment in tuple(self._segments) for head in tuple(segment.heads))

    @property
    def size_bytes(self) -> int:
        """On disk."""
        return sum(segment.size for segment in tuple(self._segments))

    @property
    def oldest_ms(self) -> int:
        """When the oldest record was appended, by `steady_ms`; 0 when there is none."""
        return next((segment.heads[0].at_ms for segment in tuple(self._segments) if segment.heads), 0)

    @property
    def is_empty(self) -> bool:
        return not any(segment.heads for segment in tuple(self._segments))

    def append(self, rows: Sequence[Row], now_ms: int, elsewhere_bytes: int = 0) -> None:
        """On disk when it returns. `elsewhere_bytes`: of the bound, what other spools have. Raises SpoolFull,
        Unavailable; nothing of it is kept then."""
        payload = packed(rows)
        with self._guarded():
            self._make_again_if_gone()
            self._expire(now_ms)
            _, raw = record(payload, len(rows), self._next_row, now_ms, 0)
            if elsewhere_bytes and elsewhere_bytes + len(raw) > self._max_bytes:
                hint = (
                    "end the process that hangs, or raise history.spool_max_bytes; the change feed holds on meanwhile"
                )
                raise SpoolFull(f"spools of other processes fill the bound of {self._max_bytes} bytes", hint=hint)
            while self._segments and self.size_bytes + elsewhere_bytes + len(raw) > self._max_bytes:
                self._drop_for_size()
            self._write(payload, len(rows), now_ms)

    def drop_oldest(self) -> bool:
        """Drop the oldest segment for the bytes it takes, and count its rows; False when there is none. Raises
        Unavailable."""
        with self._guarded():
            if self._segments:
                self._drop_for_size()
                return True
            return False

    def expire(self, now_ms: int) -> None:
        """Drop segments that are too old. Raises Unavailable."""
        with self._guarded():
            self._expire(now_ms)

    def peek(self, max_rows: int) -> Portion | None:
        """Whole records from the oldest on, until there are so many rows; None when nothing waits. A record that is not
        what was written is counted and passed over. Raises Unavailable."""
        with self._guarded():
            while True:
                segment = next((segment for segment in self._segments if segment.heads), None)
                if segment is None:
                    return None
                first = self._pass_hole(segment)
                late = self._position.late
                rows, upto = segment.read(first, max_rows, late if first < late else None)
                if rows:
                    return Portion(rows, upto, first < late)
                bad = segment.heads[0]
                log.error("a record of the spool is broken and left out", file=str(segment.path), rows=bad.rows)
                self._position.dropped.corrupt += bad.rows
                self._done_upto(bad.next_row)

    def ack(self, upto: int) -> None:
        """The sink has taken them: they are not read again, and a segment that is done goes. Raises Unavailable."""
        with self._guarded():
            if upto > self._position.done:
                self._done_upto(upto)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Alone, and with our words for what the disk says."""
        with self._lock:
            try:
                yield
            except OSError as error:
                raise trouble(error, f"the spool in {self.folder} cannot be used") from error

    # inside the lock

    @property
    def _position(self) -> Position:
        if self._place is None:
            raise Unavailable(f"the spool in {self.folder} is not open", code="spool_closed")
        return self._place

    def _open(self) -> None:
        self._close()
        self._segments.clear()
        make_folder(self.folder)
        self._folder_lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._folder_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "another recorder appends to it, or hangs; `tradewind history stats` names who records"
            raise Unavailable(f"another process has {self.folder} open", code="spool_taken", hint=hint) from None
        self._place = position = Position(self.folder / "position")
        self._number = self.torn_bytes = lost = 0
        paths = sorted(self.folder.glob("[0-9]*.seg"))
        for path in paths:
            self._number = int(path.stem)
            heads = read_heads(path)
            if path is paths[-1]:
                self.torn_bytes, lost = without_torn_tail(path, heads)
            self._segments.append(Segment(self._number, path, path.stat().st_size, deque(heads)))
        if self.torn_bytes:
            log.warning("the spool's end was torn and is cut off", folder=str(self.folder), bytes=self.torn_bytes)
        known = [head for segment in self._segments for head in segment.heads]
        if not position.is_known and known:
            position.done = known[0].first
        self._next_row = max(position.done, known[-1].next_row if known else 0)
        last_ms = max((head.at_ms for head in known), default=wall_ms())
        self._steady_from_ms = last_ms - time.monotonic_ns() // 1_000_000
        position.dropped.corrupt += lost
        self._done_upto(position.done)

    def _judge_age(self, term: int | None) -> None:
        position = self._position
        if term is None or (not self.is_empty and term not in (position.term, position.term + 1)):
            position.late = self._next_row
        if term is not None:
            position.term = term
        position.store()

    def _make_again_if_gone(self) -> None:
        """Somebody removed the folder, and what waited in it: what goes to files without a name would be lost."""
        if self._active >= 0 and not os.fstat(self._active).st_nlink:
            self._seal()
        if self._folder_lock < 0 or is_at(self._folder_lock, self.folder / "lock"):
            return
        rows, next_row, dropped, term = self.rows, self._next_row, self._position.dropped, self._position.term
        log.error("the spool was removed, and is made again", folder=str(self.folder), rows=rows)
        self._open()
        dropped.corrupt += rows
        self._position.dropped, self._position.term = dropped, term
        if not self._segments:  # numbers go on: who still holds rows of before must not acknowledge new ones
            self._position.done = self._next_row = next_row
        self._position.store()

    def _close(self) -> None:
        self._seal()
        if self._place is not None:
            self._place.close()
            self._place = None
        if self._folder_lock >= 0:
            os.close(self._folder_lock)
            self._folder_lock = -1

    def _write(self, payload: bytes, rows: int, now_ms: int) -> None:
        if self._active >= 0 and self._segments and self._segments[-1].size >= self._segment_bytes:
            self._seal()
        if self._active < 0:
            self._begin_segment()
        segment = self._segments[-1]
        head, raw = record(payload, rows, self._next_row, now_ms, segment.size)
        try:
            view = memoryview(raw)
            while view:
                view = view[os.pwrite(self._active, view, segment.size + len(raw) - len(view)) :]
            os.fdatasync(self._active)
        except OSError:
            # What is on disk now nobody knows; the next record starts a segment of its own.
            try:
                os.ftruncate(self._active, segment.size)
            finally:
                self._seal()
                self._forget_done()
            raise
        segment.size += len(raw)
        segment.heads.append(head)
        self._next_row = head.next_row

    def _begin_segment(self) -> None:
        path = self.folder / f"{self._number + 1:012}.seg"
        self._active = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._number += 1
        self._segments.append(Segment(self._number, path))
        sync_folder(self.folder)

    def _seal(self) -> None:
        if self._active >= 0:
            os.close(self._active)
            self._active = -1

    def _expire(self, now_ms: int) -> None:
        while self._segments and self._segments[0].heads:
            if self._segments[0].heads[-1].at_ms > now_ms - self._max_age_ms:
                return
            self._position.dropped.age += self._drop_oldest()
            self._position.store()

    def _drop_for_size(self) -> None:
        self._position.dropped.bytes += self._drop_oldest()
        self._position.store()

    def _drop_oldest(self) -> int:
        """How many rows went with it that nobody had acknowledged."""
        segment = self._segments[0]
        rows = sum(head.rows for head in segment.heads)
        last = segment.heads[-1].next_row if segment.heads else self._position.done
        segment.heads.clear()
        self._done_upto(max(self._position.done, last))
        return rows

    def _pass_hole(self, segment: Segment) -> int:
        """Rows before the first readable record are lost: count them. Returns the number of the next row."""
        first = segment.heads[0].first
        if first > self._position.done:
            log.error("a part of the spool cannot be read", file=str(segment.path), rows=first - self._position.done)
            self._position.dropped.corrupt += first - self._position.done
            self._done_upto(first)
        return first

    def _done_upto(self, row: int) -> None:
        self._position.done = row
        for segment in self._segments:
            while segment.heads and segment.heads[0].next_row <= row:
                segment.heads.popleft()
        self._position.store()
        self._forget_done()

    def _forget_done(self) -> None:
        """Remove segments of which nothing is needed any more."""
        if self._segments and not self._segments[0].heads:
            self._position.sync()  # or a power cut makes it look as if they were lost
        while self._segments and not self._segments[0].heads:
            segment = self._segments.popleft()
            if not self._segments:
                self._seal()
            segment.path.unlink(missing_ok=True)
