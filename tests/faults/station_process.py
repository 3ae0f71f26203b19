"""Roles of a station as real processes on one Redis, and the ledger that their tasks write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.process import code_path, die_with_parent, wait_for

HERE = Path(__file__).parent
LEASE_S = 3
#: Short enough for a test that waits for a lease to end, long enough for a busy machine.
LEASES = {"scheduler_lease_s": LEASE_S, "scheduler_leader_ttl_s": LEASE_S, "scheduler_renew_s": 0.5}


class Entry(NamedTuple):
    """One line of the ledger; `at` is CLOCK_MONOTONIC, which all processes of a machine share."""

    kind: str
    id: str
    attempt: int
    token: int
    pid: int
    at: float


class RoleProcess:
    """One `tradewind run …` (or `up`). Dies with the test process."""

    def __init__(self, argv: list[str], env: dict[str, str], folder: Path, log: Path) -> None:
        self.log = log
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                argv,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.pid = self._process.pid
        self.killed_at = 0.0

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def says(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until it has logged `text`."""

        def has_said() -> bool:
            assert self.exit_code is None, f"it ended with {self.exit_code}:\n{self.output[-3000:]}"
            return text in self.output

        wait_for(has_said, f"{text!r} in {self.log.name}", timeout_s)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout_s: float) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Does nothing when it has ended."""
        if self._process.poll() is None:
            self.killed_at = time.monotonic()
            self._process.kill()
            self._process.wait()


class Site:
    """A folder with data and ledger, and the processes that share them; settings are the defaults unless given."""

    def __init__(self, folder: Path, redis_url: str = "", **settings: object) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.data_dir = folder / "data"
        self.ledger_path = folder / "ledger"
        self.processes: list[RoleProcess] = []
        self._settings = settings

    def start(self, *roles: str, **settings: object) -> RoleProcess:
        """Start the roles (none = `tradewind up`); `scheduler_id="a"` sets TRADEWIND_SCHEDULER_ID."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("TRADEWIND_")}
        env |= {
            "PYTHONPATH": code_path(HERE),
            "FAULT_LEDGER": str(self.ledger_path),
            "TRADEWIND_IMPORTS": "fault_tasks",
            "TRADEWIND_DATA_DIR": str(self.data_dir),
            "TRADEWIND_REDIS_URL": self.redis_url,
            "TRADEWIND_API_PORT": "0",
        }
        env |= {f"TRADEWIND_{name.upper()}": str(value) for name, value in {**self._settings, **settings}.items()}
        verb = ["run", *roles] if roles else ["up"]
        log = self.folder / f"{len(self.processes)}-{'-'.join(roles) or 'up'}.log"
        process = RoleProcess([sys.executable, "-m", "tradewind.cli", *verb], env, self.folder, log)
        self.processes.append(process)
        return process

    def start_worker(self, **settings: object) -> RoleProcess:
        """Start a worker and wait until it is registered."""
        worker = self.start("worker", **settings)
        worker.says("worker registered")
        return worker

    def stop(self) -> None:
        for process in self.processes:
            process.kill()

    def logs(self) -> str:
        """The end of every log, for the message of a failed test."""
        return "\n".join(f"== {p.log.name} exit {p.exit_code}\n{p.output[-1500:]}" for p in self.processes)

    def ledger(self) -> list[Entry]:
        if not self.ledger_path.exists():
            return []
        entries = []
        for line in self.ledger_path.read_text().splitlines():
            kind, task_id, attempt, token, pid, at = line.split()
            entries.append(Entry(kind, task_id, int(attempt), int(token), int(pid), float(at)))
        return entries


def by_id(entries: Iterable[Entry], kind: str) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.kind == kind:
            found[entry.id].append(entry)
    return found
