"""What forbids a command: its own form, the point's bounds, interlocks. Pure; all problems at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.expr import Expression, ExpressionError, compile_expression
from tradewind.ids import IDEMPOTENCY_KEY
from tradewind.points.address import Address
from tradewind.points.board_read import PointValue
from tradewind.points.command_record import CommandRequest
from tradewind.points.convert import check_write
from tradewind.points.driver_registry import PUSH
from tradewind.points.spec import GOOD_ONLY, ChannelSpec, Kind, PointSpec, Quality

MAX_S: Final = 3600.0
WRITABLE: Final = (Kind.CONTROL, Kind.ADJUSTMENT)
_SOURCE = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_PLACED = re.compile(r"\{((?:comsrv|modsrv):[A-Za-z0-9_:-]+)\}")
_OWN_POINT = re.compile(r"([msca])([0-9]{1,20})")
_PAIRED = re.compile(r"([msca]):?([0-9]{1,20})")
_HINT = "write points of the same channel as m10001, all others as {comsrv:1001:m:10001}, the new value as value"


class Control(msgspec.Struct, frozen=True):
    """A model's control field: the point behind it, and the model's own bounds."""

    address: str
    min: float | None = None
    max: float | None = None
    step: float = 0.0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Interlock:
    """A condition that must hold. `addresses`: the points it looks at, by the name they have in the expression.
    `accepts`: the qualities that their values may have."""

    text: str
    expression: Expression
    addresses: Mapping[str, Address]
    accepts: tuple[Quality, ...] = GOOD_ONLY


def check_request(request: CommandRequest) -> list[Problem]:
    """What is wrong whatever the point is."""
    problems = []
    if bool(request.address) == bool(request.model or request.field):
        hint = "give either an address or model and field"
        problems.append(Problem("no_target" if not request.address else "two_targets", "address", hint))
    elif bool(request.model) != bool(request.field):
        missing = "field" if request.model else "model"
        problems.append(Problem("no_target", missing, f"give {missing}, too"))
    elif request.address:
        try:
            if not Address.parse(request.address).is_point:
                hint = "give the model and the field of a control instead of its address"
                problems.append(Problem("not_writable", "address", hint))
        except Invalid as error:
            problems.append(Problem("bad_address", "address", f"{error.message}; {error.hint}"))
    if not math.isfinite(request.value):
        problems.append(Problem("not_finite", "value", "write a finite number"))
    if _SOURCE.fullmatch(request.source) is None:
        problems.append(Problem("bad_source", "source", "1 to 64 of A-Z a-z 0-9 _ . @ -"))
    for name, limit in (("reason", 500), ("who", 200)):
        if len(getattr(request, name)) > limit:
            problems.append(Problem("too_long", name, f"at most {limit} characters"))
    for name in ("timeout_s", "expiry_s"):
        seconds = getattr(request, name)
        if seconds is not None and not 0.001 <= seconds <= MAX_S:
            problems.append(Problem("out_of_range", name, f"0.001 to {MAX_S:g} seconds"))
    if request.idempotency_key and IDEMPOTENCY_KEY.fullmatch(request.idempotency_key) is None:
        problems.append(Problem("bad_key", "idempotency_key", "1 to 200 of A-Z a-z 0-9 _ . : @ / -"))
    return problems


def find_point(channel: ChannelSpec | None, address: Address) -> PointSpec | None:
    if channel is None:
        return None
    return next((p for p in channel.points if p.id == address.field and p.kind == address.kind), None)


def check_target(channel: ChannelSpec | None, point: PointSpec | None, address: Address, value: float) -> list[Problem]:
    """What is wrong with writing this value to this point."""
    if channel is None:
        return [Problem("unknown_channel", "address", f"there is no channel {address.entity}")]
    problems = []
    if not channel.enabled:
        problems.append(Problem("channel_disabled", "address", f"enable channel {channel.id} first"))
    if channel.protocol == PUSH:
        hint = f"the values of channel {channel.id} are sent to us: there is no device to write to"
        problems.append(Problem("no_device", "address", hint))
    if address.kind not in WRITABLE:
        hint = f"points of kind {address.kind} are read only; write to c or a"
        problems.append(Problem("not_writable", "address", hint))
    elif point is None:
        hint = f"channel {channel.id} has no point {address.kind}:{address.field}"
        problems.append(Problem("unknown_point", "address", hint))
    elif math.isfinite(value):
        problems += check_write(point, value)
    return problems


def check_control(control: Control, value: float) -> list[Problem]:
    """The model's own bounds, beside those of the point."""
    bounds = PointSpec(
        Kind.ADJUSTMENT,
        "0",
        unit=control.unit,
        min=control.min,
        max=control.max,
        step=control.step,
        data_type="float64",
    )
    return check_write(bounds, value) if math.isfinite(value) else []


def parse_interlock(text: str, channel: str, accepts: tuple[Quality, ...] = GOOD_ONLY) -> Interlock:
    """Raises Invalid with all problems of the text."""
    addresses: dict[str, Address] = {}
    names: dict[str, str] = {}

    def place(match: re.Match[str]) -> str:
        name = names.setdefault(match[1], f"point_{len(names)}")
        addresses[name] = Address.parse(match[1])
        return name

    expression = compile_expression(_PLACED.sub(place, text))
    unknown = []
    for name in sorted(expression.names - addresses.keys() - {"value"}):
        own = _OWN_POINT.fullmatch(name)
        if own is None:
            unknown.append(Problem("unknown_name", name, f"{name!r} is no point; {_HINT}"))
        else:
            addresses[name] = Address.point(channel, own[1], own[2])
    if unknown:
        raise Invalid(
            f"the interlock {text!r} names what is no point", code="bad_interlock", hint=_HINT, problems=unknown
        )
    return Interlock(text, expression, addresses, accepts)


def judge(interlock: Interlock, value: float, points: Mapping[str, PointValue]) -> str:
    """Why the interlock forbids the value now; `` when it does not. Only values of the qualities that it accepts count;
    `points` by name."""
    inputs: dict[str, object] = {"value": value}
    for name, address in interlock.addresses.items():
        point = points[name]
        if point.value is None:
            return f"the interlock needs {address}, which has no value"
        if point.quality not in interlock.accepts:
            return f"the interlock needs {address}, which is {_doubt(point)}"
        inputs[name] = point.value
    try:
        is_free = interlock.expression(inputs)
    except ExpressionError as error:
        return f"the interlock cannot be judged: {error.message}"
    if is_free is True or (isinstance(is_free, (int, float)) and not isinstance(is_free, bool) and is_free != 0):
        return ""
    seen = ", ".join(f"{interlock.addresses[name]} = {inputs[name]:g}" for name in interlock.addresses)
    return f"the interlock {interlock.text!r} does not hold" + (f" ({seen})" if seen else "")


def _doubt(point: PointValue) -> str:
    if point.is_stale or point.quality != Quality.SUBSTITUTED:
        return "stale" if point.is_stale else point.quality
    hint = "release it, or let the point's interlock_accepts allow it"
    said = point.substitution
    by = f" by {said.who}: {said.reason}" if said is not None else ""
    return f"substituted{by} ({hint})"


def read_back_of(point: PointSpec, channel: str) -> Address | None:
    """The point that shows what a write to `point` has brought about; None: none is named. Raises Invalid."""
    if not point.read_back:
        return None
    paired = _PAIRED.fullmatch(point.read_back)
    return Address.point(channel, paired[1], paired[2]) if paired else Address.parse(point.read_back)


def check_safety(points: Sequence[PointSpec], channel: str) -> list[Problem]:
    """What is wrong with interlocks and read-backs of a channel's points, for whoever takes its definition in."""
    problems = []
    known = {(point.kind.value, point.id) for point in points}
    for at, point in enumerate(points):
        if point.interlock:
            try:
                parse_interlock(point.interlock, channel)
            except Invalid as error:
                hints = "; ".join(problem.hint for problem in error.problems) or error.hint
                problems.append(Problem("bad_interlock", f"points[{at}].interlock", f"{error.message}: {hints}"))
        try:
            paired = read_back_of(point, channel)
        except Invalid:
            problems.append(Problem("bad_read_back", f"points[{at}].read_back", "write m:10001 or a whole address"))
            continue
        if paired is not None and paired.entity == channel and (paired.kind, paired.field) not in known:
            hint = f"this channel has no point {paired.kind}:{paired.field}"
            problems.append(Problem("unknown_point", f"points[{at}].read_back", hint))
    return problems
