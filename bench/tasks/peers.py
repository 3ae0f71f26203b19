"""The peers: how one worker of each is started. Their defaults hold for everything that bears on recovery."""

from __future__ import annotations

import time

from load import CONCURRENCY
from system import System


class Celery(System):
    name, app, note = "celery", "celery_app", "prefork -c 2, early ack, default prefetch"
    packages = ("celery", "kombu", "redis")

    def worker_commands(self, n: int) -> list[list[str]]:
        base = [self.command("celery"), "-A", self.app, "worker", "-c", "2", "-l", "ERROR"]
        quiet = ["--without-mingle", "--without-gossip"]
        return [[*base, *quiet, "-n", f"w{i}.{time.monotonic_ns()}@bench"] for i in range(n)]


class CeleryLate(Celery):
    name, note = "celery acks_late", "prefork -c 2, acks_late"
    env = {"BENCH_ACKS_LATE": "1"}  # noqa: RUF012 - declared a ClassVar in System


class Rq(System):
    name, app, note = "rq", "rq_app", "Worker (forks per job)"
    packages = ("rq", "redis")
    most = 500
    worker_class = "rq.worker.Worker"

    def worker_commands(self, n: int) -> list[list[str]]:
        return [[self.command("rq"), "worker", "-q", "-u", self.redis_url, "-w", self.worker_class, "bench"]] * n


class RqSimple(Rq):
    name, note = "rq SimpleWorker", "SimpleWorker (no fork)"
    most = 2000
    worker_class = "rq.worker.SimpleWorker"


class Dramatiq(System):
    name, app, note = "dramatiq", "dramatiq_app", "8 threads a process"
    packages = ("dramatiq", "redis")

    def worker_commands(self, n: int) -> list[list[str]]:
        return [[self.command("dramatiq"), self.app, "-p", str(n), "-t", "8"]]


class Arq(System):
    name, app, venv, note = "arq", "arq_app", "arq", f"max_jobs {CONCURRENCY}, poll 0.5 s"
    packages = ("arq", "redis")
    gap_s = 0.5

    def worker_commands(self, n: int) -> list[list[str]]:
        return [[str(self.python), "-m", self.app]] * n


class Saq(System):
    name, app, venv, note = "saq", "saq_app", "saq", f"concurrency {CONCURRENCY}"
    packages = ("saq", "redis")

    def worker_commands(self, n: int) -> list[list[str]]:
        return [[self.command("saq"), f"{self.app}.settings", "--quiet"]] * n


class TaskiqList(System):
    name, app, note = "taskiq list", "taskiq_app", f"ListQueueBroker, {CONCURRENCY} async tasks"
    packages = ("taskiq", "taskiq-redis", "redis")
    env = {"BENCH_TASKIQ": "list"}  # noqa: RUF012 - declared a ClassVar in System

    def worker_commands(self, n: int) -> list[list[str]]:
        base = [self.command("taskiq"), "worker", f"{self.app}:broker", "--log-level", "WARNING"]
        return [[*base, "--workers", str(n), "--max-async-tasks", str(CONCURRENCY)]]


class TaskiqStream(TaskiqList):
    name, note = "taskiq stream", f"RedisStreamBroker, {CONCURRENCY} async tasks"
    env = {"BENCH_TASKIQ": "stream"}  # noqa: RUF012 - declared a ClassVar in System


class Streaq(System):
    name, app, venv, note = "streaq", "streaq_app", "streaq", f"concurrency {CONCURRENCY}"
    packages = ("streaq", "coredis")

    def worker_commands(self, n: int) -> list[list[str]]:
        return [[str(self.python), "-m", self.app]] * n


class Huey(System):
    name, app, note = "huey", "huey_app", "4 threads"
    packages = ("huey", "redis")

    def worker_commands(self, n: int) -> list[list[str]]:
        return [[self.command("huey_consumer"), f"{self.app}.huey", "-q", "-k", "thread", "-w", "4", "-n"]] * n


PEERS: list[type[System]] = [
    Celery, Rq, RqSimple, Dramatiq, Arq, Saq, TaskiqList, TaskiqStream, Streaq, Huey,
]  # fmt: skip
