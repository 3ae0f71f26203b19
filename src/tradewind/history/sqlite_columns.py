"""How samples lie in the files: as columns of numbers in blobs, with a checksum. No I/O.

A run holds many series as they were written together; a part holds a stretch of one series.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tradewind.history.aggregate import Bytes, Floats, Ints, Line

_HEAD = struct.Struct("<IB3x")  # CRC-32 of what follows, flags; the values behind it are aligned
_QUALITY, _PACKED = 1, 2


class Damaged(Exception):
    """A blob is not what was written."""


class Block(NamedTuple):
    """Samples of many series, in order of (series id, time), no two of one key."""

    series: Ints
    ts: Ints
    value: Floats
    quality: Bytes

    def pick(self, order: Ints) -> Block:
        return Block(self.series[order], self.ts[order], self.value[order], self.quality[order])

    def cut(self, begin: int, end: int) -> Block:
        return Block(self.series[begin:end], self.ts[begin:end], self.value[begin:end], self.quality[begin:end])

    def line(self, begin: int, end: int) -> Line:
        return Line(self.ts[begin:end], self.value[begin:end], self.quality[begin:end])

    def groups(self) -> list[tuple[int, int, int]]:
        """(series id, begin, end) for each series."""
        if not len(self.series):
            return []
        starts = np.append(0, np.flatnonzero(self.series[1:] != self.series[:-1]) + 1)
        ends = np.append(starts[1:], len(self.series))
        return list(zip(self.series[starts].tolist(), starts.tolist(), ends.tolist(), strict=True))


def sort_block(blocks: Sequence[Block]) -> Block:
    """One block of all; for one key the last of the last block stays. The blocks themselves may be unsorted."""
    block = (
        blocks[0] if len(blocks) == 1 else Block(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))
    )
    series, ts = block.series, block.ts
    if len(ts) < 2:
        return block
    low = int(ts.min())
    span = int(ts.max()) - low + 1
    if (int(series.max()) + 1) * span < 2**63:
        order = np.argsort(series * span + (ts - low), kind="stable")  # one key: three times as fast as two
    else:
        order = np.lexsort((ts, series))
    series, ts = series[order], ts[order]
    last = np.append((series[1:] != series[:-1]) | (ts[1:] != ts[:-1]), True)
    if not bool(np.all(last)):
        order, series, ts = order[last], series[last], ts[last]
    return Block(series, ts, block.value[order], block.quality[order])


def encode_run(block: Block) -> bytes:
    series = block.series.astype("<u4").tobytes()
    return _sealed(block.value.tobytes() + block.ts.tobytes() + series + block.quality.tobytes(), 0)


def decode_run(data: bytes, n: int) -> Block:
    """Raises Damaged."""
    _open(data, 21 * n)
    at = _HEAD.size
    return Block(
        np.frombuffer(data, "<u4", n, at + 16 * n).astype(np.int64),
        np.frombuffer(data, "<i8", n, at + 8 * n),
        np.frombuffer(data, "<f8", n, at),
        np.frombuffer(data, np.uint8, n, at + 20 * n),
    )


def encode_part(line: Line, start_ms: int) -> bytes:
    """Times as 32 bits since `start_ms`; the quality only if it is not good throughout."""
    body = line.value.tobytes() + (line.ts - start_ms).astype("<u4").tobytes()
    if line.quality.any():
        return _sealed(body + line.quality.tobytes(), _QUALITY)
    return _sealed(body, 0)


def pack_part(line: Line, start_ms: int) -> bytes:
    """The same, but several times smaller and slower: for what will hardly change any more."""
    bits = line.value.view(np.int64)
    bits = np.append(bits[:1], bits[1:] ^ bits[:-1])
    steps = np.diff((line.ts - start_ms).astype("<u4"), prepend=np.uint32(0)).astype("<u4")
    body = bits.view(np.uint8).reshape(-1, 8).T.tobytes() + steps.view(np.uint8).reshape(-1, 4).T.tobytes()
    flags = _PACKED
    if line.quality.any():
        body, flags = body + line.quality.tobytes(), _PACKED | _QUALITY
    return _sealed(zlib.compress(body, 1), flags)


def decode_part(data: bytes, n: int, start_ms: int) -> Line:
    """Raises Damaged."""
    flags = _open(data, None)
    size = (13 if flags & _QUALITY else 12) * n
    at = _HEAD.size
    if flags & _PACKED:
        try:
            data, at = zlib.decompress(memoryview(data)[at:]), 0
        except zlib.error as error:
            raise Damaged(str(error)) from error
    if len(data) - at != size:
        raise Damaged(f"{len(data) - at} bytes for {n} samples")
    if flags & _PACKED:
        bits = np.frombuffer(data, np.uint8, 8 * n).reshape(8, n).T.copy().view("<i8").ravel()
        value = np.bitwise_xor.accumulate(bits).view(np.float64)
        steps = np.frombuffer(data, np.uint8, 4 * n, 8 * n).reshape(4, n).T.copy().view("<u4").ravel()
        ts = np.cumsum(steps, dtype=np.int64) + start_ms
    else:
        value = np.frombuffer(data, "<f8", n, at)
        ts = np.frombuffer(data, "<u4", n, at + 8 * n).astype(np.int64) + start_ms
    quality = np.frombuffer(data, np.uint8, n, at + 12 * n) if flags & _QUALITY else np.zeros(n, np.uint8)
    return Line(ts, value, quality)


def is_packed(data: bytes) -> bool:
    return len(data) >= _HEAD.size and bool(_HEAD.unpack_from(data)[1] & _PACKED)


def _sealed(body: bytes, flags: int) -> bytes:
    return _HEAD.pack(zlib.crc32(body), flags) + body


def _open(data: bytes, size: int | None) -> int:
    if len(data) < _HEAD.size or (size is not None and len(data) != _HEAD.size + size):
        raise Damaged(f"{len(data)} bytes")
    crc, flags = _HEAD.unpack_from(data)
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != crc:
        raise Damaged("the checksum is wrong")
    return int(flags)
