"""What a model remembers, as it is stored: the memory of its calculations, and where its inputs stood. Pure.

The two belong together with the cursor of the feed: a new process must take the samples behind the cursor from there,
not from the board, which may have gone on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import structlog

from tradewind.errors import error_text
from tradewind.models.network import Network
from tradewind.models.outputs import Sample
from tradewind.models.program import Program
from tradewind.models.spec import Calculation, Input

log = structlog.get_logger(__name__)
#: Of the field with the inputs; a name of a model has no colon.
INPUTS = ":in"
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class StateDump:
    """Of one network, whose definitions never change: their signs, which cost more than the rest, are made once."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._kept: dict[int, _Kept] = {}

    def fields(self, models: Iterable[int]) -> dict[str, bytes]:
        """The fields of `models:states` for these models."""
        network, known = self._network, self._kept
        values, times, qualities = network.values, network.times, network.qualities
        fields: dict[str, bytes] = {}
        for at in models:
            kept = known.get(at)
            if kept is None:
                kept = known[at] = _Kept(network.names[at], network.programs[at])
            if kept.memories:
                fields[kept.name] = _pack({key: (sign, memory.dump()) for key, sign, memory in kept.memories})
            take = kept.take
            moments, marks = take(times), take(qualities)
            fields[kept.inputs] = _pack((kept.sign, take(values), _one_if_same(moments), _one_if_same(marks)))
        return fields


class _Kept:
    """What of a model's state never changes. `take`: its inputs out of a list of the network."""

    __slots__ = ("inputs", "memories", "name", "sign", "take")

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self.inputs = name + INPUTS
        signs = {item.id: _sign(item) for item in program.spec.calculations}
        self.memories = [(key, signs[key], memory) for key, memory in program.memories.items()]
        self.sign = _addresses_sign(program.spec.inputs)
        slots = program.slots
        self.take: Callable[[list[Any]], tuple[Any, ...]]
        self.take = itemgetter(*slots) if len(slots) > 1 else lambda found: tuple(found[slot] for slot in slots)


def restore(network: Network, stored: Mapping[str, bytes]) -> dict[str, Sample | None]:
    """Give calculations their memory back, as far as they are what they were; where the inputs stood, by address (None:
    they had no value yet)."""
    found: dict[str, Sample | None] = {}
    for at, name in enumerate(network.names):
        program = network.programs[at]
        if program.memories and name in stored:
            _remind(program, stored[name])
        if at in network.exact and name + INPUTS in stored:
            for address, sample in _inputs(program, stored[name + INPUTS]).items():
                known = found.get(address)
                if known is None or (sample is not None and known.ts_ms < sample.ts_ms):
                    found[address] = sample
    return found


def _remind(program: Program, data: bytes) -> None:
    signs = {item.id: _sign(item) for item in program.spec.calculations}
    try:
        kept: dict[str, Any] = _unpack(data)
        for key, memory in program.memories.items():
            if key in kept and kept[key][0] == signs[key]:
                memory.load(kept[key][1])
    except (msgspec.DecodeError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        log.warning("model_memory_unreadable", model=program.spec.name, error=error_text(error))


def _inputs(program: Program, data: bytes) -> dict[str, Sample | None]:
    try:
        inputs = program.spec.inputs
        sign, values, times, qualities = _unpack(data)
        if sign != _addresses_sign(inputs):
            return {}
        return {
            item.address: None if value is None else Sample(value, ts_ms, quality)
            for item, value, ts_ms, quality in zip(
                inputs, values, _each(times, len(inputs)), _each(qualities, len(inputs)), strict=True
            )
        }
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        log.warning("model_inputs_unreadable", model=program.spec.name, error=error_text(error))
        return {}


def _one_if_same(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    return numbers[0] if numbers and numbers.count(numbers[0]) == len(numbers) else numbers


def _each(stored: int | list[int], count: int) -> list[int]:
    return [stored] * count if isinstance(stored, int) else stored


def _sign(calculation: Calculation) -> int:
    said = msgspec.json.encode((calculation.function, calculation.inputs, calculation.params), order="deterministic")
    return zlib.crc32(said)


def _addresses_sign(inputs: Sequence[Input]) -> int:
    return zlib.crc32(",".join(item.address for item in inputs).encode())
