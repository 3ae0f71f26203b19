"""The signals room: what nodes say to each other, under which routing keys, and the topic exchange that carries it.

Needs nothing, or a RabbitMQ by URL. Emits no events of its own. `AmqpExchange` is imported from its module, because the
client library takes a while to load and most stations do without.
"""

from __future__ import annotations

from tradewind.signals.exchange import Consumer as Consumer
from tradewind.signals.exchange import Delivery as Delivery
from tradewind.signals.exchange import Exchange as Exchange
from tradewind.signals.exchange import Message as Message
from tradewind.signals.exchange import Refused as Refused
from tradewind.signals.exchange import Unroutable as Unroutable
from tradewind.signals.memory import MemoryExchange as MemoryExchange
from tradewind.signals.routing import SignalKey as SignalKey
from tradewind.signals.routing import StopKey as StopKey
from tradewind.signals.routing import matches as matches
from tradewind.signals.routing import node_binding as node_binding
from tradewind.signals.routing import parse_key as parse_key
from tradewind.signals.routing import queue_name as queue_name
from tradewind.signals.routing import read_key as read_key
from tradewind.signals.routing import signal_key as signal_key
from tradewind.signals.routing import stop_key as stop_key
from tradewind.signals.signal import Signal as Signal
from tradewind.signals.signal import SignalType as SignalType
from tradewind.signals.signal import decode as decode
from tradewind.signals.signal import encode as encode
from tradewind.signals.signal import new_signal as new_signal
from tradewind.signals.wire import read_delivery as read_delivery
from tradewind.signals.wire import signal_message as signal_message
