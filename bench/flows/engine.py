"""One flow engine under test: its services, its driver process, what is asked of it. Kinds: others.py, stations.py."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import redis
from shared import HERE, REPO, BenchError, Session, slug

KINDS = ("chain", "fan", "flows")


class Counts(NamedTuple):
    """A number for each kind of work."""

    chain: int
    fan: int
    flows: int


#: Nodes in a row; nodes between root and join; independent flows of one node.
SIZES = Counts(chain=40, fan=1000, flows=100)
TINY = Counts(chain=5, fan=20, flows=5)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the engines are run: a folder for their files, the redis-server that they share, the environments."""

    folder: Path
    redis_url: str
    client: redis.Redis
    venvs: Path


def own_place(folder: Path) -> Place:
    """For an engine that brings its servers along."""
    return Place(folder, "", redis.Redis(), folder)  # a client that nobody uses never connects


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one kind of work. behind: seconds until the record in SQL had it all, where there is one."""

    kind: str
    n: int
    seconds: float
    prepared: float
    behind: float | None = None


class Engine:
    name: ClassVar[str]
    app: ClassVar[str]
    #: How it is run; shown in the table.
    note: ClassVar[str]
    #: What is left of a run when the process dies; shown in the table.
    keeps: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    #: An environment of bench/flows/setup_peers.sh; "" is the project's own.
    venv: ClassVar[str] = ""
    #: NAME=VALUE; {home} is its own folder.
    env: ClassVar[tuple[str, ...]] = ()
    is_ours: ClassVar[bool] = False
    kinds: ClassVar[tuple[str, ...]] = KINDS
    #: Runs of each kind in one pass.
    runs: ClassVar[Counts] = Counts(5, 2, 3)
    #: Kinds that are so slow that one run in the whole benchmark must do.
    once: ClassVar[tuple[str, ...]] = ()
    #: The sizes that it can do, where that is less.
    most: ClassVar[Counts] = SIZES
    patience_s: ClassVar[float] = 3.0
    limit_s: ClassVar[float] = 150.0

    def __init__(self, place: Place) -> None:
        self.place = place
        self.processes = Session()
        self.driver: subprocess.Popen[bytes] | None = None
        self.home = place.folder / slug(self.name)

    def start_services(self) -> None:
        """Start what must run besides the driver, and wait for it. Many need nothing."""

    @property
    def python(self) -> Path:
        return (self.place.venvs / self.venv if self.venv else REPO / ".venv") / "bin" / "python"

    def command(self, name: str) -> str:
        return str(self.python.parent / name)

    def size(self, kind: str, sizes: Counts) -> int:
        return int(min(getattr(sizes, kind), getattr(self.most, kind)))

    def begin(self) -> None:
        """Everything fresh: Redis emptied, a new home, services and driver started."""
        self.place.client.flushall()
        self.clear()
        self.start_services()
        self.driver = self.processes.talk([str(self.python), "driver.py", self.app], self.environment(), self.output)
        self._reply(90)

    def clear(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        self.output.unlink(missing_ok=True)

    def ask(self, kind: str, n: int) -> Run:
        """Run it once. Raises BenchError when the result was wrong or did not come."""
        assert self.driver is not None and self.driver.stdin is not None
        try:
            self.driver.stdin.write(f"{kind} {n}\n".encode())
        except BrokenPipeError as error:
            raise BenchError(f"{self.name}: the driver ended; {self.last_output()}") from error
        found = self._reply(self.limit_s)
        if "error" in found:
            raise BenchError(f"{self.name}, {kind} of {n}: {found['error']}")
        return Run(kind, n, found["seconds"], found["prepared"], found.get("behind"))

    def _reply(self, limit_s: float) -> dict[str, Any]:
        assert self.driver is not None and self.driver.stdout is not None
        if not select.select([self.driver.stdout], [], [], limit_s)[0]:
            raise BenchError(f"{self.name}: no answer within {limit_s:g} s")
        line = self.driver.stdout.readline()
        if not line:
            raise BenchError(f"{self.name}: the driver ended; {self.last_output()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        if self.driver is not None and self.driver.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.driver.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.driver.wait(self.patience_s)
        self.driver = None
        self.processes.stop(self.patience_s)

    def wait_for(self, is_true: Callable[[], Any], what: str, limit_s: float = 40.0) -> None:
        limit = time.monotonic() + limit_s
        while not is_true():
            if self.processes.has_ended():
                raise BenchError(f"{self.name}: a process ended before {what}; {self.last_output()}")
            if time.monotonic() > limit:
                raise BenchError(f"{self.name}: not within {limit_s:g} s: {what}; {self.last_output()}")
            time.sleep(0.02)

    def versions(self) -> str:
        code = "import importlib.metadata as m, sys; print(' '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
        done = subprocess.run([self.python, "-c", code, *self.packages], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    @property
    def output(self) -> Path:
        return self.place.folder / f"{slug(self.name)}.out"

    def said(self) -> str:
        """What its processes have printed since `clear`."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def last_output(self) -> str:
        return self.said()[-600:].strip()

    def environment(self) -> dict[str, str]:
        """Only a few variables come from outside, so that settings of the caller do not reach the engine."""
        inherited = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        return {
            **inherited,
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'apps'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
            "BENCH_REDIS_URL": self.place.redis_url,
            **dict(line.format(home=self.home).split("=", 1) for line in self.env),
        }
