"""What a model remembers, as it is stored: the memory of its calculations, and where its inputs stood. Pure.

The two belong together with the cursor of the feed: a new process must take the samples behind the cursor from there,
not from the board, which may have gone on.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from tradewind.models.network import Network
from tradewind.models.outputs import Sample
from tradewind.models.program import Program
from tradewind.models.spec import Calculation, Input

log = structlog.get_logger(__name__)
#: Of the field with the inputs; a name of a model has no colon.
INPUTS = ":in"
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def dump(network: Network, models: Sequence[int]) -> dict[str, bytes]:
    """The fields of `models:states` for these models."""
    fields: dict[str, bytes] = {}
    for at in models:
        program = network.programs[at]
        name = network.names[at]
        if program.memories:
            signs = {item.id: _sign(item) for item in program.spec.calculations}
            kept = {key: (signs[key], memory.dump()) for key, memory in program.memories.items()}
            fields[name] = _pack(kept)
        slots = program.slots
        fields[name + INPUTS] = _pack(
            (
                _addresses_sign(program.spec.inputs),
                [network.values[slot] for slot in slots],
                [network.times[slot] for slot in slots],
                [network.qualities[slot] for slot in slots],
            )
        )
    return fields


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
        log.warning("model_memory_unreadable", model=program.spec.name, error=str(error))


def _inputs(program: Program, data: bytes) -> dict[str, Sample | None]:
    try:
        sign, values, times, qualities = _unpack(data)
        if sign != _addresses_sign(program.spec.inputs):
            return {}
        return {
            item.address: None if value is None else Sample(value, ts_ms, quality)
            for item, value, ts_ms, quality in zip(program.spec.inputs, values, times, qualities, strict=True)
        }
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        log.warning("model_inputs_unreadable", model=program.spec.name, error=str(error))
        return {}


def _sign(calculation: Calculation) -> int:
    said = msgspec.json.encode((calculation.function, calculation.inputs, calculation.params), order="deterministic")
    return zlib.crc32(said)


def _addresses_sign(inputs: Sequence[Input]) -> int:
    return zlib.crc32(",".join(item.address for item in inputs).encode())
