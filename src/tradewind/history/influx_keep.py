"""What InfluxDB keeps: figures about the whole, retention, and forgetting series."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence

from tradewind.errors import Invalid
from tradewind.history import influx_query as ql
from tradewind.history.influx_answer import Table
from tradewind.history.influx_http import Barred, InfluxHttp, compressed
from tradewind.history.influx_line import place_of
from tradewind.history.influx_read import InfluxReader
from tradewind.history.sample import MAX_TS_MS
from tradewind.history.sink import Retained, SinkAway, SinkStats

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
#: Retention removes so much time in one call, and whole hours only: each deletion costs the server something.
STEP_MS = 30 * DAY_MS
#: Figures that took longer than this to find are used again for a while.
DEAR_S = 1.0
#: Where it stands what retention has removed; read by every process.
RETENTION = "history_retention"
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


class InfluxKeeper:
    def __init__(self, http: InfluxHttp, raw_days: int) -> None:
        self._http = http
        self._reader = InfluxReader(http)
        self._raw_days = raw_days
        self._stats: SinkStats | None = None
        self._stats_until = 0.0

    async def stats(self, now_ms: int) -> SinkStats:
        if self._stats is not None and time.monotonic() < self._stats_until:
            return self._stats
        began = time.monotonic()
        asked = ("count", "first", "last")
        figures: dict[str, list[int]] = {function: [] for function in asked}

        def add(number: int, table: Table) -> None:
            function = asked[number % len(asked)]
            at, value = table.values[0]
            figures[function].append(value if function == "count" else at)

        questions = [ql.over_all(choice, function) for choice in ql.EVERYTHING for function in asked]
        await self._http.ask(";".join(questions), add)
        raw_from_ms = await self.raw_from_ms(now_ms)
        self._stats = SinkStats(
            rows=sum(figures["count"]),
            bytes=await self._bytes(),
            oldest_ms=min(figures["first"], default=None),
            newest_ms=max(figures["last"], default=None),
            series=len(await self._reader.names("*")),
            raw_from_ms=raw_from_ms,
            minute_from_ms=raw_from_ms,
            hour_from_ms=raw_from_ms,
        )
        cost_s = time.monotonic() - began
        self._stats_until = began + 20 * cost_s if cost_s > DEAR_S else 0.0
        return self._stats

    async def retain(self, now_ms: int) -> Retained:
        upto_ms = (now_ms - self._raw_days * DAY_MS) // HOUR_MS * HOUR_MS
        if not self._raw_days or upto_ms <= 0:
            return Retained()
        firsts: list[int] = []
        questions = [ql.over_all(choice, "first", upto_ms) for choice in ql.EVERYTHING]
        await self._http.ask(";".join(questions), lambda number, table: firsts.append(table.values[0][0]))
        if not firsts:
            return Retained()
        upto_ms = min(upto_ms, (min(firsts) + STEP_MS) // HOUR_MS * HOUR_MS)
        rows = await self._count([ql.over_all(choice, "count", upto_ms) for choice in ql.EVERYTHING])
        # The mark first: what is gone must never look as if it had not been.
        await self._mark(upto_ms, now_ms)
        if self._http.is_v2:
            for choice in ql.EVERYTHING:
                await self._http.delete_v2(f'_measurement="{choice.measurement}"', upto_ms)
        else:
            await self._http.ask(";".join(ql.delete(choice, upto_ms) for choice in ql.EVERYTHING), _ignore)
        return Retained(rows=rows)

    async def forget(self, series: Sequence[str]) -> int:
        chosen = ql.choices(series)
        rows = await self._count([ql.per_series(choice, "count") for choice in chosen])
        if self._http.is_v2:
            for name in dict.fromkeys(series):
                with contextlib.suppress(Invalid):
                    await self._http.delete_v2(ql.predicate(place_of(name)), MAX_TS_MS)
        elif chosen:
            # One by one: DELETE understands less of a condition than SELECT does.
            each = [choice for name in dict.fromkeys(series) for choice in ql.choices([name])]
            await self._http.ask(";".join(ql.delete(choice) for choice in each), _ignore)
        return rows

    async def _count(self, questions: list[str]) -> int:
        counts: list[int] = []
        if questions:
            await self._http.ask(";".join(questions), lambda number, table: counts.append(table.values[0][1]))
        return sum(counts)

    async def _mark(self, raw_from_ms: int, now_ms: int) -> None:
        rejection = await self._http.write(compressed([f"{RETENTION} raw_from_ms={raw_from_ms}i {now_ms}"]))
        if rejection is not None:
            raise SinkAway(f"InfluxDB does not take the mark of retention: {rejection.message}")
        if self._http.is_v2:
            await self._http.delete_v2(f'_measurement="{RETENTION}"', now_ms)
        else:
            await self._http.ask(f'DELETE FROM "{RETENTION}" WHERE time < {now_ms}ms', _ignore)

    async def raw_from_ms(self, now_ms: int) -> int | None:
        """By our own retention, or by the policy of the server."""
        known: list[int] = []

        def add(number: int, table: Table) -> None:
            if number == 0:
                known.append(table.values[0][1])
                return
            for row in table.values:
                policy = dict(zip(table.columns, row, strict=True))
                kept_ms = _duration_ms(str(policy.get("duration", "")))
                if policy.get("default") and kept_ms:
                    known.append(now_ms - kept_ms)

        # Not every server knows all of it.
        with contextlib.suppress(Barred):
            last = f'SELECT last("raw_from_ms") FROM "{RETENTION}" WHERE time >= 0ms AND time <= {MAX_TS_MS}ms'
            await self._http.ask(f"{last};SHOW RETENTION POLICIES", add)
        return max(known, default=None)

    async def _bytes(self) -> int:
        sizes: list[int] = []

        def add(number: int, table: Table) -> None:
            if table.tags.get("database") == self._http.database and "diskBytes" in table.columns:
                sizes.append(table.values[0][table.columns.index("diskBytes")])

        if not self._http.is_v2:
            with contextlib.suppress(Barred):  # only an administrator may know
                await self._http.ask("SHOW STATS FOR 'shard'", add)
        return sum(sizes)


def _duration_ms(text: str) -> int:
    """Of Go's `720h0m0s`; 0 for ever, and for what is none."""
    found = _DURATION.fullmatch(text)
    hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    return ((hours * 60 + minutes) * 60 + seconds) * 1000


def _ignore(number: int, table: Table) -> None:
    pass
