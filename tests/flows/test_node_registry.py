"""How node types become known."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tradewind.errors import Conflict
from tradewind.flows.node import Node, node
from tradewind.flows.node_errors import NodeValidationException
from tradewind.flows.node_registry import NodeRegistry, discover, node_types


def test_types_are_listed_by_name() -> None:
    registry = NodeRegistry()

    @node("zeta", registry=registry)
    def zeta() -> None: ...

    @node("alpha", registry=registry)
    def alpha() -> None: ...

    assert list(registry.describe()) == ["alpha", "zeta"]
    assert registry.describe()["zeta"].type == "zeta"
    assert registry.get("nope") is None
    assert len(list(registry.all())) == 2


def test_a_module_loaded_twice_replaces_its_own_types() -> None:
    registry = NodeRegistry()

    def define(result: int) -> None:
        @node("again", registry=registry)
        def again() -> int:
            return result

    define(1)
    define(2)
    found = registry.get("again")
    assert found is not None and found.function() == 2  # type: ignore[attr-defined]
    with pytest.raises(Conflict) as caught:

        @node("again", registry=registry)
        def other() -> int:
            return 3

    assert caught.value.code == "type_taken"


def test_an_undecorated_class_is_no_type() -> None:
    class Plain(Node):
        async def execute(self) -> None: ...

    with pytest.raises(NodeValidationException):
        NodeRegistry().add(Plain)


def test_packages_are_found_and_a_broken_one_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "good_nodes_for_test.py").write_text(
        "from tradewind.flows.node import node\n\n@node\ndef found_by_discovery() -> int:\n    return 1\n"
    )
    (tmp_path / "bad_nodes_for_test.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    entries = [
        EntryPoint("good", "good_nodes_for_test", "tradewind.nodes"),
        EntryPoint("bad", "bad_nodes_for_test", "tradewind.nodes"),
        EntryPoint("gone", "no_such_module_anywhere", "tradewind.nodes"),
    ]
    problems = discover(entries)
    assert problems["bad"] == "RuntimeError: no licence"
    assert set(problems) == {"bad", "gone"}
    assert node_types._classes.pop("found_by_discovery", None) is not None
    assert "bad_nodes_for_test" in caplog.text and "no_such_module_anywhere" in caplog.text
    sys.modules.pop("good_nodes_for_test")
