"""A signal as a message, and a delivery as a signal: key, headers and body together."""

from __future__ import annotations

import msgspec

from tradewind.errors import Invalid
from tradewind.signals import signal as signals
from tradewind.signals.exchange import Delivery, Message
from tradewind.signals.routing import SignalKey, StopKey, read_key, shorten, signal_key, stop_key
from tradewind.signals.signal import Signal, SignalType


def signal_message(signal: Signal, key: SignalKey | StopKey, *, expiration_ms: int | None = None) -> Message:
    """The message that brings the signal to one handle, or a STOP_EXECUTION to a whole cycle. Raises Invalid.

    The same signal to the same handle has the same message id, so a second copy can be told from a second signal.
    """
    if isinstance(key, StopKey):
        route, name = stop_key(key.flow, key.cycle), signal.id
    else:
        route = signal_key(*msgspec.structs.astuple(key))
        name = f"{signal.id}:{key.target}:{key.target_handle}"
    return Message(
        routing_key=route,
        body=signals.encode(signal),
        headers=key.headers(),
        expiration_ms=expiration_ms,
        mandatory=isinstance(key, SignalKey),
        message_id=name if len(name) <= 200 else shorten(name, 200),
    )


def read_delivery(delivery: Delivery) -> tuple[SignalKey | StopKey, Signal]:
    """Where a delivery belongs and what it says. What a foreign body leaves out is taken from the key.

    Raises Invalid for a key or a body that is not a signal's.
    """
    key = read_key(delivery.routing_key, delivery.headers)
    if key is None:
        hint = "publish with the documented routing key; a shortened one needs the headers, too"
        raise Invalid(f"{delivery.routing_key!r} is not a signal's routing key", code="bad_key", hint=hint)
    signal = signals.decode(delivery.body, message_id=delivery.message_id)
    if isinstance(key, StopKey):
        return key, msgspec.structs.replace(
            signal, type=SignalType.STOP_EXECUTION.value, flow_id=key.flow, cycle=key.cycle
        )
    return key, msgspec.structs.replace(
        signal, source_node=key.source, source_handle=key.source_handle, flow_id=key.flow, cycle=key.cycle
    )
