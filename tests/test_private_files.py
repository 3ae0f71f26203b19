"""Files of a station are for its user alone, whatever the umask, and also those that an older station left behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx2

from tests.cli.conftest import clean_env
from tests.servers import die_with_parent, free_port, wait_for
from tradewind.private_files import make_folder, tighten

MARK = "m4rk3r"


def modes(folder: Path) -> dict[str, int]:
    """What is too open, by path."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode)
        for path in (folder, *folder.rglob("*"))
        if stat.S_IMODE(path.lstat().st_mode) != (0o700 if path.is_dir() else 0o600)
    }


def test_a_station_with_umask_0_makes_nothing_that_others_can_read(tmp_path: Path) -> None:
    """Twice: an older station may have left files that all may read. The second one has secrets in its settings, which
    it shows nowhere, although it cannot reach what they are for."""
    data = tmp_path / "above" / "data"
    secrets = {
        "TRADEWIND_INFLUX_URL": f"http://ann:{MARK}@127.0.0.1:{free_port()}",
        "TRADEWIND_INFLUX_TOKEN": MARK,
        "TRADEWIND_WORKER_ADDRESS": f"http://ann:{MARK}@127.0.0.1:{free_port()}",
    }
    for env in ({}, secrets):
        port = free_port()
        command = [sys.executable, "-m", "tradewind.cli", "up", "--port", str(port), "--data-dir", str(data)]
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(
                command, cwd=tmp_path, env=clean_env(**env), stdout=log, stderr=log, umask=0, preexec_fn=die_with_parent
            )
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                _exercise(client, data)
                shown = "" if not env else _shown(client)
            assert modes(tmp_path / "above") == {}
            assert {"tradewind.db-wal", "redis.sock", "redis.conf", "server.log"} <= {p.name for p in data.rglob("*")}
            assert list(data.rglob("*.aof")) and list((data / "history").rglob("*.db"))
            assert MARK not in shown + (tmp_path / "log").read_text()
            assert not env or "http://ann:***@127.0.0.1" in shown
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        for path in data.rglob("*"):
            path.chmod(0o777 if path.is_dir() else 0o666)
        data.chmod(0o755)


def _exercise(client: httpx2.Client, data: Path) -> None:
    """Every room that keeps something on disk."""

    def is_up() -> bool:
        try:
            return client.get("/health").json()["status"] in ("ok", "degraded")
        except httpx2.TransportError:
            return False

    wait_for(is_up, 60)
    task = client.post("/api/v1/tasks", json={"type": "echo", "args": [1]}).json()["id"]
    assert client.get(f"/api/v1/tasks/{task}", params={"wait": 10}).json()["status"] == "SUCCESS"
    taken = client.post("/api/v1/points", json={"channels": {"9": {"m": {"1": 1.0}}}})
    assert taken.status_code < 300, taken.text
    wait_for(lambda: any((data / "history").rglob("*.db")), 20)


def _shown(client: httpx2.Client) -> str:
    """What the station says of itself once it has met its trouble."""
    paths = ("/health", "/metrics", "/api/v1/workers", "/api/v1/history/status", "/api/v1/alarms")
    wait_for(lambda: "127.0.0.1" in client.get("/health").text, 30)
    return "".join(client.get(path).text for path in paths)


def test_tightening_touches_only_what_a_station_makes(tmp_path: Path) -> None:
    """Somebody may have named their home folder."""
    for name in ("redis", "history", "others"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / "file").write_text("x")
        (tmp_path / name / "file").chmod(0o644)
    (tmp_path / "tradewind.db-wal").write_text("x")
    (tmp_path / "tradewind.db-wal").chmod(0o666)
    (tmp_path / "others.txt").write_text("x")
    (tmp_path / "others.txt").chmod(0o644)
    (tmp_path / "history" / "link").symlink_to(tmp_path / "others.txt")
    tmp_path.chmod(0o755)
    changed = tighten(tmp_path)
    assert {path.name for path in changed} == {"redis", "history", "file", "tradewind.db-wal"}
    left = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "others.txt")}
    assert set(left.values()) == {0o755, 0o644}
    assert stat.S_IMODE((tmp_path / "others" / "file").stat().st_mode) == 0o644
    assert tighten(tmp_path) == []


def test_folders_above_are_private_too(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(old)
    assert modes(tmp_path / "a") == {}
