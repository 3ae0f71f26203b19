"""Blocks of history as the bytes of a file: CSV, or Parquet when pyarrow is installed (`tradewind[parquet]`)."""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tradewind.clock import iso
from tradewind.errors import Invalid, Problem, Unavailable
from tradewind.history.export import Export, Rows
from tradewind.history.sink import SinkAway

FORMATS = ("csv", "parquet")
MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
#: Rows of a row group: small ones make large files.
GROUP = 100_000
#: Before a piece of a file: its size, the share that is done (of WHOLE, which is the end), rows so far.
FRAME = struct.Struct("<IHQ")
WHOLE = 10_000
#: In place of the share: what follows are `Lacks`, and no part of the file.
NOTE = 65_535
#: Series that `Lacks` names.
NAMED = 100
FRAMES = ("false", "true", "noted")
#: Columns that hold whole numbers.
_WHOLE = ("count", "good")


class FileWriter(ABC):
    """Rows in, bytes of the file out; `end` gives the last ones. Not for the loop: both work for a while."""

    @abstractmethod
    def add(self, rows: Rows) -> bytes: ...

    @abstractmethod
    def end(self) -> bytes: ...


class Lacks(msgspec.Struct, frozen=True):
    """Of so many series retention has removed a part of the range; the first of them, with where each is whole from."""

    count: int
    series: list[tuple[str, int]]


async def file_bytes(
    writer: FileWriter, export: Export, *, framed: str = "false", told: Mapping[str, int] | None = None
) -> AsyncIterator[bytes]:
    """`framed`: each piece with a head that tells how far it is, `noted` also what the file lacks; for a program that
    shows this, see `unframed`.

    `told`: what the reader knows that the file lacks. Raises SinkAway when that is no longer all, since retention went
    on meanwhile, and there is no other way to tell it.
    """
    head, is_framed = b"", framed != "false"
    async for rows in export.blocks():
        piece = await asyncio.to_thread(writer.add, rows) if rows else b""
        if is_framed:
            head = FRAME.pack(len(piece), min(int(export.share * WHOLE), WHOLE - 1), export.rows)
        if head or piece:
            yield head + piece
    lacks = {} if told is None and framed != "noted" else await export.lacks()
    if framed == "noted" and lacks:
        note = msgspec.json.encode(Lacks(len(lacks), list(lacks.items())[:NAMED]))
        yield FRAME.pack(len(note), NOTE, export.rows) + note
    elif not lacks.keys() <= (told or {}).keys():
        hint = "export it again; the answer says then what it lacks"
        raise SinkAway("retention has removed a part of the range meanwhile", code="removed_meanwhile", hint=hint)
    piece = await asyncio.to_thread(writer.end)
    if is_framed:
        head = FRAME.pack(len(piece), WHOLE, export.rows)
    if head or piece:
        yield head + piece


def unframed(
    pieces: Iterable[bytes], step: Callable[[float, int], None], note: Callable[[Lacks], None] = lambda lacks: None
) -> Iterator[bytes]:
    """The file in what `file_bytes` gave, however it was cut on its way. `step` is told the share that is done and the
    rows so far, `note` what the file lacks. Raises Unavailable when the end is missing."""
    data, done = b"", 0
    for piece in pieces:
        data += piece
        while len(data) >= FRAME.size:
            size, done, rows = FRAME.unpack_from(data)
            if len(data) < FRAME.size + size:
                break
            piece, data = data[FRAME.size : FRAME.size + size], data[FRAME.size + size :]
            if done == NOTE:
                note(msgspec.json.decode(piece, type=Lacks))
                done = 0
                continue
            if piece:
                yield piece
            step(done / WHOLE, rows)
    if data or done < WHOLE:
        raise Unavailable("the export broke off", code="broke_off", hint="see the log of the station, and try again")


def file_writer(
    kind: str, columns: Sequence[str], *, iso_times: bool = False, lacks: Mapping[str, int] | None = None
) -> FileWriter:
    """`iso_times`: of CSV; Parquet has a type for times. `lacks`: for the metadata of Parquet; CSV has no room for it.
    Raises Invalid without pyarrow."""
    if kind == "csv":
        return CsvFile(columns, iso_times)
    return ParquetFile(columns, lacks or {})


class CsvFile(FileWriter):
    """Nothing in it needs quotes: addresses have no commas."""

    def __init__(self, columns: Sequence[str], iso_times: bool) -> None:
        self._head = (",".join(columns) + "\n").encode()
        self._iso = iso_times

    def add(self, rows: Rows) -> bytes:
        head, self._head = self._head, b""
        time = iso if self._iso else str
        lines = [f"{time(ts)},{','.join([_text(value) for value in values])}\n" for ts, *values in rows]
        return head + "".join(lines).encode()

    def end(self) -> bytes:
        return self._head  # a file without rows has a header, too


def _text(value: Any) -> str:
    return "" if value is None else value if type(value) is str else repr(value)


class ParquetFile(FileWriter):
    """Its metadata has `history.complete`, and in `history.available_from` where series are whole from that are not
    so throughout: an object by address, milliseconds."""

    def __init__(self, columns: Sequence[str], lacks: Mapping[str, int]) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            hint = "install it where the station runs (pip install 'tradewind[parquet]'), or ask for csv"
            problem = Problem("no_parquet", "format", hint)
            message = "Parquet needs pyarrow, which is not installed"
            raise Invalid(message, code=problem.code, hint=hint, problems=[problem]) from error
        self._arrow = pyarrow
        told = {"history.complete": str(not lacks).lower(), "history.available_from": msgspec.json.encode(lacks)}
        self._schema = pyarrow.schema([(name, self._type(name)) for name in columns], metadata=told)
        self._out = _Pieces()
        # Addresses repeat: as a dictionary they take next to nothing.
        self._writer = pyarrow.parquet.ParquetWriter(self._out, self._schema, compression="zstd")
        self._rows: Rows = []

    def add(self, rows: Rows) -> bytes:
        self._rows += rows
        if len(self._rows) >= GROUP:
            self._write()
        return self._out.take()

    def end(self) -> bytes:
        if self._rows:
            self._write()
        self._writer.close()
        return self._out.take()

    def _write(self) -> None:
        columns = list(zip(*self._rows, strict=True))
        arrays = [self._arrow.array(each, field.type) for each, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []

    def _type(self, column: str) -> Any:
        if column == "ts":
            return self._arrow.timestamp("ms", tz="UTC")
        if column == "address":
            return self._arrow.string()
        if column == "quality":
            return self._arrow.int8()
        return self._arrow.int64() if column.rpartition(" ")[2] in _WHOLE else self._arrow.float64()


class _Pieces:
    """A file for pyarrow whose bytes are taken away as they come."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._at += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def take(self) -> bytes:
        found = b"".join(self._parts)
        self._parts.clear()
        return found
