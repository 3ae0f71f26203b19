"""SIGKILL a worker in the middle of its tasks; count what is lost, what runs twice, and how long recovery takes.

Tasks of 0.2 s are queued and a worker starts; --kill-after seconds after its first task began, every process of it is
killed and at once a second worker starts. Settings that bear on recovery are each library's defaults. Every system has
a redis-server of its own, and all run side by side: after the kill they mostly wait.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tables
from executions import FINISH, START, count_log, read_log
from measure import wait_until
from ours import OURS
from peers import PEERS, CeleryLate
from server import private_redis, url_of
from system import REPO, BenchError, System, slug

SYSTEMS: list[type[System]] = [*OURS, *PEERS, CeleryLate]
KINDS = {slug(kind.name): kind for kind in SYSTEMS}
TARGET_S = 15.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`interrupted` had begun and not finished at the kill; `unfinished` at the cap is not yet lost for good."""

    system: System
    done: int
    interrupted: int
    unfinished: int
    interrupted_unfinished: int
    begun_twice: int
    finished_twice: int
    last_untouched_s: float
    last_interrupted_s: float

    @property
    def is_recovered(self) -> bool:
        return self.interrupted > 0 and not self.unfinished and self.last_interrupted_s <= TARGET_S

    @property
    def verdict(self) -> str:
        if not self.interrupted:
            return "nothing was interrupted: choose another --kill-after"
        return "REACHED" if self.is_recovered else "NOT REACHED"


def finished(log: Path) -> set[int]:
    return {i for i, kind, _ in read_log(log) if kind == FINISH}


def try_one(kind: type[System], options: argparse.Namespace) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, private_redis() as client:
        system = kind(Path(folder), url_of(client), options.venvs.absolute())
        try:
            system.begin(client)
            ids, _ = system.enqueue(options.tasks, "sleeper")
            system.start_workers(1)
            if not wait_until(lambda: count_log(system.log) > 0, 30, every_s=0.002):
                raise BenchError(f"{system.name}: no task began; {system.last_output()}")
            time.sleep(options.kill_after)
            system.workers.kill()
            killed = time.monotonic()
            before = read_log(system.log)
            system.start_workers(1)
            wait_until(lambda: len(finished(system.log)) == options.tasks, options.cap, every_s=0.1)
            time.sleep(2)  # a late second run would show
        finally:
            system.stop()
        return judge(system, ids, before, read_log(system.log), killed)


def judge(
    system: System, ids: range, before: list[tuple[int, int, float]], log: list[tuple[int, int, float]], killed: float
) -> Outcome:
    starts = Counter(i for i, kind, _ in log if kind == START)
    finishes = Counter(i for i, kind, _ in log if kind == FINISH)
    done = {i for i, kind, _ in before if kind == FINISH}
    begun = {i for i, kind, _ in before if kind == START}
    interrupted = begun - done
    ends: dict[int, float] = {}
    for i, kind, at in log:
        if kind == FINISH:
            ends.setdefault(i, at - killed)
    return Outcome(
        system=system,
        done=len(done),
        interrupted=len(interrupted),
        unfinished=len(ids) - len(finishes),
        interrupted_unfinished=len(interrupted - finishes.keys()),
        begun_twice=sum(1 for count in starts.values() if count > 1),
        finished_twice=sum(1 for count in finishes.values() if count > 1),
        last_untouched_s=max((ends[i] for i in ids if i not in begun and i in ends), default=float("nan")),
        last_interrupted_s=max((ends[i] for i in interrupted if i in ends), default=float("nan")),
    )


def show(outcomes: list[Outcome]) -> str:
    head = ["system", "done at kill", "interrupted", "unfinished at cap", "interrupted and unfinished", "begun twice"]
    head += ["finished twice", "last untouched task, s after kill", "last interrupted task, s after kill"]
    rows = []
    for o in outcomes:
        counts = [o.done, o.interrupted, o.unfinished, o.interrupted_unfinished, o.begun_twice, o.finished_twice]
        times = [tables.number(value, 1) for value in (o.last_untouched_s, o.last_interrupted_s)]
        rows.append([o.system.name, *map(str, counts), *times])
    lines = [tables.table(head, rows), ""]
    for o in outcomes:
        if not o.system.is_peer:
            lines.append(f"{o.system.name}: the last interrupted task finished within {TARGET_S:g} s: {o.verdict}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=KINDS, help=f"of: {', '.join(KINDS)}")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--cap", type=float, default=330, help="seconds after the kill")
    parser.add_argument("--kill-after", type=float, default=0.3, help="arq works in bursts: 0.1 hits one")
    parser.add_argument("--venvs", type=Path, default=REPO / ".bench-venvs", help="made by bench/setup_peers.sh")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    kinds = [kind for name, kind in KINDS.items() if not options.only or name in options.only]
    running: list[Future[Outcome]] = []
    outcomes: list[Outcome] = []
    failures = 0
    with ThreadPoolExecutor(len(kinds)) as pool:
        for kind in kinds:
            print(f"kill test of {kind.name}", file=sys.stderr, flush=True)
            running.append(pool.submit(try_one, kind, options))
            time.sleep(6 if len(kinds) > 1 else 0)  # so that the kills do not fall into each other's start-up
        for future in running:
            try:
                outcomes.append(future.result())
            except (BenchError, OSError) as error:
                failures += 1
                print(error, file=sys.stderr, flush=True)
    text = show(outcomes)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
