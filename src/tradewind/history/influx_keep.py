"""What InfluxDB keeps: figures about the whole, retention, and forgetting series."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import Sequence

from tradewind.errors import Invalid
from tradewind.history import influx_query as ql
from tradewind.history.influx_answer import Table
from tradewind.history.influx_classes import ClassKeeper
from tradewind.history.influx_http import Barred, InfluxHttp
from tradewind.history.influx_line import place_of
from tradewind.history.influx_list import InfluxListing
from tradewind.history.keeping import KeepingSource
from tradewind.history.policy import DEFAULT_CLASS
from tradewind.history.sample import MAX_TS_MS, is_series
from tradewind.history.sink import ClassStats, Retained, SinkAway, SinkStats, class_stats

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
#: Retention removes so much time in one call, and whole hours only: each deletion costs the server something.
STEP_MS = 30 * DAY_MS
#: Figures that took longer than this to find are used again for a while.
DEAR_S = 1.0
#: No measurement has this name: what is deleted to see whether the server deletes at all.
NOTHING = "history_nothing"
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


class InfluxKeeper:
    def __init__(self, http: InfluxHttp, listing: InfluxListing, keeping: KeepingSource) -> None:
        self._http = http
        self._listing = listing
        self._keeping = keeping
        self._classes = ClassKeeper(http, listing)
        self._stats: SinkStats | None = None
        self._stats_until = 0.0
        self._counting: asyncio.Task[SinkStats] | None = None

    async def stats(self, now_ms: int) -> SinkStats:
        """Counting goes on when nobody waits for it any more, so that the next one who asks finds the figures."""
        if self._stats is not None and time.monotonic() < self._stats_until:
            return self._stats
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._find_stats(now_ms), name="history figures")
            self._counting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._counting)

    async def close(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.wait({self._counting})

    async def _find_stats(self, now_ms: int) -> SinkStats:
        began = time.monotonic()
        asked = ("count", "first", "last")
        figures: dict[str, list[int]] = {function: [] for function in asked}

        def add(number: int, table: Table) -> None:
            function = asked[number % len(asked)]
            at, value = table.values[0]
            figures[function].append(value if function == "count" else at)

        questions = [ql.over_all(choice, function) for choice in ql.EVERYTHING for function in asked]
        await self._http.ask(";".join(questions), add)
        raw_from_ms = await self._raw_from_ms(now_ms)
        names = await self._listing.names("*")
        self._stats = SinkStats(
            rows=sum(figures["count"]),
            bytes=await self._bytes(),
            oldest_ms=min(figures["first"], default=None),
            newest_ms=max(figures["last"], default=None),
            series=len(names),
            raw_from_ms=raw_from_ms,
            minute_from_ms=raw_from_ms,
            hour_from_ms=raw_from_ms,
            problems=await self._problems(now_ms),
            classes=await self._class_stats(names, sum(figures["count"])),
        )
        cost_s = time.monotonic() - began
        self._stats_until = began + 21 * cost_s if cost_s > DEAR_S else 0.0
        return self._stats

    async def retain(self, now_ms: int) -> Retained:
        keeping = await self._keeping()
        rows = await self._retain_all(keeping.longest("raw"), now_ms)
        if not keeping.is_plain:
            if self._http.is_v2:
                await self._check_delete(now_ms)
            rows += await self._classes.retain(keeping, now_ms)
        return Retained(rows=rows)

    async def _retain_all(self, days: int, now_ms: int) -> int:
        """What no class keeps, of all series at once."""
        upto_ms = (now_ms - days * DAY_MS) // HOUR_MS * HOUR_MS
        if not days or upto_ms <= 0:
            return 0
        firsts: list[int] = []
        questions = [ql.over_all(choice, "first", upto_ms) for choice in ql.EVERYTHING]
        await self._http.ask(";".join(questions), lambda number, table: firsts.append(table.values[0][0]))
        if not firsts:
            return 0
        if self._http.is_v2:
            await self._check_delete(now_ms)
        upto_ms = min(upto_ms, (min(firsts) + STEP_MS) // HOUR_MS * HOUR_MS)
        rows = await self._count([ql.over_all(choice, "count", upto_ms) for choice in ql.EVERYTHING])
        # The mark first: what is gone must never look as if it had not been. What came late does not move it back.
        await self._mark(max(upto_ms, await self._raw_from_ms(now_ms) or 0), now_ms)
        if self._http.is_v2:
            for choice in ql.EVERYTHING:
                await self._http.delete_v2(f'_measurement="{choice.measurement}"', upto_ms)
        else:
            await self._http.ask(";".join(ql.delete(choice, upto_ms) for choice in ql.EVERYTHING), _ignore)
        return rows

    async def kept_from(self, series: Sequence[str], now_ms: int) -> dict[str, int | None]:
        """By our own retention, of all or of a class, or by the policy of the server."""
        whole, marks = await self._raw_from_ms(now_ms), dict[str, int]()
        with contextlib.suppress(Barred):  # as with the others: not every server knows all of it
            marks = await self._classes.marks(series)
        return {name: max(whole or 0, marks.get(name, 0)) or None for name in series}

    async def _check_delete(self, now_ms: int) -> None:
        """Raises Barred from a server that does not delete (3.x), before anything is marked as removed; told by
        `stats` of every process."""
        try:
            await self._http.delete_v2(f'_measurement="{NOTHING}"', DAY_MS)
        except Barred as error:
            text = error.message.replace("\\", "/").replace('"', "'")[:300]
            line = f'{ql.RETENTION} problem="{text}" {now_ms}'
            await self._http.write(self._http.packed(line.replace("\n", " ").encode()))
            raise

    async def _problems(self, now_ms: int) -> tuple[str, ...]:
        found: list[str] = []
        if self._http.is_v2:
            since = f"time >= {now_ms - DAY_MS}ms AND time <= {now_ms + DAY_MS}ms"
            with contextlib.suppress(Barred):
                question = f'SELECT last("problem") FROM "{ql.RETENTION}" WHERE {since}'
                await self._http.ask(question, lambda number, table: found.append(str(table.values[0][1])))
        return tuple(f"nothing old is removed, set the retention of the bucket itself: {text}" for text in found)

    async def _class_stats(self, names: Sequence[str], rows: int) -> tuple[ClassStats, ...]:
        try:
            keeping = await self._keeping()
        except SinkAway:
            return ()
        series = Counter(map(keeping.class_of, names))
        return class_stats(keeping, series, {DEFAULT_CLASS: rows} if keeping.is_plain else None)

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
        await self._classes.forget([name for name in dict.fromkeys(series) if is_series(name)])
        return rows

    async def _count(self, questions: list[str]) -> int:
        counts: list[int] = []
        if questions:
            await self._http.ask(";".join(questions), lambda number, table: counts.append(table.values[0][1]))
        return sum(counts)

    async def _mark(self, raw_from_ms: int, now_ms: int) -> None:
        rejection = await self._http.write(
            self._http.packed(b"%s raw_from_ms=%di %d" % (ql.RETENTION.encode(), raw_from_ms, now_ms))
        )
        if rejection is not None:
            raise SinkAway(f"InfluxDB does not take the mark of retention: {rejection.message}")
        if self._http.is_v2:
            await self._http.delete_v2(f'_measurement="{ql.RETENTION}"', now_ms)
        else:
            await self._http.ask(f'DELETE FROM "{ql.RETENTION}" WHERE time < {now_ms}ms', _ignore)

    async def _raw_from_ms(self, now_ms: int) -> int | None:
        """Of all series."""
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
            last = f'SELECT last("raw_from_ms") FROM "{ql.RETENTION}" WHERE time >= 0ms AND time <= {MAX_TS_MS}ms'
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
