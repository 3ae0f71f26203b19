"""Routing keys, bindings and queue names of the seed, as pure text: make them, read them, match them.

AMQP allows 255 bytes. What fits is never changed. In a signal key that does not fit, the longest of source, source
handle and target handle become `{first characters}~{hash}` until it fits; flow and target stay, so that a node's
binding (`*` in those three places) matches either way. `read_key` gets the full ids back from the message's headers.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tradewind.errors import Invalid, Problem

EXCHANGE = "signals_exchange"
LIMIT = 255
STOP = "STOP_EXECUTION"
_LONGEST = 64
_HASH = 12
_SHORT = 20
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[0-9]{1,18}")


class SignalKey(msgspec.Struct, frozen=True):
    """What a signal's routing key says. `target_handle` may be `*`: the seed's way to say several at once."""

    flow: str
    component: int
    cycle: int
    source: str
    source_handle: str
    target: str
    target_handle: str

    @property
    def is_shortened(self) -> bool:
        """True if an id had to be shortened: these are not the ids, only stand-ins."""
        return any(
            "~" in word for word in (self.flow, self.source, self.source_handle, self.target, self.target_handle)
        )

    def headers(self) -> dict[str, Any]:
        """The AMQP headers that every signal carries beside its key."""
        return {
            "flow_id": self.flow,
            "component_id": self.component,
            "cycle": self.cycle,
            "source_node": self.source,
            "source_handle": self.source_handle,
            "target_node": self.target,
            "target_handle": self.target_handle,
        }


class StopKey(msgspec.Struct, frozen=True):
    """What the routing key of a STOP_EXECUTION says."""

    flow: str
    cycle: int

    @property
    def is_shortened(self) -> bool:
        return "~" in self.flow

    def headers(self) -> dict[str, Any]:
        return {"flow_id": self.flow, "cycle": self.cycle}


def signal_key(
    flow: str, component: int, cycle: int, source: str, source_handle: str, target: str, target_handle: str
) -> str:
    """The key of a signal from one handle to another. Raises Invalid for ids that cannot stand in a key."""
    head = f"flow.{_id(flow)}.component.{_number(component)}.cycle.{_number(cycle)}.from."
    words = [_word(source), _word(source_handle), target_handle if target_handle == "*" else _word(target_handle)]
    to = f".to.{_id(target)}.handle."
    room = LIMIT - len(head) - len(".handle.") - len(to)
    while sum(map(len, words)) > room:
        longest = max(range(3), key=lambda place: len(words[place]))
        words[longest] = shorten(words[longest], min(_SHORT, room // 3))
    return f"{head}{words[0]}.handle.{words[1]}{to}{words[2]}"


def stop_key(flow: str, cycle: int) -> str:
    """The key under which everybody in the cycle is told to stop."""
    return f"flow.{_id(flow)}.signal.{STOP}.cycle.{_number(cycle)}"


def node_binding(flow: str, component: int, cycle: int, node: str) -> str:
    """The binding that brings a node all signals sent to it in the cycle."""
    head = f"flow.{_id(flow)}.component.{_number(component)}.cycle.{_number(cycle)}"
    return f"{head}.from.*.handle.*.to.{_id(node)}.handle.*"


def queue_name(flow: str, cycle: int, node: str) -> str:
    """The queue of one node in one cycle."""
    return f"queue.flow.{_id(flow)}.cycle.{_number(cycle)}.node.{_id(node)}"


def shorten(word: str, length: int) -> str:
    """`{first characters}~{hash of the whole}`, of that length (13 at least)."""
    digest = hashlib.blake2b(word.encode(), digest_size=10).digest()
    return word[: max(0, length - _HASH - 1)] + "~" + base64.b32encode(digest).decode().lower()[:_HASH]


def _id(text: str) -> str:
    """A flow or node id as it stands in keys and queue names: at most 64 characters, as all ids of ours are."""
    _word(text)
    return text if len(text) <= _LONGEST else shorten(text, _LONGEST)


def _word(text: str) -> str:
    if _WORD.fullmatch(text) is None:
        hint = "use letters, digits, _ and - only"
        problem = Problem("bad_id", "", hint)
        raise Invalid(f"{text[:80]!r} cannot stand in a routing key", code="bad_id", hint=hint, problems=[problem])
    return text


def fits(text: str) -> bool:
    """True if AMQP can carry it as a key or a name."""
    return text.isprintable() and len(text.encode()) <= LIMIT


def check_length(text: str) -> str:
    """The text, if it fits. Raises Invalid."""
    if not fits(text):
        message = f"{text[:80]!r} is longer than {LIMIT} bytes, or not plain text"
        raise Invalid(message, code="bad_name", hint="make keys and names with tradewind.signals.routing")
    return text


def _number(value: int) -> int:
    if not 0 <= value < 10**18:
        raise Invalid(f"{value} cannot stand in a routing key", code="bad_number", hint="use a whole number from 0 on")
    return value


def parse_key(key: str) -> SignalKey | StopKey | None:
    """What a routing key says, or None if it is neither a signal's nor a stop's."""
    match key.split("."):
        case [
            "flow",
            flow,
            "component",
            component,
            "cycle",
            cycle,
            "from",
            source,
            "handle",
            out,
            "to",
            target,
            "handle",
            into,
        ]:
            words = (flow, source, out, target, into)
            if all(words) and _NUMBER.fullmatch(component) and _NUMBER.fullmatch(cycle):
                return SignalKey(flow, int(component), int(cycle), source, out, target, into)
        case ["flow", flow, "signal", "STOP_EXECUTION", "cycle", cycle]:
            if flow and _NUMBER.fullmatch(cycle):
                return StopKey(flow, int(cycle))
    return None


def read_key(key: str, headers: Mapping[str, Any] | None = None) -> SignalKey | StopKey | None:
    """Like `parse_key`, with the full ids of a shortened key taken from the message's headers.

    Headers count only if they lead to this very key; a shortened key without such headers is None.
    """
    parsed = parse_key(key)
    if parsed is None or not parsed.is_shortened:
        return parsed
    try:
        if isinstance(parsed, StopKey):
            stop = msgspec.convert(_plain(parsed, headers), StopKey)
            return stop if stop_key(stop.flow, stop.cycle) == key else None
        full = msgspec.convert(_plain(parsed, headers), SignalKey)
        return full if signal_key(*msgspec.structs.astuple(full)) == key else None
    except (msgspec.ValidationError, Invalid):
        return None


def _plain(parsed: SignalKey | StopKey, headers: Mapping[str, Any] | None) -> dict[str, Any]:
    names = zip(parsed.__struct_fields__, parsed.headers(), strict=True)
    return {field: (headers or {}).get(header) for field, header in names}


def matches(pattern: str, key: str) -> bool:
    """AMQP topic matching: `*` in the pattern is one word, `#` any number of them. In the key both are just words."""
    wanted = pattern.split(".") if pattern else []
    words = key.split(".") if key else []
    at = place = 0
    hash_at = hash_place = -1
    while place < len(words):
        if at < len(wanted) and wanted[at] == "#":
            hash_at, hash_place = at, place
            at += 1
        elif at < len(wanted) and wanted[at] in ("*", words[place]):
            at, place = at + 1, place + 1
        elif hash_at >= 0:  # the last # takes one word more
            hash_place += 1
            at, place = hash_at + 1, hash_place
        else:
            return False
    return all(word == "#" for word in wanted[at:])
