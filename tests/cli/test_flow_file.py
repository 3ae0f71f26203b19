"""Flow files: where problems are, and `tradewind flow lint` without a station."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tradewind.cli.flow_file import FlowFile, read_file
from tradewind.errors import Invalid, Problem

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples" / "flows").glob("*.yaml"))
TEXT = """# a comment
id: f
interval: 5x
nodes:
  - id: a
    type: constant
    config:
      value: {deep: [1, 2]}
  - {id: b,
     type: log, "odd key": 1}
edges:
  - source: a
    sourceHandle: value
    target: b
    target_handle: value
"""
MY_NODES = """
from tradewind.flows.node import node

@node
def lint_twice(x: float) -> float:
    return 2 * x
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("$", 2),
        ("interval", 3),
        ("nodes", 4),
        ("nodes[0]", 5),
        ("nodes[0].type", 6),
        ("nodes[0].config.value", 8),
        ("nodes[0].config.value.deep[1]", 8),
        ("nodes[0].config.missing", 7),
        ("nodes[1].type", 10),
        ('nodes[1]["odd key"]', 10),
        ("nodes[9].type", 4),
        ("edges[0].source_handle", 13),
        ("edges[0].target_handle", 15),
        ("nodes[0].config.value (col 4)", 8),
        ("nowhere", 2),
    ],
)
def test_a_path_leads_to_its_line_or_to_what_is_around_it(path: str, line: int) -> None:
    assert FlowFile("f.yaml", TEXT, {}).line(path) == line


def test_json_with_tabs_and_an_editors_form_have_lines_too() -> None:
    text = '{\n\t"nodes": [\n\t\t{"id": "a",\n\t\t "data": {\n\t\t\t"config": {"value": 1}}}\n\t]\n}'
    file = FlowFile("f.json", text, json.loads(text))
    assert file.line("nodes[0].config.value") == 5
    assert file.where(Problem("c", "nodes[0].id", "h")) == "f.json:3"


def test_the_id_is_given_or_the_files_own_or_its_name(tmp_path: Path) -> None:
    named, nameless, odd = tmp_path / "n.yaml", tmp_path / "my-flow.yaml", tmp_path / "my flow.yaml"
    named.write_text("id: own\ninterval: 0\n")
    nameless.write_text("interval: 0\n")
    odd.write_text("interval: 0\n")
    assert read_file(str(named)).flow_id == "own"
    assert read_file(str(named), "other").flow_id == "other"
    assert read_file(str(nameless)).flow_id == "my-flow"
    assert read_file(str(odd)).flow_id == ""


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("f.yaml", "a: 1\nb: [\n", "f.yaml:3"),
        ("f.json", '{\n"a": }', "f.json:2"),
        ("f.yaml", "a: 1\na: 2\n", "f.yaml:2"),
    ],
)
def test_text_that_cannot_be_read_names_the_line(tmp_path: Path, name: str, text: str, place: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Invalid) as caught:
        read_file(str(tmp_path / name))
    assert caught.value.problems[0].path == str(tmp_path / place)


def test_the_examples_are_valid(cli: Cli) -> None:
    assert len(EXAMPLES) == 3
    ran = cli("flow", "lint", *map(str, EXAMPLES))
    assert ran.code == 0
    assert ran.out.count(": ok, ") == 3


def test_every_problem_is_told_with_its_line(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(TEXT.replace("type: constant", "type: constnt").replace("type: log", "type: expression"))
    ran = cli("flow", "lint", str(path))
    assert ran.code == 2
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"{path}:3: interval: ")
    assert f'{path}:6: nodes[0].type: did you mean "constant"?' in ran.out
    assert f'{path}:10: nodes[1]["odd key"]: ' in ran.out
    assert "[unknown_type]" in ran.out
    told = cli("flow", "lint", str(path), str(EXAMPLES[0]), str(tmp_path / "nope.yaml"), "--json")
    assert told.code == 2
    bad, good, missing = told.json["files"]
    assert (told.json["valid"], bad["valid"], good["valid"], missing["valid"]) == (False, False, True, False)
    assert {"code", "path", "hint", "line"} == set(bad["problems"][0])
    assert (bad["flow_id"], good["nodes"]) == ("f", 5)
    assert missing["problems"][0]["code"] == "no_file"


def test_what_a_node_says_about_its_config_has_a_line(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "formula.yaml"
    path.write_text("interval: 0\nnodes:\n  - id: a\n    type: expression\n    config:\n      expression: price +\n")
    ran = cli("flow", "lint", str(path))
    assert ran.code == 2
    assert f"{path}:6: nodes[0].config.expression" in ran.out


def test_node_types_of_a_module_are_known(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lint_my_nodes.py").write_text(MY_NODES)
    path = tmp_path / "mine.yaml"
    path.write_text("interval: 0\nnodes: [{id: a, type: lint_twice, inputs: {x: 2}}]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli("flow", "lint", str(path)).code == 2
    assert cli("flow", "lint", str(path), "--import", "lint_my_nodes").code == 0
    assert cli("flow", "lint", str(path), "--import", "no_such_module").code == 2
