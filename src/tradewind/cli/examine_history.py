"""What `tradewind doctor` looks at in the history."""

from __future__ import annotations

from tradewind.api.history_room import recorder_view
from tradewind.cli.check import Check, bounded
from tradewind.cli.examine_plant import role
from tradewind.cli.times import span
from tradewind.history.store import CONSUMER, HistoryStore
from tradewind.points.plane import PointPlane
from tradewind.tasks.plane import Plane

#: Samples that wait longer than this are late.
LAG_S = 60.0


async def history(plane: Plane) -> list[Check]:
    keys, settings = plane.keys, plane.all_settings.history
    if not settings.enabled:
        return [Check("hissrv", "ok", "history is off")]
    leader, cursor, policy, channels, models = await PointPlane(plane.link, plane.all_settings).home.ask(
        [
            ("GET", keys.history_leader()),
            ("HEXISTS", keys.feed_cursors(), CONSUMER),
            ("EXISTS", keys.history_policy()),
            ("HLEN", keys.channels()),
            ("HLEN", keys.models()),
        ]
    )
    fields = await HistoryStore(plane.link, keys).status()
    told = recorder_view(fields)
    what = f"{told['written']} samples written" if fields else "nothing recorded yet"
    found = [role("hissrv", leader, what, is_needed=bool(cursor or policy or channels or models))]
    if not fields:
        return found
    hint = "is the sink reachable, and its disk not full? `tradewind history stats`"
    if told["sink"] != "ok":
        detail = f"the sink is {told['sink']}: {told['sink_error'] or 'no reason given'}; samples wait on disk"
        found.append(Check("history sink", "fail" if told["sink"] == "away" else "warn", detail, hint))
    found.append(bounded("history spool", told["spool_bytes"], settings.spool_max_bytes, hint))
    if told["spool_elsewhere_bytes"]:
        detail = f"{told['spool_elsewhere_bytes']} bytes wait in a spool that another process holds and hangs with"
        found.append(Check("history spool held", "fail", detail, "end that hissrv: whoever records delivers them then"))
    if told["spool_error"]:
        found.append(Check("history spool", "fail", told["spool_error"], "what the sink does not take has no place"))
    if told["lag_ms"] > LAG_S * 1000:
        detail = f"{span(told['lag_ms'] / 1000)} behind, {told['behind']} entries of the feed"
        found.append(
            Check("history lag", "warn", detail, "hissrv is too slow or the sink is: `tradewind history stats`")
        )
    if told["dropped"]:
        reasons = ", ".join(f"{told[f'dropped_{why}']} for {why}" for why in ("bytes", "age", "corrupt"))
        hint = "they are lost: raise history.spool_max_bytes or history.spool_max_age_s, and see to the sink"
        found.append(
            Check("history drops", "warn", f"{told['dropped']} samples dropped from the spool ({reasons})", hint)
        )
    if told["missed"]:
        hint = "they are lost: keep hissrv running, or raise points.feed_max_bytes"
        found.append(Check("history missed", "warn", f"{told['missed']} entries of the feed were never read", hint))
    if told["policy_error"]:
        found.append(Check("history policy", "warn", told["policy_error"], "`tradewind apply` a policy that is right"))
    return found
