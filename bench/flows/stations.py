"""Tradewind under test, started as a user would: `tradewind up`, or scheduler and workers as processes of their own."""

from __future__ import annotations

import contextlib
from typing import ClassVar

from engine import Counts, Engine, Place
from shared import private_rabbitmq

from tradewind.errors import NotFound
from tradewind.redis.embedded import socket_of


class Embedded(Engine):
    """All roles in one process, with the Valkey server that it brings along; the driver is another process."""

    name, app, note = "Tradewind embedded", "tradewind_app", "one process, defaults: archive and record in SQLite"
    keeps, packages = "state in Redis (AOF), record in SQLite", ("tradewind", "redis")
    is_ours = True
    runs = Counts(20, 3, 5)
    patience_s = 10.0
    archive: ClassVar[bool] = True
    workers: ClassVar[int] = 1

    @property
    def socket_url(self) -> str:
        try:
            return f"unix://{socket_of(self.home / 'data')}"
        except NotFound:
            return ""

    def environment(self) -> dict[str, str]:
        return {
            **super().environment(),
            "TRADEWIND_DATA_DIR": str(self.home / "data"),
            "TRADEWIND_TASKS_ARCHIVE": "true" if self.archive else "false",
            "TRADEWIND_LOG_LEVEL": "WARNING",
            "TRADEWIND_IMPORTS": "nodes",
            "TRADEWIND_API_PORT": "0",
            "BENCH_WORKERS": str(self.workers),
            "BENCH_STATION_URL": self.socket_url,
        }

    def start_services(self) -> None:
        self.processes.start([self.command("tradewind"), "up"], self.environment(), self.output)
        self.wait_for(lambda: self.socket_url, "its Redis answered")


class EmbeddedNoArchive(Embedded):
    name, note = "Tradewind embedded, archive off", "one process, tasks.archive = false"
    keeps = "state in Redis (AOF)"
    archive = False


class TwoWorkers(Embedded):
    name, note = "Tradewind, two workers", "scheduler and 2 worker processes on one redis-server; archive and record on"
    keeps = "state in Redis, record in SQLite"
    workers = 2

    @property
    def socket_url(self) -> str:
        return self.place.redis_url

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "TRADEWIND_REDIS_URL": self.place.redis_url}

    def start_services(self) -> None:
        for role in ("scheduler", *["worker"] * self.workers):
            self.processes.start([self.command("tradewind"), "run", role], self.environment(), self.output)


class OverRabbit(TwoWorkers):
    name, note = "Tradewind over RabbitMQ", "as above, signals over a rabbitmq-server of its own"
    keeps = "state in Redis, signals on disk, record in SQLite"
    kinds = ("chain",)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._broker = contextlib.ExitStack()
        self._url = ""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "TRADEWIND_SIGNALS_TRANSPORT": "amqp", "TRADEWIND_AMQP_URL": self._url}

    def start_services(self) -> None:
        self._url = self._broker.enter_context(private_rabbitmq())
        super().start_services()

    def stop(self) -> None:
        super().stop()
        self._broker.close()


OURS: list[type[Engine]] = [Embedded, EmbeddedNoArchive, TwoWorkers, OverRabbit]
