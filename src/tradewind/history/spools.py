"""All spools below one data folder: one to append to, and those that other processes left, which are delivered first.

A recorder that hangs keeps its spool locked. So each appends to the first folder that it can lock (`spool`, `spool-2`,
…), and brings to the sink what stands in the others as soon as it gets their locks. The bound on bytes holds for all of
them together. Blocking; call it in a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from tradewind.errors import Unavailable
from tradewind.history.sample import Row
from tradewind.history.spool import SHARE, Portion, Spool
from tradewind.history.spool_disk import SpoolFull
from tradewind.history.spool_position import Dropped, dropped_of

log = structlog.get_logger(__name__)
#: Spools of one folder. More processes that hang at once keep the next one from recording.
MAX_SPOOLS = 8


class Spools:
    """`folder` is the first one; the others stand beside it. Figures are of the spools that are open here, but for
    `dropped`, which counts all, and `elsewhere_bytes`, of those that other processes have open."""

    def __init__(self, folder: Path, max_bytes: int, max_age_s: float) -> None:
        self.folder = folder
        self.elsewhere_bytes = 0
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._lock = threading.Lock()  # around what is open; each spool has one of its own
        self._own: Spool | None = None
        self._left: tuple[Spool, ...] = ()

    def open(self, term: int) -> None:
        """Take a spool to append to in this term, and what others left. Raises Unavailable: `spool_taken` when there
        are as many as may be and all are taken, `spool_broken`."""
        with self._lock:
            self._close()
            for path in self._paths():
                spool = self._spool(path)
                try:
                    spool.open(term)
                except Unavailable as error:
                    if error.code == "spool_taken" and path != self._paths()[-1]:
                        continue
                    raise
                self._own = spool
                if path != self.folder:
                    log.warning("another process has the spool open; this one has its own", folder=str(path))
                break
            self._look_around()

    def open_left(self) -> None:
        """Only what was left and nobody has open; nothing can be appended then. Raises Unavailable."""
        with self._lock:
            self._close()
            self._look_around()

    def look_around(self) -> None:
        """Open what became free, and let go of what is empty. Raises Unavailable."""
        with self._lock:
            self._look_around()

    def close(self) -> None:
        with self._lock:
            self._close()

    @property
    def is_open(self) -> bool:
        """Whether rows can be appended."""
        return self._own is not None

    @property
    def is_anything_left(self) -> bool:
        """Whether there are segments in any of the folders, whoever has them open."""
        return any(any(path.glob("*.seg")) for path in self._paths())

    def steady_ms(self) -> int:
        return self._own.steady_ms() if self._own is not None else time.monotonic_ns() // 1_000_000

    @property
    def is_empty(self) -> bool:
        return all(spool.is_empty for spool in self._opened())

    @property
    def rows(self) -> int:
        return sum(spool.rows for spool in self._opened())

    @property
    def size_bytes(self) -> int:
        return sum(spool.size_bytes for spool in self._opened())

    @property
    def oldest_age_ms(self) -> int | None:
        """How long the oldest row has waited, while a spool was open; None when there is none."""
        ages = [spool.steady_ms() - spool.oldest_ms for spool in self._opened() if spool.oldest_ms]
        return max(ages, default=None)

    @property
    def torn_bytes(self) -> int:
        return sum(spool.torn_bytes for spool in self._opened())

    @property
    def dropped(self) -> Dropped:
        """Of all folders; those that are not open here as their file says. Raises Unavailable."""
        with self._lock:
            opened = {spool.folder: spool for spool in self._opened()}
            each = [opened[path].dropped if path in opened else dropped_of(path / "position") for path in self._paths()]
        return Dropped(sum(one.bytes for one in each), sum(one.age for one in each), sum(one.corrupt for one in each))

    def append(self, rows: Sequence[Row], now_ms: int) -> None:
        """As of one spool; what others left is dropped first when there is no room. Raises SpoolFull, Unavailable."""
        with self._lock:
            own = self._own
            if own is None:
                raise Unavailable(f"the spool in {self.folder} is not open", code="spool_closed")
            room = self._max_bytes - self._max_bytes // SHARE - self.elsewhere_bytes
            while self._left_bytes() + own.size_bytes > room and self._drop_left():
                pass
            while True:
                try:
                    own.append(rows, now_ms, self.elsewhere_bytes + self._left_bytes())
                    return
                except SpoolFull:
                    if not self._left_bytes() or not self._drop_left():
                        raise

    def expire(self) -> None:
        """Drop what is too old. Raises Unavailable."""
        with self._lock:
            for spool in self._opened():
                spool.expire(spool.steady_ms())

    def peek(self, max_rows: int) -> tuple[Spool, Portion] | None:
        """The next rows and the spool that wants their `ack`: first of what was left, the newest term first. None when
        nothing waits. Raises Unavailable."""
        with self._lock:
            for spool in self._opened():
                portion = spool.peek(max_rows)
                if portion is not None:
                    return spool, portion
        return None

    def ack(self, spool: Spool, upto: int) -> None:
        """Raises Unavailable."""
        with self._lock:
            if spool in self._opened():
                spool.ack(upto)

    # inside the lock

    def _opened(self) -> tuple[Spool, ...]:
        return (*self._left, self._own) if self._own is not None else self._left

    def _paths(self) -> list[Path]:
        more = [self.folder.with_name(f"{self.folder.name}-{number}") for number in range(2, MAX_SPOOLS + 1)]
        return [self.folder, *more]

    def _spool(self, path: Path) -> Spool:
        return Spool(path, self._max_bytes, self._max_age_s)

    def _left_bytes(self) -> int:
        return sum(spool.size_bytes for spool in self._left)

    def _drop_left(self) -> bool:
        """The oldest segment of what others left; False when there is none."""
        filled = [spool for spool in self._left if spool.size_bytes]
        return bool(filled) and min(filled, key=lambda spool: spool.term).drop_oldest()

    def _look_around(self) -> None:
        kept = []
        for spool in self._left:
            if spool.is_empty:
                spool.close()
            else:
                kept.append(spool)
        mine = {spool.folder for spool in (*kept, *((self._own,) if self._own is not None else ()))}
        elsewhere = 0
        for path in self._paths():
            if path in mine or not any(path.glob("*.seg")):
                continue
            spool = self._spool(path)
            try:
                spool.open()
            except Unavailable as error:
                if error.code != "spool_taken":
                    log.error("a spool that was left cannot be opened", folder=str(path), error=error.message)
                elsewhere += sum(_sizes(path))
                continue
            log.info("what another recorder left is delivered", folder=str(path), rows=spool.rows)
            kept.append(spool)
        self._left = tuple(sorted(kept, key=lambda spool: -spool.term))
        self.elsewhere_bytes = elsewhere

    def _close(self) -> None:
        for spool in self._opened():
            spool.close()
        self._own, self._left = None, ()


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.glob("*.seg"):
        try:
            yield path.stat().st_size
        except FileNotFoundError:  # done meanwhile
            continue
