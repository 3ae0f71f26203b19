"""`tradewind up` as a process: it serves, it drains, and it refuses what would harm."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.cli.conftest import StationProcess, clean_env, run_process, station_process
from tests.servers import wait_for


def _submit(station: StationProcess, *args: str) -> str:
    ran = run_process("task", "submit", *args, "--json", TRADEWIND_URL=station.url)
    assert ran.code == 0, ran.err
    return str(ran.json["id"])


def test_it_serves_health_and_sigterm_drains_and_exits_0(tmp_path: Path) -> None:
    with station_process(tmp_path) as station:
        with urllib.request.urlopen(f"{station.url}/health") as answer:
            assert json.load(answer)["parts"]["redis"]["status"] == "ok"
        task_id = _submit(station, "sleep", "1.5")

        def is_running() -> bool:
            with urllib.request.urlopen(f"{station.url}/api/v1/tasks/{task_id}") as answer:
                return bool(json.load(answer)["status"] == "PROCESSING")

        wait_for(is_running, "the task at work", 10)
        assert station.stop() == 0
        assert "Traceback" not in station.log.read_text()
    # What ran when SIGTERM came was finished, not lost and not run again.
    with station_process(tmp_path) as again:
        shown = run_process("task", "show", task_id, "--json", TRADEWIND_URL=again.url).json
        assert (shown["status"], shown["attempt"], shown["result"]) == ("SUCCESS", 1, 1.5)
        assert again.stop() == 0


def test_ctrl_c_stops_it_without_a_traceback(tmp_path: Path) -> None:
    with station_process(tmp_path) as station:
        station.process.send_signal(signal.SIGINT)
        assert station.process.wait(30) in (0, 130)
        assert "Traceback" not in station.log.read_text()


def test_a_second_station_on_the_same_folder_is_refused(shared_station: StationProcess) -> None:
    ran = run_process("up", "--port", "0", "--data-dir", str(shared_station.data))
    assert ran.code == 5
    assert str(shared_station.data) in ran.err
    assert f"process {shared_station.process.pid}" in ran.err
    assert "--data-dir" in ran.err


def test_a_port_in_use_is_exit_6(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ran = run_process("up", "--port", port, "--data-dir", str(tmp_path / "data"), timeout=40)
    assert ran.code == 6
    assert f"127.0.0.1:{port}" in ran.err
    assert "--port" in ran.err


def test_a_host_that_others_reach_is_refused_without_insecure(tmp_path: Path) -> None:
    ran = run_process("up", "--host", "0.0.0.0", "--data-dir", str(tmp_path / "data"))
    assert ran.code == 2
    assert "no authentication" in ran.err
    assert not (tmp_path / "data").exists()


def test_ctrl_c_while_waiting_is_exit_130_without_a_traceback(station: StationProcess) -> None:
    command = [sys.executable, "-m", "tradewind.cli", "task", "submit", "sleep", "20", "--wait", "--tag", "ctrl-c"]
    env = clean_env(TRADEWIND_URL=station.url)
    waiting = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_waiting() -> bool:
        with urllib.request.urlopen(f"{station.url}/api/v1/tasks?tag=ctrl-c") as answer:
            return bool(json.load(answer)["items"])

    wait_for(is_waiting, "the task", 15)
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=15)
    assert waiting.returncode == 130
    assert "Traceback" not in err
