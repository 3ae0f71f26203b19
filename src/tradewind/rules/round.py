"""Storing a round of the rule engine: states, cursor and effects in one script; refused if another one judges or the
rules changed. The effects of a big round are put aside with it and carried out in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum

from tradewind.ids import short_random
from tradewind.points.plane import PointPlane
from tradewind.redis.scripts import Arg, Scripts
from tradewind.rules.script_context import rule_context

#: Steps that one call carries out, so that none keeps the server for long.
STEPS_A_CALL = 400


class Outcome(Enum):
    STORED = 1
    DEPOSED = 0
    OUTDATED = -1


class RoundStore:
    """For one term of the lead and one version of the rules."""

    def __init__(
        self, plane: PointPlane, engine_id: str, epoch: int, version: str, steps_a_call: int = STEPS_A_CALL
    ) -> None:
        self.version = version
        self._plane = plane
        self._owner: list[Arg] = [engine_id, epoch]
        self._context = rule_context(plane.keys, plane.all_settings)
        self._nonce = f"{short_random()}{epoch}."
        self._count = 0
        self._steps = steps_a_call
        self._task: asyncio.Task[Outcome] | None = None
        self._cursor: dict[str, str] = {}
        keys = plane.keys
        lead = [keys.rules_leader(), keys.rules_epoch()]
        self._commit = [
            *lead, keys.rules_version(), keys.rule_states(), keys.feed_cursors(), keys.rule_pending(),
        ]  # fmt: skip
        self._apply = [*lead, keys.rule_states(), keys.rule_pending()]
        self._scripts = Scripts(plane.link, "tradewind.rules", plane.all_settings.redis.max_retries)

    def begin(
        self, steps: Sequence[bytes], states: Mapping[str, bytes], cursor: Sequence[str], *, is_tick: bool = False
    ) -> bool:
        """Start to store a round; `finished` must be awaited before the next. False: there was nothing to store.

        `cursor`: field, value, … as the feed gave it. It waits for a tick, with which all states that have changed must
        be given; before that only those that must not change twice when the feed is read again.
        """
        self._cursor.update(zip(cursor[::2], cursor[1::2], strict=True))
        if not steps and not states and not (is_tick and self._cursor):
            return False
        self._count += 1
        cursor_args: list[str] = []
        if is_tick:
            cursor_args = [part for pair in self._cursor.items() for part in pair]
            self._cursor.clear()
        args: list[Arg] = [self._context, self._plane.clock.now_arg(), *self._owner, self.version]
        args += [f"{self._nonce}{self._count:x}", self._steps, len(cursor_args) // 2, len(states), *cursor_args]
        for rule_id, data in states.items():
            args += (rule_id, data)
        args += steps
        self._task = asyncio.create_task(self._store(args), name="rule round")
        return True

    async def finished(self) -> Outcome:
        """What became of the round begun last. Raises Unavailable. Unless it was stored, the network knows more than
        Redis and must be made anew."""
        task, self._task = self._task, None
        return Outcome.STORED if task is None else await task

    async def close(self) -> None:
        """Drop a round that nobody waits for any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def drain(self) -> Outcome:
        """Carry out what was put aside, also by one who led before. Raises Unavailable."""
        while True:
            args = [self._context, self._plane.clock.now_arg(), *self._owner, self._steps]
            word, *left = await self._scripts.run("rule_apply", self._apply, args)
            if word != 1 or not left[0]:
                return Outcome(word)

    async def _store(self, args: Sequence[Arg]) -> Outcome:
        word, *left = await self._scripts.run("rule_commit", self._commit, args)
        return await self.drain() if left and left[0] else Outcome(word)
