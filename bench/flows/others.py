"""The floors and the peers: how each is run. Defaults hold where nothing else is said."""

from __future__ import annotations

from typing import ClassVar

from engine import SIZES, Counts, Engine
from shared import HERE

REDIS_KEEPS = "results in Redis; no history"


class PlainPython(Engine):
    name, app, note = "plain Python calls", "python_app", "floor: no engine"
    keeps, packages = "nothing", ()
    runs = Counts(20, 5, 5)


class RedisFloor(Engine):
    name, app, note = "redis-py list hop", "redis_app", "floor: BLPOP, then HSET and RPUSH in one pipeline; 2 processes"
    keeps, packages = "values in Redis", ("redis", "hiredis")
    runs = Counts(20, 5, 5)

    def start_services(self) -> None:
        for _ in range(2):
            self.processes.start(
                [str(self.python), str(HERE / "apps" / "redis_hop.py")], self.environment(), self.output
            )
        self.wait_for(lambda: self.place.client.get("hop:ready") == b"2", "both processes were ready")


class Celery(Engine):
    name, app, note = "Celery canvas", "celery_app", "chain, chord; Redis; prefork -c 2"
    keeps, packages, venv = REDIS_KEEPS, ("celery", "kombu", "redis"), "canvas"

    def start_services(self) -> None:
        command = [self.command("celery"), "-A", self.app, "worker", "-c", "2", "-l", "INFO"]
        self.processes.start(command, self.environment(), self.output)
        self.wait_for(lambda: " ready." in self.said(), "its worker was ready")


class Taskiq(Engine):
    name, app, note = "taskiq pipelines", "taskiq_app", "ListQueueBroker; 2 worker processes"
    keeps, packages, venv = REDIS_KEEPS, ("taskiq", "taskiq-pipelines", "taskiq-redis", "redis"), "canvas"

    def start_services(self) -> None:
        command = [self.command("taskiq"), "worker", f"{self.app}:broker", "--workers", "2", "--log-level", "INFO"]
        self.processes.start(command, self.environment(), self.output)
        self.wait_for(lambda: self.said().count("Listening started") >= 2, "both workers listened")


class Streaq(Engine):
    name, app, note = "streaq", "streaq_app", "1 worker process (its default); the fan passes no values"
    keeps, packages, venv = REDIS_KEEPS, ("streaq", "coredis"), "streaq"

    def start_services(self) -> None:
        self.processes.start([self.command("streaq"), "run", f"{self.app}:worker"], self.environment(), self.output)


class Hamilton(Engine):
    name, app, note = "Hamilton", "hamilton_app", "in the driver's process"
    keeps, packages, venv = "**nothing (in memory)**", ("sf-hamilton",), "hamilton"
    runs = Counts(10, 3, 5)


class Luigi(Engine):
    name, app, note = "Luigi", "luigi_app", "local scheduler, 1 worker"
    keeps, packages, venv = "output files", ("luigi",), "luigi"
    runs = Counts(3, 1, 3)


class DagsterMemory(Engine):
    name, app, note = "Dagster, in memory", "dagster_app", "execute_in_process; fan by DynamicOut"
    keeps, packages, venv = "**nothing (in memory)**", ("dagster",), "dagster"
    runs = Counts(3, 1, 1)
    once: ClassVar[tuple[str, ...]] = ("fan",)


class DagsterSqlite(DagsterMemory):
    name, keeps = "Dagster, SQLite", "every event in SQLite"
    env = ("BENCH_DAGSTER=sqlite",)
    runs = Counts(2, 1, 1)
    once = ("fan", "flows")


class Prefect(Engine):
    name, app, note = "Prefect", "prefect_app", "its own server process, SQLite"
    keeps, packages, venv = "every state in SQLite", ("prefect",), "prefect"
    env = (
        "PREFECT_HOME={home}/prefect",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS=120",  # 20 s is short for its first start
        "PREFECT_SERVER_ANALYTICS_ENABLED=false",
        "DO_NOT_TRACK=1",
    )
    runs = Counts(2, 1, 1)
    once = ("fan", "flows")
    # 100 at once end in HTTP 503 of its own server
    most = SIZES._replace(flows=20)


FLOORS: list[type[Engine]] = [PlainPython, RedisFloor]
PEERS: list[type[Engine]] = [Celery, Taskiq, Streaq, Luigi, Hamilton, DagsterMemory, DagsterSqlite, Prefect]
