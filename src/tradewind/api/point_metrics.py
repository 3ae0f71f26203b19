"""Figures of channels, points, models and commands for Prometheus."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tradewind.api.channel_book import STATES, ChannelBook
from tradewind.api.point_room import PointServices
from tradewind.api.points_ingest import Ingest

#: Beyond so many channels only their sums are told: each is a time series of its own.
MAX_CHANNELS = 1000


class PointFigures:
    def __init__(self, room: PointServices, book: ChannelBook, ingest: Ingest) -> None:
        self._room = room
        self._book = book
        self._ingest = ingest

    async def collect(self) -> list[Metric]:
        views = await self._book.views(await self._book.ids())
        by_state = dict.fromkeys(STATES, 0)
        for view in views:
            by_state[view["state"]] += 1
        channels = GaugeMetricFamily("tradewind_channels", "Channels by their state.", labels=["state"])
        for state, count in by_state.items():
            channels.add_metric([state], count)
        totals = {
            name: CounterMetricFamily(f"tradewind_channel_{name}", about, labels=["channel"])
            for name, about in (
                ("polls", "Polls that succeeded, since its process took the channel."),
                ("failures", "Polls and connections that failed."),
                ("missed", "Polls that came too late."),
                ("commands", "Commands carried out."),
                ("dropped", "Readings that were lost on their way to the board."),
                ("refused", "Messages of the device that were too large to be read."),
            )
        }
        online = GaugeMetricFamily("tradewind_channel_online", "1 while it answers.", labels=["channel"])
        took = GaugeMetricFamily("tradewind_channel_poll_seconds", "How long a poll takes.", labels=["channel"])
        for view in views[:MAX_CHANNELS]:
            if view["state"] == "pushed":
                continue
            online.add_metric([view["id"]], int(view["state"] == "online"))
            took.add_metric([view["id"]], view["status"]["poll_ms"] / 1000)
            for name, family in totals.items():
                family.add_metric([view["id"]], view["status"][name])
        return [channels, online, took, *totals.values(), *await self._others()]

    async def _others(self) -> list[Metric]:
        plane, keys = self._room.board.plane, self._room.board.plane.keys
        length, missed, is_open = await plane.home.ask(
            [("XLEN", keys.feed()), ("HGETALL", keys.feed_missed()), ("ZCARD", keys.commands_open())]
        )
        lost = CounterMetricFamily(
            "tradewind_feed_missed", "Feed entries trimmed before a consumer had read them.", labels=["consumer"]
        )
        for consumer, count in missed.items():
            if b"@" in consumer:  # of one feed of a cluster; the sum stands beside it
                continue
            lost.add_metric([consumer.decode()], int(count))
        models = await self._room.models.load()
        faulty = len(models.models) - len(models.specs)
        return [
            CounterMetricFamily("tradewind_points_ingested", "Values sent to this process.", self._ingest.taken),
            GaugeMetricFamily("tradewind_feed_length", "Written batches that are still in the feed.", length),
            lost,
            GaugeMetricFamily("tradewind_models", "Models that are defined.", len(models.models)),
            GaugeMetricFamily("tradewind_models_faulty", "Models that cannot be computed.", faulty),
            GaugeMetricFamily("tradewind_commands_open", "Commands that have not ended.", is_open),
        ]
