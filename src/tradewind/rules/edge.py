"""From the level of a rule to its edges: start-up, delays, cool-down, pulses, unknown data. Pure."""

from __future__ import annotations

from tradewind.rules.spec import Rule
from tradewind.rules.state import RuleState

_ON_BAD = {"hold": None, "false": False, "true": True}


def wanted_of(rule: Rule, level: bool | None) -> bool | None:
    """What the rule would be at that level without delays; None: as it is."""
    return _ON_BAD[rule.on_bad] if level is None else level


def is_waiting(rule: Rule, state: RuleState, level: bool | None) -> bool:
    """Whether `turn` may do something although the level stays as it is."""
    if not state.is_settled or state.timer.is_started:
        return True
    wanted = wanted_of(rule, level)
    return wanted is not None and wanted is not state.is_active


def turn(
    rule: Rule, state: RuleState, level: bool | None, event: int, moment: int, is_pulsed: bool
) -> tuple[str, int, bool]:
    """Edge, its time, whether anything changed. `level`: of all conditions, since `event`; `is_pulsed`: it was false
    for an instant."""
    timer = state.timer
    wanted = wanted_of(rule, level)
    if not state.is_settled:
        # By on_bad unknown is a level, too: what becomes true after it is an edge.
        if wanted is None or (level is None and state.is_doubtful):
            return "", 0, False
        state.is_settled = True
        state.is_first = wanted
        if not wanted:
            return "", 0, True
    if wanted is None:
        return "", 0, timer.pause(event)
    is_moved = False
    if is_pulsed and not rule.off_delay_ms:
        is_moved = timer.stop()
        state.is_first = False
        if state.is_active:
            if ready_ms(rule, state, event) <= event:
                state.risen_ms = event
                return "rise", event, True
            state.is_active = False
            timer.run(event)
            return "fall", event, True
    if wanted is state.is_active:
        state.is_first = False
        return "", 0, timer.stop() or is_moved
    has_begun = timer.run(event)
    is_moved |= has_begun
    ready = ready_ms(rule, state, timer.since_ms) if wanted else timer.since_ms + rule.off_delay_ms
    if moment < ready:
        return "", 0, is_moved
    if has_begun:  # what was ready while nothing was known is an edge only now
        ready = max(ready, event)
    timer.stop()
    state.is_active = wanted
    if not wanted:
        return "fall", ready, True
    state.risen_ms = ready
    return "rise", ready, True


def ready_ms(rule: Rule, state: RuleState, since_ms: int) -> int:
    """When a level that is true since then becomes a rise."""
    ready = since_ms + rule.for_ms
    return max(ready, state.risen_ms + rule.cooldown_ms) if state.risen_ms >= 0 else ready
