"""Lists of open alarms: the first page of 100 out of 100,000, by level, from the store and over HTTP.

.venv/bin/python bench/rules/listing.py [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop
from shared import free_port, percentile, quiet_logs, server_of, servers

from tradewind.alarms.listing import AlarmQuery
from tradewind.alarms.record import LEVELS, NewAlarm
from tradewind.alarms.store import AlarmStore
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings

PAGE = 100


@dataclass(frozen=True, slots=True)
class ListFigures:
    """Milliseconds of a first page. NaN over HTTP: there is no such endpoint. `raised_s`: to raise all of them."""

    server: str
    alarms: int
    raised_s: float
    store_p50: float
    store_p99: float
    http_p50: float
    http_p99: float


async def fill(url: str, count: int) -> float:
    link = await open_link(RedisSettings(url=url))
    store = AlarmStore(PointPlane(link, Settings()))
    began = time.perf_counter()
    for start in range(0, count, 1000):
        await store.raise_many(
            [
                NewAlarm(
                    rule_id=f"r{n}", source=f"comsrv:{n // 1000 + 1}:m:{n % 1000 + 10_001}", title=f"r{n} is high",
                    level=LEVELS[n % len(LEVELS)].value, category=("general", "thermal")[n % 2], threshold="75.0",
                    actual="78.5",
                )
                for n in range(start, min(start + 1000, count))
            ]
        )  # fmt: skip
    took = time.perf_counter() - began
    await link.close()
    return took


async def from_store(url: str, turns: int) -> list[float]:
    link = await open_link(RedisSettings(url=url))
    store = AlarmStore(PointPlane(link, Settings()))
    took = []
    for turn in range(turns):
        query = AlarmQuery.of_words(status=["open"], level=[LEVELS[turn % len(LEVELS)].value], limit=PAGE)
        began = time.perf_counter()
        page = await store.list(query)
        took.append((time.perf_counter() - began) * 1000)
        assert len(page.alarms) == PAGE and page.next
    await link.close()
    return took


def over_http(port: int, turns: int) -> list[float]:
    """On one connection that stays open. Empty: there is no such endpoint."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    took = []
    for turn in range(turns):
        began = time.perf_counter()
        level = LEVELS[turn % len(LEVELS)].value
        connection.request("GET", f"/api/v1/alarms?status=open&level={level}&limit={PAGE}")
        answer = connection.getresponse()
        text = answer.read()
        took.append((time.perf_counter() - began) * 1000)
        if answer.status == 404:
            return []
        assert answer.status == 200 and len(json.loads(text)["items"]) == PAGE, text[:300]
    connection.close()
    return took


@contextlib.contextmanager
def api_process(redis_url: str) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        env = {**os.environ, "TRADEWIND_REDIS_URL": redis_url}
        command = [sys.executable, "-m", "tradewind.cli", "run", "api", "--port", str(port), "--data-dir", folder]
        with open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen([*command, "--log-level", "WARNING"], env=env, stdout=log, stderr=log)
        try:
            servers.wait_for(lambda: process.poll() is not None or _answers(port), "the API", 30)
            if process.poll() is not None:
                raise RuntimeError(f"the API ended: {(Path(folder) / 'log').read_text()[-2000:]}")
            yield port
        finally:
            process.terminate()
            process.wait(20)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return True
    except OSError:
        return False


def measure(*, is_quick: bool = False) -> ListFigures:
    quiet_logs()
    count, turns = (2_000, 20) if is_quick else (100_000, 500)
    with server_of(is_valkey=False) as server:
        raised_s = uvloop.run(fill(server.url, count))
        uvloop.run(from_store(server.url, 10))
        took = uvloop.run(from_store(server.url, turns))
        with api_process(server.url) as port:
            over_http(port, 10)
            asked = over_http(port, turns)
    parts = [percentile(values, share) for values in (took, asked) for share in (0.5, 0.99)]
    return ListFigures(server.name, count, raised_s, *parts)


def main() -> None:
    import goals
    import report

    import parts

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    found = measure(is_quick=parser.parse_args().quick)
    print(f"{parts.verdict_table(goals.of_listing(found))}\n\n{report.listing_text(found)}")


if __name__ == "__main__":
    main()
