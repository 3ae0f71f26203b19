"""Definitions: the seed's form, every problem at once with code, path and hint, circles with their path, units."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models.examples import energy, seed, total
from tradewind.models.check import check_model, read_models
from tradewind.models.document import read_model
from tradewind.models.spec import Calculation, Input, Output


def problems_of(document: Any, templates: Any = None, **others: Any) -> list[tuple[str, str]]:
    name = document.get("name", "x") if isinstance(document, dict) else "x"
    found = read_models({name: document, **others}, templates or {})[1]
    return [(problem.code, problem.path.removeprefix(f"{name}.")) for problem in found]


def test_the_form_of_the_seed_is_read() -> None:
    spec, problems = read_model(seed())
    assert not problems and spec is not None
    assert (spec.name, spec.title) == ("power_meter", "功率计算模型")
    assert spec.inputs == (Input("voltage", "comsrv:1001:m:10001"), Input("current", "comsrv:1001:m:10002"))
    assert spec.calculations[1] == Calculation("real_power", "scale", ("apparent_power",), {"factor": 0.95})
    assert spec.outputs == (Output("total_power", "real_power"),)
    assert check_model(spec) == []


def test_everything_of_our_form_is_read() -> None:
    document = {
        "name": "plant",
        "description": "a plant",
        "properties": {"rated": 50},
        "inputs": [
            {"name": "a", "source": "comsrv:1:m:1", "default": 0, "max_age": "5m", "unit": "kW"},
            {"name": "b", "source": {"model": "other", "field": "total"}, "max_age": 30},
        ],
        "calculations": [{"id": "load", "expression": "(a + b) / rated"}],
        "outputs": [{"field": "load", "source": "load", "unit": "1", "min": 0, "max": 2, "deadband": 0.01}],
        "controls": {"limit": {"address": "comsrv:1:a:7", "min": 0, "max": 50, "step": 0.5, "unit": "kW"}},
    }
    specs, problems = read_models({"plant": document, "other": total("other")}, {})
    assert problems == []
    spec = specs["plant"]
    assert spec.inputs[0] == Input("a", "comsrv:1:m:1", 0.0, 300.0, "kW")
    assert spec.inputs[1] == Input("b", "modsrv:other:measurement:total", None, 30.0)
    assert spec.controls[0].step == 0.5 and spec.outputs[0].deadband == 0.01


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"name": "a b"}, "bad_name", "name"),
        ({"name": "status"}, "bad_name", "name"),
        ({"name": None}, "missing_field", "name"),
        ({"colour": 1}, "unknown_field", "colour"),
        ({"inputs": 3}, "wrong_type", "inputs"),
        ({"inputs": [3]}, "wrong_type", "inputs[0]"),
        ({"inputs": [{"name": "p0", "source": "comsrv:x:m:1"}]}, "bad_address", "inputs[0].source"),
        ({"inputs": [{"name": "p0"}]}, "missing_field", "inputs[0].source"),
        ({"inputs": [{"name": "p0", "source": {"model": "ghost", "field": "f"}}]}, "unknown_model", "inputs[0].source"),
        (
            {"inputs": [{"name": "p0", "source": "comsrv:1:m:1", "max_age": "soon"}]},
            "bad_duration",
            "inputs[0].max_age",
        ),
        ({"inputs": [{"name": "p0", "source": "comsrv:1:m:1", "default": "x"}]}, "wrong_type", "inputs[0].default"),
        ({"outputs": []}, "missing_field", "outputs"),
        ({"outputs": [{"field": "t", "source": "nothing"}]}, "missing_input", "outputs[0].source"),
        ({"outputs": [{"field": "t", "source": "all", "min": 2, "max": 1}]}, "out_of_range", "outputs[0].min"),
        ({"outputs": [{"field": "t", "source": "all", "deadband": -1}]}, "out_of_range", "outputs[0].deadband"),
        ({"outputs": [{"field": "t", "source": "all"}] * 2}, "duplicate_name", "outputs[1].field"),
        ({"outputs": [{"field": "t", "source": "all", "target": "x"}]}, "bad_target", "outputs[0].target"),
        ({"controls": {"x": {"address": "nowhere"}}}, "bad_address", "controls.x.address"),
        ({"controls": {"x": {"maximum": 3}}}, "unknown_field", "controls.x.maximum"),
        ({"properties": {"p0": 3}}, "duplicate_name", "properties.p0"),
        ({"template": "none"}, "unknown_template", "template"),
    ],
)
def test_a_problem_has_a_code_and_a_path(change: dict[str, Any], code: str, path: str) -> None:
    assert (code, path) in problems_of({**total(points=1), **change})


@pytest.mark.parametrize(
    ("calculation", "code", "path"),
    [
        ({"function": "sun", "inputs": ["p0"]}, "unknown_function", "function"),
        ({"function": "sum", "inputs": ["p9"]}, "missing_input", "inputs[0]"),
        ({"function": "sum", "inputs": []}, "wrong_inputs", "inputs"),
        ({"function": "divide", "inputs": ["p0"]}, "wrong_inputs", "inputs"),
        ({"function": "scale", "inputs": ["p0"], "params": {"faktor": 2}}, "unknown_param", "params.faktor"),
        ({"function": "scale", "inputs": ["p0"], "params": {"factor": "2"}}, "bad_param", "params.factor"),
        ({"function": "clamp", "inputs": ["p0"]}, "missing_param", "params"),
        ({"function": "clamp", "inputs": ["p0"], "params": {"min": 2, "max": 1}}, "bad_param", "params.min"),
        ({"function": "constant"}, "missing_param", "params.value"),
        ({"function": "window_min", "inputs": ["p0"], "params": {"window_s": 0}}, "bad_param", "params.window_s"),
        ({"function": "moving_average", "inputs": ["p0"], "params": {"window": 1.5}}, "bad_param", "params.window"),
        ({"function": "integrate", "inputs": ["p0"], "params": {"per": "day"}}, "bad_param", "params.per"),
        ({"expression": "p0 +"}, "bad_syntax", "expression"),
        ({"expression": "p0 + nothing"}, "unknown_name", "expression"),
        ({"expression": "p0", "function": "sum"}, "two_functions", ""),
        ({"inputs": ["p0"]}, "missing_field", "function"),
        ({"function": "sum", "inputs": ["all"]}, "cycle", None),
    ],
)
def test_a_bad_calculation_is_named(calculation: dict[str, Any], code: str, path: str | None) -> None:
    document = {**total(points=1), "calculations": [{"id": "all", **calculation}]}
    found = problems_of(document)
    assert len(found) == 1, found
    wanted = "calculations.all" if path is None else f"calculations[0].{path}".rstrip(".")
    if code in ("bad_syntax", "unknown_name"):
        assert found[0][1] == wanted
    else:
        assert found == [(code, wanted)]


def test_all_problems_come_at_once() -> None:
    document = {
        "name": "bad",
        "inputs": [{"name": "a", "source": "nowhere"}, {"name": "a", "source": "comsrv:1:m:1"}],
        "calculations": [
            {"id": "x", "function": "sun", "inputs": ["b"]},
            {"id": "y", "function": "sum", "inputs": ["z"]},
            {"id": "z", "function": "sum", "inputs": ["y"]},
        ],
        "outputs": [{"field": "o", "source": "q"}],
    }
    assert {code for code, _ in problems_of(document)} == {
        "bad_address", "duplicate_name", "unknown_function", "missing_input", "cycle",
    }  # fmt: skip


def test_a_circle_is_shown_as_a_path() -> None:
    document = total(points=1)
    document["calculations"] = [
        {"id": "all", "function": "sum", "inputs": ["c"]},
        {"id": "b", "function": "sum", "inputs": ["all"]},
        {"id": "c", "function": "sum", "inputs": ["b", "p0"]},
    ]
    (problem,) = read_models({"total": document}, {})[1]
    assert problem.hint.endswith("all → c → b → all")


def test_a_circle_over_models_is_shown_as_a_path() -> None:
    def reads(name: str, other: str) -> dict[str, Any]:
        return energy(name, {"model": other, "field": "energy"})

    specs = {"a": reads("a", "b"), "b": reads("b", "c"), "c": reads("c", "a"), "d": reads("d", "a")}
    (problem,) = read_models(specs, {})[1]
    assert problem.code == "cycle" and problem.hint.endswith("a → b → c → a")


def test_a_chain_of_ten_thousand_calculations_is_no_trouble() -> None:
    chain = [{"id": f"c{i}", "function": "abs", "inputs": [f"c{i - 1}" if i else "p0"]} for i in range(10_000)]
    document = {**total(points=1), "calculations": chain, "outputs": [{"field": "end", "source": "c9999"}]}
    assert problems_of(document) == []


def test_units_that_do_not_fit_are_named_where_they_are_known() -> None:
    document = total()
    document["inputs"][0]["unit"], document["inputs"][1]["unit"] = "kW", "W"
    assert problems_of(document) == [("unit_mismatch", "calculations[0].inputs")]
    document["inputs"][1]["unit"] = "kW"
    document["outputs"][0]["unit"] = "kWh"
    assert problems_of(document) == [("unit_mismatch", "outputs[0].unit")]
    del document["inputs"][1]["unit"]
    assert problems_of(document) == [], "of one input it is not known"
    meter = energy()
    meter["inputs"][0]["unit"] = "kW"
    assert problems_of(meter) == []
    meter["inputs"][0]["unit"] = "MW"
    assert problems_of(meter) == [("unit_mismatch", "outputs[0].unit")]
    found = read_models({"total": total()}, {}, {"comsrv:1001:m:1": "A", "comsrv:1001:m:2": "V"})[1]
    assert [problem.code for problem in found] == ["unit_mismatch"]


def test_units_between_models_must_fit() -> None:
    user = energy("user", {"model": "meter", "field": "energy"})
    user["inputs"][0]["unit"] = "kW"
    assert problems_of(user, meter=energy()) == [("unit_mismatch", "inputs[0].unit")]


def test_two_targets_are_two_models() -> None:
    document = seed()
    document["outputs"].append({"name": "x", "target": "modsrv:other:measurement", "source": "real_power"})
    assert ("two_targets", "outputs[1].target") in [(p.code, p.path) for p in read_model(document)[1]]


def test_a_field_that_a_model_has_not_is_named() -> None:
    assert problems_of(energy("user", {"model": "meter", "field": "energie"}), meter=energy()) == [
        ("unknown_field", "inputs[0].source")
    ]


@pytest.mark.parametrize("rubbish", [None, 3, [], "text", {"name": {}}, {"name": "x", "outputs": {}, "inputs": [None]}])
def test_rubbish_is_refused_without_an_exception(rubbish: Any) -> None:
    assert read_models({"x": rubbish}, {})[1]
