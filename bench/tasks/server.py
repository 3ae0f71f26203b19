"""A private redis-server: no persistence, 127.0.0.1 only, a free port, stopped by its own handle; and what it did."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def url_of(client: redis.Redis) -> str:
    return f"redis://127.0.0.1:{port_of(client)}/0"


def port_of(client: redis.Redis) -> int:
    return int(client.connection_pool.connection_kwargs["port"])


@contextlib.contextmanager
def private_redis() -> Iterator[redis.Redis]:
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", directory]
        process = subprocess.Popen([*command, "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL)
        client = redis.Redis(host="127.0.0.1", port=port)
        try:
            _await_start(client, process)
            yield client
        finally:
            client.close()
            process.terminate()
            process.wait(10)


def _await_start(client: redis.Redis, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 10
    while time.monotonic() < limit and process.poll() is None:
        with contextlib.suppress(redis.ConnectionError):
            if _info(client, "server")["process_id"] != process.pid:  # our free port was taken meanwhile
                break
            return
        time.sleep(0.02)
    raise RuntimeError(f"redis-server on port {port_of(client)} did not start")


def _info(client: redis.Redis, section: str) -> dict[str, Any]:
    found: Any = client.info(section)
    return dict(found)


def used_memory(client: redis.Redis) -> int:
    return int(_info(client, "memory")["used_memory"])


def version(client: redis.Redis) -> str:
    return str(_info(client, "server")["redis_version"])


@dataclass(frozen=True, slots=True)
class PerTask:
    """What one task cost Redis; commands inside scripts count too, socket reads are near to round trips."""

    commands: float
    reads: float
    cpu_us: float
    by_command: dict[str, float]


class Usage:
    """Redis' own work between the making of this object and `per_task`."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        client.config_resetstat()
        self._cpu_s = self._cpu()

    def _cpu(self) -> float:
        info = _info(self._client, "cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"])

    def per_task(self, n: int) -> PerTask:
        cpu_s = self._cpu() - self._cpu_s
        reads = int(_info(self._client, "stats").get("total_reads_processed", 0))
        ours = {"cmdstat_info", "cmdstat_config|resetstat"}
        stats = {k: v for k, v in _info(self._client, "commandstats").items() if k not in ours}
        calls = {k.removeprefix("cmdstat_"): v["calls"] / n for k, v in stats.items()}
        common = {k: round(v, 3) for k, v in sorted(calls.items(), key=lambda item: -item[1]) if v >= 0.01}
        return PerTask(sum(calls.values()), reads / n, cpu_s * 1e6 / n, common)
