"""How a segment of the spool looks on disk: records one behind the other, each with its own checksums. No state.

A record: magic, length of the payload, rows, number of the first row, ms of the append, CRC of the payload, CRC of this
head; then the payload, compressed columns. Row numbers go on over all segments: a hole says how much it held.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tradewind.history.columns import Columns
from tradewind.history.sample import Row

MAGIC = b"TWh2"
_HEAD = struct.Struct("<4sIIQQI")
_CRC = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CRC.size
#: Speed before size: the disk is in use only while a sink is away.
LEVEL = 1


class _Payload(msgspec.Struct, array_like=True):
    """The columns; numbers as the machine has them."""

    series: list[str]
    ts: bytes
    value: bytes
    quality: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Payload).decode


class Head(NamedTuple):
    """`offset` of the record in its file, `length` of its payload, `first`: number of its first row."""

    offset: int
    length: int
    rows: int
    first: int
    at_ms: int
    crc: int

    @property
    def next_offset(self) -> int:
        return self.offset + HEAD_BYTES + self.length

    @property
    def next_row(self) -> int:
        return self.first + self.rows


def packed(rows: Sequence[Row]) -> bytes:
    columns = rows if isinstance(rows, Columns) else Columns(rows)
    numbers = columns.ts.tobytes(), columns.value.tobytes(), bytes(columns.quality)
    return zlib.compress(_encode(_Payload(columns.series, *numbers)), LEVEL)


def unpacked(payload: bytes) -> Columns:
    """Raises ValueError, zlib.error for what is no payload."""
    found = _decode(zlib.decompress(payload))
    ts, value = array("q", found.ts), array("d", found.value)
    if not len(found.series) == len(ts) == len(value) == len(found.quality):
        raise ValueError("columns of different lengths")
    columns = Columns()
    columns.add(found.series, ts, value, found.quality)
    return columns


def record(payload: bytes, rows: int, first: int, at_ms: int, offset: int) -> tuple[Head, bytes]:
    head = Head(offset, len(payload), rows, first, at_ms, zlib.crc32(payload))
    raw = _HEAD.pack(MAGIC, head.length, rows, first, at_ms, head.crc)
    return head, raw + _CRC.pack(zlib.crc32(raw)) + payload


def read_payload(file: int, head: Head) -> bytes | None:
    """The payload, or None when it is not what was written."""
    try:
        payload = os.pread(file, head.length, head.offset + HEAD_BYTES)
    except OSError:  # a bad sector: as good as a wrong checksum
        return None
    return payload if len(payload) == head.length and zlib.crc32(payload) == head.crc else None


def read_heads(path: Path) -> list[Head]:
    """The records of a segment whose heads can be read, in order; what is between them is passed over. Payloads are not
    looked at. Raises OSError."""
    file = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(file).st_size
        heads: list[Head] = []
        offset = 0
        while offset + HEAD_BYTES <= size:
            head = _head(os.pread(file, HEAD_BYTES, offset), offset, size)
            if head is None:
                found = _search(file, offset + 1, size)
                if found is None:
                    break
                head = found
            heads.append(head)
            offset = head.next_offset
        return heads
    finally:
        os.close(file)


def without_torn_tail(path: Path, heads: list[Head]) -> tuple[int, int]:
    """Cut what follows the last whole record off the file and out of `heads`; how many bytes went, and how many rows
    with them that had been taken: a crash tears one record only, what else is bad there is damage. Raises OSError."""
    file = os.open(path, os.O_RDWR)
    try:
        bad = list[Head]()
        while heads and read_payload(file, heads[-1]) is None:
            bad.append(heads.pop())
        end = heads[-1].next_offset if heads else 0
        torn = os.fstat(file).st_size - end
        if torn:
            os.ftruncate(file, end)
            os.fsync(file)
        return torn, sum(head.rows for head in bad[1:])
    finally:
        os.close(file)


def _head(raw: bytes, offset: int, size: int) -> Head | None:
    if not raw.startswith(MAGIC) or len(raw) < HEAD_BYTES:
        return None
    if _CRC.unpack_from(raw, _HEAD.size)[0] != zlib.crc32(raw[: _HEAD.size]):
        return None
    _, length, rows, first, at_ms, crc = _HEAD.unpack_from(raw)
    head = Head(offset, length, rows, first, at_ms, crc)
    return head if head.next_offset <= size else None


def _search(file: int, start: int, size: int) -> Head | None:
    """The next record after something unreadable."""
    data = os.pread(file, size - start, start)
    at = data.find(MAGIC)
    while at >= 0:
        head = _head(data[at : at + HEAD_BYTES], start + at, size)
        if head is not None:
            return head
        at = data.find(MAGIC, at + 1)
    return None
