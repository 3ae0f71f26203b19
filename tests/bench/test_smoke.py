"""The benchmarks of rules and history still run: a part of each in its smallest size. Figures are not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize(("room", "parts"), [("rules", ["listing"]), ("history", ["trend"])])
def test_a_smoke_run_judges_its_targets_and_writes_its_report(room: str, parts: list[str], tmp_path: Path) -> None:
    servers.find("redis-server", "redis-server")
    servers.find("influxd", "influxdb")
    text, data = tmp_path / "record.md", tmp_path / "record.json"
    command = [sys.executable, str(BENCH / room / "run.py"), "--quick", "--only", *parts]
    command += ["--markdown", str(text), "--json", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(data.read_text())
    assert found["failures"] == [] and set(found["figures"]) == set(parts)
    assert len(found["verdicts"]) >= 4 and all(verdict["value"] is not None for verdict in found["verdicts"])
    report = text.read_text()
    assert report.count("REACHED") == len(found["verdicts"]) and "smoke run" in report
