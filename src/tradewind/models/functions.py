"""The functions of calculations: how many inputs they take, which parameters, how they are made. Pure.

A function without memory is called with a tuple of values, or with the value itself where `is_single`. One with memory
is an object of stateful.py. What cannot be computed raises ArithmeticError or ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.models.stateful import EnergyCounter, Integral, Memory, MovingAverage, Rate, Window

PER_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
MAX_SAMPLES = 1_000
MAX_WINDOW_S = 31 * 86_400.0

Params = Mapping[str, Any]
Plain = Callable[[Any], float]


@dataclass(frozen=True, slots=True)
class Param:
    """`choices` makes it a word. `above`: it must be larger than that; `most`: and at most that."""

    default: Any = None
    is_required: bool = False
    is_integer: bool = False
    choices: tuple[str, ...] = ()
    above: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """`least` to `most` inputs (None: any number). `keeps_unit`: all inputs have the unit of the result."""

    make: Callable[[Params], Plain] | None = None
    remember: Callable[[Params], Memory] | None = None
    least: int = 1
    most: int | None = 1
    is_single: bool = True
    keeps_unit: bool = False
    params: Mapping[str, Param] = field(default_factory=dict)


def _plain(function: Plain) -> Callable[[Params], Plain]:
    return lambda params: function


def _avg(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def _subtract(values: tuple[float, ...]) -> float:
    return values[0] - sum(values[1:])


def _sign(value: float) -> float:
    return float((value > 0) - (value < 0))


def _scale(params: Params) -> Plain:
    factor, offset = params["factor"], params["offset"]
    return lambda value: value * factor + offset


def _divide(params: Params) -> Plain:
    instead = params["on_zero"]
    if instead is None:
        return lambda values: values[0] / values[1]
    return lambda values: values[0] / values[1] if values[1] else instead


def _clamp(params: Params) -> Plain:
    low = -math.inf if params["min"] is None else params["min"]
    high = math.inf if params["max"] is None else params["max"]
    return lambda value: low if value < low else high if value > high else value


def _round(params: Params) -> Plain:
    digits = params["digits"]
    return lambda value: float(round(value, digits))


def _constant(params: Params) -> Plain:
    value = params["value"]
    return lambda _: value


_TESTS: dict[str, Callable[[float, float], bool]] = {
    "!=": lambda value, threshold: value != threshold,
    "==": lambda value, threshold: value == threshold,
    ">": lambda value, threshold: value > threshold,
    ">=": lambda value, threshold: value >= threshold,
    "<": lambda value, threshold: value < threshold,
    "<=": lambda value, threshold: value <= threshold,
}


def _choose(params: Params) -> Plain:
    test, threshold = _TESTS[params["operator"]], params["threshold"]
    return lambda values: values[1] if test(values[0], threshold) else values[2]


def _integral(params: Params) -> Memory:
    return Integral(PER_S[params["per"]], params["method"], params["initial"], _ms(params["max_gap_s"]))


def _energy(params: Params) -> Memory:
    gap = _ms(params["max_gap_s"])
    return EnergyCounter(params["factor"], params["direction"], params["method"], params["initial"], gap)


def _moving_average(params: Params) -> Memory:
    if params["window_s"] is not None:
        return Window(round(params["window_s"] * 1000), "avg")
    return MovingAverage(params["window"])


def _window(what: str) -> Callable[[Params], Memory]:
    return lambda params: Window(round(params["window_s"] * 1000), what)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


_METHOD = Param("hold", choices=("hold", "trapezoid"))
_GAP = Param(above=0.0)
_WINDOW_S = Param(is_required=True, above=0.0, most=MAX_WINDOW_S)
_AREA = {"method": _METHOD, "initial": Param(0.0), "max_gap_s": _GAP}
_IF = Function(
    _choose, least=3, most=3, is_single=False,
    params={"operator": Param("!=", choices=tuple(_TESTS)), "threshold": Param(0.0)},
)  # fmt: skip
_MOVING = Function(
    remember=_moving_average,
    keeps_unit=True,
    params={
        "window": Param(10, is_integer=True, above=0, most=MAX_SAMPLES),
        "window_s": Param(above=0.0, most=MAX_WINDOW_S),
    },
)


def _many(function: Plain, **options: Any) -> Function:
    return Function(_plain(function), most=None, is_single=False, **options)


def _over_time(what: str) -> Function:
    return Function(remember=_window(what), keeps_unit=True, params={"window_s": _WINDOW_S})


FUNCTIONS: dict[str, Function] = {
    "sum": _many(sum, keeps_unit=True),
    "subtract": _many(_subtract, keeps_unit=True),
    "avg": _many(_avg, keeps_unit=True),
    "min": _many(min, keeps_unit=True),
    "max": _many(max, keeps_unit=True),
    "multiply": _many(math.prod),
    "divide": Function(_divide, least=2, most=2, is_single=False, params={"on_zero": Param()}),
    "scale": Function(_scale, params={"factor": Param(1.0), "offset": Param(0.0)}),
    "clamp": Function(_clamp, keeps_unit=True, params={"min": Param(), "max": Param()}),
    "abs": Function(_plain(abs), keeps_unit=True),
    "round": Function(_round, keeps_unit=True, params={"digits": Param(0, is_integer=True, above=-16, most=15)}),
    "sign": Function(_plain(_sign)),
    "constant": Function(_constant, least=0, most=0, params={"value": Param(is_required=True)}),
    "if": _IF,
    "conditional": _IF,
    "integrate": Function(remember=_integral, params={"per": Param("s", choices=tuple(PER_S)), **_AREA}),
    "energy": Function(
        remember=_energy,
        params={
            "factor": Param(1.0),
            "direction": Param("both", choices=("both", "positive", "negative")),
            **_AREA,
        },
    ),
    "moving_average": _MOVING,
    "moving_avg": _MOVING,
    "rate_of_change": Function(
        remember=lambda params: Rate(PER_S[params["per"]]), params={"per": Param("s", choices=tuple(PER_S))}
    ),
    "window_min": _over_time("min"),
    "window_max": _over_time("max"),
    "window_avg": _over_time("avg"),
}

#: Not in the table: its inputs are the names in its text.
EXPRESSION = "expression"


def complete(function: Function, params: Params) -> dict[str, Any]:
    """The parameters with defaults in place."""
    return {name: params.get(name, param.default) for name, param in function.params.items()}
