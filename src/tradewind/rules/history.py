"""Reading what rules did: executions, newest first, and figures. Written by rule_commit and rule_done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tradewind.clock import Clock
from tradewind.numerals import stored_whole
from tradewind.redis.connection import Link, translated
from tradewind.redis.keys import Keys
from tradewind.redis.text import text_of
from tradewind.rules.history_record import Execution, decode
from tradewind.settings import RuleSettings

DAY_MS = 86_400_000


class RuleFigures(msgspec.Struct, frozen=True):
    """Since the rule exists. `triggered`: how often it became active; `ms` of all executions; `last_ms`: when the last
    one ended; `stopped_ms`: when the loop guard stopped it, `fired_ms`: when it last became active; 0 if never."""

    executions: int = 0
    triggered: int = 0
    failed: int = 0
    ms: int = 0
    last_ms: int = 0
    stopped_ms: int = 0
    fired_ms: int = 0

    @property
    def success_rate(self) -> float | None:
        return (self.executions - self.failed) / self.executions if self.executions else None

    @property
    def mean_ms(self) -> float | None:
        return self.ms / self.executions if self.executions else None


class RuleHistory:
    def __init__(self, link: Link, keys: Keys, settings: RuleSettings, clock: Clock | None = None) -> None:
        self._link = link
        self._keys = keys
        self._settings = settings
        self._clock = clock or Clock()
        self._redis: Any = link.client

    async def read(
        self, rule_id: str, *, limit: int = 100, offset: int = 0, from_ms: int = 0, to_ms: int = 0
    ) -> list[Execution]:
        """Newest first by their times, none older than `rules.history_days`. `to_ms` 0: until now."""
        oldest = max(from_ms, self._clock.now_ms() - self._settings.history_days * DAY_MS)
        with translated(self._link):
            rows = await self._redis.lrange(self._keys.rule_history(rule_id), 0, -1)
        executions = (_read(row) for row in rows)
        found = [e for e in executions if e and e.timestamp >= oldest and (not to_ms or e.timestamp <= to_ms)]
        # They stand in the order in which they ended: those whose actions took long come late.
        return sorted(found, key=lambda e: -e.timestamp)[offset : offset + limit]

    async def figures(self, rule_ids: Sequence[str]) -> dict[str, RuleFigures]:
        """By rule id; zeros for one that never did anything."""
        words = RuleFigures.__struct_fields__
        fields = [f"{rule_id}:{word}" for rule_id in rule_ids for word in words]
        if not fields:
            return {}
        with translated(self._link):
            stored = await self._redis.hmget(self._keys.rule_figures(), fields)
        numbers = iter(stored)
        return {rule_id: RuleFigures(*(stored_whole(next(numbers)) for _ in words)) for rule_id in rule_ids}

    async def totals(self) -> Mapping[str, int]:
        """Over all rules, also removed ones: executions, triggered, failed, ms (seed 001 5.1.2)."""
        with translated(self._link):
            stored = await self._redis.hgetall(self._keys.rule_figures())
        sums = dict.fromkeys(("executions", "triggered", "failed", "ms"), 0)
        for field, number in stored.items():
            word = text_of(field).rpartition(":")[2]
            if word in sums:
                sums[word] += stored_whole(number)
        return sums


def _read(row: bytes) -> Execution | None:
    """None for what a foreign program left in the list."""
    try:
        return decode(row)
    except msgspec.MsgspecError:
        return None
