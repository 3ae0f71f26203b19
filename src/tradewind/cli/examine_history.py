"""What `tradewind doctor` looks at in the history."""

from __future__ import annotations

from tradewind.api.history_room import recorder_view
from tradewind.cli.check import Check, bounded, of_part
from tradewind.cli.times import span
from tradewind.history.store import HistoryStore
from tradewind.station_history import HistoryRoom
from tradewind.station_points import PointRoom
from tradewind.tasks.plane import Plane

#: Samples that wait longer than this are late.
LAG_S = 60.0


async def history(plane: Plane) -> list[Check]:
    settings = plane.all_settings.history
    room = PointRoom(plane.link, plane.all_settings)
    try:
        found = [of_part("hissrv", (await HistoryRoom(room).look())["hissrv"])]
    finally:
        await room.close()
    fields = await HistoryStore(plane.link, plane.keys).status() if settings.enabled else {}
    if not fields:
        return found
    told = recorder_view(fields)
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
    if told["disk_error"]:
        found.append(Check("history disk", "fail", told["disk_error"], "free some space; recording goes on by itself"))
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
