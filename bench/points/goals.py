"""Goals and verdicts: what was found, and whether Tradewind keeps its promises. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from board import OURS, SAME_BYTES, BoardFigures
from ingest import IngestFigures
from modbus import ModbusFigures

from models import ModelFigures
from parts import Verdict


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What is possible at best, measured in the same run; `share`: how much of it Tradewind reaches."""

    words: str
    on: str
    value: float
    unit: str
    share: float


def of_board(found: BoardFigures) -> list[Verdict]:
    mine, server = found.ways[OURS], found.server
    verdicts = []
    goals = {SAME_BYTES: 0.7} | {name: 2.0 for name in found.ways if name.startswith("redis-py")}
    for name, least in goals.items():
        other = found.ways[name]
        against = f"{mine.rate:,.0f} against {other.rate:,.0f} points/s"
        words = f"board write / {name}" + ("" if name == SAME_BYTES else " (values only)")
        verdicts.append(Verdict(words, server, mine.ratio(other), least, "×", is_least=True, found=against))
    verdicts.append(Verdict("read of a 1,000-point channel, p50", server, found.read_p50_ms, 2, "ms"))
    verdicts.append(Verdict("values of 1,000,000 points in memory", server, found.values_mb, 80, "MB"))
    return verdicts


def of_models(found: ModelFigures) -> list[Verdict]:
    return [
        Verdict(f"1,000 models of 20 inputs, {what}: {kind.name}", found.server if rate is kind.stored else "in memory",
                rate.rate, 500_000, "inputs/s", is_least=True)
        for what, pick in (("recomputed", "decoded"), ("feed to board", "stored"))
        for kind in found.kinds
        for rate in (getattr(kind, pick),)
    ]  # fmt: skip


def of_ingest(found: IngestFigures) -> list[Verdict]:
    return [
        Verdict(f"HTTP ingest, {shape.name} a request", found.server, shape.rate, 150_000, "points/s", is_least=True)
        for shape in found.shapes
    ]


def of_modbus(found: ModbusFigures) -> list[Verdict]:
    words = f"{found.devices} Modbus servers × {found.registers:,} registers every 250 ms for {found.seconds:.0f} s: "
    done = f"{found.polls:,} polls of {found.expected:,} in that time"
    return [
        Verdict(words + "polls missed", found.server, found.missed, 0, "polls", found=done),
        Verdict(words + "polls failed", found.server, found.failures, 0, "polls"),
    ]


def ceilings_of_board(found: BoardFigures) -> list[Ceiling]:
    mine = found.ways[OURS]
    return [
        Ceiling(f"write 1,000 points: {name}", found.server, way.rate, "points/s", mine.ratio(way))
        for name, way in found.ways.items()
        if way is not mine
    ]


def ceilings_of_models(found: ModelFigures) -> list[Ceiling]:
    """What the engine reaches is held against the parts of its way that need no Redis."""
    first = found.kinds[0]
    ceilings = [
        Ceiling("a loop that adds up 20 numbers in a list", "in memory", found.plain_rate, "inputs/s",
                first.stored.rate / found.plain_rate)
    ]  # fmt: skip
    for kind in found.kinds:
        for words, rate in (("compute", kind.computed), ("decode and compute", kind.decoded)):
            share = kind.stored.rate / rate.rate
            ceilings.append(Ceiling(f"models, {words}: {kind.name}", "in memory", rate.rate, "inputs/s", share))
    return ceilings


def ceilings_of_modbus(found: ModbusFigures) -> list[Ceiling]:
    words = "one poll by a bare pymodbus client, nothing else running, p50"
    return [Ceiling(words, "one device", found.bare_p50_ms, "ms", found.bare_p50_ms / found.poll_p50_ms)]


def ceilings_of_ingest(found: IngestFigures) -> list[Ceiling]:
    ceilings = []
    for shape in found.shapes:
        limits = {
            "decoding its JSON and nothing else": shape.decode_rate,
            "what one core of the API process could do": 1e6 / statistics.median(shape.api_us),
        }
        ceilings += [
            Ceiling(f"ingest, {shape.name}: {words}", found.server, rate, "points/s", shape.rate / rate)
            for words, rate in limits.items()
        ]
    return ceilings
