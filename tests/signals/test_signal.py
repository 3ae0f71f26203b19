from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid
from tradewind.signals import Signal, SignalType, decode, encode, new_signal
from tradewind.signals.signal import read_type

NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN, st.sampled_from(SignalType), st.floats(0, 1e11))
def test_a_signal_is_read_as_it_was_written(payload: Any, kind: SignalType, timestamp: float) -> None:
    signal = Signal("s1", kind.value, payload, timestamp, "A", "data", "f", 3)
    body = encode(signal)
    assert list(json.loads(body)) == [
        "id",
        "type",
        "payload",
        "timestamp",
        "source_node",
        "source_handle",
        "flow_id",
        "cycle",
    ]
    assert decode(body) == signal


def test_the_body_is_written_byte_for_byte() -> None:
    signal = Signal("s1", "PRICE_DATA", {"close_price": 50000}, 1759744800.0, "binance_price", "kline_data", "f", 0)
    assert encode(signal) == (
        b'{"id":"s1","type":"PRICE_DATA","payload":{"close_price":50000},"timestamp":1759744800.0,'
        b'"source_node":"binance_price","source_handle":"kline_data","flow_id":"f","cycle":0}'
    )


def test_the_body_of_the_seed_is_read() -> None:
    body = """{
      "signal_type": "PRICE_DATA",
      "payload": {"symbol": "BTCUSDT", "close_price": 50000, "volume": 1000000},
      "timestamp": "2025-10-06T10:00:00Z"
    }"""
    signal = decode(body)
    assert (signal.type, signal.payload["close_price"], signal.timestamp) == ("PRICE_DATA", 50000, 1759744800.0)
    assert len(signal.id) == 20
    assert (signal.source_node, signal.source_handle, signal.flow_id, signal.cycle) == ("", "", "", 0)
    assert decode(body, message_id="m1").id == "m1"
    assert decode('{"id": "s1"}', message_id="m1").id == "s1"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("price_data", "PRICE_DATA"),
        ("Ai_Response", "AI_RESPONSE"),
        ("SignalType.STOP_EXECUTION", "STOP_EXECUTION"),
        ("WEATHER", "ANY"),
        ("", "ANY"),
        (None, "ANY"),
        (7, "ANY"),
    ],
)
def test_types_in_any_case_and_unknown_ones(written: Any, meant: str) -> None:
    assert read_type(written) == meant
    assert decode(json.dumps({"type": written})).type == meant
    assert decode(json.dumps({"signal_type": written})).type == meant


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (1759744800, 1759744800.0),
        ("1759744800.5", 1759744800.5),
        ("2025-10-06T10:00:00", 1759744800.0),
        ("2025-10-06T12:00:00.250+02:00", 1759744800.25),
    ],
)
def test_times_as_numbers_and_iso(written: Any, seconds: float) -> None:
    assert decode(json.dumps({"timestamp": written})).timestamp == seconds


def test_what_is_missing_is_made() -> None:
    signal = decode("{}")
    assert signal.id and abs(signal.timestamp - time.time()) < 60 and signal.payload is None
    assert decode('{"data": 5}').payload == 5
    assert decode('{"payload": null, "data": 5}').payload is None
    assert decode('{"cycle": "12", "flow_id": 7}').cycle == 12
    made = new_signal(1, type="dataset", source_node="A", timestamp=5.0)
    assert (made.type, made.timestamp, made.source_node) == ("DATASET", 5.0, "A")
    assert abs(new_signal(1).timestamp - time.time()) < 60


def test_every_wrong_field_is_named() -> None:
    with pytest.raises(Invalid) as caught:
        decode('{"id": [], "timestamp": "soon", "cycle": -1, "flow_id": {}, "source_node": true}')
    assert [problem.path for problem in caught.value.problems] == ["id", "timestamp", "source_node", "flow_id", "cycle"]


@pytest.mark.parametrize("body", ["", "[]", "7", "{", '{"timestamp": "nan"}', '{"timestamp": true}', b"\xff"])
def test_what_is_no_signal_is_refused(body: Any) -> None:
    with pytest.raises(Invalid):
        decode(body)


@pytest.mark.parametrize("payload", [float("nan"), [float("inf")], object(), {1: {object()}}, "\ud800"])
def test_a_payload_that_is_no_json_is_refused(payload: Any) -> None:
    with pytest.raises(Invalid, match="A:out"):
        encode(new_signal(payload, source_node="A", source_handle="out"))
