from __future__ import annotations

import time
from typing import Any

import pytest

from tradewind.errors import Problem
from tradewind.flows.check import check_flow, validate
from tradewind.flows.handles import can_feed, fits
from tradewind.flows.spec import Handle, NodeType
from tradewind.flows.syntax import parse_flow

Json = dict[str, Any]


def schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "additionalProperties": False}


TYPES = {
    described.type: described
    for described in [
        NodeType("constant", outputs=(Handle("value"),), config_schema=schema(value={})),
        NodeType(
            "price",
            outputs=(Handle("price", "float", unit="kW"), Handle("count", "int"), Handle("name", "str")),
            config_schema={**schema(symbol={"type": "string", "minLength": 1}), "required": ["symbol"]},
        ),
        NodeType(
            "moving_average",
            inputs=(
                Handle("price", "float"),
                Handle("volume", "float", required=False, default=0.0),
                Handle("scale", "int|float", required=False),
                Handle("override", "float", external=True),
            ),
            outputs=(Handle("average", "float", unit="kW"),),
            config_schema=schema(
                window={"type": "integer", "minimum": 1},
                weights={"type": "array", "items": {"type": "number"}},
                mode={"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]},
            ),
        ),
        NodeType(
            "collect", inputs=(Handle("many", "dict", aggregate=True, unit="kW"),), outputs=(Handle("all", "dict"),)
        ),
        NodeType("sink", inputs=(Handle("power", "float", unit="MW"), Handle("text", "str", required=False))),
        NodeType(
            "expression",
            open_inputs=True,
            open_outputs=True,
            config_schema={**schema(expression={"type": "string"}), "required": ["expression"]},
        ),
        NodeType("loose", inputs=(Handle("x", required=False),), outputs=(Handle("x"),), open_outputs=True),
        NodeType("broken", config_schema={"type": "nonsense"}),
        NodeType("pattern", config_schema={"properties": {"x": {"type": "string", "pattern": "["}}}),
        NodeType("some", config_schema={"type": "object", "minProperties": 1}),
        NodeType("remote", config_schema={"$ref": "http://127.0.0.1:1/schema.json"}),
    ]
}


def edge(text: str) -> Json:
    """`a.x > b.y`"""
    source, target = text.split(" > ")
    (a, x), (b, y) = source.split("."), target.split(".")
    return {"source": a, "source_handle": x, "target": b, "target_handle": y}


def flow(nodes: list[Json], *edges: str) -> Json:
    return {"id": "f", "interval": 0, "nodes": nodes, "edges": [edge(text) for text in edges]}


def found(document: Json) -> list[Problem]:
    return check_flow(parse_flow(document), TYPES, max_nodes=100)


def codes(document: Json) -> dict[str, str]:
    problems = found(document)
    assert all(problem.hint for problem in problems)
    assert len({(problem.code, problem.path) for problem in problems}) == len(problems)
    return {problem.path: problem.code for problem in problems}


P = {"id": "p", "type": "price", "config": {"symbol": "BTC"}}
MA = {"id": "ma", "type": "moving_average"}
FED = "p.price > ma.price"


def ma(**fields: Any) -> Json:
    return flow([P, {**MA, **fields}], FED)


GOOD: list[Json] = [
    flow([P, MA], FED),
    flow([P, {**MA, "config": {"window": 3, "volume": 2, "scale": 1.5}}], FED),
    flow([{**MA, "inputs": {"price": 1}}]),
    flow([{**MA, "config": {"price": 1.5}}]),
    flow([{**MA, "external": ["price"]}]),
    flow([P, {**MA, "config": {"price": 2}}], FED),
    flow([P, MA], "p.count > ma.price"),
    flow([{"id": "c", "type": "constant", "config": {"value": "x"}}, MA], "c.value > ma.price"),
    flow(
        [P, MA, {"id": "all", "type": "collect"}],
        FED,
        "p.price > all.many",
        "ma.average > all.many",
        "p.count > all.many",
    ),
    flow([{**MA, "inputs": {"price": 1, "volume": None}}]),
    flow(
        [
            P,
            {"id": "e", "type": "expression", "config": {"expression": "a+b"}, "inputs": {"b": "?"}, "external": ["c"]},
        ],
        "p.name > e.a",
    ),
    flow([{"id": "l", "type": "loose"}, {"id": "s", "type": "sink", "config": {"power": 1}}], "l.whatever > s.text"),
]


@pytest.mark.parametrize("document", GOOD, ids=range(len(GOOD)))
def test_good_flows(document: Json) -> None:
    assert found(document) == []


BAD: list[tuple[Json, dict[str, str]]] = [
    (flow([{"id": "a", "type": "konstant"}]), {"nodes[0].type": "unknown_type"}),
    (flow([P, {**P}]), {"nodes[1].id": "duplicate_id"}),
    (flow([P, MA], "p.prize > ma.price"), {"edges[0].source_handle": "unknown_handle"}),
    (flow([P, MA], FED, "p.price > ma.foo"), {"edges[1].target_handle": "unknown_handle"}),
    (flow([P, MA], "p.name > ma.price"), {"edges[0]": "type_mismatch"}),
    (flow([P, {"id": "s", "type": "sink"}], "p.price > s.power"), {"edges[0]": "unit_mismatch"}),
    (flow([P, MA], FED, FED), {"edges[1]": "duplicate_edge"}),
    (flow([P, MA], FED, "p.count > ma.price"), {"edges[1].target_handle": "handle_taken"}),
    (
        flow([P, {"id": "e", "type": "expression", "config": {"expression": "a"}}], "p.price > e.a", "p.name > e.a"),
        {"edges[1].target_handle": "handle_taken"},
    ),
    (
        flow([P], "p.price > x.y", "y.x > p.z"),
        {
            "edges[0].target": "unknown_node",
            "edges[1].source": "unknown_node",
            "edges[1].target_handle": "unknown_handle",
        },
    ),
    (flow([MA], "ma.average > ma.price"), {"edges[0]": "self_loop"}),
    (
        flow(
            [MA, {**MA, "id": "mb"}, {**MA, "id": "mc"}],
            "ma.average > mb.price",
            "mb.average > mc.price",
            "mc.average > ma.price",
        ),
        {"edges[2]": "cycle"},
    ),
    (flow([MA]), {"nodes[0].inputs.price": "missing_input"}),
    (ma(config={"windo": 5}), {"nodes[1].config.windo": "unknown_config"}),
    (ma(config={"window": 0}), {"nodes[1].config.window": "bad_config"}),
    (
        ma(config={"weights": [1, "2", None]}),
        {"nodes[1].config.weights[1]": "bad_config", "nodes[1].config.weights[2]": "bad_config"},
    ),
    (ma(config={"mode": "c"}), {"nodes[1].config.mode": "bad_config"}),
    (ma(config={"volume": "much"}), {"nodes[1].config.volume": "wrong_type"}),
    (ma(inputs={"volume": True}), {"nodes[1].inputs.volume": "wrong_type"}),
    (ma(inputs={"volum": 1}), {"nodes[1].inputs.volum": "unknown_handle"}),
    (ma(external=["volume", "nope"]), {"nodes[1].external[1]": "unknown_handle"}),
    (flow([{"id": "p", "type": "price"}]), {"nodes[0].config.symbol": "missing_config"}),
    (flow([{"id": "p", "type": "price", "config": {"symbol": ""}}]), {"nodes[0].config.symbol": "bad_config"}),
    (
        flow([{"id": "e", "type": "expression", "config": {"a": 1, "b c": 2}}]),
        {
            "nodes[0].config.expression": "missing_config",
            "nodes[0].config.a": "unknown_config",
            'nodes[0].config["b c"]': "unknown_config",
        },
    ),
    (flow([{"id": "b", "type": "broken"}]), {"nodes[0].config": "bad_node_type"}),
    (flow([{"id": "b", "type": "pattern", "config": {"x": "y"}}]), {"nodes[0].config": "bad_node_type"}),
    (flow([{"id": "s", "type": "some"}]), {"nodes[0].config": "bad_config"}),
    (flow([{"id": "r", "type": "remote", "config": {"x": 1}}]), {"nodes[0].config": "bad_node_type"}),
]


@pytest.mark.parametrize(("document", "expected"), BAD, ids=[str(sorted(set(e.values()))) for _, e in BAD])
def test_what_does_not_fit_is_told_with_its_place(document: Json, expected: dict[str, str]) -> None:
    assert codes(document) == expected


def hint(document: Json) -> str:
    return found(document)[0].hint


def test_hints_say_what_to_do() -> None:
    assert 'did you mean "moving_average"' in hint(flow([{"id": "a", "type": "moving_avrage"}]))
    assert 'did you mean "price"? known: count, name, price' in hint(flow([P, MA], "p.prize > ma.price"))
    assert 'did you mean "window"' in hint(ma(config={"windo": 5}))
    assert "p.price is in kW, s.power in MW" in hint(flow([P, {"id": "s", "type": "sink"}], "p.price > s.power"))
    assert "p.name gives str, ma.price takes float" in hint(flow([P, MA], "p.name > ma.price"))
    assert "give int|float, not str" in hint(ma(config={"scale": "x"}))
    assert '"inputs"' in found(flow([{"id": "e", "type": "expression", "config": {"expression": "a", "a": 1}}]))[0].hint


def test_a_cycle_is_told_with_its_path() -> None:
    nodes = [{**MA, "id": name} for name in "abc"]
    document = flow(nodes, "c.average > a.price", "a.average > b.price", "b.average > c.price")
    assert hint(document).startswith("a → b → c → a")
    many = [{**MA, "id": f"n{i}"} for i in range(90)]
    ring = [f"n{i}.average > n{(i + 1) % 90}.price" for i in range(90)]
    assert "→ (51 more) →" in hint(flow(many, *ring))


def test_each_cycle_is_told() -> None:
    nodes = [{**MA, "id": name} for name in "abcd"]
    document = flow(nodes, "a.average > b.price", "b.average > a.price", "c.average > d.price", "d.average > c.price")
    assert codes(document) == {"edges[1]": "cycle", "edges[3]": "cycle"}


def test_too_many_nodes() -> None:
    nodes = [{"id": f"n{i}", "type": "constant"} for i in range(101)]
    assert codes(flow(nodes)) == {"nodes": "too_many_nodes"}


def test_form_and_meaning_are_told_together() -> None:
    document = flow([{"id": "a b", "type": "nope"}, 5, {**MA, "retries": -1}], "a.x > ma.price")  # type: ignore[list-item]
    document["interval"] = None
    spec, problems = validate(document, TYPES)
    assert spec is None
    assert [(p.path, p.code) for p in problems] == [
        ("interval", "missing_interval"),
        ("nodes[0].id", "bad_id"),
        ("nodes[1]", "not_an_object"),
        ("nodes[2].retries", "out_of_range"),
        ("nodes[0].type", "unknown_type"),
        ("edges[0].source", "unknown_node"),
    ]


def test_broken_edges_do_not_bring_more_problems() -> None:
    document = flow([P, MA], FED)
    document["edges"] += [{"source": "p"}, {"source": "p"}, {"target": "ma", "target_handle": "price"}]
    _, problems = validate(document, TYPES)
    assert {p.code for p in problems} == {"missing_field", "handle_taken"}


def test_validate_gives_the_flow() -> None:
    document = GOOD[0]
    spec, problems = validate({k: v for k, v in document.items() if k != "id"}, TYPES, flow_id="f")
    assert problems == []
    assert spec == parse_flow(document)
    assert validate([], TYPES)[0] is None


def test_the_order_of_problems_is_stable() -> None:
    nodes: list[Json] = []
    for i in range(30):
        nodes.append({"id": f"n{i}", "type": "moving_average", "config": {"volume": "x", "scale": "y", "zzz": 1}})
    document = flow(nodes, *(f"n{i}.average > n{i * 7 % 30}.nope" for i in range(30)))
    assert [found(document) for _ in range(3)] == [found(document)] * 3


@pytest.mark.parametrize(
    ("offered", "wanted", "expected"),
    [
        ("any", "float", True),
        ("dict", "any", True),
        ("int", "float", True),
        ("float", "int", False),
        ("bool", "int", False),
        ("int|str", "str", True),
        ("int | str", "list|dict", False),
        ("int", "str|float", True),
    ],
)
def test_which_types_can_feed_which(offered: str, wanted: str, expected: bool) -> None:
    assert can_feed(offered, wanted) is expected


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (1, "float", True),
        (1.0, "int", False),
        (True, "int", False),
        (True, "bool|int", True),
        (None, "float", False),
        (None, "any", True),
        ([1], "list", True),
        ({}, "list|str", False),
        ("x", "Price", True),
    ],
)
def test_which_values_fit(value: Any, wanted: str, expected: bool) -> None:
    assert fits(value, wanted) is expected


def test_10_000_nodes_are_validated_in_linear_time() -> None:
    nodes = [{"id": f"n{i}", "type": "moving_average", "config": {"window": i + 1}} for i in range(10_000)]
    nodes[0]["inputs"] = {"price": 1.0}
    document = flow(nodes, *(f"n{i}.average > n{i + 1}.price" for i in range(9_999)))
    started = time.process_time()
    spec, problems = validate(document, TYPES)
    assert problems == []
    assert spec is not None
    assert time.process_time() - started < 10  # about 0.6 s; only a quadratic algorithm would show here


def test_10_000_wrong_nodes_are_told_in_linear_time() -> None:
    nodes = [{"id": f"n{i}", "type": f"moving{i}", "config": {}} for i in range(10_000)]
    document = flow(nodes, *(f"n{i}.x > m{i}.y" for i in range(10_000)))
    started = time.process_time()
    _, problems = validate(document, TYPES)
    assert problems.total == 20_000
    assert time.process_time() - started < 10
