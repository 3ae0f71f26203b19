"""Redis comes back empty: the station notices, says so everywhere, and what lives in code is announced again."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests import servers
from tests.faults.station_process import LEASES, RoleProcess, Site
from tests.process import free_port, wait_for
from tradewind.redis.keys import Keys
from tradewind.station_workers import ANNOUNCED_S

KEYS = Keys()
CODE = """
from tradewind import node, task

@task(every="1h")
def tidy() -> None:
    pass

@node
def doubled(value: float) -> float:
    return 2 * value
"""


class Plant:
    """A station as real processes on a Redis of its own, with its API."""

    def __init__(self, site: Site, url: str) -> None:
        self.site = site
        self.port = free_port()
        self.redis = redis.Redis.from_url(url) if url else None
        (site.folder / "plant_code.py").write_text(CODE)

    def up(self, *roles: str, **settings: object) -> RoleProcess:
        self.process = self.site.start(*roles, api_port=self.port, imports="fault_tasks,plant_code", **settings)
        if not roles or "api" in roles:
            wait_for(lambda: self.health() is not None, "an answer of /health", 60)
        return self.process

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"content-type": "application/json"}, method=method
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def health(self) -> Any:
        with contextlib.suppress(OSError):
            return self.ask("GET", "/health")
        return None

    def store(self) -> Any:
        return (self.health() or {}).get("parts", {}).get("store", {})

    def is_well(self) -> bool:
        return bool((self.health() or {}).get("status") == "ok")

    def cli(self, *args: str) -> subprocess.CompletedProcess[str]:
        env = {"TRADEWIND_URL": f"http://127.0.0.1:{self.port}", "TRADEWIND_DATA_DIR": str(self.site.data_dir)}
        env |= {"TRADEWIND_REDIS_URL": self.site.redis_url} if self.site.redis_url else {}
        argv = [sys.executable, "-m", "tradewind.cli", *args]
        return subprocess.run(argv, env=env, cwd=self.site.folder, capture_output=True, text=True, timeout=90)

    def alarms(self) -> list[Any]:
        found: list[Any] = self.ask("GET", "/api/v1/alarms?status=open")["items"]
        return found


@pytest.fixture
def store() -> Iterator[servers.Server]:
    with servers.redis_server(appendonly=True) as server:
        yield server


def test_a_flush_of_redis_is_noticed_and_said_everywhere(make_site: Callable[..., Site], store: servers.Server) -> None:
    plant = Plant(make_site(store.url, **LEASES), store.url)
    assert plant.redis is not None
    process = plant.up()
    wait_for(plant.is_well, "good health", 60)
    station = plant.redis.get(KEYS.station_id())
    assert station and plant.store()["status"] == "ok"
    assert plant.cli("doctor").returncode == 0, plant.cli("doctor").stdout

    plant.redis.flushall()

    wait_for(lambda: plant.store().get("status") == "down", "a store that is down", 5)
    assert plant.health()["status"] == "degraded"
    assert "restore" in plant.store()["detail"] and "open alarms" in plant.store()["detail"]
    process.says("station_data_lost", 5)
    status = plant.cli("status", "--json")
    assert status.returncode == 1 and "tradewind restore" in status.stdout
    doctor = plant.cli("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert doctor.returncode == 1 and checks["station"]["status"] == "fail"
    wait_for(lambda: bool(plant.alarms()), "an alarm", 20)
    [alarm] = [alarm for alarm in plant.alarms() if alarm["source_point"] == "station:store"]
    assert (alarm["level"], alarm["rule_id"], alarm["data"]["code"]) == ("Critical", "station", "store_lost")


def test_what_lives_in_code_is_announced_again_by_live_processes(
    make_site: Callable[..., Site], store: servers.Server
) -> None:
    plant = Plant(make_site(store.url, **LEASES), store.url)
    client = plant.redis
    assert client is not None
    plant.up()
    wait_for(plant.is_well, "good health", 60)

    def announced() -> dict[str, bool]:
        return {
            "task type": bool(client.hexists(KEYS.types(), "tidy")),
            "node type": bool(client.hexists(KEYS.node_types(), "doubled")),
            "periodic task": bool(client.hexists(KEYS.schedules(), "tidy")),
            "its next slot": client.zscore(KEYS.schedules_due(), "tidy") is not None,
            "worker": bool(client.zcard(KEYS.workers())),
            "worker of the type": bool(client.scard(KEYS.worker_type("doubled"))),
            "leader": bool(client.exists(KEYS.leader())),
            "rules": bool(client.exists(KEYS.rules_leader())),
            "models": bool(client.exists(KEYS.models_leader())),
            "alarms": bool(client.exists(KEYS.alarms_leader())),
            "notifications": bool(client.exists(KEYS.notify_leader())),
            "history": bool(client.exists(KEYS.history_leader())),
        }

    wait_for(lambda: all(announced().values()), f"everything announced: {announced()}", 30)
    client.flushall()
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: all(announced().values()), "everything announced", 10)
    assert [name for name, is_there in announced().items() if not is_there] == []


def test_a_periodic_task_that_was_removed_by_hand_stays_removed(
    make_site: Callable[..., Site], store: servers.Server
) -> None:
    plant = Plant(make_site(store.url, **LEASES), store.url)
    assert plant.redis is not None
    plant.up()
    plant.ask("DELETE", "/api/v1/schedules/tidy")
    end = time.monotonic() + 3 * ANNOUNCED_S
    while time.monotonic() < end:  # the worker looks at least twice
        assert not plant.redis.hexists(KEYS.schedules(), "tidy")
        time.sleep(0.1)


def test_a_redis_that_starts_without_its_folder_is_noticed(
    make_site: Callable[..., Site], store: servers.Server
) -> None:
    plant = Plant(make_site(store.url, **LEASES), store.url)
    plant.up()
    wait_for(plant.is_well, "good health", 60)
    store.kill()
    for path in store.dir.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    store.start()
    wait_for(lambda: plant.store().get("status") == "down", "a store that is down", 15)


def test_a_station_that_starts_on_an_empty_store_folder_notices(make_site: Callable[..., Site]) -> None:
    plant = Plant(make_site(**LEASES), "")
    process = plant.up()
    wait_for(plant.is_well, "good health", 60)
    process.terminate()
    process.wait(30)
    folders = {path.name for path in plant.site.data_dir.iterdir()}
    shutil.rmtree(plant.site.data_dir / "redis")
    assert "redis" in folders and "tradewind.db" in folders
    plant.up()
    wait_for(lambda: plant.store().get("status") == "down", "a store that is down", 10)


def test_a_fresh_database_adopts_the_redis_that_is_there(make_site: Callable[..., Site], store: servers.Server) -> None:
    plant = Plant(make_site(store.url, **LEASES), store.url)
    assert plant.redis is not None
    process = plant.up("scheduler", "worker", "api")
    station = plant.redis.get(KEYS.station_id())
    process.terminate()
    process.wait(30)
    shutil.rmtree(plant.site.data_dir)
    plant.up("scheduler", "worker", "api")
    wait_for(plant.is_well, "good health", 60)
    assert plant.redis.get(KEYS.station_id()) == station


def test_a_station_refuses_the_redis_of_another_one(make_site: Callable[..., Site], store: servers.Server) -> None:
    ours = make_site(store.url, **LEASES)
    first = Plant(ours, store.url)
    process = first.up("scheduler", "api")
    process.terminate()
    process.wait(30)
    with servers.redis_server() as other:
        second = Plant(make_site(other.url, **LEASES), other.url)
        running = second.up("scheduler", "api")
        before = redis.Redis.from_url(other.url)
        wrong = ours.start("scheduler", "api", redis_url=other.url, api_port=free_port())
        assert wrong.wait(30) == 5, wrong.output
        assert "belongs to station" in wrong.output
        assert running.exit_code is None and before.exists(KEYS.station_loss()) == 0
        # The other way round: the store is exchanged under a station that runs.
        before.set(KEYS.station_id(), "somebody_else")
        assert running.wait(30) == 5, running.output
