"""The point benchmark still runs: in its smallest size, over real servers. Its figures are not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests import servers

RUN = Path(__file__).parents[2] / "bench" / "points" / "run.py"


def test_a_smoke_run_judges_each_target_and_writes_its_report(tmp_path: Path) -> None:
    servers.find("redis-server", "redis-server")
    text, data = tmp_path / "points.md", tmp_path / "points.json"
    command = [sys.executable, str(RUN), "--quick", "--only", "board", "modbus", "--markdown", str(text)]
    done = subprocess.run([*command, "--json", str(data)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(data.read_text())
    assert found["failures"] == []
    words = [verdict["words"] for verdict in found["verdicts"]]
    assert sum("redis-py" in word for word in words) == 3
    assert [word.rpartition(": ")[2] for word in words if "Modbus" in word] == ["polls missed", "polls failed"]
    modbus = found["figures"]["modbus"]
    assert modbus["polls"] >= 40  # of 80 in two seconds, on a busy machine
    assert modbus["batches"] >= 40
    assert modbus["late_p50_ms"] >= 0
    report = text.read_text()
    assert report.count("REACHED") == len(words)
    assert "smoke run" in report
