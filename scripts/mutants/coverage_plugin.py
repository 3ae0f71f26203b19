"""A pytest plug-in: names the running test to coverage and to the children of the test, notes how long tests take."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from mutants import coverage_map

_measured = coverage_map.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    os.environ[coverage_map.TEST] = item.nodeid
    _measured.switch_context(item.nodeid)
    result = yield
    _measured.switch_context("")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "PYTEST_XDIST_WORKER" in os.environ:
        with (coverage_map.folder() / f"durations-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps([report.nodeid, round(report.duration, 3), report.outcome]) + "\n")


def pytest_unconfigure() -> None:
    _measured.stop()
    _measured.save()
