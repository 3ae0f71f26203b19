from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from tests.servers import die_with_parent, find, wait_for
from tradewind.errors import Conflict, NotFound, Unavailable
from tradewind.redis import embedded as embedded_module
from tradewind.redis.connection import open_link, server_facts
from tradewind.redis.embedded import find_server, socket_of, start_embedded
from tradewind.settings import RedisSettings

STATION = """
import asyncio, sys
from pathlib import Path
from tradewind.redis.embedded import start_embedded

async def main():
    server = await start_embedded(Path(sys.argv[1]))
    print(server.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Station:
    """A station in a process of its own."""

    def __init__(self, data_dir: Path, script: str = STATION) -> None:
        argv = [sys.executable, "-c", script, str(data_dir)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        assert self.process.stdout is not None
        self.server = psutil.Process(int(self.process.stdout.readline()))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def station(data_dir: Path) -> Iterator[Station]:
    station = Station(data_dir)
    yield station
    station.kill()


def client_of(data_dir: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(socket_of(data_dir)))


def is_gone(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


async def test_it_serves_a_unix_socket_with_aof_and_no_tcp(data_dir: Path) -> None:
    link = await open_link(RedisSettings(), data_dir=data_dir)
    await link.wait_ready(5)
    assert link.embedded is not None and str(link) == link.embedded.url
    facts = await server_facts(link.client)
    assert facts.appendonly and facts.maxmemory_policy == "noeviction" and facts.warnings == ()
    config = await link.client.config_get("port", "appendfsync", "save")
    assert config == {"port": "0", "appendfsync": "everysec", "save": "900 1 300 10 60 10000"}
    connections = psutil.Process(link.embedded.pid).net_connections("inet")
    assert connections == []
    assert (data_dir / "redis").stat().st_mode & 0o777 == 0o700
    await link.close()


async def test_stop_leaves_nothing_running_and_keeps_the_data(data_dir: Path) -> None:
    server = await start_embedded(data_dir, appendfsync="always")
    process = psutil.Process(server.pid)
    with client_of(data_dir) as client:
        client.set("a", 1)
        assert client.config_get("appendfsync") == {"appendfsync": "always"}
    mine = [thread for thread in threading.enumerate() if thread.name == "embedded-redis"]
    await server.stop()
    await server.stop()
    assert is_gone(process) and mine and not any(thread.is_alive() for thread in mine)
    with pytest.raises(NotFound):
        socket_of(data_dir)
    server = await start_embedded(data_dir)
    with client_of(data_dir) as client:
        assert client.get("a") == b"1"
    await server.stop()


async def test_the_server_dies_with_a_killed_station_and_the_data_survive(data_dir: Path, station: Station) -> None:
    with client_of(data_dir) as client:
        for number in range(500):
            client.rpush("acknowledged", number)
    station.kill()
    wait_for(lambda: is_gone(station.server), "the end of the server")
    server = await start_embedded(data_dir)
    with client_of(data_dir) as client:
        assert client.llen("acknowledged") == 500
    await server.stop()


async def test_a_station_restarted_at_once_after_a_kill_gets_the_folder(data_dir: Path) -> None:
    for number in range(3):
        station = Station(data_dir)
        with client_of(data_dir) as client:
            assert client.incr("starts") == number + 1
        station.kill()
    server = await start_embedded(data_dir)
    await server.stop()


async def test_a_second_station_is_refused_with_folder_and_process(data_dir: Path, station: Station) -> None:
    with pytest.raises(Conflict) as error:
        await start_embedded(data_dir)
    assert str(data_dir) in error.value.message and str(station.process.pid) in error.value.message
    assert error.value.hint
    with client_of(data_dir) as client:
        assert client.ping()


async def test_a_second_start_in_the_same_process_is_refused(data_dir: Path) -> None:
    server = await start_embedded(data_dir)
    with pytest.raises(Conflict, match=str(os.getpid())):
        await start_embedded(data_dir)
    await server.stop()


async def test_a_server_that_outlived_its_station_is_stopped_first(data_dir: Path) -> None:
    # As on a system without PDEATHSIG: the station is gone, its server is not.
    script = STATION.replace("async def main", "import tradewind.redis.embedded as e; e._libc = None\nasync def main")
    station = Station(data_dir, script)
    with client_of(data_dir) as client:
        client.set("a", 1)
        station.kill()
        assert client.ping() and not is_gone(station.server)
    try:
        server = await start_embedded(data_dir)
        assert is_gone(station.server) and server.pid != station.server.pid
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            station.server.kill()
    with client_of(data_dir) as client:
        assert client.get("a") == b"1"
    await server.stop()


async def test_a_server_that_dies_by_itself_is_started_again(data_dir: Path) -> None:
    link = await open_link(RedisSettings(), data_dir=data_dir)
    await link.client.set("a", 1)
    assert link.embedded is not None
    before = link.embedded.pid
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: link.embedded is not None and link.embedded.pid != before, "a new server")
    await link.wait_ready(10)
    assert await link.client.get("a") == b"1"
    await link.close()


async def test_a_stopped_server_is_killed_after_the_grace(data_dir: Path) -> None:
    server = await start_embedded(data_dir)
    process = psutil.Process(server.pid)
    process.suspend()
    await asyncio.to_thread(server.stop_blocking, 0.3)
    assert is_gone(process)


async def test_the_server_outlives_the_thread_whose_loop_started_it(data_dir: Path) -> None:
    started = []
    thread = threading.Thread(target=lambda: started.append(asyncio.run(start_embedded(data_dir))))
    thread.start()
    await asyncio.to_thread(thread.join)
    with client_of(data_dir) as client:
        assert client.ping()
    await started[0].stop()


async def test_a_folder_with_a_long_name_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long " * 20) / "ünï"
    server = await start_embedded(data_dir)
    path = socket_of(data_dir)
    assert len(os.fsencode(path)) <= 107 and path.parent != data_dir / "redis"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with client_of(data_dir) as client:
        assert client.ping()
    await server.stop()
    assert not path.parent.exists()


async def test_without_the_wheel_the_server_on_path_is_used(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = find("redis-server", "redis-server")
    monkeypatch.setattr(embedded_module, "wheel_binary", lambda: None)
    monkeypatch.setenv("PATH", str(Path(program).parent))
    assert find_server() == Path(program)
    link = await open_link(RedisSettings(), data_dir=data_dir)
    assert (await server_facts(link.client)).name == "redis"
    await link.close()


async def test_without_any_server_program_it_says_what_to_install(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_module, "wheel_binary", lambda: None)
    monkeypatch.setenv("PATH", str(data_dir))
    with pytest.raises(Unavailable) as error:
        await start_embedded(data_dir)
    assert "redis-server" in error.value.hint


async def test_a_server_that_cannot_start_says_why_and_frees_the_folder(data_dir: Path) -> None:
    server = await start_embedded(data_dir)
    await server.stop()
    manifest = next((data_dir / "redis" / "appendonlydir").glob("*.manifest"))
    text = manifest.read_bytes()
    manifest.write_bytes(b"nonsense\n")
    with pytest.raises(Unavailable, match="does not start") as error:
        await start_embedded(data_dir)
    assert "server.log" in error.value.hint
    manifest.write_bytes(text)
    server = await start_embedded(data_dir)
    await server.stop()


async def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="file"):
        await start_embedded(tmp_path / "file" / "data")


async def test_a_fork_of_a_killed_station_does_not_keep_the_folder(data_dir: Path) -> None:
    # A process pool that outlives its station must not hold station.lock.
    script = STATION.replace(
        "    await asyncio.sleep(600)",
        "    import os, time\n    if os.fork() == 0: time.sleep(600)\n    await asyncio.sleep(600)",
    )
    station = Station(data_dir, script)
    wait_for(lambda: len(psutil.Process(station.process.pid).children()) == 2, "the fork")
    children = psutil.Process(station.process.pid).children()
    station.kill()
    try:
        server = await start_embedded(data_dir)
        assert any(not is_gone(child) for child in children)
        await server.stop()
    finally:
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def test_no_socket_is_found_where_no_station_ever_ran(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=str(tmp_path)):
        socket_of(tmp_path)


def test_a_socket_file_left_behind_is_not_a_station(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    with socket.socket(socket.AF_UNIX) as left, contextlib.chdir(tmp_path / "redis"):
        left.bind("redis.sock")
    with pytest.raises(NotFound):
        socket_of(tmp_path)
