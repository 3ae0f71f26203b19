"""docs/flow-syntax.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.flows import test_check, test_syntax
from tradewind.flows.syntax import FLOW_FIELDS, NODE_FIELDS, SCHEDULE_FIELDS, parse_flow, read_text

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "flow-syntax.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.M | re.S)
FLOWS = [(kind, text) for kind, text in BLOCKS if kind != "python"]


def first_column(after: str) -> set[str]:
    """The words in code font of the first column of the first table after a heading."""
    table = TEXT.partition(after)[2].partition("\n|---|")[2].partition("\n\n")[0]
    return {word for row in table.splitlines()[1:] for word in re.findall(r"`(\w+)`", row.split(" | ")[0])}


@pytest.mark.parametrize(("kind", "text"), FLOWS, ids=range(len(FLOWS)))
def test_the_shown_flows_can_be_read(kind: str, text: str) -> None:
    spec = parse_flow(read_text(text, f"flow.{kind}"), flow_id="btc")
    assert len(spec.nodes) == 2
    assert len(spec.edges) == 1


def test_the_shown_forms_mean_the_same_nodes() -> None:
    plain, more, full = [parse_flow(read_text(text), flow_id="btc") for _, text in FLOWS]
    assert [n.config for n in plain.nodes] == [n.config for n in more.nodes]
    assert (more.nodes[1].timeout_s, more.nodes[1].retries) == (120, 2)
    assert [n.config for n in full.nodes] == [{"value": 5}, {"window": 20}]


def test_the_shown_program_runs() -> None:
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, "flow-syntax.md", "exec"), {})


def test_the_tables_name_every_field() -> None:
    assert first_column("## The flow") == FLOW_FIELDS
    assert first_column("## Nodes") == NODE_FIELDS
    assert first_column("`schedule` takes one of") == SCHEDULE_FIELDS


def test_every_code_is_explained() -> None:
    explained = first_column("## What can be wrong")
    told = {code for _, expected in [*test_syntax.BAD, *test_check.BAD] for code in expected.values()}
    assert told <= explained
