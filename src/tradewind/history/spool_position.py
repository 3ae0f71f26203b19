"""How far a spool is done, and what it had to drop: one small file, overwritten in place so that it needs no space."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import msgspec

_BODY = struct.Struct("<QQQQQQ")
#: Without `term` and `late`, as it was written before there were several spools.
_FORMER = struct.Struct("<QQQQ")
_CRC = struct.Struct("<I")


class Dropped(msgspec.Struct):
    """Rows that will never reach the sink, by reason. Kept on disk. May be too high: by what was
    just being delivered when its segment was dropped, and by what a crash makes it count twice."""

    bytes: int = 0
    age: int = 0
    corrupt: int = 0


class Position:
    """`done`: rows with a lower number are delivered or dropped. `term`: of the recorder that appended last. `late`:
    rows with a lower number may be older than what another term has recorded since. `is_known` is False when the file
    says nothing."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.done = self.term = self.late = 0
        self.dropped = Dropped()
        found = _read(os.pread(self._file, _BODY.size + _CRC.size, 0))
        self.is_known = found is not None
        if found is not None:
            self.done, *dropped, self.term, self.late = found
            self.dropped = Dropped(*dropped)

    def store(self) -> None:
        """Not synced: an older position only means that some rows are delivered twice."""
        dropped = self.dropped
        body = _BODY.pack(self.done, dropped.bytes, dropped.age, dropped.corrupt, self.term, self.late)
        os.pwrite(self._file, body + _CRC.pack(zlib.crc32(body)), 0)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def dropped_of(path: Path) -> Dropped:
    """What a spool that is not open here had to drop; nothing when its file says nothing."""
    try:
        found = _read(path.read_bytes())
    except OSError:
        found = None
    return Dropped(*found[1:4]) if found is not None else Dropped()


def _read(raw: bytes) -> tuple[int, ...] | None:
    """Six numbers; None when it is none of the two forms, or not whole."""
    for form in (_BODY, _FORMER):
        if len(raw) == form.size + _CRC.size and _CRC.unpack_from(raw, form.size)[0] == zlib.crc32(raw[: form.size]):
            return (*form.unpack_from(raw), 0, 0)[:6]
    return None
