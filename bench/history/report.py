"""Markdown of a run."""

from __future__ import annotations

import statistics

from common import number, table
from embedded import EmbeddedFigures
from endtoend import EndFigures
from influx import InfluxFigures, Way
from trend import TrendFigures

from parts import digits


def embedded_text(found: EmbeddedFigures) -> str:
    head = [
        "rows a write",
        "samples/s",
        "CPU µs a sample",
        "a write, p50 ms",
        "p99 ms",
        "bytes a sample",
        "files of days",
    ]
    lines = []
    for size in found.sizes:
        cells = [size.rate, *(statistics.median(each) for each in (size.cpu_us, size.write_p50_ms, size.write_p99_ms))]
        lines.append(
            [number(size.batch), number(cells[0]), *(number(cell, 2) for cell in cells[1:]),
             number(statistics.median(size.bytes_each), 1), str(size.files)]
        )  # fmt: skip
    passes = len(found.sizes[0].rates)
    words = (
        f"{found.samples:,} samples of 1,000 series, one each every 10 s, {passes} pass(es). The clock includes "
        "making the rows, moving the tail, and the rollups. Bytes before days that are over are packed."
    )
    return f"{words}\n\n{table(head, lines)}"


def influx_text(found: InfluxFigures) -> str:
    head = ["5,000 lines a request", "body", "samples/s", "client CPU µs a sample", "server CPU µs a sample", "passes"]

    def cells(way: Way) -> list[str]:
        return [number(way.rate), *(number(statistics.median(us), 2) for us in (way.client_us, way.server_us))]

    lines = [[way.name, way.body, *cells(way), str(len(way.rates))] for way in found.ways.values()]
    words = f"On {found.server}; {found.samples:,} samples a pass, {found.peer_samples:,} by peers."
    return f"{words}\n\n{table(head, lines, words=2)}"


def end_text(found: EndFigures) -> str:
    words = (
        f"On {found.server}, into {found.sink}: {found.points:,} points in {found.seconds:.0f} s, stored at "
        f"{found.rate:,.0f} a second in {found.batches:,} writes; the writer ended {found.late_s:.2f} s behind its "
        f"plan, and {found.drain_s:.2f} s later the last point was stored."
    )
    lags = (found.p50_ms, found.p99_ms, found.most_ms, found.early_ms, found.end_ms)
    head = ["lag, ms", "p50", "p99", "most", "at 10 s", "at the end"]
    lag = table(head, [["oldest entry not stored", *map(digits, lags)]])
    lines = [[name, f"{share * 100:.0f}", number(found.cpu_us[name], 2)] for name, share in found.shares.items()]
    shares = table(["process", "% of a core", "CPU µs a point"], lines)
    return f"{words}\n\n{lag}\n\n{shares}"


def trend_text(found: TrendFigures) -> str:
    head = ["question", "buckets", "p50 ms", "p99 ms", "the first one of a process, ms"]
    lines = [
        [each.kind.name, number(each.buckets), *(number(ms, 1) for ms in (each.p50_ms, each.p99_ms, each.first_ms))]
        for each in found.asked
    ]
    words = f"{found.series} series with {found.days} days of a sample a second; {found.bytes_each:.1f} bytes a sample."
    return f"{words}\n\n{table(head, lines)}"
