"""Rule engines beside Tradewind on the same stream: 10,000 rules of one comparison, each on a point of its own.

    .venv/bin/python bench/rules/peers.py [--quick] [--venvs .bench-venvs]

All points change again and again, one change in 1,000 crosses the limit. Every peer is given only the rule that reads
the changed point, where it can be asked that way: none has an index by point. Each runs in its own environment and
process; each counts the changes that were above the limit, and a wrong count does not stand. One that needs more than
40 seconds for what others do in five is left out after its first try, with a word.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from shared import CROSSING, HERE, LIMIT, REPO, RULES

VENVS = REPO / ".bench-venvs"
#: A peer that is not done with a pass by then, its start included, has failed.
LONGEST_S = 40.0


@dataclass
class Peer:
    """`rates`: checks a second, one per pass. `built_s`: to make the rules ready."""

    name: str
    how: str
    app: str
    environment: str
    mode: str = ""
    rates: list[float] = field(default_factory=list)
    built_s: list[float] = field(default_factory=list)
    failure: str = ""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates) if self.rates else float("nan")


@dataclass(frozen=True, slots=True)
class PeerFigures:
    rules: int
    ours: list[Peer]
    others: list[Peer]

    @property
    def best(self) -> Peer | None:
        there = [peer for peer in self.others if peer.rates]
        return max(there, key=lambda peer: peer.rate, default=None)


def systems() -> tuple[list[Peer], list[Peer]]:
    ours = [
        Peer("Tradewind", "1,000 points an entry of the feed, decoded and judged", "ours.py", "", "1000"),
        Peer("Tradewind, single", "one point an entry", "ours.py", "", "1"),
    ]
    others = [
        Peer("rule-engine", "the compiled rule of the point", "rule_engine_app.py", "rule-engine"),
        Peer("business-rules", "the rule of the point", "business_rules_app.py", "business-rules"),
        Peer("durable_rules", "all rules, one event a change", "durable_app.py", "durable-rules"),
        Peer("json-rules-engine, own", "an engine for each rule", "json_rules.mjs", "json-rules-engine", "own"),
        Peer("json-rules-engine, all", "all rules with each run", "json_rules.mjs", "json-rules-engine", "all"),
    ]
    return ours, others


def stream(path: Path, rules: int, sweeps: int) -> None:
    """Values of each sweep, one per rule."""
    chance = random.Random(5)
    found = [
        [LIMIT + 5 if chance.random() < 1 / CROSSING else round(chance.uniform(0, LIMIT - 1), 3) for _ in range(rules)]
        for _ in range(sweeps)
    ]
    path.write_text(json.dumps({"limit": LIMIT, "sweeps": found}))


def one_pass(peer: Peer, path: Path, seconds: float, venvs: Path) -> None:
    home = venvs / peer.environment
    program = sys.executable if not peer.environment else str(home / "bin" / "python")
    env = dict(os.environ)
    if peer.app.endswith(".mjs"):
        program = shutil.which("node") or "node"
        env["MODULES"] = str(home / "node_modules")
    command = [program, str(HERE / "apps" / peer.app), str(path), str(seconds), peer.mode]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed")
    told = json.loads(done.stdout.splitlines()[-1])
    values = [value for sweep in json.loads(path.read_text())["sweeps"] for value in sweep]
    wanted = sum(value > LIMIT for value in values[: told["changes"]])
    if told["matched"] != wanted:
        raise RuntimeError(f"it found {told['matched']} values above the limit instead of {wanted}")
    peer.rates.append(told["checks"] / told["seconds"])
    peer.built_s.append(told["built_s"])


def measure(*, is_quick: bool = False, venvs: Path = VENVS) -> PeerFigures:
    rules, sweeps, seconds, passes = (200, 20, 0.5, 1) if is_quick else (RULES, 50, 2.0, 3)
    ours, others = systems()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.json"
        stream(path, rules, sweeps)
        for turn in range(1, passes + 1):
            for peer in [*ours, *others]:
                if peer.failure:
                    continue
                began = time.monotonic()
                try:
                    if peer.environment and not (venvs / peer.environment / ".ready").exists():
                        raise RuntimeError("it is not installed")
                    one_pass(peer, path, seconds, venvs)
                except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                    if not peer.environment:
                        raise
                    is_slow = isinstance(error, subprocess.TimeoutExpired)
                    said = f"not done after {LONGEST_S:.0f} s" if is_slow else str(error)
                    peer.failure = said.replace(str(REPO), "").replace(folder, "")[:200]
                    peer.rates.clear()
                told = peer.failure or f"{peer.rates[-1]:,.0f} checks/s"
                took = time.monotonic() - began
                print(f"  pass {turn} of {passes}, {peer.name}: {told}, {took:.0f} s", file=sys.stderr, flush=True)
    return PeerFigures(rules, ours, others)


def main() -> None:
    import goals
    import report

    import parts

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument("--venvs", type=Path, default=VENVS)
    options = parser.parse_args()
    found = measure(is_quick=options.quick, venvs=options.venvs.absolute())
    print(f"{parts.verdict_table(goals.of_peers(found))}\n\n{report.peer_text(found)}")


if __name__ == "__main__":
    main()
