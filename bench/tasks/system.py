"""One task queue under test: how its processes are started, fed, killed and stopped. The kinds: peers.py, ours.py."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import ClassVar

import redis

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BenchError(RuntimeError):
    """A system under test did not do what it should; the run goes on with the next one."""


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _stats(leaders: list[int]) -> dict[int, list[str]]:
    """The fields after the command name in /proc/PID/stat, of every live process of the sessions of `leaders`.

    By session, not by process group: some workers' children leave the group of their parent.
    """
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) in leaders and fields[0] != "Z":
            found[int(entry)] = fields
    return found


class Processes:
    """Processes started together, each the leader of a session of its own."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str], env: dict[str, str], output: Path) -> None:
        with output.open("ab") as out:
            self._started.append(
                subprocess.Popen(
                    command,
                    cwd=HERE,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def cpu_s(self) -> float:
        """User and system time so far, of waited-for children too."""
        rows = _stats([p.pid for p in self._started]).values()
        return sum(int(ticks) for fields in rows for ticks in fields[11:15]) / TICKS_PER_S

    def has_ended(self) -> bool:
        return any(process.poll() is not None for process in self._started)

    def stop(self, patience_s: float) -> None:
        """SIGTERM, then SIGKILL for whoever is still there after `patience_s`."""
        self._signal(signal.SIGTERM, patience_s)
        self.kill()

    def kill(self) -> None:
        self._signal(signal.SIGKILL, 5.0)
        for process in self._started:
            process.wait()
        self._started = []

    def _signal(self, number: signal.Signals, patience_s: float) -> None:
        leaders = [p.pid for p in self._started]
        told: set[int] = set()
        limit = time.monotonic() + patience_s
        while (pids := _stats(leaders)) and time.monotonic() < limit:
            for pid in pids.keys() - told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                told.add(pid)
            for process in self._started:
                process.poll()
            time.sleep(0.02)


class System:
    """To add one: write apps/NAME_app.py (producer.py says what it needs) and a subclass that starts its workers."""

    name: ClassVar[str]
    app: ClassVar[str]
    #: What "one worker" is; shown in the table.
    note: ClassVar[str]
    #: Packages whose versions are shown, the library first.
    packages: ClassVar[tuple[str, ...]]
    venv: ClassVar[str] = "main"
    env: ClassVar[dict[str, str]] = {}
    is_peer: ClassVar[bool] = True
    #: Drain n is `scale` times --n, at most `most`: long enough to be measured, short enough to be waited for.
    scale: ClassVar[int] = 1
    most: ClassVar[int | None] = None
    #: W3 waits up to this long before each submit; must cover the poll interval, if there is one.
    gap_s: ClassVar[float] = 0.02
    patience_s: ClassVar[float] = 1.0

    _log_numbers = itertools.count(1)

    def __init__(self, folder: Path, redis_url: str, venvs: Path) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.venvs = venvs
        self.log = folder / "none.log"
        self.workers = Processes()
        self.services = Processes()
        self._producer: subprocess.Popen[str] | None = None
        self._next = 0

    def worker_commands(self, n: int) -> list[list[str]]:
        """Command lines that together make n worker processes."""
        raise NotImplementedError

    def start_services(self, client: redis.Redis) -> None:
        """Start what must run besides workers, before anything is enqueued. Most need nothing."""

    def is_settled(self, client: redis.Redis) -> bool:
        """True when nothing of a finished drain is still on its way (to an archive, say)."""
        return True

    @property
    def python(self) -> Path:
        return self.venvs / self.venv / "bin" / "python"

    def command(self, name: str) -> str:
        return str(self.python.parent / name)

    def drain_n(self, n: int) -> int:
        return min(n * self.scale, self.most or n * self.scale)

    def begin(self, client: redis.Redis) -> None:
        """Empty Redis and open a log that no earlier run has written to: a stale one would pass for a finished run."""
        client.flushall()
        self.log = self.folder / f"{slug(self.name)}.{next(self._log_numbers)}.log"
        self.start_services(client)
        self._start_producer()

    def start_workers(self, n: int) -> None:
        for command in self.worker_commands(n):
            self.workers.start(command, self.environment(), self.output)

    def enqueue(self, n: int, kind: str = "noop") -> tuple[range, float]:
        """The task numbers used, and the seconds that the calls took as the producer measured them."""
        ids = range(self._next, self._next + n)
        self._next += n
        return ids, self._ask(f"enqueue {ids.start} {n} {kind}")["seconds"]

    def submit_one(self) -> tuple[int, float]:
        """The task number, and the monotonic time just before the call."""
        self._next += 1
        return self._next - 1, self._ask(f"submit {self._next - 1}")["submitted"]

    def stop(self) -> None:
        self.workers.stop(self.patience_s)
        self.services.stop(self.patience_s)
        if self._producer is None:
            return
        producer, self._producer = self._producer, None
        assert producer.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            producer.stdin.close()
        try:
            producer.wait(5)
        except subprocess.TimeoutExpired:
            producer.kill()
            producer.wait()

    def versions(self) -> str:
        code = "import importlib.metadata as m, sys; print(' '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
        done = subprocess.run([self.python, "-c", code, *self.packages], capture_output=True, text=True, check=False)
        return done.stdout.strip() or f"{self.packages[0]} (version unknown)"

    @property
    def output(self) -> Path:
        return self.folder / f"{slug(self.name)}.out"

    def last_output(self) -> str:
        """The end of what its processes printed, to explain a failure."""
        return self.output.read_text(errors="replace")[-800:].strip() if self.output.exists() else ""

    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRADEWIND_")}
        return {
            **inherited,
            "PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'apps'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "BENCH_LOG": str(self.log),
            "BENCH_REDIS_URL": self.redis_url,
            **self.env,
        }

    def _start_producer(self) -> None:
        with self.output.open("ab") as out:
            self._producer = subprocess.Popen(
                [self.python, "producer.py", self.app],
                cwd=HERE,
                env=self.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
            )

    def _ask(self, line: str) -> dict[str, float]:
        producer = self._producer
        if producer is None or producer.stdin is None or producer.stdout is None:
            raise BenchError(f"{self.name}: asked to produce before begin()")
        try:
            producer.stdin.write(line + "\n")
            producer.stdin.flush()
            reply: dict[str, float] = json.loads(producer.stdout.readline())
        except (BrokenPipeError, ValueError) as error:
            producer.wait(5)  # so that its last words are on disk
            raise BenchError(f"{self.name}: the producer ended; {self.last_output()}") from error
        return reply
