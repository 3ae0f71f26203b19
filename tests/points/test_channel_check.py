"""A channel as one document: what the API takes, and what is wrong with it, all at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tradewind.errors import Invalid, Problem
from tradewind.points.channel_check import validate_channel
from tradewind.points.channel_store import channel_document, version_of
from tradewind.points.spec import ChannelSpec, Kind, PointSpec

FULL: dict[str, Any] = {
    "id": 1001,
    "name": "PCS 1",
    "description": "inverter",
    "protocol": "modbus_tcp",
    "enabled": "yes",
    "parameters": {"host": "10.0.0.5", "port": 502},
    "poll_interval_ms": 250,
    "timeout_ms": 2000,
    "logging": {"enabled": True, "level": "debug", "file": "x.log"},
    "x-owner": "me",
    "points": [
        {"kind": "m", "id": 10001, "signal_name": "power", "unit": "kW", "scale": "0.1", "deadband": 0.5, "max_age": 5},
        {"kind": "YX", "point_id": "20001", "name": "door", "reverse": 1, "normal_state": 1, "alarm_level": 2},
        {"kind": "control", "id": 30001, "control_type": "pulse", "pulse_duration": 500, "mapping": {"register": 7}},
        {"kind": "A", "id": 40001, "min_value": 0, "max_value": 100, "step": 0.5, "data_type": "int", "interlock": "1"},
    ],
}


def problems_of(document: Any, **options: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        validate_channel(document, **options)
    assert all(problem.hint for problem in caught.value.problems)
    return [(problem.code, problem.path) for problem in caught.value.problems]


def test_a_full_document() -> None:
    channel = validate_channel(FULL)
    assert channel == ChannelSpec(
        id="1001",
        name="PCS 1",
        description="inverter",
        protocol="modbus_tcp",
        enabled=True,
        parameters={"host": "10.0.0.5", "port": 502},
        poll_interval_ms=250,
        timeout_ms=2000,
        points=(
            PointSpec(Kind.MEASUREMENT, "10001", name="power", unit="kW", scale=0.1, deadband=0.5, max_age_s=5),
            PointSpec(Kind.SIGNAL, "20001", name="door", reverse=True, normal_state=1, data_type="bool"),
            PointSpec(
                Kind.CONTROL,
                "30001",
                control_type="pulse",
                pulse_ms=500,
                data_type="bool",
                mapping={"register_address": 7},
            ),
            PointSpec(Kind.ADJUSTMENT, "40001", min=0, max=100, step=0.5, data_type="int16", interlock="1"),
        ),
    )


def test_what_is_stored_reads_back_as_the_same() -> None:
    channel = validate_channel(FULL)
    again = validate_channel(channel_document(channel))
    assert again == channel
    assert version_of(again) == version_of(channel)
    virtual = validate_channel({"id": 1, "protocol": "virtual"})
    assert validate_channel(channel_document(virtual)) == virtual
    assert msgspec.json.decode(msgspec.json.encode(channel), type=ChannelSpec) == channel


def test_a_version_is_of_what_it_says_not_of_its_order() -> None:
    one = validate_channel({"id": 1, "protocol": "x", "parameters": {"a": 1, "b": 2}})
    two = validate_channel({"protocol": "x", "parameters": {"b": 2, "a": 1}, "id": "1"})
    other = validate_channel({"protocol": "x", "parameters": {"b": 2, "a": 3}, "id": "1"})
    assert version_of(one) == version_of(two) != version_of(other)


def test_lists_by_kind() -> None:
    channel = validate_channel(
        {"id": 1, "protocol": "virtual", "points": {"telemetry": [{"id": 1}], "signal": [{"id": 1}]}}
    )
    assert [(point.kind, point.id) for point in channel.points] == [("m", "1"), ("s", "1")]


def test_times_may_stand_among_the_parameters() -> None:
    channel = validate_channel({"id": 1, "protocol": "ModbusTCP", "parameters": {"timeout_ms": 900, "port": 1}})
    assert (channel.timeout_ms, channel.parameters, channel.protocol) == (900, {"port": 1}, "modbus_tcp")
    twice = {"id": 1, "protocol": "virtual", "timeout_ms": 5000, "parameters": {"timeout_ms": 900}}
    assert problems_of(twice) == [("given_twice", "parameters.timeout_ms")]


@pytest.mark.parametrize("document", [None, [], "channel", 5])
def test_what_is_no_channel_at_all(document: Any) -> None:
    assert problems_of(document) == [("not_an_object", "$")]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": None}, ("missing_field", "id")),
        ({"id": "ch1"}, ("bad_id", "id")),
        ({"id": True}, ("bad_id", "id")),
        ({"id": -1}, ("bad_id", "id")),
        ({"protocol": None}, ("missing_field", "protocol")),
        ({"protocol": "a b"}, ("bad_protocol", "protocol")),
        ({"protocol": 5}, ("bad_protocol", "protocol")),
        ({"enabled": "perhaps"}, ("not_a_bool", "enabled")),
        ({"poll_interval_ms": 0}, ("out_of_range", "poll_interval_ms")),
        ({"poll_interval_ms": "fast"}, ("not_a_number", "poll_interval_ms")),
        ({"timeout_ms": 1.5}, ("not_a_whole_number", "timeout_ms")),
        ({"parameters": []}, ("not_an_object", "parameters")),
        ({"parameters": {"x": float("inf")}}, ("not_finite", "parameters")),
        ({"logging": 5}, ("not_an_object", "logging")),
        ({"pol_interval_ms": 5}, ("unknown_field", "pol_interval_ms")),
        ({"name": {"a": 1}}, ("not_text", "name")),
        ({"table_config": {}}, ("no_tables_here", "table_config")),
        ({"points": "none"}, ("not_a_list", "points")),
        ({"points": {"q": []}}, ("bad_kind", "points.q")),
        ({"points": {"m": {}}}, ("not_a_list", "points.m")),
    ],
)
def test_what_is_wrong_with_a_channel(change: dict[str, Any], problem: tuple[str, str]) -> None:
    assert problems_of({**FULL, **change}) == [problem]


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        (5, ("not_an_object", "points[0]")),
        ({"id": 1}, ("missing_field", "points[0].kind")),
        ({"kind": "z", "id": 1}, ("bad_kind", "points[0].kind")),
        ({"kind": "m"}, ("missing_id", "points[0].id")),
        ({"kind": "m", "id": "x1"}, ("bad_id", "points[0].id")),
        ({"kind": "m", "id": 1, "scal": 2}, ("unknown_field", "points[0].scal")),
        ({"kind": "m", "id": 1, "name": "a", "signal_name": "b"}, ("given_twice", "points[0].signal_name")),
        ({"kind": "m", "id": 1, "scale": 0}, ("bad_scale", "points[0].scale")),
        ({"kind": "m", "id": 1, "scale": True}, ("not_a_number", "points[0].scale")),
        ({"kind": "m", "id": 1, "reverse": True}, ("not_for_kind", "points[0].reverse")),
        ({"kind": "m", "id": 1, "step": 1}, ("not_for_kind", "points[0].step")),
        ({"kind": "s", "id": 1, "scale": 2}, ("not_for_kind", "points[0].scale")),
        ({"kind": "a", "id": 1, "min": 5, "max": 4}, ("min_above_max", "points[0].min")),
        ({"kind": "a", "id": 1, "data_type": "string"}, ("bad_data_type", "points[0].data_type")),
        ({"kind": "c", "id": 1, "control_type": "magic"}, ("bad_control_type", "points[0].control_type")),
        ({"kind": "c", "id": 1, "control_type": "pulse"}, ("missing_pulse", "points[0].pulse_ms")),
        ({"kind": "c", "id": 1, "control_type": "momentary"}, ("missing_pulse", "points[0].pulse_ms")),
        ({"kind": "c", "id": 1, "on_value": 0}, ("same_values", "points[0].on_value")),
        ({"kind": "m", "id": 1, "mapping": 3}, ("not_an_object", "points[0].mapping")),
        ({"kind": "m", "id": 1, "mapping": {"slave_id": 999}}, ("out_of_range", "points[0].mapping.slave_id")),
    ],
)
def test_what_is_wrong_with_a_point(point: Any, problem: tuple[str, str]) -> None:
    assert problems_of({**FULL, "points": [point]}) == [problem]


def test_values_that_mean_nothing_for_a_kind_may_stand_at_their_default() -> None:
    document = {"id": 1, "protocol": "virtual", "points": [{"kind": "m", "id": 1, "reverse": 0, "step": 0}]}
    assert validate_channel(document).points[0] == PointSpec(Kind.MEASUREMENT, "1")


def test_all_problems_come_at_once_and_ids_differ_within_a_kind_only() -> None:
    points = [{"kind": "m", "id": 1}, {"kind": "s", "id": 1}, {"kind": "m", "id": "1"}, {"kind": "q"}]
    assert problems_of({"id": 1, "protocol": "virtual", "enabled": 5, "points": points}) == [
        ("not_a_bool", "enabled"),
        ("duplicate_id", "points[2].id"),
        ("bad_kind", "points[3].kind"),
        ("missing_id", "points[3].id"),
    ]


def test_the_driver_is_asked_about_a_sound_channel_only() -> None:
    asked = []

    def check(channel: ChannelSpec) -> list[Problem]:
        asked.append(channel.id)
        return [Problem("no_host", "parameters.host", "name it")]

    assert problems_of({"id": 7, "protocol": "x"}, check=check) == [("no_host", "parameters.host")]
    assert problems_of({"id": 8, "protocol": "x", "enabled": "?"}, check=check) == [("not_a_bool", "enabled")]
    assert asked == ["7"]
    assert validate_channel({"id": 9, "protocol": "x"}, check=lambda channel: []).id == "9"
