"""`make mutants`: tries a seeded sample of mutations, prints how many the tests noticed and which survived.

`--map` records once which test runs which line (twice the time of the suite; `--map tests/tasks` records that folder
alone, beside what is recorded of others; `-k` leaves tests out). Then each mutation is made in a copy of the tree and
only the tests that run its line are run: first the nearest and quickest, and if none notices, more. `--tests` names
them instead, without a map.
Results are kept in `.mutants/results.jsonl`: a run that was ended goes on where it was; what belongs to a file that has
changed since is tried again. `explained.tsv` names survivors that change nothing, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from mutants import coverage_map, sites  # noqa: E402
from mutants.selection import CoverageMap  # noqa: E402

HOME = ROOT / ".mutants"
MAP = HOME / "map"
RESULTS = HOME / "results.jsonl"
EXPLAINED = Path(__file__).with_name("explained.tsv")
COPIED = ("src", "tests", "scripts", "docs", "examples", "bench", "deploy")
GOALS = {"lua": 95, "pure": 95, "active": 90}
#: (seconds of tests, number of tests): the first round; the second, for what survived it, has --seconds.
FIRST, SECOND_TESTS = (15.0, 40), 250
#: How long tests that were named may take.
NAMED_S = 600.0


@dataclass(frozen=True)
class Verdict:
    mutation: sites.Mutation
    source_sha: str
    group: str
    #: noticed, survived, uncovered (no test runs the line)
    result: str
    by: str
    seconds: float

    def row(self) -> dict[str, object]:
        m = self.mutation
        return {
            "id": m.id,
            "sha": self.source_sha,
            "group": self.group,
            "result": self.result,
            "by": self.by,
            "seconds": round(self.seconds, 1),
            "file": m.file,
            "line": m.line,
            "what": str(m),
        }


def main() -> int:
    options = read_options()
    if options.map is not None:
        return record_maps(options.map or ["tests"], options.jobs, options.k)
    if not options.tests and not any(MAP.glob("*/combined")):
        print("no map of tests yet: run `make mutants-map` first", file=sys.stderr)
        return 2
    sample = draw(options)
    known = read_results()
    todo = [m for m in sample if (m.id, sha(m.file)) not in known or (options.again and _survived(known, m))]
    print(f"{len(sample)} mutations in {len({m.file for m in sample})} files, {len(todo)} to try", flush=True)
    if todo and not options.report:
        try_all(todo, options)
        known = read_results()
    return report([known[key] for m in sample if (key := (m.id, sha(m.file))) in known], len(sample))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=["*"], help="patterns of files, such as '*/rules/*.py' (all)")
    parser.add_argument("--per-file", type=int, default=3, help="mutations drawn in each file (3)")
    parser.add_argument("--most", type=int, default=0, help="at most so many in all (no limit)")
    parser.add_argument("--group", choices=sorted(GOALS), help="only Lua, pure or active files")
    parser.add_argument("--seed", default="1", help="another seed draws another sample (1)")
    parser.add_argument("--jobs", type=int, default=2, help="mutations tried at once (2)")
    parser.add_argument("--seconds", type=float, default=120.0, help="of tests for what survived the first ones (120)")
    parser.add_argument("--again", action="store_true", help="try what survived once more: the tests have changed")
    parser.add_argument("--report", action="store_true", help="try nothing, print what is known")
    parser.add_argument("--map", nargs="*", metavar="TESTS", help="record which test runs which line, then end (all)")
    parser.add_argument("--tests", nargs="+", default=[], help="run these for each mutation, not those of the map")
    parser.add_argument("-k", default="", metavar="WORDS", help="with --map or --tests: only these, as for pytest")
    return parser.parse_args()


def record_maps(parts: Sequence[str], jobs: int, keywords: str) -> int:
    """One folder of the map for each part of the tests; recording a part again replaces it."""
    for part in parts:
        if not (ROOT / part).exists():
            print(f"there is no {part}", file=sys.stderr)
            return 2
        record_map(part.strip("/"), jobs, keywords)
    return 0


def record_map(part: str, jobs: int, keywords: str) -> None:
    import coverage

    folder = MAP / part.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = os.pathsep.join(str(ROOT / name) for name in ("scripts", "scripts/mutants/child"))
    env = {**os.environ, coverage_map.FOLDER: str(folder), "PYTHONPATH": path}
    argv = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "--dist", "worksteal", "--timeout", "300"]
    subprocess.run([*argv, "-p", "mutants.coverage_plugin", "-k", keywords, part], cwd=ROOT, env=env, check=False)
    combined = coverage.Coverage(data_file=str(folder / "combined"), config_file=False)
    combined.combine([str(file) for file in folder.glob("data.*")], keep=False)
    combined.save()
    print(f"the map of {part} is in {folder.relative_to(ROOT)}", flush=True)


def draw(options: argparse.Namespace) -> list[sites.Mutation]:
    """The same seed and files give the same sample."""
    sample: list[sites.Mutation] = []
    for file in sites.files(ROOT):
        source = (ROOT / file).read_text()
        if options.group and sites.group(file, source) != options.group:
            continue
        if any(fnmatch(file, pattern) or pattern in file for pattern in options.files):
            found = sites.find(file, source)
            sample += random.Random(f"{options.seed}:{file}").sample(found, min(options.per_file, len(found)))
    if options.most and len(sample) > options.most:
        sample = random.Random(options.seed).sample(sample, options.most)
    return sample


def sha(file: str) -> str:
    return hashlib.sha1((ROOT / file).read_bytes()).hexdigest()[:12]


def read_results() -> dict[tuple[str, str], dict[str, object]]:
    if not RESULTS.exists():
        return {}
    rows = (json.loads(line) for line in RESULTS.read_text().splitlines())
    return {(row["id"], row["sha"]): row for row in rows}


def _survived(known: dict[tuple[str, str], dict[str, object]], mutation: sites.Mutation) -> bool:
    return known[mutation.id, sha(mutation.file)]["result"] != "noticed"


class Tree:
    """A copy of the tree in which one mutation at a time is made."""

    _stamps = itertools.count(int(time.time()))

    def __init__(self, number: int) -> None:
        self.folder = HOME / f"tree-{number}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name in COPIED:
            shutil.copytree(ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy(path, self.folder / path.name)

    def write(self, file: str, text: str) -> None:
        """A time of its own for each version: a compiled file is never taken for that of another version."""
        path = self.folder / file
        path.write_text(text)
        stamp = next(self._stamps)
        os.utime(path, (stamp, stamp))

    def run(self, tests: Sequence[str], limit_s: float) -> str:
        """The first test that fails, or "" when all pass."""
        env = {**os.environ, "PYTHONPATH": str(self.folder / "src")}
        argv = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--timeout", "45", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*argv, "--tb=no", "-rfE", *tests],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "no end in time"
        finally:
            end_group(process.pid)
            process.wait()
        if process.returncode == 0:
            return ""
        failed = [
            line.split(" - ")[0].split(" ", 1)[1] for line in output.splitlines() if line[:6] in ("FAILED", "ERROR ")
        ]
        return failed[0] if failed else f"pytest ended with {process.returncode}"


def end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def noticed_by(tree: Tree, mutation: sites.Mutation, source: str, tests: Sequence[str], limit_s: float) -> str:
    """The test that fails with the mutation and passes without it, "" when there is none."""
    passed_over: list[str] = []
    while True:
        tree.write(mutation.file, mutation.apply(source))
        try:
            by = tree.run([*tests, *(f"--deselect={test}" for test in passed_over)], limit_s)
        finally:
            tree.write(mutation.file, source)
        is_test = "::" in by
        if not by or not tree.run([by] if is_test else tests, limit_s):
            return by
        if not is_test or by in passed_over:
            return ""
        passed_over.append(by)  # it fails anyway: a busy machine


def rounds_of(
    tests_by_line: CoverageMap, mutation: sites.Mutation, second_s: float
) -> Iterator[tuple[list[str], float]]:
    """The tests to run one after the other, and how long each round may take."""
    tests = tests_by_line.tests_for(mutation)
    for budget_s, most in (FIRST, (second_s, SECOND_TESTS)):
        chosen = tests_by_line.within(tests, budget_s, most)
        tests = tests[len(chosen) :]
        if chosen:
            yield chosen, budget_s * 4 + 60


def try_one(tree: Tree, rounds: Iterable[tuple[list[str], float]], mutation: sites.Mutation) -> Verdict:
    source = (ROOT / mutation.file).read_text()
    begun = time.monotonic()
    result = by = ""
    for tests, limit_s in rounds:
        if by := noticed_by(tree, mutation, source, tests, limit_s):
            break
        result = "survived"
    result = "noticed" if by else result or "uncovered"
    group = sites.group(mutation.file, source)
    return Verdict(mutation, sha(mutation.file), group, result, by, time.monotonic() - begun)


def try_all(todo: list[sites.Mutation], options: argparse.Namespace) -> None:
    jobs, tests_by_line = options.jobs, CoverageMap(ROOT, MAP)
    named = [([*options.tests, "-k", options.k], NAMED_S)] if options.tests else None
    trees = [Tree(number) for number in range(jobs)]
    free = list(trees)
    lock = threading.Lock()
    counts: Counter[str] = Counter()
    begun = time.monotonic()

    def work(mutation: sites.Mutation) -> None:
        with lock:
            tree = free.pop()
        try:
            verdict = try_one(tree, named or rounds_of(tests_by_line, mutation, options.seconds), mutation)
        finally:
            with lock:
                free.append(tree)
        with lock:
            counts[verdict.result] += 1
            with RESULTS.open("a") as file:
                file.write(json.dumps(verdict.row()) + "\n")
            done = sum(counts.values())
            left_min = (time.monotonic() - begun) / done * (len(todo) - done) / 60
            took = f"{verdict.seconds:.0f} s, {left_min:.0f} min left"
            print(f"{done}/{len(todo)}  {verdict.result:9} {mutation}  ({took})", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(work, todo):
            pass


def explanations() -> Iterator[tuple[str, str]]:
    if EXPLAINED.exists():
        for line in EXPLAINED.read_text().splitlines():
            if line and not line.startswith("#"):
                what, _, reason = line.partition("\t")
                yield what, reason


def stable(what: object) -> str:
    """A mutation without its line number, which moves with every edit above it."""
    place, _, rest = str(what).partition("  ")
    return f"{place.rsplit(':', 1)[0]}  {rest}"


def report(rows: list[dict[str, object]], wanted: int) -> int:
    explained = dict(explanations())
    by_group: defaultdict[str, Counter[str]] = defaultdict(Counter)
    left: list[dict[str, object]] = []
    for row in rows:
        result = str(row["result"])
        if result != "noticed" and stable(row["what"]) in explained:
            result = "explained"
        elif result != "noticed":
            left.append(row)
        by_group[str(row["group"])][result] += 1
    for row in sorted(left, key=lambda row: str(row["what"])):
        print(f"{row['result']:9} {row['what']}")
    print("\n| files | tried | noticed | explained | survived | no test runs it | noticed, less explained | goal |")
    print("|" + "---|" * 8)
    is_reached = True
    for group, counts in sorted(by_group.items()):
        tried = sum(counts.values())
        share = 100 * counts["noticed"] / max(1, tried - counts["explained"])
        is_reached &= share >= GOALS[group]
        shown = " | ".join(str(counts[name]) for name in ("noticed", "explained", "survived", "uncovered"))
        print(f"| {group} | {tried} | {shown} | {share:.1f} % | {GOALS[group]} % |")
    if len(rows) < wanted:
        print(f"\n{wanted - len(rows)} of the sample are still to be tried")
    return 0 if is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
