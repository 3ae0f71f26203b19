"""What a rule would say of the plant as it is now, and what it would do. Nothing is done and nothing is stored."""

from __future__ import annotations

from typing import Any

import msgspec

from tradewind.clock import iso
from tradewind.errors import Invalid, NotFound
from tradewind.points.plane import PointPlane
from tradewind.rules.action_targets import must_have_target
from tradewind.rules.effects import alarm_step, filled
from tradewind.rules.engine import Ages
from tradewind.rules.history_record import Checked
from tradewind.rules.lead import ServerClock
from tradewind.rules.network import RuleNetwork
from tradewind.rules.open_alarms import alarm_samples
from tradewind.rules.program import RuleProgram, RuleState, Verdict
from tradewind.rules.snapshot import channels_seen, read_rule_samples
from tradewind.rules.spec import Action, CreateAlarm, Rule, SendNotification, kind_of
from tradewind.rules.template import context, fill_text
from tradewind.rules.verdict import Sample

_QUALITIES = ("good", "uncertain", "bad", "stale", "substituted")


class Source(msgspec.Struct, frozen=True):
    """What a rule reads. `quality` good, uncertain, bad or stale; missing without a value."""

    value: float | str | None
    at: str | None
    quality: str


class WouldDo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action with its values; `error` says why it could not be done."""

    type: str
    parameters: dict[str, Any] = {}
    error: str = ""


class DryRun(msgspec.Struct, frozen=True):
    """`level`: of all conditions together, None when unknown; delays (`for_ms`, …) are not waited for. `actions`: what
    a rise would do now, if the level is true."""

    rule_id: str
    at: str
    level: bool | None
    conditions: dict[str, Checked]
    sources: dict[str, Source]
    actions: list[WouldDo]
    error: str = ""


async def dry_run(plane: PointPlane, rule: Rule, ages: Ages | None = None) -> DryRun:
    """Raises Unavailable."""
    clock = ServerClock(plane)
    now = await clock.look()
    network = RuleNetwork(
        [msgspec.structs.replace(rule, enabled=True)],
        int(plane.settings.stale_s * 1000),
        await ages() if ages is not None else {},
        future_ms=int(plane.settings.future_s * 1000),
    )
    samples = await read_rule_samples(plane, network.addresses)
    samples |= await alarm_samples(plane, network.alarm_conditions, now)
    network.start(samples, now)
    network.age(now, await channels_seen(plane, network.overdue(now)))
    found = report(network.programs[rule.id], network.states[rule.id], samples, now)
    if not found.actions:
        return found
    pairs = zip(_rising(rule), found.actions, strict=True)
    return msgspec.structs.replace(found, actions=[await _checked(plane, action, would) for action, would in pairs])


async def _checked(plane: PointPlane, action: Action, would: WouldDo) -> WouldDo:
    try:
        await must_have_target(plane, action)
    except NotFound as error:
        return msgspec.structs.replace(would, error=would.error or error.message)
    return would


def _rising(rule: Rule) -> list[Action]:
    return [action for action in rule.actions if action.on in ("rise", "both")]


def report(program: RuleProgram, state: RuleState, samples: dict[str, Sample], now_ms: int) -> DryRun:
    results = program.results(state, now_ms)
    level = program.level(state)
    rule = program.rule
    first = next(iter(results.values()), {})
    name = next(iter(results), "")
    verdict = Verdict("rise", True, "test", now_ms, results, rule.source, name, first.get("actual_value"))
    return DryRun(
        rule.id,
        iso(now_ms),
        level,
        {name: Checked.of(found) for name, found in results.items()},
        {address: _source(samples.get(address), state, at) for at, address in enumerate(program.addresses)},
        [_would(rule, verdict, action) for action in _rising(rule)] if level else [],
        program.error,
    )


def _source(sample: Sample | None, state: RuleState, at: int) -> Source:
    if sample is None or sample.value is None:
        return Source(None, None, "missing")
    return Source(sample.value, iso(sample.ts_ms), _QUALITIES[max(sample.quality, state.qualities[at])])


def _would(rule: Rule, verdict: Verdict, action: Action) -> WouldDo:
    kind, names = kind_of(action), context(rule, verdict)
    if isinstance(action, CreateAlarm):
        step = alarm_step(rule, verdict, action, names, "")
        hidden = ("id", "nonce")
        return WouldDo(kind, {name: value for name, value in step[2].items() if name not in hidden} if step else {})
    if isinstance(action, SendNotification):
        return WouldDo(kind, {"recipients": list(action.recipients), "message": fill_text(action.message, names)})
    try:
        found: dict[str, Any] = msgspec.to_builtins(filled(action, names))
    except Invalid as error:
        return WouldDo(kind, error=error.message)
    return WouldDo(kind, {name: value for name, value in found.items() if name not in ("type", "on")})
