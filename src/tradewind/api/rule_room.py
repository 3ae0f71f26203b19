"""What the API needs of the rules, alarms and notifications of a station, and how it shows a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tradewind.alarms.statistics import AlarmStatistics, PeriodStatistics
from tradewind.alarms.store import AlarmStore
from tradewind.clock import iso
from tradewind.errors import Unavailable
from tradewind.notify.store import NotifyStore
from tradewind.points.plane import PointPlane
from tradewind.rules.backtest_series import Series
from tradewind.rules.definitions import Definitions, judged
from tradewind.rules.dry_run import DryRun
from tradewind.rules.history import RuleFigures
from tradewind.rules.references import find_dangling
from tradewind.rules.spec import Rule
from tradewind.rules.standing import read_active
from tradewind.rules.store import RuleStore

STATES = ("active", "inactive", "waiting", "stopped", "disabled", "faulty")
#: What is shown with a rule and is not of its definition; a definition that comes back with it is taken without.
SHOWN = ("state", "figures", "problems", "warnings")


class RuleServices(Protocol):
    """What the API needs of the rule room of a station."""

    @property
    def plane(self) -> PointPlane: ...
    @property
    def rules(self) -> RuleStore: ...
    @property
    def alarms(self) -> AlarmStore: ...
    @property
    def notify(self) -> NotifyStore: ...

    async def test(self, rule: Rule) -> DryRun:
        """What the rule says of the plant now; nothing is done."""
        ...

    async def recorded(self, addresses: Sequence[str], from_ms: int, to_ms: int) -> Mapping[str, Series]:
        """What the history has of these sources, both times included."""
        ...

    async def statistics(self, talkers: int = 10) -> AlarmStatistics: ...

    async def period(self, from_ms: int, to_ms: int, talkers: int = 10) -> PeriodStatistics:
        """Both times included."""
        ...


async def warnings_of(room: RuleServices, rules: Sequence[Rule]) -> list[dict[str, str]]:
    """What they name that is not there. Paths begin with `rules[2].` when there are several rules."""
    try:
        found = await find_dangling(room.plane, rules)
    except Unavailable as error:  # what was asked for is done, so that is no reason to refuse it
        hint = f"whether all that is named is there could not be looked up: {error.message}"
        return [{"code": "not_checked", "path": "", "hint": hint}]
    many = len(rules) > 1
    return [
        {"code": each.code, "path": f"rules[{at}].{each.path}" if many else each.path, "hint": each.hint}
        for at, each in found
    ]


async def rule_views(
    room: RuleServices, documents: Sequence[dict[str, Any]], now: Definitions | None = None
) -> list[dict[str, Any]]:
    """Each as it is stored, with how it stands, what it did, and what is wrong with it. `now`: in which they stand."""
    now, ids = now or judged(documents), [document["id"] for document in documents]
    figures, active = await room.rules.history.figures(ids), await read_active(room.plane, ids)
    problems: dict[str, list[dict[str, str]]] = {}
    for problem in now.problems:
        owner, _, path = problem.path.partition(".")
        problems.setdefault(owner, []).append({"code": problem.code, "path": path, "hint": problem.hint})
    return [
        {
            **_whole(document, is_faulty=document["id"] not in now.specs),
            "state": _state(document, now, figures[document["id"]], active[document["id"]]),
            "figures": figures_view(figures[document["id"]]),
            "problems": problems.get(document["id"], []),
        }
        for document in documents
    ]


#: What everybody who shows a rule may rely on, also of one that another program wrote.
_FIELDS: dict[str, Any] = {
    "name": "", "description": "", "group_id": "", "enabled": True, "priority": 0, "conditions": [], "actions": [],
    "created_at": "", "updated_at": "", "version": 0,
}  # fmt: skip


def _whole(document: dict[str, Any], *, is_faulty: bool) -> dict[str, Any]:
    """With every field. Of a faulty one what is of a wrong kind is left out; it is told among the problems."""
    found = {**_FIELDS, **document}
    if is_faulty:
        found |= {name: default for name, default in _FIELDS.items() if not isinstance(found[name], type(default))}
        found["actions"] = [each for each in found["actions"] if isinstance(each, dict) and "type" in each]
        found["conditions"] = [each for each in found["conditions"] if isinstance(each, dict)]
    return found


def figures_view(figures: RuleFigures) -> dict[str, Any]:
    return {
        "executions": figures.executions,
        "triggered": figures.triggered,
        "failed": figures.failed,
        "success_rate": figures.success_rate,
        "mean_ms": figures.mean_ms,
        "last_at": iso(figures.last_ms) if figures.last_ms else None,
        "fired_at": iso(figures.fired_ms) if figures.fired_ms else None,
        "stopped_at": iso(figures.stopped_ms) if figures.stopped_ms else None,
    }


def _state(document: dict[str, Any], now: Definitions, figures: RuleFigures, is_active: bool | None) -> str:
    if document["id"] not in now.specs:
        return "faulty"
    if not document.get("enabled", True):
        return "disabled"
    if figures.stopped_ms:
        return "stopped"
    return "waiting" if is_active is None else "active" if is_active else "inactive"
