"""The recorder's documents in Redis: the policy, what it says of itself, and the samples that a sink refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tradewind import codec
from tradewind.clock import now_ms
from tradewind.errors import Invalid, Unavailable
from tradewind.history.keeping import Keeping
from tradewind.history.policy import Policy, read_policy
from tradewind.history.policy_memory import PolicyMemory, policy_of
from tradewind.history.sample import Refused
from tradewind.history.sink import SinkAway
from tradewind.redis.connection import Link, translated
from tradewind.redis.keys import Keys

#: The name of the feed's consumer.
CONSUMER = "history"
#: Refused samples that are kept, and how many of one batch are.
MAX_REFUSED = 10_000
REFUSED_OF_BATCH = 100


class RefusedSample(msgspec.Struct, frozen=True):
    id: str
    series: str
    ts_ms: int
    value: str
    reason: str
    at_ms: int


class HistoryStore:
    """Every method raises Unavailable when Redis is away."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._redis: Any = link.client

    async def policy_text(self) -> bytes:
        """The document as it is stored: another text is another version. Empty: none was ever set, or Redis has lost
        it; none is ever taken away."""
        with translated(self._link):
            return await self._redis.get(self._keys.history_policy()) or b""

    async def policy(self) -> Policy:
        """The default one when none is set. Raises Invalid when what somebody else stored is none."""
        return policy_of(await self.policy_text())

    async def put_policy(self, document: Any) -> Policy:
        """Replace the policy; the recorder follows within a second or two. Raises Invalid with all problems."""
        policy = read_policy(document)
        with translated(self._link):
            await self._redis.set(self._keys.history_policy(), codec.encode(policy))
        return policy

    async def status(self) -> dict[str, str]:
        """What the recorder wrote of itself at `at_ms`; empty when none has ever run. See status.py for the fields."""
        with translated(self._link):
            found = await self._redis.hgetall(self._keys.history_status())
        return {name.decode(): text.decode() for name, text in found.items()}

    async def leader(self) -> str:
        """Who records now; empty when nobody does. A killed one is named until its lead runs out."""
        with translated(self._link):
            found = await self._redis.get(self._keys.history_leader())
        return found.decode() if found else ""

    async def put_status(self, fields: Mapping[str, str | int]) -> None:
        with translated(self._link):
            await self._redis.hset(self._keys.history_status(), mapping=dict(fields))

    async def add_refused(self, refused: Sequence[Refused]) -> None:
        """Of very many the first ones; all of them are counted elsewhere."""
        at = now_ms()
        pipe = self._redis.pipeline(transaction=False)
        for row, reason in refused[:REFUSED_OF_BATCH]:
            fields = {"series": str(row.series), "ts": str(row.ts_ms), "value": repr(row.value)}
            fields |= {"reason": reason, "at": str(at)}
            pipe.xadd(self._keys.history_refused(), fields, maxlen=MAX_REFUSED, approximate=True)
        with translated(self._link):
            await pipe.execute()

    async def refused(self, limit: int = 100) -> list[RefusedSample]:
        """Newest first."""
        with translated(self._link):
            found = await self._redis.xrevrange(self._keys.history_refused(), count=limit)
        samples = []
        for name, raw in found:
            get = {key.decode(): text.decode() for key, text in raw.items()}
            samples.append(
                RefusedSample(name.decode(), get["series"], int(get["ts"]), get["value"], get["reason"], int(get["at"]))
            )
        return samples


class PolicyKeeping:
    """How long each series is kept, by the policy as it stands in Redis and the days of the settings: a KeepingSource.

    Nothing may be removed by a policy that nobody can read, or that Redis has lost: the last one that could be read
    holds on, also that of a former process. When there is none, but one that cannot be read, SinkAway is raised.
    """

    def __init__(self, store: HistoryStore, days: tuple[int, int, int], memory: PolicyMemory | None = None) -> None:
        self._store = store
        self._days = days
        self._memory = memory or PolicyMemory()
        self._text: bytes | None = None
        self._keeping: Keeping | None = None

    async def __call__(self) -> Keeping:
        try:
            text = await self._store.policy_text()
        except Unavailable as error:
            raise SinkAway(f"the policy of history cannot be read: {error.message}", hint=error.hint) from error
        if text != self._text or self._keeping is None:
            last = await asyncio.to_thread(self._memory.last)
            try:
                keeping = Keeping(self._days, policy_of(text or last))
                await asyncio.to_thread(self._memory.keep, text)
            except Invalid as error:
                if not last:
                    message = f"how long samples are kept is not known: {error.message}"
                    raise SinkAway(message, hint=error.hint) from error
                keeping = Keeping(self._days, policy_of(last))
            if keeping != self._keeping:
                self._keeping = keeping
            self._text = text
        return self._keeping
