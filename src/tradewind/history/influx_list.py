"""Which series InfluxDB has, a page at a time: names from its index, figures only of those on the page."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from tradewind.history import influx_query as ql
from tradewind.history.influx_answer import Table
from tradewind.history.influx_http import InfluxHttp
from tradewind.history.influx_line import MODEL, MODEL_CONTROL, TAGS, TELEMETRY, address_of
from tradewind.history.sink import SeriesInfo, check_range
from tradewind.ids import is_id
from tradewind.points.address import is_number

#: Channels or models that are asked for by name; the series of more are asked for all together.
MOST_AT_ONCE = 256
#: The names of a channel or model with many are used for the pages that follow, for so long.
MANY, CACHE_S = 2000, 30.0
#: Series whose figures are asked for at once.
FIGURES = 1000
#: All of a channel is asked for when a third of it or more is wanted.
WHOLE_SHARE = 3
_ASKED = ("first", "last", "count")


class Group(NamedTuple):
    """Series that begin with `prefix`, of `total` that do."""

    prefix: str
    total: int
    names: list[str]

    @property
    def choices(self) -> list[ql.Choice]:
        """Where they stand. Most of a channel is found faster by asking for all of it than name by name."""
        return _choices_of(self.prefix) if len(self.names) * WHOLE_SHARE >= self.total else ql.choices(self.names)


class InfluxListing:
    def __init__(self, http: InfluxHttp) -> None:
        self._http = http
        self._cached: tuple[str, float, list[str]] = "", 0.0, []

    async def page(self, pattern: str, limit: int, after: str) -> list[SeriesInfo]:
        check_range(0, 0, limit)
        listed: list[SeriesInfo] = []
        async for left in self._groups(pattern, after):
            while left and len(listed) < limit:  # some may have no samples left, and the page is to be full
                some, left = _taken(left, min(limit - len(listed), FIGURES))
                listed += await self._infos(some)
            if len(listed) >= limit:
                break
        return listed

    async def names(self, pattern: str, limit: int | None = None) -> list[str]:
        """In order; also of series whose samples are gone."""
        found: list[str] = []
        async for groups in self._groups(pattern, "", is_all=limit is None):
            found += (name for group in groups for name in group.names)
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    async def _groups(self, pattern: str, after: str, *, is_all: bool = False) -> AsyncIterator[list[Group]]:
        """Those behind `after`, in order; few channels or models at first, since a page may be full soon."""
        prefixes = [
            prefix
            for prefix in sorted(await self._prefixes(pattern))
            if (prefix > after or after.startswith(prefix)) and _may_match(pattern, prefix)
        ]
        count = len(prefixes) if is_all else 1
        while prefixes:
            some, prefixes = prefixes[:count], prefixes[count:]
            found = []
            for prefix, names in (await self._below(some, after, pattern)).items():
                wanted = [name for name in names if name > after and ql.matches(pattern, name)]
                found.append(Group(prefix, len(names), wanted))
            yield [group for group in found if group.names]
            count = 2 * count if count < MOST_AT_ONCE else len(prefixes)

    async def _prefixes(self, pattern: str) -> set[str]:
        """`comsrv:1001:` and `modsrv:power:`; their order is that of the addresses that begin with them."""
        found: set[str] = set()

        def add(number: int, table: Table) -> None:
            for _, value in table.values:
                if table.name == TELEMETRY and is_number(value):
                    found.add(f"comsrv:{value}:")
                elif table.name != TELEMETRY and is_id(value):
                    found.add(f"modsrv:{value}:")

        chosen = ql.of_pattern(pattern)
        if chosen:
            await self._http.ask(";".join(map(ql.show_entities, chosen)), add)
        return found

    async def _below(self, prefixes: Sequence[str], after: str, pattern: str) -> dict[str, list[str]]:
        """All series of these, in order."""
        prefix, until, names = self._cached
        if after and [prefix] == list(prefixes) and time.monotonic() < until:
            return {prefix: names}
        found: dict[str, list[str]] = {prefix: [] for prefix in prefixes}

        def add(number: int, table: Table) -> None:
            if "key" in table.columns:
                names = [_address_of_key(str(row[0])) for row in table.values]
            else:
                names = [address_of(table.name, table.tags)]
            for name in names:
                if name is not None and (below := found.get(name[: name.index(":", 7) + 1])) is not None:
                    below.append(name)

        # 3.x has no SHOW SERIES; where there is one, it is much faster.
        ask = (lambda choice: ql.per_series(choice, "last")) if self._http.is_v2 else ql.show_series
        chosen = [choice for prefix in prefixes for choice in _choices_of(prefix)]
        if len(prefixes) > MOST_AT_ONCE:
            chosen = ql.of_pattern(pattern)
        await self._http.ask(";".join(map(ask, chosen)), add)
        for each in found.values():
            each.sort()
        if len(prefixes) == 1 and len(found[prefixes[0]]) >= MANY:
            self._cached = prefixes[0], time.monotonic() + CACHE_S, found[prefixes[0]]
        return found

    async def _infos(self, groups: Sequence[Group]) -> list[SeriesInfo]:
        known: dict[str, dict[str, int]] = {name: {} for group in groups for name in group.names}

        def add(number: int, table: Table) -> None:
            figures = known.get(address_of(table.name, table.tags) or "")
            if figures is not None:
                at, value = table.values[0]
                function = _ASKED[number % len(_ASKED)]
                figures[function] = value if function == "count" else at

        chosen = [choice for group in groups for choice in group.choices]
        await self._http.ask(";".join(ql.per_series(choice, function) for choice in chosen for function in _ASKED), add)
        return [
            SeriesInfo(name, figures["first"], figures["last"], figures["count"])
            for name, figures in known.items()
            if len(figures) == len(_ASKED)
        ]


def _taken(groups: list[Group], count: int) -> tuple[list[Group], list[Group]]:
    """The first `count` names, and the others."""
    some: list[Group] = []
    for at, (prefix, total, names) in enumerate(groups):
        some.append(Group(prefix, total, names[:count]))
        if len(names) > count:
            return some, [Group(prefix, total, names[count:]), *groups[at + 1 :]]
        count -= len(names)
        if not count:
            return some, groups[at + 1 :]
    return some, []


def _choices_of(prefix: str) -> list[ql.Choice]:
    service, entity, _ = prefix.split(":")
    measurements = (TELEMETRY,) if service == "comsrv" else (MODEL, MODEL_CONTROL)
    return [ql.Choice(measurement, f"\"{TAGS[measurement][0]}\" = '{entity}'") for measurement in measurements]


def _may_match(pattern: str, prefix: str) -> bool:
    head = pattern.partition("*")[0]
    return head.startswith(prefix) or prefix.startswith(head)


def _address_of_key(key: str) -> str | None:
    """Of `telemetry,channel_id=1001,point_id=10001,point_type=measurement`; what is escaped is not ours."""
    measurement, *tags = key.split(",")
    return address_of(measurement, {name: value for name, _, value in (tag.partition("=") for tag in tags)})
