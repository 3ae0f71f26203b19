"""Entries of `alarm:journal` that were trimmed before a reader had them: counted by the scripts, told by alarmsrv."""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.losses import Losses
from tradewind.redis.text import text_of

#: In `alarm:figures`, followed by the name of the reader; `sql` is the recorder.
DROPPED = "journal_dropped:"
CODE = "alarm_journal_dropped"


def dropped_of(figures: Mapping[str, int]) -> dict[str, int]:
    """Per reader what it never had, `sql` always among them."""
    found = {name.removeprefix(DROPPED): n for name, n in figures.items() if name.startswith(DROPPED)}
    return {"sql": 0} | {reader: n for reader, n in found.items() if ":" not in reader}


class JournalLosses:
    def __init__(self, plane: PointPlane) -> None:
        self._plane = plane
        self._losses = Losses(plane.link, plane.keys, plane.keys.alarm_figures())

    async def tell(self) -> int:
        """Report what is new; how many entries. Raises Unavailable."""
        with translated(self._plane.link):
            names = await self._plane.redis.hkeys(self._plane.keys.alarm_figures())
        told = 0
        for reader in dropped_of(dict.fromkeys(map(text_of, names), 0)):
            whose = "they were in SQL" if reader == "sql" else f"{reader} had them"
            what = f"transitions of alarms were dropped from the full journal before {whose}"
            told += await self._losses.tell(DROPPED + reader, CODE, f"alarms:journal:{reader}", what)
        return told
