"""`POST /api/v1/points`: many values at once. Decoded straight into what the board takes; nothing in between.

What the fast way refuses is read once more, slowly, to name every bad value by its path.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import LONG, decode_strictly, read_json_bytes
from tradewind.errors import Conflict, Invalid, Problem, Unavailable
from tradewind.offload import offload
from tradewind.points.address import KINDS, is_number
from tradewind.points.batch import value_problem
from tradewind.points.board import Batch, Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.driver_registry import PUSH
from tradewind.points.spec import Kind
from tradewind.points.values import is_timestamp
from tradewind.problems import Problems

#: How old the knowledge may be that lets values in; they are never refused without a fresh look.
FRESH_S = 2.0
ORIGIN = "api"
#: How often values are judged anew when definitions change meanwhile.
TRIES = 5
_FIELDS = frozenset({"channels", "ts"})
_DRIVER_HINT = (
    "the channel has a device, and only its driver writes its points; to show another value use `substitute` "
    "(`tradewind point substitute`)"
)
_COMMANDED = (Kind.CONTROL.value, Kind.ADJUSTMENT.value)


class Sample(msgspec.Struct, forbid_unknown_fields=True):
    """channel → kind → point → value; `ts` in ms, 0 or none: now."""

    channels: dict[str, dict[str, dict[str, float]]]
    ts: int | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(Sample | list[Sample])


class Ingest:
    def __init__(self, board: Board, channels: ChannelStore, max_body_bytes: int) -> None:
        self._board = board
        self._declared = Declared(channels)
        self._is_strict = board.plane.settings.strict
        self._max_body_bytes = max_body_bytes
        #: Values taken in by this process.
        self.taken = 0

    async def run(self, request: Request) -> Response:
        data = await read_json_bytes(request, self._max_body_bytes)
        try:
            found = _decoder.decode(data) if len(data) < LONG else await offload(_decoder.decode, data)
        except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
            raise await offload(_refusal, data) from error
        samples = found if isinstance(found, list) else [found]
        batches: list[Batch] = []
        names = count = 0
        for sample in in_time_order(samples):
            ts = sample.ts if sample.ts is not msgspec.UNSET else 0
            names += len(sample.channels) + (1 if sample.ts is msgspec.UNSET else 2)
            for channel, kinds in sample.channels.items():
                names += len(kinds)
                for kind, values in kinds.items():
                    count += len(values)
                    batches.append(Batch(f"comsrv:{channel}:{kind}", values, ts, origin=ORIGIN))
        # Every text here is a name, so a colon too many is one that stands twice: the decoder keeps the last of two.
        if data.count(b":") != names + count:
            raise await offload(_refusal, data)
        try:
            await self._write(samples, batches)
        except Invalid as error:
            raise await offload(_refusal, data, error) from error
        self.taken += count
        return Response(b'{"accepted":%d}' % count, media_type="application/json")

    async def _write(self, samples: list[Sample], batches: list[Batch]) -> None:
        """Raises Invalid. The definitions that they are judged by are those at the moment of the write."""
        is_new = False
        for _ in range(TRIES):
            versions = await self._declared.check(samples, is_strict=self._is_strict, is_new=is_new)
            try:
                await self._board.push(batches, versions)
                return
            except Conflict as error:
                if error.code != "definition_changed":
                    raise
                is_new = True
        raise Unavailable("the channels are being changed", code="definition_changed", hint="send the values again")


def in_time_order(samples: list[Sample]) -> list[Sample]:
    """Each sample is an event, and the feed tells them in the order of their times; those without one come last."""
    return sorted(samples, key=lambda sample: sample.ts or math.inf) if len(samples) > 1 else samples


class Declared:
    """Which points the channels of this station declare."""

    def __init__(self, channels: ChannelStore) -> None:
        self._channels = channels
        self._versions: dict[str, str] = {}
        self._points: dict[str, set[tuple[str, str]]] = {}
        self._devices: set[str] = set()
        self._looked = -FRESH_S

    async def check(self, samples: list[Sample], *, is_strict: bool, is_new: bool = False) -> Mapping[str, str]:
        """Raises Invalid: points of a device, which only its driver writes; undeclared points, if `is_strict`. The
        versions of the definitions by which it judged; `is_new`: not those that it knows already."""
        if is_new or time.monotonic() - self._looked > FRESH_S:
            await self._look()
        if any(True for _ in self._problems(samples, is_strict)):
            await self._look()
            if problems := Problems(self._problems(samples, is_strict)):
                raise _invalid(problems)
        return self._versions

    async def _look(self) -> None:
        versions = await self._channels.versions()
        changed = [name for name, version in versions.items() if self._versions.get(name) != version]
        for name in self._versions.keys() - versions.keys():
            self._points.pop(name, None)
            self._devices.discard(name)
        for name in changed:  # until its definition is read, and if it cannot be, it counts as a device
            self._points[name] = set()
            self._devices.add(name)
        for spec in await self._channels.get_readable(changed):
            self._points[spec.id] = {(point.kind.value, point.id) for point in spec.points}
            (self._devices.discard if spec.protocol == PUSH else self._devices.add)(spec.id)
        self._versions, self._looked = versions, time.monotonic()

    def _problems(self, samples: list[Sample], is_strict: bool) -> Iterator[Problem]:
        for at, sample in enumerate(samples):
            where = "channels" if len(samples) == 1 else f"[{at}].channels"
            for channel, kinds in sample.channels.items():
                known = self._points.get(channel)
                if known is None:
                    if is_strict:
                        hint = "declare the channel, or turn points.strict off"
                        yield Problem("unknown_channel", f"{where}.{channel[:64]}", hint)
                    continue
                for kind, values in kinds.items():
                    path = f"{where}.{channel}.{kind[:64]}"
                    if channel in self._devices:
                        if kind in _COMMANDED and values:
                            yield Problem("needs_a_command", path, "the channel has a device: send a command instead")
                        elif values:
                            yield Problem("belongs_to_driver", path, _DRIVER_HINT)
                    elif is_strict:
                        for point in values:
                            if (kind, point) not in known:
                                hint = "declare the point, or turn points.strict off"
                                yield Problem("unknown_point", f"{path}.{point[:64]}", hint)


def _refusal(data: bytes, error: Invalid | None = None) -> Invalid:
    """Everything that is wrong with the body; `error` if that is not to be seen in the body itself."""
    doubled: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            doubled.append("")
        return made

    try:
        # Unlike the API's usual way this reads NaN and 1e999, so that they can be named.
        document = json.loads(data, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        document = decode_strictly(data)  # tells where it is not JSON
    if doubled:
        decode_strictly(data)  # tells which name stands twice
    problems = Problems(_problems(document))
    if problems:
        return _invalid(problems)
    if error is None:
        decode_strictly(data)
        return Invalid("the body cannot be read", code="bad_points", hint="send values as /docs shows")
    return error


def _invalid(problems: Problems) -> Invalid:
    few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
    what = f"{problems.total} values are refused" if problems.total > 1 else "a value is refused"
    hint = "correct what is named"
    if problems.left_out:
        hint += f"; the first {len(problems)} are listed"
    message = f"{what}, nothing was written: {few}"
    return Invalid(message, code="bad_points", hint=hint, problems=problems)


def _problems(document: Any) -> Iterator[Problem]:
    if isinstance(document, list):
        for at, sample in enumerate(document):
            yield from _of_sample(sample, f"[{at}]", f"[{at}].")
    else:
        yield from _of_sample(document, "$", "")


def _of_sample(sample: Any, path: str, prefix: str) -> Iterator[Problem]:
    if not isinstance(sample, dict):
        yield Problem("not_an_object", path, 'give {"channels": {"1001": {"m": {"10001": 25.1}}}}')
        return
    for name in sample.keys() - _FIELDS:
        yield Problem("unknown_field", f"{prefix}{name[:64]}", "known fields: channels, ts")
    ts = sample.get("ts", 0)
    if type(ts) is not int or (ts and not is_timestamp(ts)):
        yield Problem("bad_timestamp", f"{prefix}ts", "give milliseconds since 1970 in 13 digits, or leave it out")
    if "channels" not in sample:
        yield Problem("missing_field", f"{prefix}channels", "give the values by channel, kind and point")
        return
    for channel, kinds in _items(sample["channels"]):
        at = f"{prefix}channels.{channel[:64]}"
        if not is_number(channel):
            yield Problem("bad_channel", at, "channels have 1 to 20 decimal digits")
        for kind, values in _items(kinds):
            if kind not in KINDS:
                yield Problem("unknown_kind", f"{at}.{kind[:64]}", "give m, s, c or a")
            for point, value in _items(values):
                yield from _of_value(kind, point, value, f"{at}.{kind[:64]}.{point[:64]}")
            if not isinstance(values, dict):
                yield Problem("not_an_object", f"{at}.{kind[:64]}", "give values by point")
        if not isinstance(kinds, dict):
            yield Problem("not_an_object", at, "give values by kind and point")
    if not isinstance(sample["channels"], dict):
        yield Problem("not_an_object", f"{prefix}channels", "give values by channel, kind and point")


def _of_value(kind: str, point: str, value: Any, path: str) -> Iterator[Problem]:
    if not is_number(point):
        yield Problem("bad_id", path, "points have 1 to 20 decimal digits")
    code, hint = ("not_a_number", "is not a number") if isinstance(value, bool) else value_problem(kind, value)
    if code:
        yield Problem(code, path, f"{value!r:.80} {hint}")


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, Mapping) else ()
