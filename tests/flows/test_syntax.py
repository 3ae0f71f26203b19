from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind import codec
from tradewind.clock import from_iso
from tradewind.errors import Invalid
from tradewind.flows.spec import Edge, NodeSpec, ScheduleSpec, TriggerRule
from tradewind.flows.syntax import FLOW_FIELDS, NODE_FIELDS, parse_flow, read_flow, read_text

SEED: dict[str, Any] = {
    "interval": 60,
    "nodes": [
        {"id": "node_A", "type": "binance_price_node", "config": {"symbol": "BTCUSDT", "interval": "1m"}},
        {"id": "node_B", "type": "ai_model_node", "config": {"model": "gpt-4"}},
    ],
    "edges": [
        {"source": "node_A", "source_handle": "kline_data", "target": "node_B", "target_handle": "price_input"},
    ],
}


def flow(**fields: Any) -> dict[str, Any]:
    return {"id": "f", "interval": 0, "nodes": [{"id": "a", "type": "constant"}], **fields}


def node(**fields: Any) -> dict[str, Any]:
    return flow(nodes=[{"id": "a", "type": "constant", **fields}])


def problems(document: Any, **options: Any) -> dict[str, str]:
    """Path → code."""
    with pytest.raises(Invalid) as caught:
        parse_flow(document, **options)
    assert all(problem.hint for problem in caught.value.problems)
    return {problem.path: problem.code for problem in caught.value.problems}


def test_the_seeds_example() -> None:
    spec = parse_flow(SEED, flow_id="btc")
    assert spec.id == "btc"
    assert spec.schedule == ScheduleSpec(interval_ms=60_000)
    assert spec.nodes[0] == NodeSpec("node_A", "binance_price_node", {"symbol": "BTCUSDT", "interval": "1m"})
    assert spec.edges == (Edge("node_A", "kline_data", "node_B", "price_input"),)
    assert spec.config == {"id": "btc", **SEED}


def test_every_field() -> None:
    document: dict[str, Any] = {
        "id": "every",
        "description": "everything",
        "schedule": {
            "interval": "5m",
            "anchor": "2026-11-16T08:00:00Z",
            "misfire": "all",
            "overlap": "cancel_previous",
            "grace": "2s",
        },
        "cycle_timeout": "10m",
        "signal_ttl": 30,
        "max_failures": 3,
        "on_failure": "stop_flow",
        "webhook": True,
        "triggers": [{"type": "point", "address": "comsrv:1:m:2", "above": 5}],
        "nodes": [
            {
                "id": "a",
                "type": "constant",
                "config": {"value": 1},
                "inputs": {"x": None},
                "trigger_rule": "all_done",
                "timeout": "1.5s",
                "retries": 2,
                "backoff": 0,
                "labels": ["gpu", "gpu"],
                "priority": "high",
                "external": ["go"],
            }
        ],
        "edges": [],
    }
    spec = parse_flow(document)
    assert spec.schedule == ScheduleSpec(
        interval_ms=300_000,
        anchor_ms=from_iso("2026-11-16T08:00:00Z"),
        misfire="all",
        overlap="cancel_previous",
        grace_s=2,
    )
    assert (spec.cycle_timeout_s, spec.signal_ttl_s, spec.max_failures) == (600, 30, 3)
    assert (spec.on_failure, spec.webhook, spec.triggers) == ("stop_flow", True, tuple(document["triggers"]))
    assert spec.nodes[0] == NodeSpec(
        id="a",
        type="constant",
        config={"value": 1},
        inputs={"x": None},
        trigger_rule=TriggerRule.ALL_DONE,
        timeout_s=1.5,
        retries=2,
        backoff_s=0,
        labels=("gpu",),
        priority="high",
        external=("go",),
    )
    assert parse_flow(spec.config) == spec
    assert codec.decode(codec.encode(spec.config)) == spec.config


SCHEDULES: list[tuple[dict[str, Any], ScheduleSpec]] = [
    ({"interval": 0}, ScheduleSpec()),
    ({"interval": "0"}, ScheduleSpec()),
    ({"interval": "once"}, ScheduleSpec()),
    ({"interval": 0.5}, ScheduleSpec(interval_ms=500)),
    ({"interval": "*/5 * * * *"}, ScheduleSpec(cron="*/5 * * * *")),
    ({"schedule": {"cron": "0 8 * * 1-5"}}, ScheduleSpec(cron="0 8 * * 1-5")),
    ({"schedule": {"once": True}}, ScheduleSpec()),
    ({"schedule": {"manual": True}}, ScheduleSpec(manual=True)),
    ({"interval": 60, "schedule": {"interval": "1m", "misfire": "skip"}}, ScheduleSpec(60_000, misfire="skip")),
    ({"interval": 60, "schedule": {"anchor": 1_700_000_000_000}}, ScheduleSpec(60_000, anchor_ms=1_700_000_000_000)),
    ({"interval": 60, "schedule": {"manual": False, "cron": None}}, ScheduleSpec(60_000)),
]


@pytest.mark.parametrize(("fields", "schedule"), SCHEDULES, ids=lambda v: str(v)[:40])
def test_schedules(fields: dict[str, Any], schedule: ScheduleSpec) -> None:
    document = flow(**fields) if "interval" in fields else {k: v for k, v in flow(**fields).items() if k != "interval"}
    spec = parse_flow(document)
    assert spec.schedule == schedule
    assert parse_flow(spec.config) == spec


BAD: list[tuple[Any, dict[str, str]]] = [
    (None, {"$": "not_an_object"}),
    ([], {"$": "not_an_object"}),
    ({}, {"id": "missing_id", "interval": "missing_interval", "nodes": "missing_nodes"}),
    (flow(interval=None), {"interval": "missing_interval"}),
    (flow(interval=-1), {"interval": "bad_interval"}),
    (flow(interval=True), {"interval": "bad_interval"}),
    (flow(interval="61 * * * *"), {"interval": "bad_cron"}),
    (flow(schedule="30s"), {"schedule": "not_an_object"}),
    (flow(schedule={"cron": "0 8 * * *"}), {"schedule": "two_schedules"}),
    (flow(schedule={"manual": True}), {"schedule": "two_schedules"}),
    (flow(schedule={"manual": "yes", "once": 1}), {"schedule.manual": "not_a_bool", "schedule.once": "not_a_bool"}),
    (flow(schedule={"anchor": "monday"}), {"schedule.anchor": "bad_time"}),
    (flow(schedule={"anchor": 10**14}), {"schedule.anchor": "bad_time"}),
    (flow(schedule={"misfire": "never"}), {"schedule.misfire": "bad_misfire"}),
    (flow(schedule={"overlap": []}), {"schedule.overlap": "bad_overlap"}),
    (flow(schedule={"grace": "soon"}), {"schedule.grace": "bad_duration"}),
    (flow(schedule={"mis_fire": "all"}), {"schedule.mis_fire": "unknown_field"}),
    (flow(id="a b"), {"id": "bad_id"}),
    (flow(id="dead"), {"id": "bad_id"}),
    (flow(id=5), {"id": "bad_id"}),
    (flow(nodes=[]), {"nodes": "missing_nodes"}),
    (flow(nodes={"a": 1}), {"nodes": "not_a_list"}),
    (flow(nodes=["a", {}]), {"nodes[0]": "not_an_object", "nodes[1].id": "bad_id", "nodes[1].type": "bad_type"}),
    (node(id="a.b"), {"nodes[0].id": "bad_id"}),
    (node(id="x" * 65), {"nodes[0].id": "bad_id"}),
    (node(type="a.b"), {"nodes[0].type": "bad_type"}),
    (node(config=[1]), {"nodes[0].config": "not_an_object"}),
    (node(inputs=[1]), {"nodes[0].inputs": "not_an_object"}),
    (node(inputs={"a b": 1}), {'nodes[0].inputs["a b"]': "bad_handle"}),
    (node(trigger_rule="always"), {"nodes[0].trigger_rule": "bad_trigger_rule"}),
    (node(timeout="5x", backoff=-1), {"nodes[0].timeout": "bad_duration", "nodes[0].backoff": "bad_duration"}),
    (node(retries=1.5), {"nodes[0].retries": "out_of_range"}),
    (node(retries=True), {"nodes[0].retries": "out_of_range"}),
    (node(retries=1000), {"nodes[0].retries": "out_of_range"}),
    (node(labels="gpu", external=[1]), {"nodes[0].labels": "bad_words", "nodes[0].external": "bad_words"}),
    (node(labels=[str(i) for i in range(21)]), {"nodes[0].labels": "too_many"}),
    (node(priority="urgent"), {"nodes[0].priority": "bad_priority"}),
    (node(triger_rule="all_done"), {"nodes[0].triger_rule": "unknown_field"}),
    (node(config={"x": [1, {"y": float("nan")}]}), {"nodes[0].config.x[1].y": "not_finite"}),
    (node(config={"x": object()}), {"$": "not_json"}),
    (node(config={"x": "\ud800"}), {"$": "not_json"}),
    (flow(edges={}), {"edges": "not_a_list"}),
    (flow(edges=[1]), {"edges[0]": "not_an_object"}),
    (
        flow(edges=[{"source": "a", "target": 5, "sourcehandle": "x"}]),
        {
            "edges[0].sourcehandle": "unknown_field",
            "edges[0].source_handle": "missing_field",
            "edges[0].target": "bad_id",
            "edges[0].target_handle": "missing_field",
        },
    ),
    (
        flow(edges=[{"source": "a", "sourceHandle": "x", "target": "a", "target_handle": "y", "targetHandle": "z"}]),
        {"edges[0].target_handle": "both_given"},
    ),
    (flow(webhook="yes"), {"webhook": "not_a_bool"}),
    (flow(description=5), {"description": "bad_text"}),
    (flow(max_failures=-1), {"max_failures": "out_of_range"}),
    (flow(on_failure="explode"), {"on_failure": "bad_on_failure"}),
    (flow(cycle_timeout="x", signal_ttl=None), {"cycle_timeout": "bad_duration"}),
    (flow(triggers={}), {"triggers": "not_a_list"}),
    (flow(triggers=[1, {"type": "moon"}]), {"triggers[0]": "not_an_object", "triggers[1].type": "unknown_trigger"}),
    (flow(intervall=5), {"intervall": "unknown_field"}),
]


@pytest.mark.parametrize(("document", "expected"), BAD, ids=lambda v: repr(v)[:60])
def test_what_is_wrong_is_told_with_its_place(document: Any, expected: dict[str, str]) -> None:
    assert problems(document) == expected


def test_all_problems_come_at_once() -> None:
    found = problems({"id": "f", "interval": "x", "nodes": [{"id": "?"}, {"type": 5}], "edges": [{}], "wat": 1})
    assert len(found) == 10


def test_a_misspelt_word_is_guessed() -> None:
    _, found = read_flow(node(triger_rule="all_done"))
    assert 'did you mean "trigger_rule"?' in found[0].hint


def test_one_problem_speaks_for_the_error() -> None:
    with pytest.raises(Invalid) as caught:
        parse_flow(flow(interval=None))
    assert caught.value.code == "missing_interval"
    assert "interval" in caught.value.message


def test_thousands_of_misspelt_words_take_no_time_to_guess() -> None:
    _, found = read_flow(flow(nodes=[{"id": f"n{i}", "type": "t", f"tipe{i}": 1} for i in range(5000)]))
    assert found.total == 5000


def test_the_address_stands_in_for_the_id_and_must_agree() -> None:
    document = flow()
    assert parse_flow(document, flow_id="f").id == "f"
    assert problems(document, flow_id="g") == {"id": "id_mismatch"}
    del document["id"]
    assert parse_flow(document, flow_id="g").config["id"] == "g"
    assert problems(document, flow_id="a b") == {"id": "bad_id"}


def test_camel_case_handles_are_the_same() -> None:
    document = copy.deepcopy(SEED)
    edge = document["edges"][0]
    edge["sourceHandle"], edge["targetHandle"] = edge.pop("source_handle"), edge.pop("target_handle")
    edge["id"] = "reactflow__edge-1"
    assert parse_flow(document, flow_id="btc") == parse_flow(SEED, flow_id="btc")
    edge["source_handle"] = edge["sourceHandle"]
    assert parse_flow(document, flow_id="btc") == parse_flow(SEED, flow_id="btc")


def test_extension_keys_are_left_out() -> None:
    assert parse_flow(flow(**{"x-owner": "ops"})) == parse_flow(flow())


def test_the_spec_does_not_change_with_its_source() -> None:
    document = node(config={"deep": [1]})
    spec = parse_flow(document)
    document["nodes"][0]["config"]["deep"].append(2)
    assert spec.nodes[0].config == spec.config["nodes"][0]["config"] == {"deep": [1]}


def full(**node_fields: Any) -> dict[str, Any]:
    """As a graphical editor saves it."""
    second: dict[str, Any] = {
        "id": "ma",
        "type": "moving_average",
        "position": {"x": 300, "y": 0.5},
        "selected": True,
        "width": 200,
        "data": {
            "label": "Mean",
            "config": {"mode": "simple"},
            "inputs": [
                {"id": "price", "value": 99.0, "type": "number"},
                {"name": "window", "value": 20},
                {"handle": "volume", "value": None},
            ],
            "outputs": [{"id": "average"}],
        },
        **node_fields,
    }
    return {
        "id": "0a1b.not-ours",
        "name": "My flow",
        "viewport": {"x": 0, "y": 0, "zoom": 1},
        "interval": "1m",
        "nodes": [
            {"id": "src", "position": {"x": 0, "y": 0}, "data": {"type": "constant", "inputs": {"value": 5}}},
            second,
        ],
        "edges": [
            {
                "id": "e1",
                "source": "src",
                "sourceHandle": "value",
                "target": "ma",
                "targetHandle": "price",
                "animated": True,
                "type": "smoothstep",
                "markerEnd": {"type": "arrow"},
            }
        ],
    }


def test_the_full_form_gives_the_plain_one() -> None:
    spec = parse_flow(full(), flow_id="f")
    assert spec.config == {
        "id": "f",
        "interval": "1m",
        "nodes": [
            {"id": "src", "type": "constant", "config": {"value": 5}},
            {"id": "ma", "type": "moving_average", "config": {"mode": "simple", "window": 20}},
        ],
        "edges": [{"source": "src", "source_handle": "value", "target": "ma", "target_handle": "price"}],
    }
    assert parse_flow(spec.config) == spec


def test_the_full_form_keeps_our_fields_and_reports_misspelt_ones() -> None:
    assert parse_flow(full(timeout="5s", dragging=False), flow_id="f").nodes[1].timeout_s == 5
    assert problems(full(triger_rule="all_done"), flow_id="f") == {"nodes[1].triger_rule": "unknown_field"}
    assert problems(full(), flow_id=None) == {"id": "bad_id"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"inputs": 5}, {"nodes[1].data.inputs": "not_a_list"}),
        ({"inputs": [5]}, {"nodes[1].data.inputs[0]": "not_an_object"}),
        ({"inputs": [{"value": 1}]}, {"nodes[1].data.inputs[0].id": "missing_field"}),
        ({"config": [], "inputs": [{"id": "a", "value": 1}]}, {"nodes[1].config": "not_an_object"}),
        ({"config": {"a": 2}, "inputs": [{"id": "a", "value": 1}]}, {"nodes[1].data.config.a": "both_given"}),
    ],
)
def test_bad_data_of_the_full_form(data: dict[str, Any], expected: dict[str, str]) -> None:
    assert problems(full(data=data), flow_id="f") == expected


words = st.text("ab_-.é ", max_size=3) | st.sampled_from(["a", "b", "constant", "all_done", "30s", "once"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1000) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
node_docs = st.fixed_dictionaries(
    {"id": st.sampled_from("abc"), "type": st.sampled_from(["constant", "log"])},
    optional={name: values for name in sorted(NODE_FIELDS - {"id", "type"} | {"data", "position"})},
)
flow_docs = st.fixed_dictionaries(
    {"id": st.just("f"), "interval": st.sampled_from([0, "5m", "* * * * *"]) | values},
    optional={
        "nodes": st.lists(node_docs | values, max_size=3) | values,
        "edges": st.lists(
            st.dictionaries(st.sampled_from(["source", "sourceHandle", "target", "target_handle"]), words), max_size=2
        ),
        **{name: values for name in sorted(FLOW_FIELDS - {"id", "interval", "nodes", "edges"} | {"viewport"})},
    },
)


@given(flow_docs | values)
def test_any_document_gives_a_flow_or_problems_and_its_plain_form_the_same_flow(document: Any) -> None:
    spec, found = read_flow(document)
    if found:
        assert all(problem.code and problem.path and problem.hint for problem in found)
    else:
        assert spec is not None
        assert parse_flow(spec.config) == spec


YAML = """\
# prices, every minute
id: btc
interval: 1m
x-defaults: &defaults
  retries: 2
  timeout: 5s
nodes:
  - {id: on, type: constant, config: {value: 1e3, note: 2026-11-16, no: no, at: 1:30, 1: 007}, <<: *defaults}
  - id: ma
    type: moving_average
    <<: *defaults
edges:
  - {source: on, source_handle: value, target: ma, target_handle: price}
"""


def test_yaml_has_no_surprises() -> None:
    spec = parse_flow(read_text(YAML, "btc.yaml"))
    assert spec.nodes[0].id == "on"
    assert spec.nodes[0].config == {
        "value": 1000.0, "note": "2026-11-16", "no": "no", "at": "1:30", "1": "007",
    }  # fmt: skip
    assert [n.retries for n in spec.nodes] == [2, 2]
    assert read_text(YAML.encode(), "") == read_text(YAML)


def test_yaml_scalars() -> None:
    text = "a: [1, -2, 0x1F, 1.5, .5, true, False, null, ~, '', yes, 1_000, +3]"
    assert read_text(text)["a"] == [1, -2, 31, 1.5, 0.5, True, False, None, None, "", "yes", "1_000", 3]


def test_json_is_read_by_name_or_by_look() -> None:
    text = json.dumps(SEED, indent=1)
    assert read_text(text) == read_text("\ufeff" + text, "flow.json") == read_text(text, "flow.yaml") == SEED


@pytest.mark.parametrize(
    ("text", "filename", "code", "where"),
    [
        ('{"a": 1,\n  "b" 2}', "f.json", "bad_json", "line 2, column 7"),
        ("a: 1\nb: [1, 2\nc: 3\n", "f.yaml", "bad_yaml", "line 3, column 2"),
        ("a: *nope", "", "bad_yaml", "line 1, column 4"),
        ("a: 1\nb: 2\na: 3", "", "doubled_key", "line 3, column 1"),
        ('{"a": 1, "a": 2}', "", "doubled_key", "'a'"),
        ('{"a": NaN}', "", "not_finite", "NaN"),
        ("a: !!python/object/apply:os.system [ls]", "", "bad_yaml", "line 1"),
        ("a: !!binary aGk=", "", "bad_yaml", "line 1"),
        ("a: \ud800", "", "bad_yaml", "surrogates"),
        ("? [1, 2]\n: 3", "", "bad_yaml", "a key must be text"),
        ("a: &x [*x]", "", "bad_yaml", "holds itself"),
        ("a: 1\nébé: \x01", "", "bad_yaml", "line 2, column 6"),
        ("", "", "not_an_object", "nothing"),
        ("- 1", "f.yml", "not_an_object", "a list"),
        ("a: 1\n---\nb: 2", "", "bad_yaml", "line 2"),
        (b"\xff\xfe", "", "bad_text", "byte 0"),
        ("[" * 100_000, "f.json", "bad_json", ""),
        ("[" * 100_000, "f.yaml", "bad_yaml", ""),
        ("a: " + "1" * 5000, "", "bad_yaml", "digits"),
        ('{"a": ' + "1" * 5000 + "}", "", "bad_json", "digits"),
    ],
    ids=lambda v: repr(v)[:20],
)
def test_text_that_cannot_be_read_says_where(text: str | bytes, filename: str, code: str, where: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_text(text, filename)
    assert caught.value.code == code
    assert where in caught.value.message


def test_aliases_of_aliases_do_not_blow_up() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(Invalid, match="aliases"):
        read_text("\n".join(lines))
    merges = ["a0: &a0 {x: 1, y: 2}"]
    merges += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 12)]
    with pytest.raises(Invalid, match="aliases"):
        read_text("\n".join(merges))
