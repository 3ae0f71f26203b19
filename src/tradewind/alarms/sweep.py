"""Index repair of the alarms: what stands in an index without its record, and records that miss in one."""

from __future__ import annotations

from tradewind.alarms.context import script_context
from tradewind.points.plane import PointPlane
from tradewind.redis.index_sweep import IndexSweep, index, records
from tradewind.redis.scripts import Arg, Scripts


class AlarmSweep(IndexSweep):
    script = "alarm_repair"
    glob = "alarm:*"
    families = (
        records(r"alarm:(alarm_[^:]+)"),
        index(r"alarm:(category|level|status|date|rule|effects):.+", "set"),
        index(r"alarm:order:.+|alarm:timers", "zset"),
        index(r"alarm:buckets:.+|alarm:realtime", "hash"),
        index(r"alarm:open", "hash", has_values=True),
    )

    def __init__(self, plane: PointPlane) -> None:
        scripts = Scripts(plane.link, "tradewind.alarms", plane.all_settings.redis.max_retries)
        super().__init__(plane.link, plane.keys, scripts, plane.keys.alarm_open())
        self._clock = plane.clock
        self._context = script_context(plane.keys, plane.all_settings)

    def head(self) -> list[Arg]:
        return [self._context, self._clock.now_arg()]
