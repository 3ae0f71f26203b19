"""What InfluxDB's `/query` answers, read. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tradewind.errors import TradewindError

MAX_MESSAGE = 2000


class NotFinite(TradewindError):
    """The answer holds a number that JSON cannot say; InfluxDB then gives up the whole answer."""

    code = "not_finite"


class Table(msgspec.Struct, frozen=True):
    """Rows of one series: time in milliseconds first. A large series comes as several tables."""

    name: str = ""
    tags: dict[str, str] = {}
    columns: list[str] = []
    values: list[tuple[Any, ...]] = []


class _Result(msgspec.Struct, frozen=True):
    statement_id: int = 0
    series: list[Table] = []
    error: str = ""


class _Answer(msgspec.Struct, frozen=True):
    results: list[_Result] = []
    error: str = ""


_read_json = msgspec.json.Decoder(_Answer).decode
_read_packed = msgspec.msgpack.Decoder(_Answer).decode


def tables_of(line: bytes) -> list[tuple[int, Table | str]]:
    """(number of the statement, table or the statement's error). Raises msgspec.DecodeError, NotFinite."""
    line = line.strip()
    if not line:
        return []
    if line.startswith(b"json:") and b"unsupported value" in line:
        raise NotFinite(line.decode(errors="replace")[:MAX_MESSAGE])
    return _flat(_read_json(line))


def tables_of_packed(data: bytes) -> list[tuple[int, Table | str]]:
    """The same of msgpack. Raises msgspec.DecodeError."""
    return _flat(_read_packed(data))


def _flat(answer: _Answer) -> list[tuple[int, Table | str]]:
    if answer.error:
        return [(0, answer.error)]
    found: list[tuple[int, Table | str]] = []
    for result in answer.results:
        found += [(result.statement_id, table) for table in result.series]
        if result.error:
            found.append((result.statement_id, result.error))
    return found


def read_message(body: bytes, headers: Mapping[str, str]) -> str:
    """What a bad status says in words: 1.x `error`, 2.x `message`, 3.x `error` and `data`, or the text itself."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = None
    if isinstance(said, dict):
        words = [str(said[name]) for name in ("error", "message") if said.get(name)]
        if said.get("data"):
            words.append(str(said["data"]))
        if words:
            return ": ".join(words)[:MAX_MESSAGE]
    text = headers.get("x-influxdb-error") or body.decode(errors="replace")
    return text.strip()[:MAX_MESSAGE]
