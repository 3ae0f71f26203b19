"""Figures of the recorder for Prometheus."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tradewind.api.history_room import HistoryServices, recorder_view

_SUMS = {
    "entries": "Entries of the feed that were read.",
    "batches": "Batches written.",
    "written": "Samples that the sink took, rewritten ones included.",
    "spooled": "Samples that went through the disk.",
    "refused": "Samples that the sink refused.",
    "not_finite": "Values left out because they are not finite.",
    "unreadable": "Entries of the feed that could not be read.",
    "thinned": "Samples left out by a deadband or an interval.",
    "missed": "Entries of the feed that were trimmed unread.",
}
_DROPS = ("bytes", "age", "corrupt")


class HistoryFigures:
    """Nothing when no recorder has ever run."""

    def __init__(self, room: HistoryServices) -> None:
        self._room = room

    async def collect(self) -> list[Metric]:
        fields = await self._room.store.status()
        if not fields:
            return []
        told = recorder_view(fields)
        found: list[Metric] = [
            CounterMetricFamily(f"tradewind_history_{name}", about, told[name]) for name, about in _SUMS.items()
        ]
        dropped = CounterMetricFamily(
            "tradewind_history_dropped", "Samples dropped from the spool, by reason.", labels=["reason"]
        )
        for reason in _DROPS:
            dropped.add_metric([reason], told[f"dropped_{reason}"])
        return [
            *found,
            dropped,
            GaugeMetricFamily(
                "tradewind_history_sink_up", "1 while the sink takes samples.", int(told["sink"] != "away")
            ),
            GaugeMetricFamily("tradewind_history_spool_samples", "Samples that wait on disk.", told["spool_rows"]),
            GaugeMetricFamily("tradewind_history_spool_bytes", "Size of the spool.", told["spool_bytes"]),
            GaugeMetricFamily(
                "tradewind_history_spool_elsewhere_bytes",
                "In spools that processes hang with.",
                told["spool_elsewhere_bytes"],
            ),
            GaugeMetricFamily("tradewind_history_behind", "Entries of the feed not yet stored.", told["behind"]),
            GaugeMetricFamily("tradewind_history_lag_seconds", "Age of the oldest of these.", told["lag_ms"] / 1000),
            GaugeMetricFamily("tradewind_history_seen_seconds", "When the recorder said this.", told["at_ms"] / 1000),
        ]
