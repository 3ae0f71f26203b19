"""Redis comes back empty: the station notices, says so everywhere, and what lives in code is announced again."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil
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
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error
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


CHANNELS = {
    "channels": [
        {
            "id": "1001",
            "name": "Meter",
            "protocol": "virtual",
            "poll_interval_ms": 200,
            "points": [{"kind": "m", "id": "1", "name": "power", "mapping": {"expression": "5"}}],
        }
    ]
}
MODELS = {
    "models": [
        {
            "name": "total",
            "inputs": [{"name": "a", "source": "comsrv:1001:m:1"}],
            "calculations": [{"id": "p", "expression": "a * 2"}],
            "outputs": [{"field": "power", "source": "p"}],
        }
    ]
}
RULES = {
    "groups": [{"id": "plant", "name": "Plant"}],
    "rules": [
        {
            "id": name,
            "group_id": "plant",
            "conditions": [
                {"field": "p", "operator": operator, "value": 7, "source": "modsrv:total:measurement:power"}
            ],
            "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": name}}],
        }
        for name, operator in (("too_high", ">"), ("too_low", "<"))
    ],
}
FLOW = {"interval": "1s", "nodes": [{"id": "a", "type": "doubled", "inputs": {"value": 2}}], "edges": []}


def _fill(plant: Plant) -> dict[str, Any]:
    """A plant at work with an open alarm that is acknowledged; what it has, as it shall be found again."""
    plant.ask("PUT", "/api/v1/channels", CHANNELS)
    plant.ask("PUT", "/api/v1/models", MODELS)
    plant.ask("PUT", "/api/v1/rules", RULES)
    plant.ask("PUT", "/api/v1/schedules/nightly", {"type": "tidy", "cron": "0 3 * * *"})
    plant.ask("PUT", "/api/v1/rate-limits/tidy", {"limit": 5, "window_s": 60})
    plant.ask("PUT", "/api/v1/flows/loop", FLOW)
    plant.ask("POST", "/api/v1/flows/loop/start")
    wait_for(lambda: _value(plant) == 10, "a computed value", 30)
    # The value is made an alarm by the rule's edge: a level that holds from the beginning is none.
    changed = {
        **CHANNELS["channels"][0],
        "points": [{"kind": "m", "id": "1", "name": "power", "mapping": {"expression": "1"}}],
    }
    plant.ask("PUT", "/api/v1/channels", {"channels": [changed]})
    wait_for(lambda: any(alarm["rule_id"] == "too_low" for alarm in plant.alarms()), "an alarm", 30)
    [alarm] = [alarm for alarm in plant.alarms() if alarm["rule_id"] == "too_low"]
    plant.ask("POST", f"/api/v1/alarms/{alarm['id']}/acknowledge", {"who": "ann"})
    wait_for(lambda: plant.ask("GET", "/api/v1/flows/loop")["last_cycle"] >= 1, "cycles", 30)
    wanted = _found(plant)
    wait_for(lambda: _is_copied(plant, alarm["id"]), "a copy of all that", 30)
    return {**wanted, "alarm": alarm["id"]}


def _value(plant: Plant) -> float | None:
    items = plant.ask("GET", "/api/v1/points?address=modsrv:total:measurement:power")["items"]
    return items[0].get("value") if items else None


def _found(plant: Plant) -> dict[str, Any]:
    return {
        "channels": [channel["id"] for channel in plant.ask("GET", "/api/v1/channels")["items"]],
        "models": [model["name"] for model in plant.ask("GET", "/api/v1/models")["items"]],
        "rules": sorted(rule["id"] for rule in plant.ask("GET", "/api/v1/rules")["items"]),
        "groups": [group["id"] for group in plant.ask("GET", "/api/v1/rule-groups")["items"]],
        "schedules": sorted(each["name"] for each in plant.ask("GET", "/api/v1/schedules")["items"]),
        "limits": [limit["type"] for limit in plant.ask("GET", "/api/v1/rate-limits")["items"]],
        "flows": [(flow["id"], flow["status"]) for flow in plant.ask("GET", "/api/v1/flows")["items"]],
    }


def _is_copied(plant: Plant, alarm: str) -> bool:
    found = plant.ask("GET", "/api/v1/station/recovery")
    kinds = found["kinds"]
    counts = {"channels": 1, "models": 1, "rules": 2, "groups": 1, "schedules": 2, "limits": 1, "flows": 1}
    with contextlib.closing(sqlite3.connect(plant.site.data_dir / "tradewind.db")) as db:
        rows = dict(db.execute("SELECT id, body FROM definition_copies WHERE kind IN ('alarms', 'flows')").fetchall())
    return (
        bool(found["copied_at"])
        and all(kinds[kind]["copied"] == count for kind, count in counts.items())
        and '"Acknowledged"' in rows.get(alarm, "")
        and '"running"' in rows.get("loop", "")
    )


def _is_back(plant: Plant, wanted: dict[str, Any], cycles: int) -> None:
    """Everything is there and works: values, models, rules, the open alarm, cycles with numbers of their own."""
    assert _found(plant) == {name: value for name, value in wanted.items() if name != "alarm"}
    alarm = plant.ask("GET", f"/api/v1/alarms/{wanted['alarm']}")
    assert (alarm["status"], alarm["acknowledged_by"]) == ("Acknowledged", "ann")
    wait_for(lambda: _value(plant) == 2, "a computed value", 30)
    wait_for(lambda: plant.ask("GET", "/api/v1/flows/loop")["last_cycle"] > cycles + 50, "a new cycle", 30)
    wait_for(lambda: "station:store" not in [a["source_point"] for a in plant.alarms()], "the end of its alarm", 20)
    # The restored alarm belongs to its rule: it ends when the condition does.
    plant.ask("PUT", "/api/v1/channels", CHANNELS)
    wait_for(
        lambda: plant.ask("GET", f"/api/v1/alarms/{wanted['alarm']}")["status"] == "Resolved",
        "the end of the alarm",
        30,
    )


def test_a_restore_brings_everything_back_by_hand(make_site: Callable[..., Site], store: servers.Server) -> None:
    plant = Plant(make_site(store.url, **LEASES), store.url)
    assert plant.redis is not None
    process = plant.up()
    wanted = _fill(plant)
    cycles = plant.ask("GET", "/api/v1/flows/loop")["last_cycle"]
    plant.redis.flushall()
    wait_for(lambda: plant.store().get("status") == "down", "a store that is down", 5)
    process.kill()  # and the station is started again in between
    process = plant.up()
    assert plant.store()["status"] == "down"
    shown = plant.cli("restore", "--from", "sql", "--dry-run", "--json")
    assert shown.returncode == 0 and json.loads(shown.stdout)["kinds"]["rules"]["missing"] == 2, shown
    assert plant.ask("GET", "/api/v1/rules")["items"] == []
    wait_for(lambda: plant.redis.hexists(KEYS.node_types(), "doubled"), "node types", 30)
    done = plant.cli("restore", "--from", "sql", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["result"]["alarms"]["restored"] == 1
    _is_back(plant, wanted, cycles)
    wait_for(plant.is_well, "good health", 30)
    assert plant.cli("doctor").returncode == 0


def test_with_recover_auto_two_stations_restore_it_once(make_site: Callable[..., Site], store: servers.Server) -> None:
    plant = Plant(make_site(store.url, recover="auto", **LEASES), store.url)
    assert plant.redis is not None
    first = plant.up()
    second = plant.site.start("scheduler", "alarmsrv", "worker", imports="fault_tasks,plant_code")
    second.says("worker registered")
    wanted = _fill(plant)
    cycles = plant.ask("GET", "/api/v1/flows/loop")["last_cycle"]
    plant.redis.flushall()
    for process in (first, second):
        process.says("station_data_lost", 10)
    wait_for(lambda: plant.store().get("status") == "ok", "a store that is well again", 60)
    _is_back(plant, wanted, cycles)
    restored = [
        line for p in (first, second) for line in p.output.splitlines() if '"rules"' in line and "restored" in line
    ]
    assert len(restored) == 1, restored
    assert first.exit_code is None and second.exit_code is None


def test_a_station_without_its_store_folder_restores_itself(make_site: Callable[..., Site]) -> None:
    plant = Plant(make_site(recover="auto", **LEASES), "")
    process = plant.up()
    wanted = _fill(plant)
    cycles = plant.ask("GET", "/api/v1/flows/loop")["last_cycle"]
    process.kill()
    wait_for(lambda: not _has_server(plant), "the end of the child server", 10)
    shutil.rmtree(plant.site.data_dir / "redis")
    plant.up()
    wait_for(lambda: plant.store().get("status") == "ok", "a store that is well again", 60)
    _is_back(plant, wanted, cycles)


def _has_server(plant: Plant) -> bool:
    folder = str(plant.site.data_dir)
    return any(folder in " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"]))


def test_people_are_told_of_a_loss_by_the_policy_that_survived(
    make_site: Callable[..., Site], store: servers.Server
) -> None:
    told: list[Any] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    hook = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    site = make_site(store.url, notify_allow_private="true", notify_group_wait_s="0.2", **LEASES)
    plant = Plant(site, store.url)
    assert plant.redis is not None
    plant.up()
    policy = {
        "targets": {"office": {"url": f"http://127.0.0.1:{hook.server_address[1]}/"}},
        "routes": [{"targets": ["office"]}],
    }
    plant.ask("PUT", "/api/v1/notifications/policy", policy)
    recovery = "/api/v1/station/recovery"
    wait_for(lambda: plant.ask("GET", recovery)["kinds"]["notifications"]["copied"] == 1, "a copy of the policy", 20)
    plant.redis.flushall()
    wait_for(lambda: "without the data of this station" in json.dumps(told), "a message", 60)
    hook.shutdown()
    hook.server_close()


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
