"""Index repair of rules and groups."""

from __future__ import annotations

from tradewind.redis.connection import Link
from tradewind.redis.index_sweep import IndexSweep, index, records
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, Scripts
from tradewind.settings import Settings


class RuleSweep(IndexSweep):
    script = "rule_repair"
    glob = "rulesrv:*"
    families = (
        records(r"rulesrv:rule:([^:]+)", "string"),
        records(r"rulesrv:group:([^:]+)", "string"),
        index(r"rulesrv:(rules|groups)|rulesrv:group:[^:]+:rules", "set"),
    )

    def __init__(self, link: Link, keys: Keys, settings: Settings) -> None:
        super().__init__(link, keys, Scripts(link, "tradewind.rules", settings.redis.max_retries), keys.rules())

    def head(self) -> list[Arg]:
        return [self.keys.p]
