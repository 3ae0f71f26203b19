"""What the API needs of the history of a station, and how it shows it."""

from __future__ import annotations

import re
from typing import Any, Protocol

import msgspec

from tradewind.history.keeping import KeepingSource
from tradewind.history.policy import KINDS, Policy
from tradewind.history.query import HistoryQuery
from tradewind.history.sink import SeriesInfo, SinkStats
from tradewind.history.status import Figures
from tradewind.history.store import HistoryStore, RefusedSample
from tradewind.settings import Settings

_WHOLE = re.compile(r"-?[0-9]{1,18}")
QUALITIES = {0: "good", 1: "uncertain", 2: "bad", 4: "substituted"}


class HistoryServices(Protocol):
    """What the API needs of the history room of a station."""

    @property
    def store(self) -> HistoryStore: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def keeping(self) -> KeepingSource: ...

    async def questions(self) -> HistoryQuery:
        """What answers questions; does not raise SinkAway."""
        ...


def policy_view(policy: Policy) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(policy)
    return found


def series_view(info: SeriesInfo, unit: str) -> dict[str, Any]:
    return {
        "address": info.address,
        "unit": unit,
        "first_ts": info.first_ms,
        "last_ts": info.last_ms,
        "count": info.count,
    }


def recorder_view(fields: dict[str, str]) -> dict[str, Any]:
    """The recorder's figures as numbers and words; what another version wrote beside them is left out."""
    found: dict[str, Any] = msgspec.structs.asdict(Figures())
    for name, none in found.items():
        text = fields.get(name)
        if text is not None:
            found[name] = text if isinstance(none, str) else int(text) if _WHOLE.fullmatch(text) else 0
    return found


def sink_view(stats: SinkStats) -> dict[str, Any]:
    return {
        "rows": stats.rows,
        "bytes": stats.bytes,
        "series": stats.series,
        "oldest_ts": stats.oldest_ms,
        "newest_ts": stats.newest_ms,
        "raw_from": stats.raw_from_ms,
        "minute_from": stats.minute_from_ms,
        "hour_from": stats.hour_from_ms,
        "problems": list(stats.problems),
        "classes": [
            {
                "name": each.name,
                **{f"{kind}_days": days for kind, days in zip(KINDS, each.days, strict=True)},
                "series": each.series,
                "rows": each.rows,
            }
            for each in stats.classes
        ],
    }


def refused_view(sample: RefusedSample) -> dict[str, Any]:
    return {
        "series": sample.series,
        "ts": sample.ts_ms,
        "value": sample.value,
        "reason": sample.reason,
        "at": sample.at_ms,
    }
