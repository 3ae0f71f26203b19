"""What a stored value, its time and its quality say together at a given moment. Pure; in columns, because a channel has
thousands of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from tradewind.points.address import CONTROL, MEASUREMENT, Address
from tradewind.points.spec import Kind, PointSpec, Quality
from tradewind.points.substitution import Substitution
from tradewind.points.values import FUTURE_MS, whole

Describe = Callable[[Address], PointSpec | None]
#: Text as the server gave it, decoded or not.
Text = bytes | str
Column = Sequence[Text | None]

#: Kinds that somebody measures or computes: when nothing confirms them for long, they are stale.
_MEASURED = frozenset((Kind.MEASUREMENT, Kind.SIGNAL, MEASUREMENT))
_GOOD, _UNCERTAIN, _BAD = Quality.GOOD.value, Quality.UNCERTAIN.value, Quality.BAD.value
SUBSTITUTED = Quality.SUBSTITUTED.value
_WORDS: dict[Text | None, str] = {None: _GOOD}
_WORDS |= {word: word for word in (SUBSTITUTED, _UNCERTAIN, _BAD)}
_WORDS |= {word.encode(): word for word in (SUBSTITUTED, _UNCERTAIN, _BAD)}


class PointValue(msgspec.Struct, frozen=True, gc=False):
    """What the board knows of a point. Without a value (None) the quality is bad and `ts` and `age_ms` are None.

    A stale value is not good any more: it is `uncertain`, or `bad` if it was; a substituted one does not grow old.
    `ts` and `age_ms` in milliseconds.
    `is_refused`: it has no value because its device gives none; else nothing has come yet.
    `substitution`: who says so, why and until when, if not the device does.
    """

    address: str
    value: float | None
    ts: int | None
    quality: str
    age_ms: int | None
    unit: str = ""
    is_stale: bool = False
    is_refused: bool = False
    substitution: Substitution | None = None


class Moment(msgspec.Struct, frozen=True):
    """`now`, and when the channel (or the engine of models) last answered (0: not known): its unchanged points are as
    fresh as that.
    `stale_ms`: when a measured point is stale that does not say so itself. Times more than `future_ms` after now are of
    before the clock was set back: nobody knows how old they are."""

    now: int
    answered: int
    stale_ms: int
    future_ms: int = FUTURE_MS


def points_of(
    key: str,
    fields: Sequence[str],
    values: Column,
    times: Column,
    words: Column | None,
    moment: Moment,
    describe: Describe | None = None,
) -> list[PointValue]:
    """The points of one hash; all columns in the order of `fields`. `words` None: all are good."""
    service, entity, kind = key.split(":")
    if kind == CONTROL:
        parts = [_control_parts(value) for value in values]
        values, times = [value for value, _ in parts], [ts for _, ts in parts]
    usual = moment.stale_ms if kind in _MEASURED else None
    now, prefix, latest = moment.now, f"{key}:", moment.now + moment.future_ms
    is_channel = service == "comsrv"
    answered = moment.answered if moment.answered <= latest else 0

    def fresh_ms(at: int | None) -> int:
        return max(at if at is not None and at <= latest else 0, answered)

    def judge(ts: Text | None) -> tuple[int | None, int | None, bool]:
        at = whole(ts) if ts and ts.isdigit() else None
        return at, None if at is None else now - at, usual is not None and now - fresh_ms(at) > usual

    numbers = _numbers(values)
    if words is None and describe is None and None not in numbers and len(set(times)) == 1:
        at, age_ms, is_stale = judge(times[0])
        if not is_stale:
            return [
                PointValue(prefix + field, number, at, _GOOD, age_ms)
                for field, number in zip(fields, numbers, strict=True)
            ]
    found: list[PointValue] = []
    add = found.append
    seen: dict[Text | None, tuple[int | None, int | None, bool]] = {}  # a poll gives all its points one time
    words = words or [None] * len(fields)
    for field, number, ts, word in zip(fields, numbers, times, words, strict=True):
        known = seen.get(ts)
        if known is None:
            known = seen[ts] = judge(ts)
        at, age_ms, is_stale = known
        unit = ""
        if describe is not None:
            spec = describe(Address(service, entity, kind, field))
            if spec is not None:
                unit = spec.unit
                if spec.max_age_s is not None:
                    is_stale = now - fresh_ms(at) > spec.max_age_s * 1000
        if number is None:
            add(PointValue(prefix + field, None, None, _BAD, None, unit, is_refused=word is not None))
            continue
        quality = _WORDS.get(word, _UNCERTAIN)
        if is_stale and quality != _BAD and not (is_channel and quality == SUBSTITUTED):
            quality = _UNCERTAIN
        add(PointValue(prefix + field, number, at, quality, age_ms, unit, is_stale))
    return found


def substituted(point: PointValue, found: Substitution | None, now: int) -> PointValue:
    """A point whose quality is `substituted`, with who says so. It does not grow old, but when its time is over, or
    nobody knows who said it, the value is uncertain."""
    if found is None or found.until_ms <= now:
        return msgspec.structs.replace(point, quality=_UNCERTAIN, substitution=found)
    return msgspec.structs.replace(point, is_stale=False, substitution=found)


def _numbers(values: Column) -> Sequence[float | None]:
    try:
        numbers = list(map(float, values))  # type: ignore[arg-type]
        if math.isfinite(sum(numbers)):
            return numbers
    except (TypeError, ValueError):
        pass
    return [None if value is None else _float(value) for value in values]


def _float(text: Text) -> float | None:
    """None for what is no finite number: words of a control hash, or what a foreign program left."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _control_parts(text: Text | None) -> tuple[Text | None, Text | None]:
    """Value and time of `value:ts:source`."""
    parts = (text.decode(errors="replace") if isinstance(text, bytes) else text or "").rsplit(":", 2)
    return (parts[0], parts[1]) if len(parts) == 3 and parts[1].isdigit() else (text, None)
