"""Luigi: local scheduler, one worker, values in files of a temporary folder (its usual way)."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import uuid
from typing import Any

import luigi

logging.getLogger("luigi").setLevel(logging.CRITICAL)
logging.getLogger("luigi-interface").setLevel(logging.CRITICAL)
ROOT = tempfile.mkdtemp(prefix="luigi-")


class Base(luigi.Task):  # type: ignore[misc]
    run_id = luigi.Parameter()
    i = luigi.IntParameter(default=0)

    def output(self) -> Any:
        return luigi.LocalTarget(os.path.join(ROOT, self.run_id, f"{type(self).__name__}-{self.i}.json"))

    def put(self, value: int) -> None:
        with self.output().open("w") as file:
            json.dump(value, file)


def read(target: Any) -> int:
    with target.open() as file:
        return int(json.load(file))


class Link(Base):
    def requires(self) -> Any:
        return Link(self.run_id, self.i - 1) if self.i > 1 else []

    def run(self) -> None:
        self.put((read(self.input()) if self.i > 1 else 0) + 1)


class Root(Base):
    def run(self) -> None:
        self.put(0 + 1)


class Leaf(Base):
    def requires(self) -> Any:
        return Root(self.run_id)

    def run(self) -> None:
        self.put(read(self.input()) + 1)


class Join(Base):
    def requires(self) -> Any:
        return [Leaf(self.run_id, k) for k in range(self.i)]

    def run(self) -> None:
        self.put(sum(read(target) for target in self.input()))


def _build(tasks: list[Any]) -> list[int]:
    assert luigi.build(tasks, local_scheduler=True, workers=1, log_level="CRITICAL")
    return [read(task.output()) for task in tasks]


def chain(n: int) -> None:
    assert _build([Link(uuid.uuid4().hex, n)]) == [n]


def fan(n: int) -> None:
    assert _build([Join(uuid.uuid4().hex, n)]) == [2 * n]


def flows(n: int) -> None:
    run = uuid.uuid4().hex
    assert _build([Root(run, k) for k in range(n)]) == [1] * n
