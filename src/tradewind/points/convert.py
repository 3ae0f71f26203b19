"""Raw values of devices and engineering values, both ways; what may be written; what counts as a change. Pure.

m and a: engineering = raw × scale + offset. s and c: 0 or 1, flipped by `reverse`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Final

from tradewind.errors import Invalid, Problem
from tradewind.points.spec import Kind, PointSpec

INTEGER_RANGES: Final[dict[str, tuple[int, int]]] = {
    f"{sign}int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if not sign else (0, 2**bits - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
} | {"bool": (0, 1)}

_SIGNAL: Final = Kind.SIGNAL
_CONTROL: Final = Kind.CONTROL
# A share of the deadband or step that counts as nothing: 20.2 - 20.1 is 0.0999… and 50.3 / 0.1 is 502.99…
_NOISE: Final = 1e-6


def wire_type(point: PointSpec) -> str:
    """The type that the device has: the mapping's, else the point's."""
    return str(point.mapping.get("data_type") or point.data_type).lower()


def to_engineering(point: PointSpec, raw: float) -> float:
    """NaN stays NaN, for every kind."""
    kind = point.kind
    if kind is not _SIGNAL and kind is not _CONTROL:
        return raw * point.scale + point.offset
    return _state(point.on_value, point.off_value, point.reverse, raw)


def to_raw(point: PointSpec, value: float) -> float:
    """What to write to the device; whole, and rounded half away from zero, where the device has an integer.

    Does not look at bounds (see `check_write`). Raises Invalid for NaN, infinities and a scale of 0.
    """
    if not math.isfinite(value):
        raise Invalid(f"point {point.id}: {value} is not a number", code="not_finite", hint="write a finite number")
    if point.kind is _SIGNAL or point.kind is _CONTROL:
        return point.on_value if (value != 0) != point.reverse else point.off_value
    if point.scale == 0:
        raise Invalid(f"point {point.id} has scale 0", code="bad_scale", hint="give the point a scale other than 0")
    raw = (value - point.offset) / point.scale
    if wire_type(point) in INTEGER_RANGES:
        # Past 2^52 every float is whole already, and adding a half would move it to its neighbour.
        return raw if abs(raw) >= 2**52 else math.copysign(math.floor(abs(raw) + 0.5), raw) + 0.0
    return raw


def check_write(point: PointSpec, value: float) -> list[Problem]:
    """Everything that forbids writing this engineering value; paths are `value` or `address`."""
    if point.kind is not _CONTROL and point.kind is not Kind.ADJUSTMENT:
        return [Problem("not_writable", "address", f"points of kind {point.kind.value} are read only; write to c or a")]
    if not math.isfinite(value):
        return [Problem("not_finite", "value", "write a finite number")]
    if point.kind is _CONTROL:
        return [] if value in (0, 1) else [Problem("not_a_switch", "value", "a control takes 0 or 1")]
    problems = []
    if point.min is not None and value < point.min:
        problems.append(Problem("below_min", "value", f"at least {point.min:g} {point.unit}".rstrip()))
    if point.max is not None and value > point.max:
        problems.append(Problem("above_max", "value", f"at most {point.max:g} {point.unit}".rstrip()))
    if point.step > 0 and not _is_on_grid(point, value):
        problems.append(Problem("off_step", "value", f"in steps of {point.step:g} from {point.min or 0:g}"))
    if not problems and point.scale != 0:
        largest = 3.4028234663852886e38 if wire_type(point) == "float32" else sys.float_info.max
        low, high = INTEGER_RANGES.get(wire_type(point), (-largest, largest))
        if not low <= to_raw(point, value) <= high:
            hint = f"the device has {wire_type(point)}: {low} to {high} before scaling"
            problems.append(Problem("does_not_fit", "value", hint))
    return problems


def is_plausible(point: PointSpec, value: float) -> bool:
    """Is a finite number within the point's `min` and `max`."""
    low, high = point.min, point.max
    return math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)


def is_change(point: PointSpec, old: float | None, new: float) -> bool:
    """Whether `new` is to be written after `old`, the last value written (None: none yet). Deadbands: m and a only."""
    if old is None:
        return True
    if point.deadband <= 0 or point.kind is _SIGNAL or point.kind is _CONTROL:
        return new != old
    # `not <` so that NaN, before or after, is a change.
    return not abs(new - old) < point.deadband * (1 - _NOISE)


def to_engineering_all(points: Sequence[PointSpec], raws: Sequence[float]) -> list[float]:
    """One value per point, in order."""
    return [to_engineering(point, raw) for point, raw in zip(points, raws, strict=True)]


def _state(on: float, off: float, reverse: bool, raw: float) -> float:
    if raw != raw:
        return raw
    is_on = raw == on or (raw != off and raw != 0)
    return 1.0 if is_on != reverse else 0.0


def _is_on_grid(point: PointSpec, value: float) -> bool:
    steps = (value - (point.min or 0.0)) / point.step
    return math.isfinite(steps) and abs(steps - round(steps)) <= _NOISE * max(1.0, abs(steps) * 1e-6)
