"""Commands as data: what somebody asks for, the record in `cmd:{id}`, how an execution ends. No I/O."""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tradewind import codec
from tradewind.errors import Conflict, Invalid, NotFound
from tradewind.points.address import Address
from tradewind.points.spec import Kind

_SHORT = re.compile(r"channel_([0-9]{1,20}) ([ca])_([0-9]{1,20})")


class CommandStatus(StrEnum):
    """The seed's six states: pending → executing → success, failed or timeout; pending → cancelled or timeout."""

    PENDING = "pending"
    EXECUTING = "executing"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"

    @property
    def is_final(self) -> bool:
        return self not in (CommandStatus.PENDING, CommandStatus.EXECUTING)


class Result(StrEnum):
    """Why a command stands where it stands, for machines; `message` says it to people."""

    NONE = ""
    DONE = "done"
    VERIFIED = "verified"
    REFUSED = "refused"
    INTERLOCKED = "interlocked"
    DIFFERS = "differs"
    UNVERIFIED = "unverified"
    UNKNOWN = "unknown"
    LOST = "lost"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class CommandNotFound(NotFound):
    def __init__(self, command_id: str) -> None:
        super().__init__(
            f"there is no command {command_id!r}", code="command_not_found", hint="commands are kept for 24 hours"
        )
        self.command_id = command_id


class CommandConflict(Conflict):
    """The command is not in a state that allows this."""

    def __init__(self, command_id: str, status: str, what: str) -> None:
        super().__init__(
            f"command {command_id!r} is {status} and cannot be {what}",
            code="command_state",
            hint="only pending commands can be cancelled; send another command to undo one",
        )
        self.command_id = command_id


class Interlocked(Conflict):
    """The interlock of the point does not hold, or cannot be judged."""

    def __init__(self, why: str, address: str) -> None:
        super().__init__(f"{address}: {why}", code="interlocked", hint="bring the plant into a state that allows it")


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants: a point (`address`) or a model's control (`model`, `field`), never both.

    `source` is the program or room it comes from, `who` the person or token. Seconds; None: the settings decide.
    `expiry_s` is how long it may wait, `timeout_s` how long its execution may take.
    """

    address: str = ""
    model: str = ""
    field: str = ""
    value: float
    reason: str = ""
    source: str = "api_request"
    who: str = ""
    timeout_s: float | None = None
    expiry_s: float | None = None
    idempotency_key: str = ""

    def sha(self) -> str:
        return hashlib.sha1(codec.encode(msgspec.structs.replace(self, idempotency_key=""))).hexdigest()


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """The record. Times in milliseconds. `address` is the point of the device, also for a model's control."""

    id: str
    model_name: str
    field_name: str
    value: str
    status: CommandStatus
    created_at: int
    updated_at: int
    message: str = ""
    source: str = ""
    address: str
    reason: str = ""
    who: str = ""
    expires_ms: int = 0
    timeout_ms: int = 0
    key: str = ""
    result: Result = Result.NONE
    select: bool = False
    owner: str = ""
    token: int = 0
    actual: float | None = None

    @property
    def point(self) -> Address:
        return Address.parse(self.address)

    @property
    def number(self) -> float:
        return float(self.value)

    @property
    def is_of_model(self) -> bool:
        return (self.model_name, self.field_name) != names_of(self.point)


class Outcome(msgspec.Struct, frozen=True):
    """How an execution ended. `actual` is what the read-back showed; `settles_at` what the point stands at now, if
    that is not the value of the command (a pulse is over)."""

    status: CommandStatus
    result: Result
    message: str = ""
    actual: float | None = None
    settles_at: float | None = None


def new_command_id() -> str:
    return f"cmd_{uuid.uuid4()}"


def names_of(address: Address) -> tuple[str, str]:
    """Model and field name of a command to a bare point: `channel_1001`, `a_40001`."""
    return f"channel_{address.entity}", f"{address.kind}_{address.field}"


def value_text(kind: str, value: float) -> str:
    """`0` or `1` for controls, the shortest decimal for adjustments (`1600.0`)."""
    return str(int(value)) if kind == Kind.CONTROL else repr(float(value))


def fields_of(command: Mapping[str, Any]) -> list[str]:
    """Names and values, flat, as HSET takes them: null is an empty field."""
    flat: list[str] = []
    for name, value in command.items():
        flat += (name, "" if value is None else str(value))
    return flat


class CommandBroken(Conflict):
    """The record of a command is none that anybody can carry out or show."""

    def __init__(self, command_id: str, why: str) -> None:
        super().__init__(
            f"the record cmd:{command_id} cannot be read: {why}",
            code="broken_command",
            hint=f"another program wrote it: correct it, or remove the key cmd:{command_id}",
        )
        self.command_id = command_id


def from_redis(command_id: str, flat: list[bytes]) -> Command | None:
    """The command of a reply of HGETALL, also of one that another program wrote with the fields of the protocol only;
    None for one that is not there. Raises CommandBroken."""
    raw = {flat[at].decode(errors="replace"): flat[at + 1].decode(errors="replace") for at in range(0, len(flat), 2)}
    if not raw:
        return None
    known: dict[str, Any] = {name: raw.get(name, "") for name in Command.__struct_fields__}
    known["id"] = command_id
    short = _SHORT.fullmatch(f"{known['model_name']} {known['field_name']}")
    if not known["address"] and short:
        known["address"] = f"comsrv:{short[1]}:{short[2]}:{short[3]}"
    try:
        if not Address.parse(known["address"]).is_point or not math.isfinite(float(known["value"])):
            raise ValueError("it names no point, or its value is no finite number")
        for name in ("created_at", "updated_at", "expires_ms", "timeout_ms", "token"):
            known[name] = int(float(known[name] or 0))
        known["status"] = CommandStatus(known["status"])
        known["result"] = Result(known["result"])
        known["select"] = known["select"] == "1"
        known["actual"] = float(known["actual"]) if known["actual"] else None
    except Invalid as error:
        raise CommandBroken(command_id, error.message) from error
    except (ValueError, OverflowError) as error:
        raise CommandBroken(command_id, str(error)) from error
    return Command(**known)
