"""Where rules without a state begin: at the entry of the feed after which they were saved, so that what came since is
judged, however long nobody did."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.points.feed import FeedReader, id_of
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.rules.network import Beginning, RuleNetwork


async def read_beginnings(
    plane: PointPlane, feed: FeedReader, network: RuleNetwork, fresh: Sequence[str]
) -> dict[str, Beginning]:
    """By id, of those of the rules `fresh` of which it is known; read the board before. Raises Unavailable.

    Reads once through the entries of the feed that are not read yet and younger than the oldest of these rules.
    """
    if not fresh:
        return {}
    with translated(plane.link):
        stored = await plane.redis.hmget(plane.keys.rule_since(), list(fresh))
    since = {rule_id: text.decode() for rule_id, text in zip(fresh, stored, strict=True) if text and _is_id(text)}
    if not since:
        return {}
    sources = {address for rule_id in since for address in network.programs[rule_id].addresses}
    keys = {address.rpartition(":")[0] for address in sources}
    last: dict[str, str] = {}
    async for entry in feed.unread(min(since.values(), key=id_of)):
        if entry.key in keys and not entry.is_late:
            last |= dict.fromkeys((f"{entry.key}:{field}" for field in entry.fields()), entry.id)
    return {
        rule_id: Beginning(text, frozenset(a for a in network.programs[rule_id].addresses if _is_told(last, a, text)))
        for rule_id, text in since.items()
    }


def _is_told(last: dict[str, str], address: str, since: str) -> bool:
    return address in last and id_of(last[address]) > id_of(since)


def _is_id(text: bytes) -> bool:
    """Another program may have written something else."""
    ms, _, number = text.partition(b"-")
    return ms.isdigit() and (number or b"0").isdigit()
