"""A signal: what one node's output handle says to the handles wired to it, and its form on the wire.

Written as JSON with exactly the fields of `Signal`, in their order; read in the seed's older form, too.
"""

from __future__ import annotations

import math
import time
from enum import StrEnum
from typing import Any

import msgspec

from tradewind import codec
from tradewind.clock import from_iso
from tradewind.errors import Invalid, Problem
from tradewind.ids import new_id


class SignalType(StrEnum):
    """The kinds of signal there are. A word that is none of them is read as ANY."""

    PRICE_DATA = "PRICE_DATA"
    AI_RESPONSE = "AI_RESPONSE"
    DATASET = "DATASET"
    DATA_READY = "DATA_READY"
    DEX_TRADE_RECEIPT = "DEX_TRADE_RECEIPT"
    VAULT_INFO = "VAULT_INFO"
    STOP_EXECUTION = "STOP_EXECUTION"
    ANY = "ANY"


class Signal(msgspec.Struct, frozen=True):
    """`timestamp` is seconds since the epoch. Source, flow and cycle may be empty in what a foreign program sent."""

    id: str
    type: str
    payload: Any
    timestamp: float
    source_node: str = ""
    source_handle: str = ""
    flow_id: str = ""
    cycle: int = 0


def new_signal(
    payload: Any,
    *,
    type: str = SignalType.ANY,
    source_node: str = "",
    source_handle: str = "",
    flow_id: str = "",
    cycle: int = 0,
    timestamp: float | None = None,
) -> Signal:
    """A signal with an id of its own, of now unless `timestamp` says otherwise."""
    at = time.time() if timestamp is None else timestamp
    return Signal(new_id(), read_type(type), payload, at, source_node, source_handle, flow_id, cycle)


def read_type(text: Any) -> str:
    """The known type of that name, in any case, also written as `SignalType.NAME`; ANY for everything else."""
    name = text.upper().rpartition(".")[2] if isinstance(text, str) else ""
    return name if name in _TYPES else "ANY"


_TYPES = frozenset(kind.value for kind in SignalType)


def encode(signal: Signal) -> bytes:
    """The wire body. Raises Invalid for a payload that JSON cannot carry (NaN and infinities among it)."""
    try:
        data = codec.encode(signal)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # UnicodeError is a ValueError
        raise _bad(signal, str(error)) from error
    if codec.lost_non_finite(signal, data):
        raise _bad(signal, "NaN and infinity are not JSON")
    return data


def _bad(signal: Signal, why: str) -> Invalid:
    where = f"{signal.source_node}:{signal.source_handle}" if signal.source_node else signal.id
    problem = Problem("bad_payload", "payload", "send plain JSON data")
    message = f"the payload of signal {where} cannot be written as JSON: {why}"
    return Invalid(message, code="bad_payload", hint=problem.hint, problems=[problem])


def decode(data: bytes | str, *, message_id: str = "") -> Signal:
    """Read a wire body, ours or the seed's (`signal_type`, ISO times, types in any case, without id and source).

    A body without an id takes `message_id`, or a new one. Raises Invalid with every field that cannot be read.
    """
    body = codec.decode(data)
    if not isinstance(body, dict):
        raise Invalid("the signal is not a JSON object", code="bad_signal", hint="send {type, payload, timestamp, …}")
    problems: list[Problem] = []
    signal = Signal(
        id=_text(body, "id", problems) or message_id or new_id(),
        type=read_type(body.get("type", body.get("signal_type"))),
        payload=body["payload"] if "payload" in body else body.get("data"),
        timestamp=_seconds(body.get("timestamp"), problems),
        source_node=_text(body, "source_node", problems),
        source_handle=_text(body, "source_handle", problems),
        flow_id=_text(body, "flow_id", problems),
        cycle=_whole(body.get("cycle"), problems),
    )
    if problems:
        named = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems)
        hint = "send the fields as they are documented"
        raise Invalid(f"the signal cannot be read: {named}", code="bad_signal", hint=hint, problems=problems)
    return signal


def _text(body: dict[str, Any], field: str, problems: list[Problem]) -> str:
    value = body.get(field)
    if value is None:
        return ""
    if isinstance(value, str) and len(value) <= 200:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    problems.append(Problem("bad_signal", field, "must be text of at most 200 characters"))
    return ""


def _seconds(value: Any, problems: list[Problem]) -> float:
    if value is None:
        return time.time()
    try:
        if isinstance(value, str):
            return from_iso(value) / 1000 if "-" in value else _finite(float(value))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return _finite(float(value))
    except (ValueError, OverflowError):
        pass
    problems.append(Problem("bad_signal", "timestamp", "must be seconds since the epoch or an ISO time"))
    return 0.0


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("not a time")
    return value


def _whole(value: Any, problems: list[Problem]) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18:
        return value
    problems.append(Problem("bad_signal", "cycle", "must be a whole number"))
    return 0
