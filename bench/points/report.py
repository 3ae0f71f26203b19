"""Markdown of a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from board import BoardFigures
from goals import Ceiling
from ingest import IngestFigures
from modbus import ModbusFigures
from shared import number, table

from models import ModelFigures, Rate
from parts import digits


def ceiling_table(ceilings: Sequence[Ceiling]) -> str:
    head = ["ceiling or peer", "on", "measured", "Tradewind's share"]
    return table(head, [[c.words, c.on, f"{digits(c.value)} {c.unit}", number(c.share, 2)] for c in ceilings], words=2)


def board_text(found: BoardFigures) -> str:
    head = ["1,000-point batches", "points/s", "client ns a point", "server ns a point", "both"]
    lines = []
    for way in found.ways.values():
        parts = statistics.median(way.client_ns), statistics.median(way.server_ns), way.cpu_ns
        lines.append([way.name, number(way.rate), *map(number, parts)])
    words = (
        f"Read of a 1,000-point channel: p50 {digits(found.read_p50_ms)} ms, p99 {digits(found.read_p99_ms)} ms, CPU "
        f"of client and server {digits(found.read_cpu_ms)} ms. Memory of 1,000,000 points: values "
        f"{found.values_mb:.1f} MB, their timestamps {found.times_mb:.1f} MB more."
    )
    return f"On {found.server}.\n\n{table(head, lines)}\n\n{words}"


def model_text(found: ModelFigures) -> str:
    head = ["1,000 models of 20 inputs", "compute, inputs/s", "decode and compute, inputs/s", "feed to board, inputs/s"]
    head += ["engine CPU µs an input", "Redis CPU µs an input"]

    def cells(stored: Rate) -> list[str]:
        cpu, server = statistics.median(stored.cpu_us), statistics.median(stored.server_us)
        return [number(stored.rate), number(cpu, 2), number(server, 2)]

    lines = [
        [kind.name, number(kind.computed.rate), number(kind.decoded.rate), *cells(kind.stored)] for kind in found.kinds
    ]
    passes = len(found.kinds[0].stored.rates)
    return f"On {found.server}; {found.sweeps} sweeps over all inputs, {passes} pass(es).\n\n{table(head, lines)}"


def ingest_text(found: IngestFigures) -> str:
    head = ["a request", "points/s", "API CPU µs a point", "Redis CPU µs a point"]
    lines = [
        [shape.name, number(shape.rate), *(number(statistics.median(us), 2) for us in (shape.api_us, shape.redis_us))]
        for shape in found.shapes
    ]
    passes = len(found.shapes[0].rates)
    words = f"On {found.server}; {found.connections} connections, {found.seconds:g} s each, {passes} pass(es)."
    return f"{words}\n\n{table(head, lines)}"


def modbus_text(found: ModbusFigures) -> str:
    words = (
        f"On {found.server}; {found.devices} devices of {found.registers:,} registers, all of which change with each "
        f"read; every 250 ms for {found.seconds:.0f} s: {found.polls:,} polls of {found.expected:,} expected, "
        f"{found.missed} missed, {found.failures} failed, {found.batches:,} batches seen in the feed."
    )
    head, late = ["ms", "p50", "p99", "most"], (found.late_p50_ms, found.late_p99_ms, found.late_most_ms)
    lines = [
        ["a poll", digits(found.poll_p50_ms), digits(found.poll_p99_ms), "–"],
        ["first answer of the device to the value on the board", *map(digits, late)],
        ["between two batches of a channel", "–", digits(found.gap_p99_ms), digits(found.gap_most_ms)],
    ]  # fmt: skip
    shares = [
        ("acquisition role", found.role_share),
        ("Redis", found.server_share),
        ("the devices", found.devices_share),
    ]
    cost = table(["process", "% of a core"], [[name, f"{share * 100:.1f}"] for name, share in shares])
    return f"{words}\n\n{table(head, lines)}\n\n{cost}"
