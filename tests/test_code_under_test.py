"""Every process that a test starts runs the code of this tree, never an installed copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tradewind
from tests.cli.conftest import clean_env
from tests.process import ROOT

WHERE = "import tradewind; print(tradewind.__file__)"


def test_the_package_under_test_is_that_of_this_tree() -> None:
    assert Path(tradewind.__file__).is_relative_to(ROOT / "src")


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_child_process_imports_the_same_package(is_clean: bool, tmp_path: Path) -> None:
    env = clean_env() if is_clean else None
    child = subprocess.run([sys.executable, "-c", WHERE], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert child.stdout.strip() == tradewind.__file__


def test_whoever_sets_a_path_for_a_child_keeps_the_code_under_test_on_it() -> None:
    here = Path(__file__).name
    lines = {
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in (ROOT / "tests").rglob("*.py")
        if file.name not in (here, "process.py")
        for line in file.read_text().splitlines()
        if '"PYTHONPATH"' in line and "code_path(" not in line
    }
    assert not lines
