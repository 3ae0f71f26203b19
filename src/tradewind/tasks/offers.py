"""What the live workers offer: each task type with its signature, each node type with its description.

An offer is stored once for all workers that make the same one (`task:offer:{digest}`), and it lives as long as they do.
So what a worker offers never expires while it lives and counts no more once it has left. A worker without an offer (an
HTTP service, one registered by hand) takes its supported types with any arguments.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping

import msgspec

from tradewind.numerals import stored_whole
from tradewind.redis.connection import translated
from tradewind.redis.faults import other_types
from tradewind.tasks.plane import Plane

#: Entries of node types stand beside those of tasks under this prefix, which is in no id.
NODE = "node "


class Offer(msgspec.Struct, frozen=True):
    """`entries`: task type → signature, `node {type}` → description, as JSON. `open_types`: taken without a check."""

    worker_id: str
    started_ms: int
    entries: Mapping[str, bytes]
    open_types: tuple[str, ...] = ()


class Offers:
    """Reads them; entries are remembered by their digest, so that a look costs one short read for each worker."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._entries: dict[str, dict[str, bytes]] = {}

    async def read(self) -> list[Offer]:
        """Of every worker that has a record, the youngest first."""
        keys, client = self._plane.keys, self._plane.redis
        with translated():
            pipe = client.pipeline(transaction=False)
            pipe.zrange(keys.workers(), 0, -1)
            pipe.smembers(keys.worker_types())
            leased, types = await pipe.execute()
            ids = {w.decode(errors="replace") for w in leased}
            if types:
                served = await client.sunion([keys.worker_type(t.decode(errors="replace")) for t in types])
                ids |= {w.decode(errors="replace") for w in served}
            pipe = client.pipeline(transaction=False)
            for worker_id in sorted(ids):
                pipe.hmget(keys.worker(worker_id), "id", "offer", "supported_types", "supported_nodes", "started_ms")
            rows = other_types(await pipe.execute(raise_on_error=False))
            found: list[Offer] = []
            used: dict[str, dict[str, bytes]] = {}
            for worker_id, row in zip(sorted(ids), rows, strict=True):
                if not isinstance(row, list) or not any(row):
                    continue  # gone, or no record at all
                digest = (row[1] or b"").decode(errors="replace")
                entries = used[digest] = used.get(digest) or await self._of(digest)
                taken = () if digest else (*_names(row[2]), *_names(row[3]))
                started = stored_whole(row[4])
                found.append(Offer(worker_id, started, entries, taken))
        self._entries = {digest: entries for digest, entries in used.items() if entries}
        return sorted(found, key=lambda offer: (-offer.started_ms, offer.worker_id))

    async def _of(self, digest: str) -> dict[str, bytes]:
        if not digest or digest in self._entries:
            return self._entries.get(digest, {})
        raw = await self._plane.redis.hgetall(self._plane.keys.offer(digest))
        return {name.decode(errors="replace"): data for name, data in raw.items()}


def digest_of(entries: Mapping[str, bytes]) -> str:
    """The name of an offer: equal for equal offers."""
    digest = hashlib.blake2b(digest_size=12)
    for name in sorted(entries):
        digest.update(name.encode() + b"\0" + entries[name] + b"\0")
    return digest.hexdigest()


def _names(raw: bytes | None) -> tuple[str, ...]:
    with contextlib.suppress(msgspec.MsgspecError):
        return tuple(msgspec.json.decode(raw or b"[]", type=list[str]))
    return ()
