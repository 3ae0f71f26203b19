from __future__ import annotations

import json
from typing import Any

import pytest

from tradewind.errors import Invalid
from tradewind.signals import Delivery, SignalKey, StopKey, new_signal, read_delivery, signal_message
from tradewind.signals.exchange import Message

KEY = SignalKey("trading_flow", 0, 0, "binance_price", "kline_data", "ai_model", "price_input")
LONG = SignalKey("f" * 64, 0, 0, "s" * 64, "h" * 64, "t" * 64, "i" * 64)


def delivered(message: Message, **other: Any) -> Delivery:
    said = {
        "routing_key": message.routing_key,
        "body": message.body,
        "headers": message.headers,
        "message_id": message.message_id,
    }
    return Delivery(**{**said, **other})


@pytest.mark.parametrize("key", [KEY, LONG], ids=["short", "shortened"])
def test_a_signal_arrives_as_it_was_sent(key: SignalKey) -> None:
    signal = new_signal(
        {"close_price": 50000},
        type="PRICE_DATA",
        source_node=key.source,
        source_handle=key.source_handle,
        flow_id=key.flow,
        cycle=key.cycle,
    )
    message = signal_message(signal, key, expiration_ms=1500)
    assert message.mandatory and message.expiration_ms == 1500
    assert message.headers == {
        "flow_id": key.flow,
        "component_id": 0,
        "cycle": 0,
        "source_node": key.source,
        "source_handle": key.source_handle,
        "target_node": key.target,
        "target_handle": key.target_handle,
    }
    assert read_delivery(delivered(message)) == (key, signal)


def test_one_signal_to_two_handles_is_two_messages_and_to_one_handle_the_same_again() -> None:
    signal = new_signal(1)
    other = SignalKey("trading_flow", 0, 0, "binance_price", "kline_data", "ai_model", "other")
    names = [signal_message(signal, key).message_id for key in (KEY, other, KEY)]
    assert names[0] == names[2] != names[1]
    assert max(len(signal_message(new_signal(1), LONG).message_id), 20) <= 200


def test_what_the_seed_sends_takes_its_source_from_the_key() -> None:
    body = json.dumps({"signal_type": "PRICE_DATA", "payload": {"a": 1}, "timestamp": "2025-10-06T10:00:00Z"}).encode()
    key = "flow.trading_flow.component.0.cycle.0.from.binance_price.handle.kline_data.to.ai_model.handle.price_input"
    where, signal = read_delivery(Delivery(routing_key=key, body=body, message_id="m1"))
    assert where == KEY
    assert (signal.id, signal.source_node, signal.source_handle) == ("m1", "binance_price", "kline_data")
    assert (signal.flow_id, signal.cycle, signal.type) == ("trading_flow", 0, "PRICE_DATA")


def test_a_stop_reaches_everybody_or_nobody() -> None:
    signal = new_signal({"reason": "price < threshold"}, flow_id="trading_flow")
    message = signal_message(signal, StopKey("trading_flow", 7))
    assert message.routing_key == "flow.trading_flow.signal.STOP_EXECUTION.cycle.7"
    assert not message.mandatory
    key, read = read_delivery(delivered(message))
    assert key == StopKey("trading_flow", 7)
    assert (read.type, read.cycle, read.payload) == ("STOP_EXECUTION", 7, {"reason": "price < threshold"})


@pytest.mark.parametrize("other", [{"routing_key": "x"}, {"body": b"{"}, {"body": b"[]"}])
def test_what_is_no_signal_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        read_delivery(delivered(signal_message(new_signal(1), KEY), **other))


def test_a_shortened_key_without_its_headers_is_refused() -> None:
    with pytest.raises(Invalid, match="routing key"):
        read_delivery(delivered(signal_message(new_signal(1), LONG), headers={}))
