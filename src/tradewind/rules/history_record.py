"""An execution of a rule as it stands in its history: the seed's JSON, and what each acting action came to. No I/O."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from tradewind.rules.verdict import show

#: What an expression says is a truth value as a rule.
Value = bool | int | float | str | None


class Checked(msgspec.Struct, frozen=True):
    """What a condition saw. `matched` None: it could not be judged."""

    matched: bool | None
    actual_value: Value

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Checked:
        """An expression may come to a list; that is shown, since what is written must be readable again."""
        value = found.get("actual_value")
        return cls(found.get("matched"), value if isinstance(value, Value) else show(value))


class ActionResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """`id`: the command or the task that came of it. `error` says why nothing did, `code` for machines."""

    type: str
    success: bool
    id: str = ""
    code: str = ""
    error: str = ""


class Context(msgspec.Struct, frozen=True):
    """The source that made the rule change, and its value."""

    source_data: str
    trigger_value: Value


class Execution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`triggered` False: the rule became inactive. `timestamp` in milliseconds; `duration_ms` until the last action was
    done. `substituted`: sources whose values people had given. `cause`: why, if it was not a change of a value
    (startup, timer, edited, …). Seed fields come first."""

    id: str
    rule_id: str
    timestamp: int
    triggered: bool
    conditions_result: dict[str, Checked]
    actions_executed: list[str]
    success: bool
    duration_ms: int
    error_message: str | None
    context: Context
    cause: str = ""
    results: list[ActionResult] = []
    substituted: tuple[str, ...] = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Execution)


def new_execution_id() -> str:
    return f"exec_{uuid.uuid4()}"


def encode(execution: Execution) -> bytes:
    return _encoder.encode(execution)


def decode(text: bytes) -> Execution:
    """Raises msgspec.MsgspecError for what is no execution."""
    return _decoder.decode(text)


def view(execution: Execution) -> dict[str, Any]:
    """As JSON-like data, for the API."""
    found: dict[str, Any] = msgspec.to_builtins(execution)
    return found
