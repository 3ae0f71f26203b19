"""From a document (JSON, already parsed) to a Rule, with every problem at once. Pure."""

from __future__ import annotations

from typing import Any

from tradewind.clock import from_iso
from tradewind.models.fields import Fields, Report
from tradewind.problems import Problems
from tradewind.rules.action_reading import ActionReader
from tradewind.rules.condition_reading import ConditionReader
from tradewind.rules.document_fields import choice, delay, hysteresis, milliseconds
from tradewind.rules.spec import BUILT_IN, LOGICS, ON_BAD, ON_STARTUP, Rule, leaves_of
from tradewind.rules.template import names_for

RULE_FIELDS = (
    "id", "name", "description", "group_id", "enabled", "priority", "logic", "conditions", "actions", "for_ms",
    "on_delay_ms", "off_delay_ms", "cooldown_ms", "hysteresis", "deadband", "on_bad", "on_startup", "inhibited_by",
    "latched", "version", "created_at", "updated_at",
)  # fmt: skip
MAX_PRIORITY = 1_000_000
MAX_TEXT = 4_000


def read_rule(document: Any) -> tuple[Rule | None, Problems]:
    """The rule, or None and everything that is wrong with it; paths such as `conditions[0].value`."""
    report = Report()
    fields = Fields(document, "", report, RULE_FIELDS)
    if not fields.is_object:
        return None, report.problems
    for name in ("id", "group_id"):
        if type(fields.items.get(name)) in (int, float):  # what is stored would be looked for under another name
            fields.wrong(name, "text")
    rule_id = fields.id("id", is_key=True)
    if rule_id in BUILT_IN:
        report.add("bad_name", "id", f"{rule_id!r} is the name of alarms that no rule raises; choose another one")
    band = hysteresis(fields) or 0.0
    conditions = ConditionReader(report, band).read_all(fields)
    names = names_for({leaf.field for leaf in leaves_of(conditions)})
    latched = fields.flag("latched", False)
    rule = Rule(
        id=rule_id,
        name=_text(fields, "name"),
        description=_text(fields, "description"),
        group_id=fields.id("group_id", is_key=True) if fields.items.get("group_id") else "",
        enabled=fields.flag("enabled", True),
        priority=_whole(fields, "priority", -MAX_PRIORITY, MAX_PRIORITY),
        logic=choice(fields, "logic", LOGICS, "all"),
        conditions=conditions,
        actions=ActionReader(report, names, latched=latched).read_all(fields),
        for_ms=delay(fields, "for_ms", "on_delay_ms"),
        off_delay_ms=milliseconds(fields, "off_delay_ms"),
        cooldown_ms=milliseconds(fields, "cooldown_ms"),
        hysteresis=band,
        on_bad=choice(fields, "on_bad", ON_BAD, "hold"),
        on_startup=choice(fields, "on_startup", ON_STARTUP, "skip"),
        inhibited_by=_inhibited_by(fields, rule_id),
        latched=latched,
        version=_whole(fields, "version", 0, 2**53),
        created_at=_time(fields, "created_at"),
        updated_at=_time(fields, "updated_at"),
    )
    return (None if report.problems else rule), report.problems


def _text(fields: Fields, name: str) -> str:
    text = fields.text(name)
    if len(text) > MAX_TEXT:
        fields.report.add("too_long", fields.at(name), f"at most {MAX_TEXT} characters")
    return text


def _whole(fields: Fields, name: str, least: int, most: int) -> int:
    found = fields.number(name)
    if found is None:
        return 0
    if not found.is_integer() or not least <= found <= most:
        fields.report.add("out_of_range", fields.at(name), f"a whole number from {least} to {most}")
        return 0
    return int(found)


def _inhibited_by(fields: Fields, rule_id: str) -> tuple[str, ...]:
    found = []
    for i, item in enumerate(fields.list("inhibited_by")):
        path = f"inhibited_by[{i}]"
        # Each is read like a field of its own, so that it is checked by the rules of ids.
        found.append(Fields({path: item}, "", fields.report, (path,)).id(path))
        if rule_id and item == rule_id:
            fields.report.add("itself", path, "a rule cannot suppress its own alarms: name other ones")
    return tuple(found)


def _time(fields: Fields, name: str) -> str:
    text = fields.text(name)
    if text:
        try:
            from_iso(text)
        except ValueError:
            fields.report.add("bad_time", fields.at(name), "write such as 2024-01-01T10:00:00Z")
    return text
