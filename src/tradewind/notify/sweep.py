"""Index repair of notifications: when deliveries and escalations are due."""

from __future__ import annotations

from tradewind.notify.plane import NotifyPlane
from tradewind.redis.index_sweep import IndexSweep, index, kept
from tradewind.redis.scripts import Arg


class NotifySweep(IndexSweep):
    script = "notify_repair"
    glob = "notify:*"
    families = (
        index(r"notify:(due|timers)", "zset"),
        kept(r"notify:(jobs|told)", "hash", has_values=True),
        kept(r"notify:targets", "hash"),
        kept(r"notify:(failed|keys)", "zset"),
    )

    def __init__(self, plane: NotifyPlane) -> None:
        super().__init__(plane.link, plane.keys, plane.scripts, plane.keys.notify_jobs())

    def head(self) -> list[Arg]:
        return [self.keys.p]
