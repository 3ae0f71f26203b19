"""Tradewind under test: a scheduler process of its own, then worker processes, as a user would start them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import redis
from system import REPO, BenchError, System


class Tradewind(System):
    name, app, note = "tradewind", "tradewind_app", "worker process, defaults; archive off, results off"
    packages = ("tradewind", "redis")
    is_peer = False
    scale = 20
    patience_s = 5.0
    archive: ClassVar[bool] = False
    result_ttl_s: ClassVar[int] = 0

    @property
    def python(self) -> Path:
        return REPO / ".venv" / "bin" / "python"

    def environment(self) -> dict[str, str]:
        data = self.log.with_suffix(".data")
        data.mkdir(exist_ok=True)
        return {
            **super().environment(),
            "TRADEWIND_REDIS_URL": self.redis_url,
            "TRADEWIND_TASKS_ARCHIVE": "true" if self.archive else "false",
            "TRADEWIND_TASKS_RESULT_TTL_S": str(self.result_ttl_s),
            "TRADEWIND_SQL_URL": f"sqlite:///{data / 'archive.db'}",
            "TRADEWIND_DATA_DIR": str(data),
        }

    def start_services(self, client: redis.Redis) -> None:
        self.services.start([self.command("tradewind"), "run", "scheduler"], self.environment(), self.output)
        limit = time.monotonic() + 20
        while not client.exists("scheduler:leader"):
            if self.services.has_ended() or time.monotonic() > limit:
                raise BenchError(f"{self.name}: no scheduler took the lead; {self.last_output()}")
            time.sleep(0.02)

    def worker_commands(self, n: int) -> list[list[str]]:
        return [[self.command("tradewind"), "run", "worker", "--import", self.app]] * n

    def is_settled(self, client: redis.Redis) -> bool:
        return not self.archive or client.xlen("task:outbox") == 0


class TradewindResults(Tradewind):
    name, note = "tradewind, results kept", "worker process, defaults; archive off, results kept 300 s"
    result_ttl_s = 300


class TradewindArchive(Tradewind):
    name, note = "tradewind, archive on", "worker process, defaults; finished tasks to SQLite"
    archive = True
    result_ttl_s = 300


OURS: list[type[System]] = [Tradewind, TradewindResults, TradewindArchive]
