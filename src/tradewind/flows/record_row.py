"""What the engine leaves in `flow:outbox`, read into rows of the SQL tables. Pure; JSON values stay as they are.

An entry of the stream is a JSON list of records, each a log line, a signal, a cycle or the end of a flow. A record is
identified by the entry and its place in the list, so that reading it twice gives the same rows.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw

from tradewind.clock import from_iso

#: How a cycle ended badly: its logs are kept longer.
FAILED = frozenset({"failed", "timeout"})
RUNNING = "running"
_ALIASES = {"WARN": "WARNING", "FATAL": "CRITICAL"}


class LogRow(NamedTuple):
    """`log_metadata` is JSON."""

    flow_id: str
    entry_id: str
    cycle: int
    node_id: str | None
    log_level: str
    log_source: str
    message: str
    log_metadata: str | None
    created_ms: int


class SignalRow(NamedTuple):
    """One per edge; both targets are empty for an output that leads nowhere. `payload` is JSON."""

    flow_id: str
    cycle: int
    source_node: str
    source_handle: str
    target_node: str
    target_handle: str
    signal_id: str
    type: str
    payload: str
    created_ms: int

    @property
    def key(self) -> tuple[Any, ...]:
        return self[:6]

    def over(self, other: SignalRow) -> SignalRow:
        """What is left of two for the same edge, this one written later."""
        return self if self.created_ms >= other.created_ms else other


class CycleRow(NamedTuple):
    """`nodes` is JSON: node id → [status, started_ms, finished_ms, error]; empty while it runs."""

    flow_id: str
    cycle: int
    status: str
    trigger: str
    slot_ms: int
    start_ms: int
    end_ms: int
    total: int
    completed: int
    failed: int
    skipped: int
    terminated: int
    stopped_by: str
    error: str
    nodes: str

    @property
    def key(self) -> tuple[Any, ...]:
        return self[:2]

    def over(self, other: CycleRow) -> CycleRow:
        """What is left of two for the same cycle, this one written later: one that has ended does not run again."""
        if self.status == RUNNING != other.status:
            return other
        return self if self.nodes else self._replace(nodes=other.nodes)


class Record(NamedTuple):
    """The rows of one record. `is_gone`: no rows, and everything before it of that flow is to be forgotten."""

    ref: str
    flow_id: str
    logs: tuple[LogRow, ...] = ()
    signals: tuple[SignalRow, ...] = ()
    cycles: tuple[CycleRow, ...] = ()
    is_gone: bool = False


class Reject(NamedTuple):
    """Something that is not a record, and why."""

    ref: str
    reason: str
    data: bytes


_Flow = Annotated[str, Meta(min_length=1, max_length=64)]
_Name = Annotated[str, Meta(max_length=128)]
_Cycle = Annotated[int, Meta(ge=-1, le=2**62)]
_Ms = Annotated[int, Meta(ge=0, le=2**62)]
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _LogRecord(msgspec.Struct, tag_field="k", tag="log"):
    flow: _Flow
    cycle: _Cycle
    message: str
    at: _Ms
    node: str | None = None
    level: str = "INFO"
    source: str = "scheduler"
    meta: Raw = Raw(b"null")


class _Sent(msgspec.Struct):
    """The wire body of a signal, as far as the record goes."""

    id: str
    type: str
    timestamp: float | str
    payload: Raw = Raw(b"null")
    source_node: _Name = ""
    source_handle: _Name = ""


class _SignalRecord(msgspec.Struct, tag_field="k", tag="signal"):
    flow: _Flow
    cycle: _Cycle
    sig: _Sent
    # An object too, because Lua encodes a list without elements as {}.
    to: list[tuple[_Name, _Name]] | dict[str, Any] = []


class _Counts(msgspec.Struct):
    total: _Count = 0
    completed: _Count = 0
    failed: _Count = 0
    skipped: _Count = 0
    terminated: _Count = 0


class _CycleRecord(msgspec.Struct, tag_field="k", tag="cycle"):
    flow: _Flow
    cycle: _Cycle
    status: Annotated[str, Meta(min_length=1)]
    start: _Ms
    trigger: str = ""
    slot: _Ms = 0
    end: _Ms = 0
    counts: _Counts = msgspec.field(default_factory=_Counts)
    stopped_by: str = ""
    error: str = ""
    nodes: Raw = Raw(b"")


class _GoneRecord(msgspec.Struct, tag_field="k", tag="gone"):
    flow: _Flow


_AnyRecord = _LogRecord | _SignalRecord | _CycleRecord | _GoneRecord
_decode_all = msgspec.json.Decoder(list[_AnyRecord]).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_one = msgspec.json.Decoder(_AnyRecord).decode
_NOT_A_RECORD = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


def read_entry(entry_id: str, data: bytes) -> tuple[list[Record], list[Reject]]:
    """The records of one entry in order, and what is none: the whole entry, or single elements of its list."""
    if data == b"{}":
        return [], []
    try:
        return [_record(f"{entry_id}-{n}", found) for n, found in enumerate(_decode_all(data))], []
    except _NOT_A_RECORD:
        pass
    try:
        raws = _decode_raws(data)
    except _NOT_A_RECORD as error:
        return [], [Reject(entry_id, str(error), data)]
    records, rejects = [], []
    for n, raw in enumerate(raws):
        ref = f"{entry_id}-{n}"
        try:
            records.append(_record(ref, _decode_one(raw)))
        except _NOT_A_RECORD as error:
            rejects.append(Reject(ref, str(error), bytes(raw)))
    return records, rejects


def _record(ref: str, found: _AnyRecord) -> Record:
    flow = clean(found.flow)
    if isinstance(found, _LogRecord):
        return Record(ref, flow, logs=(_log_row(ref, flow, found),))
    if isinstance(found, _SignalRecord):
        return Record(ref, flow, signals=_signal_rows(flow, found))
    if isinstance(found, _GoneRecord):
        return Record(ref, flow, is_gone=True)
    return Record(ref, flow, cycles=(_cycle_row(flow, found),))


def _log_row(ref: str, flow: str, log: _LogRecord) -> LogRow:
    level = clean(log.level.upper())
    meta = bytes(log.meta)
    return LogRow(
        flow,
        ref,
        log.cycle,
        None if log.node is None else clean(log.node),
        _ALIASES.get(level, level),
        clean(log.source),
        clean(log.message),
        None if meta == b"null" else meta.decode(),
        log.at,
    )


def _signal_rows(flow: str, record: _SignalRecord) -> tuple[SignalRow, ...]:
    sent = record.sig
    if isinstance(record.to, dict) and record.to:
        raise ValueError("`to` is an object, not a list of [node, handle]")
    stamp = sent.timestamp
    at = from_iso(stamp) if isinstance(stamp, str) else round(stamp * 1000)
    payload = bytes(sent.payload).decode()
    node, handle = clean(sent.source_node), clean(sent.source_handle)
    kind = clean(sent.type)
    return tuple(
        SignalRow(flow, record.cycle, node, handle, clean(to[0]), clean(to[1]), clean(sent.id), kind, payload, at)
        for to in record.to or [("", "")]
    )


def _cycle_row(flow: str, cycle: _CycleRecord) -> CycleRow:
    nodes, counts = bytes(cycle.nodes), cycle.counts
    if nodes and not nodes.startswith(b"{"):
        raise ValueError("`nodes` is not an object")
    return CycleRow(
        flow,
        cycle.cycle,
        clean(cycle.status),
        clean(cycle.trigger),
        cycle.slot,
        cycle.start,
        cycle.end,
        *(counts.total, counts.completed, counts.failed, counts.skipped, counts.terminated),
        clean(cycle.stopped_by),
        clean(cycle.error),
        nodes.decode(),
    )


def clean(text: str) -> str:
    # PostgreSQL takes no NUL in a text. JSON columns cannot hold one: there it is the escape \u0000.
    return text.replace("\0", "\ufffd")
