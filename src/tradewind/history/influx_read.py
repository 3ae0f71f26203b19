"""Questions to InfluxDB: raw samples, buckets, the newest. Which series there are: influx_list.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tradewind.errors import Invalid
from tradewind.history import influx_query as ql
from tradewind.history.aggregate import NO_CELLS, Cells, answer, cells_of, line_of
from tradewind.history.influx_answer import NotFinite, Table
from tradewind.history.influx_http import InfluxHttp
from tradewind.history.influx_line import address_of
from tradewind.history.sample import MAX_TS_MS
from tradewind.history.sink import Bucket, Sample, check_buckets, check_range

#: Raw samples that one question about an integral may go through.
MAX_SCAN = 2_000_000


class InfluxReader:
    def __init__(self, http: InfluxHttp) -> None:
        self._http = http

    async def read(self, series: Sequence[str], from_ms: int, to_ms: int, limit: int) -> dict[str, list[Sample]]:
        check_range(from_ms, to_ms, limit)
        found: dict[str, list[Sample]] = {name: [] for name in series}
        await self._ask([ql.raw(choice, from_ms, to_ms, limit) for choice in _within(series, from_ms, to_ms)], found)
        return found

    async def latest(self, series: Sequence[str]) -> dict[str, Sample | None]:
        found: dict[str, list[Sample]] = {name: [] for name in series}
        await self._ask([ql.last(choice) for choice in ql.choices(series)], found)
        return {name: samples[0] if samples else None for name, samples in found.items()}

    async def buckets(
        self,
        series: Sequence[str],
        from_ms: int,
        to_ms: int,
        bucket_ms: int,
        aggs: Sequence[str],
        limit: int,
        gap_ms: int,
    ) -> dict[str, list[Bucket]]:
        check_range(from_ms, to_ms, limit)
        check_buckets(bucket_ms, aggs, gap_ms)
        from_ms, to_ms = max(from_ms, 0), min(to_ms, MAX_TS_MS + 1)
        if "integral" in aggs:
            return await self._buckets_of_raw(series, from_ms, to_ms, bucket_ms, aggs, limit, gap_ms)
        chosen = _within(series, from_ms, to_ms)
        functions = ["count", *(agg for agg in dict.fromkeys(aggs) if agg in ql.FUNCTIONS and agg != "count")]
        questions = [ql.buckets(choice, from_ms, to_ms, bucket_ms, functions, limit) for choice in chosen]
        if "good" in aggs:
            questions += [ql.not_good(choice, from_ms, to_ms, bucket_ms, limit) for choice in chosen]
        numbers: dict[str, dict[int, dict[str, float]]] = {name: {} for name in series}

        def add(number: int, table: Table) -> None:
            known = numbers.get(address_of(table.name, table.tags) or "")
            if known is None:
                return
            for start, *values in table.values:
                if number < len(chosen):
                    known[start] = dict(zip(functions, values, strict=True))
                elif start in known:
                    known[start]["not_good"] = values[0]

        if questions:
            try:
                await self._http.ask(";".join(questions), add)
            except NotFinite:
                await self._http.ask_packed(";".join(questions), add)
        return {
            name: [_bucket(start, found, aggs) for start, found in known.items()] for name, known in numbers.items()
        }

    async def _buckets_of_raw(
        self,
        series: Sequence[str],
        from_ms: int,
        to_ms: int,
        bucket_ms: int,
        aggs: Sequence[str],
        limit: int,
        gap_ms: int,
    ) -> dict[str, list[Bucket]]:
        chosen = _within(series, from_ms, to_ms)
        if not chosen:
            return {name: [] for name in series}
        before: dict[str, list[Sample]] = {name: [] for name in series}
        if from_ms > 0:
            await self._ask([ql.last(choice, max(from_ms - gap_ms, 0), from_ms) for choice in chosen], before)
        cells: dict[str, list[Cells]] = {name: [NO_CELLS] for name in series}
        seen = 0

        def add(name: str, samples: list[Sample]) -> None:
            nonlocal seen
            seen += len(samples)
            if seen > MAX_SCAN:
                message = f"the integral needs more than {MAX_SCAN} raw samples"
                hint = "ask for a shorter time or fewer series, or leave integral out"
                raise Invalid(message, code="too_much", hint=hint)
            cells[name].append(cells_of(line_of(samples), bucket_ms, gap_ms))

        questions = [ql.raw(choice, from_ms, to_ms, MAX_SCAN + 1) for choice in chosen]
        await self._http.ask(";".join(questions), _for_samples(cells.keys(), add))
        found: dict[str, list[Bucket]] = {}
        for name in series:
            held = (from_ms, *before[name][0][:2]) if before[name] else None
            found[name] = answer(np.concatenate(cells[name]), bucket_ms, aggs, limit, to_ms, gap_ms, held)
        return found

    async def _ask(self, questions: list[str], found: dict[str, list[Sample]]) -> None:
        """Questions whose answers are samples, added to the lists in `found`."""
        if questions:
            each = _for_samples(found.keys(), lambda name, samples: found[name].extend(samples))
            await self._http.ask(";".join(questions), each)


def _within(series: Sequence[str], from_ms: int, to_ms: int) -> list[ql.Choice]:
    return ql.choices(series) if from_ms < to_ms and from_ms <= MAX_TS_MS and to_ms > 0 else []


def _for_samples(wanted: Iterable[str], add: Callable[[str, list[Sample]], None]) -> Callable[[int, Table], None]:
    def each(number: int, table: Table) -> None:
        name = address_of(table.name, table.tags)
        if name is not None and name in wanted:
            add(name, [(ts, float(value), quality or 0) for ts, value, quality in table.values if value is not None])

    return each


def _bucket(start: int, found: dict[str, float], aggs: Sequence[str]) -> Bucket:
    row: list[int | float | None] = [start]
    for agg in aggs:
        if agg == "count":
            row.append(int(found["count"]))
        elif agg == "good":
            row.append(int(found["count"] - found.get("not_good", 0)))
        elif agg == "stddev" and found["count"] == 1:
            row.append(0.0)
        else:
            value = found[agg]
            row.append(float(value) if value is not None and math.isfinite(value) else None)
    return tuple(row)
