"""How far a spool is done, and what it had to drop: one small file, overwritten in place so that it needs no space."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import msgspec

_BODY = struct.Struct("<QQQQ")
_CRC = struct.Struct("<I")


class Dropped(msgspec.Struct):
    """Rows that will never reach the sink, by reason. Kept on disk. May be too high: by what was
    just being delivered when its segment was dropped, and by what a crash makes it count twice."""

    bytes: int = 0
    age: int = 0
    corrupt: int = 0


class Position:
    """`done`: rows with a lower number are delivered or dropped. `is_known` is False when the file says nothing."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.done = 0
        self.dropped = Dropped()
        raw = os.pread(self._file, _BODY.size + _CRC.size, 0)
        body = raw[: _BODY.size]
        self.is_known = len(raw) == _BODY.size + _CRC.size and _CRC.unpack_from(raw, _BODY.size)[0] == zlib.crc32(body)
        if self.is_known:
            self.done, *dropped = _BODY.unpack(body)
            self.dropped = Dropped(*dropped)

    def store(self) -> None:
        """Not synced: an older position only means that some rows are delivered twice."""
        body = _BODY.pack(self.done, self.dropped.bytes, self.dropped.age, self.dropped.corrupt)
        os.pwrite(self._file, body + _CRC.pack(zlib.crc32(body)), 0)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)
