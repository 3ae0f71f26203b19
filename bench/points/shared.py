"""What the parts of the point benchmark share: a private server, CPU times, quiet logs, table cells."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import structlog

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path += [str(HERE.parent), str(HERE.parent / "tasks"), str(REPO)]  # the names there differ from those here

from tables import number, table  # noqa: E402
from tests import servers  # noqa: E402
from tests.process import accepts, free_port  # noqa: E402

__all__ = [
    "HERE", "REPO", "Place", "accepts", "cpu_s", "free_port", "number", "percentile", "quiet_logs", "server_cpu_s",
    "server_of", "servers", "table",
]  # fmt: skip

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Place:
    """A running server. `name` has its version."""

    name: str
    url: str
    port: int
    pid: int


@contextlib.contextmanager
def server_of(*, is_valkey: bool) -> Iterator[Place]:
    """redis-server of the system, or the Valkey binary that the embedded store starts; both on TCP, nothing on disk."""
    with servers.valkey_server() if is_valkey else servers.redis_server() as server:
        with redis.Redis(port=server.port) as client:
            info: Any = client.info("server")
        version = info.get("valkey_version", info["redis_version"])
        name = f"{'embedded valkey' if is_valkey else 'redis-server'} {version}"
        yield Place(name, server.url, server.port, server.pid)


def server_cpu_s(client: redis.Redis) -> float:
    info: Any = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def cpu_s(pid: int) -> float:
    """User and system time of a process so far; in steps of a tick."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of them lies; NaN of none."""
    found = sorted(values)
    return found[min(len(found) - 1, int(len(found) * share))] if found else float("nan")


def quiet_logs() -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
