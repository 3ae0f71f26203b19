"""A process starts fast: what only some roles need is imported by those."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("alembic", "apprise", "asyncua", "fastapi", "numpy", "pyarrow", "pymodbus", "sqlalchemy")


def test_a_station_imports_nothing_heavy_that_only_some_roles_need() -> None:
    code = f"import sys, tradewind.station; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
