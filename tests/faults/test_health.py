"""Health under faults: full disks, a locked database, a store that takes no writes, roles that are missing or stuck,
and parts that cannot be asked. None of it is ever shown as well."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.history.history_room import until
from tests.history.test_spool import small_disk
from tradewind import station_health
from tradewind.alarms.record import NewAlarm
from tradewind.cli.examine import examine
from tradewind.clock import now_ms
from tradewind.points.board import Batch
from tradewind.points.spec import ChannelSpec
from tradewind.redis.faults import report
from tradewind.settings import Settings
from tradewind.station import Station, open_station
from tradewind.tasks import progress
from tradewind.tasks.leader import Leadership

LEASES = {"leader_ttl_s": 1.5, "renew_s": 0.3}
RULE = {
    "id": "hot",
    "conditions": [{"field": "t", "source": "comsrv:1001:m:1", "operator": ">", "value": "80"}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": "hot"}}],
}
MODEL = {
    "name": "m",
    "calculations": [{"id": "two", "expression": "1 + 1"}],
    "outputs": [{"field": "x", "source": "two"}],
}
CHANNEL = ChannelSpec(id="1001", name="plant", protocol="virtual")


def settings_of(url: str, prefix: str, folder: Path, **more: Any) -> Settings:
    groups = {"redis": {"url": url}, "data_dir": str(folder), "scheduler": LEASES, **more}
    return Settings.model_validate({"key_prefix": prefix, **groups})


@contextlib.asynccontextmanager
async def station_of(settings: Settings) -> AsyncIterator[Station]:
    async with open_station(settings, frozenset({"api"})) as station:
        yield station


@pytest.fixture
async def station(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[Station]:
    async with station_of(settings_of(redis_7.url, key_prefix, tmp_path)) as station:
        yield station


@pytest.fixture(autouse=True)
def probe_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(station_health, "PROBE_S", 0.0)


async def part(station: Station, name: str) -> dict[str, str]:
    found = await station.health()
    assert found["status"] == (
        "ok" if all(p["status"] in ("ok", "off") for p in found["parts"].values()) else "degraded"
    )
    return dict(found["parts"][name])


async def checked(settings: Settings, name: str) -> tuple[str, str]:
    """What the doctor says of it."""
    return next((check.status, check.detail) for check in await examine(settings) if check.name == name)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Nothing more goes there meanwhile."""
    path = disk / "filler"
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 65536):
            pass
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x"):
            pass
    try:
        yield
    finally:
        path.unlink()


async def test_a_full_disk_of_sqlite_is_told(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        settings = settings_of(redis_7.url, key_prefix, disk)
        async with station_of(settings) as station:
            assert (await part(station, "sql"))["status"] == "ok"
            assert (await checked(settings, "sql"))[0] == "ok"
            with filled(disk):
                found = await part(station, "sql")
                assert found["status"] == "down" and "full" in found["detail"] and "space" in found["hint"]
                status, detail = await checked(settings, "sql")
                assert status == "fail" and "full" in detail
            assert (await part(station, "sql"))["status"] == "ok"


async def test_a_database_that_another_process_keeps_locked_is_told(station: Station) -> None:
    assert (await part(station, "sql"))["status"] == "ok"
    db = sqlite3.connect(station.settings.data_dir / "tradewind.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")  # as one does that hangs in the middle of a write
    found = await part(station, "sql")
    assert found["status"] == "down" and "locked" in found["detail"] and "another process" in found["hint"]
    db.close()
    assert (await part(station, "sql"))["status"] == "ok"


async def test_what_nobody_stores_is_told_by_its_age(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    await station.plane.redis.xadd(station.plane.keys.outbox(), {"ids": "a"})
    assert (await part(station, "sql"))["status"] == "ok"
    monkeypatch.setattr(station_health, "LATE_MS", -1)
    found = await part(station, "sql")
    assert found["status"] == "degraded" and "ended tasks wait to be stored since 20" in found["detail"]


async def test_a_store_whose_disk_is_full_is_told(key_prefix: str, tmp_path: Path) -> None:
    """As the embedded one: with an append-only file that is brought to the disk once a second."""
    with small_disk(tmp_path / "disk", "8m") as disk:
        extra = ("--dir", str(disk), "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")
        with servers.valkey_server(appendonly=True, extra=extra) as valkey:
            settings = settings_of(valkey.url, key_prefix, tmp_path)
            async with station_of(settings) as station:
                assert (await part(station, "redis"))["status"] == "ok"
                assert (await checked(settings, "redis writes")) == ("ok", "taken")
                with filled(disk):
                    await until(lambda: _refuses_writes(station))
                    found = await part(station, "redis")
                    assert found["status"] == "degraded" and "refuses writes" in found["detail"], found
                    assert "disk" in found["hint"]
                    assert (await checked(settings, "redis writes"))[0] == "fail"
                await until(lambda: _is(station, "redis", "ok"))


async def _refuses_writes(station: Station) -> bool:
    with contextlib.suppress(Exception):
        await station.link.client.set(f"{station.settings.key_prefix}more", os.urandom(4000))
    return await _is(station, "redis", "degraded")


async def _is(station: Station, name: str, status: str) -> bool:
    return (await part(station, name))["status"] == status


async def test_a_full_memory_of_redis_is_told(key_prefix: str, tmp_path: Path) -> None:
    with servers.redis_server() as redis:
        async with station_of(settings_of(redis.url, key_prefix, tmp_path)) as station:
            await station.plane.redis.config_set("maxmemory", 1)
            found = await part(station, "redis")
            assert found["status"] == "degraded" and "out of memory" in found["detail"]


Need = Callable[[Station], Awaitable[object]]
#: Role → what makes it needed; without that it is off.
NEEDS: dict[str, Need] = {
    "hissrv": lambda station: station.points.board.write([Batch("comsrv:1001:m", {"1": 1.0}, now_ms())]),
    "comsrv": lambda station: station.points.channels.put([CHANNEL]),
    "modsrv": lambda station: station.points.models.put(MODEL),
    "rulesrv": lambda station: station.rules.rules.put(RULE),
    "alarmsrv": lambda station: station.rules.alarms.raise_(NewAlarm(rule_id="r", source="s", title="t")),
}


async def test_a_role_that_is_missing_is_told_with_what_it_means_and_how_to_start_it(station: Station) -> None:
    for role, need in NEEDS.items():
        before = await part(station, role)
        assert before["status"] == "off" and "hint" not in before, role
        await need(station)
        station.points._looked = 0.0  # as after two seconds
        found = await part(station, role)
        assert found["status"] == "down" and found["hint"] == f"start one: `tradewind up` or `tradewind run {role}`"
        assert ": " in found["detail"] and len(found["detail"].split(": ", 1)[1]) > 20
    for role, means in (
        ("scheduler", "commands expire only where a comsrv runs"),
        ("worker", "tasks and nodes of flows wait"),
    ):
        found = await part(station, role)
        assert found["status"] == "down" and means in found["detail"] and f"tradewind run {role}" in found["hint"]


async def test_a_fault_that_nobody_reads_needs_alarmsrv(station: Station) -> None:
    await report(station.link, station.plane.keys, "code", "history:sink", "it is away")
    found = await part(station, "alarmsrv")
    assert found["status"] == "down" and "reports of faults wait" in found["detail"]


async def test_history_that_is_off_needs_nobody(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> None:
    async with station_of(settings_of(redis_7.url, key_prefix, tmp_path, history={"enabled": False})) as station:
        await NEEDS["hissrv"](station)
        assert (await part(station, "hissrv"))["status"] == "off"


async def test_a_leader_that_does_not_go_on_is_stuck(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "STUCK_MS", 1000)
    keys, gate = station.plane.keys, asyncio.Event()
    lead = Leadership(station.plane, "s-1", keys.leader(), keys.epoch())
    lead.start()

    async def busy() -> None:
        for _ in range(10_000):
            await asyncio.sleep(0.05)
            if gate.is_set():
                break
        await asyncio.Event().wait()  # something that never comes

    part_ = asyncio.create_task(lead.progress.watch("archive", busy()))
    other = asyncio.create_task(lead.progress.watch("assign", _forever()))
    try:
        await until(lambda: _is(station, "scheduler", "ok"))
        await asyncio.sleep(1.5)
        assert (await part(station, "scheduler"))["status"] == "ok"  # it goes on
        gate.set()
        await until(lambda: _is(station, "scheduler", "down"))
        found = await part(station, "scheduler")
        assert found["detail"].startswith("leader s-1; stuck since 20") and found["detail"].endswith(": archive")
        assert (await checked(station.settings, "leader"))[0] == "fail"
        part_.cancel()
        await until(lambda: _is(station, "scheduler", "ok"))
    finally:
        other.cancel()
        await lead.stop()


async def test_a_leader_whose_loop_is_blocked_is_stuck(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "STUCK_MS", 1000)
    keys = station.plane.keys
    lead = Leadership(station.plane, "s-1", keys.leader(), keys.epoch())
    lead.start()
    try:
        await until(lambda: _is(station, "scheduler", "ok"))
        with servers_redis(station) as blocking:
            time.sleep(2.5)  # the loop is to stand still: its thread keeps the lead
            assert blocking.get(keys.leader()) == b"s-1"
            told = progress.read_report(blocking.get(keys.progress(keys.leader())))
        assert told is not None and list(told.stuck()) == [progress.LOOP]
        await until(lambda: _is(station, "scheduler", "ok"))
    finally:
        await lead.stop()


@contextlib.contextmanager
def servers_redis(station: Station) -> Iterator[Any]:
    client = station.link.new_blocking_client(5.0)
    try:
        yield client
    finally:
        client.close()


async def test_trouble_that_a_part_meets_is_told_and_passes(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = station.plane.keys
    lead = Leadership(station.plane, "s-1", keys.leader(), keys.epoch())
    lead.progress.met("archive", "cannot write in sqlite: disk I/O error")
    lead.start()
    try:
        await until(lambda: _is(station, "scheduler", "degraded"))
        assert "archive: cannot write in sqlite: disk I/O error" in (await part(station, "scheduler"))["detail"]
        monkeypatch.setattr(progress, "TROUBLE_MS", 0)
        await until(lambda: _is(station, "scheduler", "ok"))
    finally:
        await lead.stop()


async def test_watched_work_is_cancelled_fails_and_answers_as_itself() -> None:
    watched = progress.Progress()

    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    seen: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("cancelled")
            raise

    assert await watched.watch("a", answer()) == 7
    with pytest.raises(KeyError):
        await watched.watch("b", fail())
    task = asyncio.create_task(watched.watch("c", wait()))
    await asyncio.sleep(0.01)
    assert list(watched.report().ages_ms) == ["c"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"] and watched.report().ages_ms == {}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await watched.watch("d", _forever())


async def test_a_part_that_cannot_be_asked_is_unknown(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(station_health, "PATIENCE_S", 0.2)
    keys = station.plane.keys
    await station.plane.redis.set(keys.rules(), "a string where a set belongs")
    await station.plane.redis.set(keys.history_status(), "a string where a hash belongs")
    found = await station.health()
    for name in ("hissrv", "rulesrv", "alarmsrv", "notify"):
        assert found["parts"][name]["status"] == "unknown" and "another type" in found["parts"][name]["detail"]
    assert found["status"] == "degraded" and found["parts"]["modsrv"]["status"] == "off"
    statuses = {check.name: check.status for check in await examine(station.settings)}
    assert statuses["history"] == "unknown" and statuses["queued tasks"] == "ok"
    monkeypatch.setattr(station.control, "workers", _forever)
    assert (await station.health())["parts"]["worker"] == {"status": "unknown", "detail": "no answer within 0.2 s"}


async def test_without_redis_nothing_is_known_of_what_stands_in_it(key_prefix: str, tmp_path: Path) -> None:
    with servers.redis_server() as redis:
        settings = settings_of(redis.url, key_prefix, tmp_path)
        async with station_of(settings) as station:
            redis.kill()
            found = await station.health()
            states = {name: told["status"] for name, told in found["parts"].items()}
            assert found["status"] == "down" and states.pop("redis") == "down"
            assert states.pop("api") == "ok"
            assert set(states.values()) == {"unknown"}, states
            roles = {"scheduler", "worker", "comsrv", "modsrv", "rulesrv", "alarmsrv", "notify", "hissrv"}
            assert roles <= set(states)
            statuses = {check.name: check.status for check in await examine(settings)}
            assert statuses.pop("redis") == "fail" and statuses.pop("sql") == "ok"
            assert set(statuses.values()) == {"unknown"} and {"leader", "history", "rules"} <= set(statuses)


async def _forever() -> None:
    for _ in range(10_000):
        await asyncio.sleep(0.05)
