"""What an edge of a rule brings about: steps for rule_commit, and a job for the action runner. Pure.

Alarms and notifications are done by the script that stores the edge; all other actions are a job in the outbox, with
their texts and values filled in as things stood at the edge.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from tradewind.errors import Invalid
from tradewind.rules.chains import targets
from tradewind.rules.history_record import ActionResult, Checked, Context, Execution, encode, new_execution_id
from tradewind.rules.network import Fired
from tradewind.rules.program import Verdict
from tradewind.rules.spec import (
    Action,
    CreateAlarm,
    LogEvent,
    Rule,
    SendControl,
    SendNotification,
    SetValue,
    StartFlow,
    SubmitTask,
    kind_of,
)
from tradewind.rules.template import context, fill, fill_text, number_for, threshold_of

_pack = msgspec.msgpack.Encoder().encode
Act = SendControl | LogEvent | StartFlow | SubmitTask | SetValue
MAX_TITLE = 200
MAX_TEXT = 4_000


class Job(msgspec.Struct, frozen=True):
    """What is left to do of an execution. `acts`: place among the rule's actions, and the action with its values. The
    execution has the results of what was done or refused before."""

    execution: Execution
    began_ms: int
    acts: list[tuple[int, Act]]


class LoopNote(msgspec.Struct, frozen=True, array_like=True):
    """What the loop guard remembers in a rule's state: when it acted lately, and the version that was stopped."""

    acted_ms: tuple[int, ...] = ()
    stopped_version: int = 0


class Effects(msgspec.Struct, frozen=True):
    """Packed steps; what the loop guard remembers from now on; addresses that the actions write."""

    steps: list[bytes]
    note: LoopNote
    written: list[str] = []


def read_note(note: Any, rule: Rule) -> LoopNote:
    """A rule that was enabled or edited since it was stopped goes on."""
    try:
        found = msgspec.convert(note, LoopNote) if note is not None else LoopNote()
    except msgspec.ValidationError:
        found = LoopNote()
    return LoopNote() if found.stopped_version and found.stopped_version != rule.version else found


def effects_of(
    fired: Fired, note: LoopNote, now_ms: int, began_ms: int, *, chain: int = 0, loop_depth: int, loop_window_ms: int
) -> Effects:
    """`began_ms`: when the round began that found the edge; the loop guard counts with `now_ms`. `chain`: how many
    actions of rules, one after the other, led to the edge."""
    rule, verdict = fired.rule, fired.verdict
    steps: list[Any] = []
    acts: list[tuple[int, Act]] = []
    executed: list[str] = []
    results: list[ActionResult] = []
    names = context(rule, verdict)
    execution_id = new_execution_id()
    refused, note, error = _may_act(rule, verdict, note, now_ms, chain, loop_depth, loop_window_ms)
    for at, action in enumerate(rule.actions):
        if isinstance(action, CreateAlarm):
            step = alarm_step(rule, verdict, action, names, f"{execution_id}:{at}")
            if step is not None:
                steps.append(step)
                executed += [kind_of(action)] if step[0] == "raise" else []
        elif action.on not in (verdict.edge, "both"):
            continue
        elif refused:
            if refused != "startup":
                results.append(ActionResult(kind_of(action), False, code=refused, error=_WHY[refused]))
        elif isinstance(action, SendNotification):
            steps.append(("tell", rule.id, _notification(rule, verdict, action, names, now_ms, f"{execution_id}:{at}")))
            executed.append(kind_of(action))
        else:
            try:
                acts.append((at, filled(action, names)))
            except Invalid as problem:
                results.append(ActionResult(kind_of(action), False, code=problem.code, error=problem.message))
    failure = error or next((result.error for result in results), "")
    execution = Execution(
        id=execution_id,
        rule_id=rule.id,
        timestamp=now_ms,
        triggered=verdict.edge == "rise",
        conditions_result={name: Checked.of(found) for name, found in verdict.conditions_result.items()},
        actions_executed=executed,
        success=not failure,
        duration_ms=max(0, now_ms - began_ms),
        error_message=failure or None,
        context=Context(verdict.source, verdict.value),
        cause="" if verdict.cause == "sample" else verdict.cause,
        results=results,
        substituted=verdict.substituted,
    )
    if acts:
        steps.append(("act", rule.id, msgspec.json.encode(Job(execution, began_ms, acts)).decode()))
    else:
        steps.append(told(execution))
    if error:
        steps.append(("stop", rule.id, error))
    return Effects(list(map(_pack, steps)), note, targets([act for _, act in acts]))


def told(execution: Execution) -> tuple[Any, ...]:
    """The step that writes an execution down."""
    triggered, failed = int(execution.triggered), int(not execution.success)
    return "told", execution.rule_id, encode(execution).decode(), triggered, failed, execution.duration_ms


def pack_clear(rule_id: str, source: str) -> bytes:
    """The step that resolves an alarm whose rule is not true, without an edge."""
    return _pack(("clear", rule_id, source, ""))


_WHY = {
    "bad_data": "bad or missing data decided: it starts no action",
    "loop": "the loop guard has stopped the rule; enable or edit it to let it go on",
}


def _may_act(
    rule: Rule, verdict: Verdict, note: LoopNote, now_ms: int, chain: int, depth: int, window_ms: int
) -> tuple[str, LoopNote, str]:
    """Why nothing but alarms may happen (`` = it may), what the guard remembers, what it says if it stops the rule."""
    if verdict.cause == "bad":
        return "bad_data", note, ""
    if verdict.cause == "startup" and rule.on_startup != "run":
        return "startup", note, ""
    if not rule.is_acting or not any(_acts(action, verdict.edge) for action in rule.actions):
        return "", note, ""
    if note.stopped_version:
        return "loop", note, ""
    # Not after now: the clock may have been set back.
    lately = (*(at for at in note.acted_ms if now_ms - window_ms < at <= now_ms), now_ms)
    if len(lately) <= depth and chain < depth:
        return "", LoopNote(lately), ""
    if len(lately) > depth:
        why = f"acted {len(lately)} times within {window_ms / 1000:g} s and is stopped: it may feed itself"
    else:
        why = (
            f"is stopped: {chain} actions of rules, each set off by the one before, led to this one by {verdict.source}"
        )
    error = f"rule {rule.id!r} {why}"
    return "loop", LoopNote((), max(rule.version, 1)), error


def _acts(action: Action, edge: str) -> bool:
    return isinstance(action, (SendControl, StartFlow, SubmitTask, SetValue)) and action.on in (edge, "both")


def _flagged(text: str, verdict: Verdict) -> str:
    """An alarm says when it rests on what people say instead of devices."""
    if not verdict.substituted:
        return text
    return f"{text} (substituted: {', '.join(verdict.substituted)})".lstrip()


def alarm_step(
    rule: Rule, verdict: Verdict, action: CreateAlarm, names: Mapping[str, Any], nonce: str
) -> tuple[Any, ...] | None:
    """Raised at its edge, cleared at the other one."""
    actual = shown(verdict.value)
    if action.on not in (verdict.edge, "both"):
        return "clear", rule.id, rule.source, actual
    return (
        "raise",
        rule.id,
        {
            "id": f"alarm_{uuid.uuid4()}",
            "rule_id": rule.id,
            "source": rule.source,
            "level": action.level,
            "title": fill_text(action.title, names)[:MAX_TITLE] or rule.id,
            "description": _flagged(fill_text(action.description, names), verdict)[:MAX_TEXT],
            "category": action.category,
            "tags": msgspec.json.encode(action.tags).decode(),
            "threshold": shown(threshold_of(rule, verdict)),
            "actual": actual,
            "latched": action.latched or rule.latched,
            "nonce": nonce,
            **({"escalate_ms": action.escalate_ms} if action.escalate_ms is not None else {}),
            **({"notify": list(action.notify)} if action.notify is not None else {}),
            **({"inhibited_by": list(rule.inhibited_by)} if rule.inhibited_by else {}),
        },
    )


def shown(value: float | str | None) -> str:
    """A value as the seed's records have it: `75.0`, `78.5`; `` for none."""
    return "" if value is None else str(float(value)) if isinstance(value, (int, float)) else value


def _notification(
    rule: Rule, verdict: Verdict, action: SendNotification, names: Mapping[str, Any], now_ms: int, key: str
) -> list[str]:
    """The entry of notify:outbox, flat."""
    text = fill_text(action.message, names)[:MAX_TEXT]
    title = rule.name or rule.id
    fields = {
        "kind": "rule", "event": "message", "alarm_id": "", "rule_id": rule.id, "source": rule.source, "level": "Info",
        "title": title, "text": text, "actual": shown(verdict.value),
        "targets": msgspec.json.encode(action.recipients).decode() if action.recipients else "",
        "flood": "0", "at": str(now_ms), "key": key,
    }  # fmt: skip
    return [part for pair in fields.items() for part in pair]


def filled(action: Act, names: Mapping[str, Any]) -> Act:
    """With values in place of templates. Raises Invalid when a value cannot be had."""
    replace = msgspec.structs.replace
    if isinstance(action, SendControl):
        value = number_for(action.value, names)
        return replace(action, value=value, address=action.address_for(value))
    if isinstance(action, SetValue):
        given = action.value
        is_text = isinstance(given, str) and not given.startswith("=")
        return replace(action, value=fill_text(str(given), names) if is_text else number_for(given, names))
    if isinstance(action, LogEvent):
        return replace(action, message=fill_text(action.message, names)[:MAX_TEXT])
    if isinstance(action, StartFlow):
        return replace(action, payload=fill(action.payload, names))
    return replace(action, args=tuple(fill(action.args, names)), kwargs=fill(action.kwargs, names))
