"""What `tradewind apply` compares and sends: channels without their secrets, and changes of many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tradewind.errors import Invalid

if TYPE_CHECKING:
    from tradewind.points.difference import Difference

#: Of channels that are put with one request.
PART_BYTES = 4_000_000


def comparable_channels(
    ours: Mapping[str, Any], present: Mapping[str, Any], versions: Mapping[str, str]
) -> dict[str, Any]:
    """Our channels as the station would show them: without their secrets. `versions`: what it has of those that are
    other there."""
    from tradewind.points.channel_check import validate_channel
    from tradewind.points.channel_store import version_of
    from tradewind.points.secrets import comparable, masked

    def compared(name: str, document: dict[str, Any]) -> dict[str, Any]:
        def is_stored(guess: dict[str, Any]) -> bool:
            try:
                return version_of(validate_channel(guess)) == versions[name]
            except Invalid:  # made by another version of the station: nothing can be known
                return True

        return comparable(present[name], document, is_stored) if name in versions else masked(document)

    return {name: compared(name, document) for name, document in ours.items()}


def channel_parts(documents: Mapping[str, Any], found: Difference) -> Iterator[dict[str, Any]]:
    """The channels to put, by id, in parts that make no request too long; a channel may have 100,000 points."""
    from tradewind import codec

    part: dict[str, Any] = {}
    size = 0
    for name in (*found.added, *found.changed):
        length = len(codec.encode(documents[name]))
        if part and size + length > PART_BYTES:
            yield part
            part, size = {}, 0
        part[name] = documents[name]
        size += length
    if part:
        yield part


def model_change(documents: Mapping[str, Mapping[str, Any]], found: Mapping[str, Difference]) -> dict[str, Any]:
    """Models and templates to put and to remove, all in one request; empty if there are none."""
    change = {
        kind: [documents[kind][name] for name in (*found[kind].added, *found[kind].changed)]
        for kind in ("templates", "models")
    }
    change |= {"remove": list(found["models"].removed), "remove_templates": list(found["templates"].removed)}
    return {name: each for name, each in change.items() if each}
