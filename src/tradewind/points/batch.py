"""A batch of values on its way to the board: checked, formatted, in the form that `board.lua` takes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.ids import ID, RESERVED
from tradewind.points.address import CONTROL, KINDS, MEASUREMENT, SWITCHED, is_number
from tradewind.points.spec import Quality
from tradewind.points.values import is_timestamp

#: Points that one script call writes; larger batches are cut, each piece is atomic by itself.
MAX_POINTS = 10_000
MAX_ORIGIN = 200
_GOOD, _SUBSTITUTED = Quality.GOOD, Quality.SUBSTITUTED
_ZERO_OR_ONE = frozenset((0, 1))


class Batch(msgspec.Struct, frozen=True):
    """New values of one hash: `key` is `comsrv:1001:m` or `modsrv:power_calc:measurement` (`of_channel`, `of_model`).

    `ts_ms`: the time of all values, or a time per point; 0 or a point without one: the server's now. Several
    readings of a point are several batches: a call writes them in order.
    `quality`: of the points that are not good. A point that has a quality but no value keeps value and time and only
    changes its quality (`good` takes the mark away).
    `origin`: who wrote it, shown in the feed. `is_lenient`: a value that is no finite number (s, c: not 0 or 1) makes
    its point bad instead of refusing the batch. `ttl_s`: the values vanish so long after the last write; 0: never.
    """

    key: str
    values: Mapping[str, float]
    ts_ms: int | Mapping[str, int] = 0
    quality: Mapping[str, str] = {}
    origin: str = ""
    is_lenient: bool = False
    ttl_s: float = 0

    @classmethod
    def of_channel(
        cls,
        channel: str,
        kind: str,
        values: Mapping[str, float],
        ts_ms: int | Mapping[str, int] = 0,
        quality: Mapping[str, str] | None = None,
        *,
        origin: str = "",
        is_lenient: bool = False,
    ) -> Batch:
        return cls(f"comsrv:{channel}:{kind}", values, ts_ms, quality or {}, origin, is_lenient)

    @classmethod
    def of_model(
        cls,
        model: str,
        values: Mapping[str, float],
        ts_ms: int | Mapping[str, int] = 0,
        quality: Mapping[str, str] | None = None,
        *,
        origin: str = "",
        is_lenient: bool = False,
        ttl_s: float = 0,
    ) -> Batch:
        return cls(f"modsrv:{model}:{MEASUREMENT}", values, ts_ms, quality or {}, origin, is_lenient, ttl_s)


class Written(msgspec.Struct, frozen=True):
    """What became of the points. `accepted`: the board shows them now (`equal` of them replaced another value of the
    same time); `late`: older than what the board has, in the feed only; `duplicates`: nothing new, dropped; `held`:
    their points are substituted. Of all of them, `clamped` claimed a time in the future, and `replaced` took the place
    of values whose time lies in the future now: the clock was set back."""

    accepted: int = 0
    late: int = 0
    duplicates: int = 0
    equal: int = 0
    clamped: int = 0
    replaced: int = 0
    held: int = 0


class Line(msgspec.Struct, frozen=True):
    """A checked batch as text: `d` and `q` as in the feed, `marks` the qualities without a value, `times` per value."""

    key: str
    channel: str
    count: int
    d: str
    ts: str
    times: str
    q: str
    marks: str
    origin: str
    ttl_ms: int


class Formats:
    """Turns batches into lines. Remembers the point ids of each key, because a channel sends the same ones again."""

    def __init__(self, bound: int = 4096) -> None:
        self._known: dict[str, tuple[tuple[str, ...], str]] = {}
        self._bound = bound

    def lines(self, batches: Sequence[Batch]) -> list[Line]:
        """One line per batch with something in it. Raises Invalid naming every bad key, point, value and time."""
        found: list[Line] = []
        problems: list[Problem] = []
        for at, batch in enumerate(batches):
            line = self._line(batch, f"batches[{at}]", problems)
            if line is not None:
                found.append(line)
        if problems:
            few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
            message = f"{len(problems)} values are refused, nothing was written: {few}"
            raise Invalid(message, code="bad_points", hint="correct the values named", problems=problems)
        return found

    def _line(self, batch: Batch, path: str, problems: list[Problem]) -> Line | None:
        service, _, rest = batch.key.partition(":")
        entity, _, kind = rest.partition(":")
        bad = _key_problem(service, entity, kind)
        if bad:
            problems.append(Problem("bad_key", f"{path}.key", f"{batch.key!r}: {bad}"))
            return None
        values, quality = batch.values, batch.quality
        before = len(problems)
        text = self._text(batch.key, kind, values, path, problems if not batch.is_lenient else None)
        if text is None:
            if not batch.is_lenient:
                return None
            values, quality = _without_bad(kind, values, quality)
            text = self._text(batch.key, kind, values, path, problems) if values else ""
        ts, times = _times(batch.ts_ms, values, path, problems)
        q, marks = _qualities(service, quality, values, path, problems) if quality else ("", "")
        if len(batch.origin) > MAX_ORIGIN:
            problems.append(Problem("too_long", f"{path}.origin", f"use at most {MAX_ORIGIN} characters"))
        if len(problems) > before or text is None or not (text or marks):
            return None
        channel = entity if service == "comsrv" else ""
        ttl_ms = int(batch.ttl_s * 1000)
        return Line(batch.key, channel, len(values), text, ts, times, q, marks, batch.origin, ttl_ms)

    def _text(
        self, key: str, kind: str, values: Mapping[str, float], path: str, problems: list[Problem] | None
    ) -> str | None:
        """`id:value,…`; None when something is wrong, which then stands in `problems`."""
        if not values:
            return ""
        ids = tuple(values)
        known = self._known.get(key)
        if known is not None and known[0] == ids:
            form = known[1]
        else:
            is_point = key.startswith("comsrv:")
            wrong = [name for name in ids if not is_field(name, is_point)]
            if wrong:
                if problems is not None:
                    hint = "1 to 20 decimal digits" if is_point else "1 to 64 of A-Z a-z 0-9 _ -"
                    problems += [Problem("bad_id", f"{path}.values.{str(name)[:80]}", hint) for name in wrong]
                return None
            mark = ":%d," if kind in SWITCHED else ":%.6f,"
            form = mark.join(ids) + mark[:-1]
            if len(self._known) >= self._bound:
                self._known.clear()
            self._known[key] = (ids, form)
        numbers = tuple(values.values())
        try:
            if kind not in SWITCHED:
                text = form % numbers
                # NaN and infinity show as nan and inf; names of fields may have that letter, so look again.
                if "n" not in text or all(map(math.isfinite, numbers)):
                    return text.replace("-0.000000", "0.000000") if "-0.000000" in text else text
            elif _ZERO_OR_ONE.issuperset(numbers):
                return form % numbers
        except (TypeError, ValueError, OverflowError):
            pass
        if problems is not None:
            problems += [
                Problem(code, f"{path}.values.{name}", f"{value!r} {hint}"[:200])
                for name, value in values.items()
                for code, hint in [value_problem(kind, value)]
                if code
            ]
        return None


def is_field(name: object, is_point: bool) -> bool:
    if not isinstance(name, str):
        return False
    return is_number(name) if is_point else ID.fullmatch(name) is not None


def value_problem(kind: str, value: object) -> tuple[str, str]:
    """Code and hint of what is wrong with a value, `` when nothing is."""
    if isinstance(value, (str, bytes)):
        return "not_a_number", "is not a number"
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return "not_a_number", "is not a number"
    if not math.isfinite(number):
        return "not_finite", "is not a finite number"
    if kind in SWITCHED and number not in _ZERO_OR_ONE:
        return "not_a_switch", "is neither 0 nor 1"
    return "", ""


def _key_problem(service: str, entity: str, kind: str) -> str:
    if service == "comsrv":
        if not is_number(entity):
            return "the channel is not a number of 1 to 20 digits"
        return "" if kind in KINDS else "the kind is none of m, s, c, a"
    if service == "modsrv":
        if kind == CONTROL:
            return "control values are set by commands"
        if ID.fullmatch(entity) is None or entity in RESERVED:
            return "no name for a model"
        return "" if kind == MEASUREMENT else "the kind is not measurement"
    return "write comsrv:<channel>:<kind> or modsrv:<model>:measurement"


def _without_bad(
    kind: str, values: Mapping[str, float], quality: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, str]]:
    """The values that can be stored; the points of the others become bad."""
    kept = {name: value for name, value in values.items() if not value_problem(kind, value)[0]}
    lost = {name: Quality.BAD.value for name in values if name not in kept}
    return kept, {**quality, **lost}


def _times(
    ts_ms: int | Mapping[str, int], values: Mapping[str, float], path: str, problems: list[Problem]
) -> tuple[str, str]:
    """The time of all values, or else one per value in their order; `0`: now."""
    if isinstance(ts_ms, int):
        if ts_ms and not is_timestamp(ts_ms):
            problems.append(Problem("bad_timestamp", f"{path}.ts_ms", f"{ts_ms} is not milliseconds in 13 digits"))
        return str(ts_ms), ""
    each = [ts_ms.get(name, 0) for name in values]
    for name, ts in zip(values, each, strict=True):
        if not isinstance(ts, int) or (ts and not is_timestamp(ts)):
            problems.append(
                Problem("bad_timestamp", f"{path}.ts_ms.{name}", f"{ts!r} is not milliseconds in 13 digits")
            )
    if len(set(each)) == 1:
        return str(each[0]), ""
    return "0", ",".join(map(str, each))


def _qualities(
    service: str, quality: Mapping[str, str], values: Mapping[str, float], path: str, problems: list[Problem]
) -> tuple[str, str]:
    """`id:quality,…` of points with a value that are not good, and of points without one."""
    with_value, alone = [], []
    for name, word in quality.items():
        if word not in Quality.__members__.values():
            problems.append(Problem("bad_quality", f"{path}.quality.{name}", "write good, uncertain or bad"))
        elif word == _SUBSTITUTED and service == "comsrv":
            hint = "no device can say so: substitute the point instead"
            problems.append(Problem("bad_quality", f"{path}.quality.{name}", hint))
        elif name not in values:
            if is_field(name, service == "comsrv"):
                alone.append(f"{name}:{Quality(word).value}")
            else:
                problems.append(Problem("bad_id", f"{path}.quality.{str(name)[:80]}", "no id of a point"))
        elif word != _GOOD:
            with_value.append(f"{name}:{Quality(word).value}")
    return ",".join(with_value), ",".join(alone)
