"""The guide for nodes is true: its Python is run, and the tests that it shows pass."""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tradewind.flows import node as node_module
from tradewind.flows.handles_sdk import Input, Output
from tradewind.flows.node_registry import GROUP, node_types

PAGE = (Path(__file__).parents[2] / "docs" / "nodes.md").read_text()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the page's code defines; its node types are forgotten afterwards."""
    monkeypatch.setattr(node_types, "_classes", dict(node_types._classes))
    module = ModuleType("docs_nodes")
    monkeypatch.setitem(sys.modules, "docs_nodes", module)  # dataclasses look there
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/nodes.md", "exec", dont_inherit=True), vars(module))
    return vars(module)


async def test_the_tests_of_the_guide_pass(page: dict[str, Any]) -> None:
    tests = [made for name, made in page.items() if name.startswith("test_")]
    assert len(tests) == 5
    for test in tests:
        await test()


def test_every_option_is_in_a_table() -> None:
    decorator = set(inspect.signature(node_module.node).parameters) - {"target", "registry"}
    inputs = set(inspect.signature(Input.__init__).parameters) - {"self"}
    outputs = set(inspect.signature(Output.__init__).parameters) - {"self"}
    for option in decorator | inputs | outputs:
        assert f"`{option}`" in PAGE or f"{option}=" in PAGE, option


def test_the_entry_point_group_is_the_one_that_is_read() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert list(tomllib.loads(block)["project"]["entry-points"]) == [GROUP]
