"""The task types that submissions are checked against, remembered for a second: a bulk path must not ask each time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

from tradewind.ids import is_id
from tradewind.tasks.control import TaskControl
from tradewind.tasks.function import Signature

KEEP_S = 1.0
#: Of one submission; types that nobody has offered are looked up one by one.
MAX_LOOKED_UP = 100


class KnownTypes:
    def __init__(self, control: TaskControl) -> None:
        self._control = control
        self._types: dict[str, Signature] = {}
        self._until = 0.0

    async def find(self, wanted: Iterable[str]) -> Mapping[str, Signature]:
        """All known types; a wanted one that is not known yet is asked for at once."""
        names = {name for name in wanted if is_id(name)}
        if time.monotonic() >= self._until or names - self._types.keys():
            self._types = await self._control.types()
            self._until = time.monotonic() + KEEP_S
        unknown = sorted(names - self._types.keys())[:MAX_LOOKED_UP]
        if not unknown:
            return self._types
        served = await asyncio.gather(*(self._control.has_type(name) for name in unknown))
        by_hand = {
            name: Signature(var_args=True, var_kwargs=True)
            for name, is_served in zip(unknown, served, strict=True)
            if is_served
        }
        return {**self._types, **by_hand}
