"""A value that a person gives to a point instead of its device, as it is stored. Pure."""

from __future__ import annotations

import msgspec

from tradewind.points.values import finite, whole


class Substitution(msgspec.Struct, frozen=True, gc=False):
    """`value` is shown from `since_ms` to `until_ms`. `device_value`, `device_ts`, `device_quality`: what the device
    said last, or stood at when it began (None, 0: nothing yet); `held`: how many of its readings were not shown."""

    address: str
    value: float
    since_ms: int
    until_ms: int
    who: str = ""
    reason: str = ""
    source: str = ""
    device_value: float | None = None
    device_ts: int = 0
    device_quality: str = "good"
    held: int = 0


class Released(msgspec.Struct, frozen=True, gc=False):
    """What is left of a substitution after its end, until the device has said something newer."""

    address: str
    released_ms: int


class _Stored(msgspec.Struct, frozen=True):
    """All of it text: the scripts that write it lose digits of large numbers."""

    value: str = ""
    since: str = ""
    until: str = ""
    who: str = ""
    reason: str = ""
    source: str = ""
    device_value: str | None = None
    device_ts: str = ""
    device_quality: str = "good"
    held: str = ""
    released: str = ""


_decoder = msgspec.json.Decoder(_Stored)


def read_substitution(address: str, text: bytes) -> Substitution | Released | None:
    """Of a field of `comsrv:{channel}:sub`; None for what no script of ours has written."""
    try:
        stored = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if stored.released:
        return Released(address, whole(stored.released))
    if not whole(stored.since):
        return None
    return Substitution(
        address,
        finite(stored.value),
        whole(stored.since),
        whole(stored.until),
        stored.who,
        stored.reason,
        stored.source,
        None if stored.device_value is None else finite(stored.device_value),
        whole(stored.device_ts),
        stored.device_quality,
        whole(stored.held),
    )
