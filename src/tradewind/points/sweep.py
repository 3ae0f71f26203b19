"""Index repair of the point room: versions of channels, pushed channels, commands that wait or are carried out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tradewind.ids import short_random
from tradewind.points.channel_store import definition_version
from tradewind.points.command_store import OVERRUN_MS
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.index_sweep import BATCH, Entry, IndexFault, IndexSweep, Mode, index, kept, records
from tradewind.redis.scripts import Arg


class PointSweep(IndexSweep):
    script = "command_repair"
    families = (
        records(r"cmd:(?!(?:open|token|effects|owed|journal)$)([^:]+)"),
        records(r"comsrv:(\d+:[msca])"),
        index(r"cmd:open", "zset"),
        index(r"cmd:list:.+", "list"),
        index(r"comsrv:\d+:todo", "list"),
        index(r"points:channels:versions", "hash"),
        index(r"points:pushed", "set"),
        kept(r"points:channels|points:cursors", "hash"),
        kept(r"cmd:effects|cmd:owed", "hash", has_values=True),
        index(r"points:owners", "hash"),
        index(r"points:pollers", "zset"),
    )

    def __init__(self, plane: PointPlane) -> None:
        super().__init__(plane.link, plane.keys, plane.scripts, plane.keys.commands_open())
        self._plane = plane

    def head(self) -> list[Arg]:
        plane = self._plane
        return [plane.keys.p, plane.clock.now_arg(), plane.keys.command_events(), OVERRUN_MS, short_random()]

    async def answer(self, mode: Mode, asked: Sequence[tuple[str, str]]) -> list[IndexFault]:
        """The version of a channel is a hash of its definition that Lua has no function for."""
        names = list(dict.fromkeys(name for what, name in asked if what == "version"))
        faults: list[IndexFault] = []
        for start in range(0, len(names), BATCH):
            part = names[start : start + BATCH]
            with translated(self.link):
                texts = await self._redis.hmget(self.keys.channels(), part)
                known = await self._redis.hmget(self.keys.channel_versions(), part)
            again: list[Entry] = []
            for name, text, version in zip(part, texts, known, strict=True):
                wanted = definition_version(text or b"").encode()
                if text is not None and version != wanted:
                    sign = hashlib.sha1(text).hexdigest().encode()
                    again.append(("<version>", name.encode(), b"%s %s" % (sign, wanted)))
            faults += await self.decide(mode, again, [])
        return faults
