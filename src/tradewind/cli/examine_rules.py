"""What `tradewind doctor` looks at among rules, alarms and notifications."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.cli.check import Check, bounded
from tradewind.cli.examine_plant import NAMED, named, role
from tradewind.errors import Problem
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.store import NotifyStore
from tradewind.points.plane import PointPlane
from tradewind.rules.dry_run import dry_run
from tradewind.rules.references import find_dangling
from tradewind.rules.snapshot import read_rule_samples
from tradewind.rules.spec import Rule
from tradewind.rules.store import RuleStore
from tradewind.tasks.plane import Plane

#: Rules whose last execution is read, of those that ever failed, and rules that are tried out.
LOOKED_AT = 100
#: A delivery that was tried so often keeps failing.
ATTEMPTS = 3
#: Resolved alarms that nobody acknowledged: from so many on they are a burden.
UNSEEN = 1000


async def rules(plane: Plane) -> list[Check]:
    store = RuleStore(plane.link, plane.keys, plane.all_settings)
    now = await store.load()
    lead = plane.keys.rules_leader()
    home = PointPlane(plane.link, plane.all_settings).home
    leader, report = await home.ask([("GET", lead), ("GET", plane.keys.progress(lead))])
    enabled = [rule_id for rule_id, spec in now.specs.items() if spec.enabled]
    said = f"{len(enabled)} of {len(now.rules)} rules enabled"
    found = [role("rulesrv", leader, report, said, is_needed=bool(enabled))]
    left_out = {problem.path.partition(".")[0]: problem for problem in reversed(now.problems)}
    for rule_id, problem in list(left_out.items())[:NAMED]:
        detail = f"{rule_id} is not judged: {problem.path.partition('.')[2] or problem.code}"
        found.append(Check("rule left out", "warn", detail, f"{problem.hint}; then `tradewind rule update FILE`"))
    if len(left_out) > NAMED:
        detail = f"and {len(left_out) - NAMED} more are not judged"
        found.append(Check("rule left out", "warn", detail, "`tradewind rule list --state faulty` shows them all"))
    figures = await store.history.figures(enabled)
    if stopped := [rule_id for rule_id in enabled if figures[rule_id].stopped_ms]:
        hint = "they fed themselves: mend them, then `tradewind rule enable ID`"
        found.append(Check("rule stopped", "warn", f"{len(stopped)} by the loop guard: {named(stopped)}", hint))
    failing: dict[str, str] = {}
    for rule_id in sorted((i for i in enabled if figures[i].failed), key=lambda i: -figures[i].last_ms)[:LOOKED_AT]:
        last = await store.history.read(rule_id, limit=1)
        if last and not last[0].success:
            failing[rule_id] = last[0].error_message or "an action failed"
    if failing:
        rule_id, error = next(iter(failing.items()))
        detail = f"the last execution of {len(failing)} failed: {named(list(failing))}; {rule_id}: {error}"
        found.append(Check("rule errors", "warn", detail, f"`tradewind rule history {rule_id}` says more"))
    points = PointPlane(plane.link, plane.all_settings)
    try:
        wrong = {i: run.error for i in enabled[:LOOKED_AT] if (run := await dry_run(points, now.specs[i])).error}
        found += await _led_nowhere(points, [now.specs[rule_id] for rule_id in enabled])
    finally:
        await points.close()
    if wrong:
        rule_id, error = next(iter(wrong.items()))
        detail = f"{len(wrong)} cannot be judged now: {named(list(wrong))}; {rule_id}: {error}"
        found.append(Check("rule judged", "warn", detail, f"`tradewind rule test {rule_id}` shows its values"))
    return found


async def _led_nowhere(points: PointPlane, rules: Sequence[Rule]) -> list[Check]:
    """Rules that name what is not there, or that read what has no value."""
    found = []
    dangling: dict[str, Problem] = {}
    for at, problem in await find_dangling(points, rules):
        dangling.setdefault(rules[at].id, problem)
    if dangling:
        rule_id, problem = next(iter(dangling.items()))
        detail = f"{len(dangling)} name what is not there: {named(list(dangling))}; {rule_id}: {problem.path}"
        found.append(Check("rule references", "warn", detail, problem.hint))
    sources = {rule.id: [a for a in rule.addresses if not a.startswith("alarm:")] for rule in rules}
    known = await read_rule_samples(points, dict.fromkeys(a for each in sources.values() for a in each))
    silent = {i: missing[0] for i, each in sources.items() if (missing := [a for a in each if a not in known])}
    if silent:
        rule_id, address = next(iter(silent.items()))
        detail = f"{len(silent)} read what has no value: {named(list(silent))}; {rule_id}: {address}"
        found.append(Check("rule sources", "warn", detail, f"`tradewind rule test {rule_id}` shows its values"))
    return found


async def alarms(plane: Plane) -> list[Check]:
    from tradewind.alarms.statistics import read_statistics
    from tradewind.alarms.unseen import count_unseen

    points = PointPlane(plane.link, plane.all_settings)
    figures = await read_statistics(points, 1)
    lead = plane.keys.alarms_leader()
    leader, report = await points.home.ask([("GET", lead), ("GET", plane.keys.progress(lead))])
    count, waiting = sum(figures.open.values()), figures.journal_waiting
    hint = "is the role alarmsrv running, and SQL reachable? see `tradewind status`"
    found = [
        role("alarmsrv", leader, report, f"{count} alarms open", is_needed=bool(count or waiting)),
        bounded("alarm journal", waiting, plane.all_settings.alarms.journal_max, hint),
    ]
    unseen = await count_unseen(points)
    detail = f"{unseen} resolved alarms stay: nobody has acknowledged them"
    hint = "`tradewind alarm list --status Resolved` shows them; `tradewind alarm ack ID…`, then they go with time"
    status = "ok" if unseen < UNSEEN else "warn"
    found.append(Check("alarms unacknowledged", status, detail, "" if status == "ok" else hint))
    for reader, lost in figures.journal_dropped.items():
        if lost:
            whose = "SQL" if reader == "sql" else reader
            detail = f"{lost} transitions were dropped before {whose} had them"
            hint = f"see the alarm of alarms:journal:{reader}; keep the reader running, or raise alarms.journal_max"
            found.append(Check("alarm journal drops", "warn", detail, hint))
    return found


async def notifications(plane: Plane) -> list[Check]:
    keys, settings = plane.keys, plane.all_settings
    leader, waiting, dropped, targets = await PointPlane(plane.link, settings).home.ask(
        [
            ("GET", keys.notify_leader()),
            ("XLEN", keys.notify_outbox()),
            ("HGET", keys.notify_figures(), "dropped"),
            ("HGETALL", keys.notify_targets()),
        ]
    )
    pending = await NotifyStore(NotifyPlane(plane.link, settings)).pending()
    found = []
    if (waiting or pending) and not leader:
        hint = "start one: `tradewind up` or `tradewind run alarmsrv`"
        detail = f"nobody sends them: {waiting} messages and {len(pending)} deliveries wait"
        found.append(Check("notifications", "fail", detail, hint))
    else:
        found.append(Check("notifications", "ok", f"{len(pending)} deliveries wait"))
    hint = "is the role alarmsrv running? see `tradewind status`"
    found.append(bounded("notification outbox", waiting, settings.notify.outbox_max, hint))
    if int(dropped or 0):
        hint = "see the alarm of notifications:outbox; keep alarmsrv running, or raise notify.outbox_max"
        detail = f"{int(dropped)} messages were dropped before anybody was told"
        found.append(Check("notification drops", "warn", detail, hint))
    failing = {field.decode().rpartition(":")[0]: "given up" for field in targets if field.endswith(b":failing")}
    failing |= {
        each.target: f"tried {each.attempts} times: {each.error}" for each in pending if each.attempts >= ATTEMPTS
    }
    for target, why in sorted(failing.items()):
        hint = f"`tradewind notify test {target}` tries it; `tradewind notify log --target {target}` says more"
        found.append(Check("notification target", "warn", f"{target} keeps failing: {why}", hint))
    return found
