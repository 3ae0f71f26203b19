"""A benchmark of parts: measures one after the other, says which targets are reached, writes the record."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO / "bench" / "tasks"))

from tables import number, table  # noqa: E402

RESULTS = REPO / "bench" / "results"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`found` says in words what stands behind a value that is itself a ratio. Not `is_target`: nobody has promised it,
    `limit` is 0."""

    words: str
    on: str
    value: float
    limit: float
    unit: str
    is_least: bool = False
    found: str = ""
    is_target: bool = True

    @property
    def is_reached(self) -> bool:
        """Never of NaN: what was not measured is not reached."""
        return self.value >= self.limit if self.is_least else self.value <= self.limit

    @property
    def ratio(self) -> float:
        """At least 1 when it is reached; NaN where the goal is to have none."""
        if not self.limit:
            return math.nan
        if self.is_least:
            return self.value / self.limit
        return self.limit / self.value if self.value > 0 else math.inf

    @property
    def word(self) -> str:
        return ("reached" if self.is_reached else "NOT reached") if self.is_target else "no target"


class Part(NamedTuple):
    """How a part is measured, judged, and shown; `ceilings`: what is possible at best, of the same run."""

    title: str
    measure: Callable[..., Any]
    judge: Callable[[Any], Sequence[Verdict]]
    text: Callable[[Any], str]
    options: Mapping[str, Any] = {}
    ceilings: Callable[[Any], Sequence[Any]] = lambda figures: ()


@dataclass(frozen=True)
class Bench:
    """`name`: of the record in bench/results, and of the notes `{name}-notes.md` that go into it, when they exist.
    `needs`: programs and their Debian packages. `ceiling_table` shows ceilings."""

    doc: str
    title: str
    name: str
    parts: Mapping[str, Part]
    packages: Sequence[str]
    setting: str
    needs: Mapping[str, str]
    ceiling_table: Callable[[Sequence[Any]], str] = lambda ceilings: ""

    def main(self) -> int:
        options = self._parse()
        for program, package in self.needs.items():
            if shutil.which(program) is None:
                say(f"{program} is not on PATH; install it (Debian: apt install {package})")
                return 2
        names = [name for name in self.parts if not options.only or name in options.only]
        found, failures = self._measure(names, options.quick)
        self._write(found, failures, options)
        return 1 if failures else 0

    def _parse(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        known = list(self.parts)
        parser.add_argument("--only", nargs="+", metavar="PART", choices=known, help=f"of: {', '.join(known)}")
        parser.add_argument("--quick", action="store_true", help="a smoke run: small sizes; its figures mean little")
        for kind, suffix in (("markdown", "md"), ("json", "json")):
            where = f"default, for a full run: bench/results/{self.name}.{suffix}"
            parser.add_argument(f"--{kind}", type=Path, help=where)
        options = parser.parse_args()
        if not options.quick and not options.only:  # a part or a smoke run must not replace the record
            options.markdown = options.markdown or RESULTS / f"{self.name}.md"
            options.json = options.json or RESULTS / f"{self.name}.json"
        return options

    def _measure(self, names: Sequence[str], is_quick: bool) -> tuple[dict[str, Any], list[str]]:
        """Figures by part, and what went wrong."""
        found: dict[str, Any] = {}
        failures = []
        for at, name in enumerate(names, 1):
            part, began = self.parts[name], time.monotonic()
            say(f"{at} of {len(names)}, {name} …")
            try:
                # In a process of its own: what one part leaves in memory must not slow the next one down.
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                    found[name] = pool.submit(part.measure, is_quick=is_quick, **part.options).result()
            except Exception as error:  # noqa: BLE001 - the other parts are worth having
                failures.append(f"{name}: {type(error).__name__}: {error}".replace(f"{REPO}/", ""))
                say(f"  {failures[-1]}")
                continue
            say(f"  {time.monotonic() - began:.0f} s")
            for verdict in part.judge(found[name]):
                say(f"  {verdict.word:<11} {verdict.words}: {digits(verdict.value)} {verdict.unit}")
        return found, failures

    def _about(self) -> str:
        versions = ", ".join(f"{name} {version(name)}" for name in self.packages)
        return (
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores; Python {platform.python_version()}; "
            f"{versions}. {self.setting} What is compared and what is not: `bench/README.md`."
        )

    def _write(self, found: Mapping[str, Any], failures: Sequence[str], options: argparse.Namespace) -> None:
        head = self._about()
        verdicts = [verdict for name, figures in found.items() for verdict in self.parts[name].judge(figures)]
        ceilings = [ceiling for name, figures in found.items() for ceiling in self.parts[name].ceilings(figures)]
        file = RESULTS / f"{self.name}-notes.md"
        notes = file.read_text().strip() if file.exists() and not options.quick else ""
        parts = [f"# {self.title}", head]
        if options.quick:
            parts.append("**A smoke run with small sizes: its figures mean little.**")
        parts += ["## Targets", verdict_table(verdicts)] if verdicts else []
        parts += ["## What explains it", notes] if notes else []
        parts += ["## Ceilings, in the same run", self.ceiling_table(ceilings)] if ceilings else []
        for name, figures in found.items():
            parts += [f"## {self.parts[name].title}", self.parts[name].text(figures)]
        if failures:
            parts.append("Went wrong: " + "; ".join(failures))
        text = "\n\n".join(parts) + "\n"
        print(text)
        everything = {
            "about": head,
            "verdicts": [{**asdict(v), "ratio": v.ratio, "is_reached": v.is_reached} for v in verdicts],
            "ceilings": [asdict(ceiling) for ceiling in ceilings],
            "figures": {name: asdict(figures) for name, figures in found.items()},
            "failures": list(failures),
        }
        for path, content in ((options.markdown, text), (options.json, json.dumps(plain(everything), indent=1) + "\n")):
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)


def digits(value: float) -> str:
    """Three digits that count."""
    if math.isnan(value):
        return "–"
    return number(value) if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    head = ["target", "on", "verdict", "measured", "wanted", "measured / wanted"]
    lines = []
    for v in verdicts:
        word = f"**{v.word.upper()}**" if v.is_target and not v.is_reached else v.word.replace("reached", "REACHED")
        behind = f" ({v.found})" if v.found else ""
        wanted = f"{'≥' if v.is_least else '≤'} {v.limit:,g} {v.unit}" if v.is_target else "–"
        lines.append([v.words, v.on, word, f"{digits(v.value)} {v.unit}{behind}", wanted, number(v.ratio, 2)])
    return table(head, lines, words=3)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """The same with null for what JSON does not have."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
