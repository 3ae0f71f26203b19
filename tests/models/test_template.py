"""Templates: properties with types, filled in everywhere; all problems at once."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.models.check import read_models
from tradewind.models.template import check_template

PV_STRING: dict[str, Any] = {
    "name": "pv_string",
    "properties": {
        "channel": {"type": "integer", "min": 1},
        "point": {"type": "integer"},
        "rated_kw": {"type": "number", "default": 10.0, "min": 0.1, "max": 1000},
        "window": {"type": "integer", "default": 5},
        "unit": {"type": "text", "default": "kW", "choices": ["kW", "W"]},
    },
    "description": "string {name} of channel {channel}",
    "inputs": [{"name": "power", "source": "comsrv:{channel}:m:{point}", "unit": "{unit}"}],
    "calculations": [
        {"id": "smooth", "function": "moving_average", "inputs": ["power"], "params": {"window": "{window}"}},
        {"id": "load", "expression": "smooth / rated_kw"},
        {"id": "twice", "expression": "smooth * {window} / {window}"},
    ],
    "outputs": [
        {"field": "power", "source": "smooth", "max": "{rated_kw}"},
        {"field": "load", "source": "load"},
        {"field": "twice", "source": "twice"},
    ],
    "controls": {"limit": {"address": "comsrv:{channel}:a:1", "max": "{rated_kw}"}},
}


def instance(**properties: Any) -> dict[str, Any]:
    return {"name": "pv1", "template": "pv_string", "properties": properties}


def read(document: Any, template: Any = PV_STRING) -> Any:
    return read_models({"pv1": document}, {"pv_string": template})


def test_an_instance_is_filled_in_with_types() -> None:
    specs, problems = read(instance(channel=1001, point=3, rated_kw=5))
    assert problems == []
    spec = specs["pv1"]
    assert spec.inputs[0].address == "comsrv:1001:m:3" and spec.inputs[0].unit == "kW"
    assert spec.calculations[0].params == {"window": 5}
    assert spec.outputs[0].max == 5 and spec.controls[0].max == 5
    assert spec.description == "string pv1 of channel 1001"
    assert spec.properties == {"channel": 1001, "point": 3, "rated_kw": 5, "window": 5, "unit": "kW"}
    assert spec.template == "pv_string"


@pytest.mark.parametrize(
    ("properties", "code", "path"),
    [
        ({"channel": 1}, "missing_property", "pv1.properties.point"),
        ({"channel": 1, "point": 1, "colour": 3}, "unknown_property", "pv1.properties.colour"),
        ({"channel": "one", "point": 1}, "wrong_type", "pv1.properties.channel"),
        ({"channel": 1.5, "point": 1}, "wrong_type", "pv1.properties.channel"),
        ({"channel": True, "point": 1}, "wrong_type", "pv1.properties.channel"),
        ({"channel": 0, "point": 1}, "out_of_range", "pv1.properties.channel"),
        ({"channel": 1, "point": 1, "unit": "MW"}, "out_of_range", "pv1.properties.unit"),
    ],
)
def test_a_bad_property_is_named(properties: dict[str, Any], code: str, path: str) -> None:
    assert [(p.code, p.path) for p in read(instance(**properties))[1]] == [(code, path)]


def test_all_bad_properties_come_at_once() -> None:
    found = read(instance(channel="x", colour=1))[1]
    assert {p.code for p in found} == {"wrong_type", "unknown_property", "missing_property"}


def test_an_instance_has_no_parts_of_its_own() -> None:
    document = {**instance(channel=1, point=1), "inputs": []}
    assert [p.code for p in read(document)[1]] == ["not_of_an_instance"]


def test_a_template_is_checked_before_it_has_instances() -> None:
    assert check_template(PV_STRING) == []
    bad = {
        "name": "bad one",
        "properties": {"n": {"type": "colour"}, "m": {"type": "integer", "default": "x"}, "name": {}},
        "inputs": [{"name": "a", "source": "comsrv:{chanel}:m:1"}],
        "more": 1,
    }
    found = {(p.code, p.path) for p in check_template(bad)}
    assert found == {
        ("unknown_field", "more"),
        ("bad_name", "name"),
        ("unknown_type", "properties.n.type"),
        ("wrong_type", "properties.m.default"),
        ("bad_name", "properties.name"),
        ("unknown_property", "inputs[0].source"),
        ("missing_field", "outputs"),
    }


def test_properties_may_be_a_list_or_bare_defaults() -> None:
    as_list = {**PV_STRING, "properties": [{"name": k, **v} for k, v in PV_STRING["properties"].items()]}
    assert check_template(as_list) == []
    assert read(instance(channel=1, point=1), as_list)[1] == []
    bare = {**PV_STRING, "properties": {**PV_STRING["properties"], "window": 7}}
    assert read(instance(channel=1, point=1), bare)[0]["pv1"].calculations[0].params == {"window": 7}


def test_a_model_may_use_its_own_properties() -> None:
    document = {
        "name": "m",
        "properties": {"channel": 7, "gain": 2.5},
        "inputs": [{"name": "a", "source": "comsrv:{channel}:m:1"}],
        "calculations": [{"id": "b", "function": "multiply", "inputs": ["a", "gain"]}],
        "outputs": [{"field": "b", "source": "b"}],
    }
    specs, problems = read_models({"m": document}, {})
    assert problems == [] and specs["m"].inputs[0].address == "comsrv:7:m:1"
    document["inputs"] = [{"name": "a", "source": "comsrv:{chanel}:m:1"}]
    assert "unknown_property" in {p.code for p in read_models({"m": document}, {})[1]}
