"""Texts and values of actions: `{value}` in a text, an expression after `=`. Pure.

Known names: value, threshold, source, field, edge, cause, time, rule.id, rule.name, rule.description, rule.group_id,
rule.priority, and each `field` of the conditions for its value. `{value:.1f}` rounds; `{{` and `}}` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from tradewind.clock import iso
from tradewind.errors import Invalid
from tradewind.expr import compile_expression
from tradewind.models.fields import Report, did_you_mean
from tradewind.rules.spec import Compare, Rate, Rule, Window
from tradewind.rules.verdict import Verdict, show

COMMON = frozenset(
    ("value", "threshold", "source", "field", "edge", "cause", "time",
     "rule.id", "rule.name", "rule.description", "rule.group_id", "rule.priority")
)  # fmt: skip
MAX_TEXT = 4_000
_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SPEC = re.compile(r"(?:\.[0-9]{1,2})?[fge]")


def names_for(rule_fields: Collection[str]) -> frozenset[str]:
    """All names that templates of a rule with conditions of these fields may use."""
    return COMMON | {field for field in rule_fields if field}


def check(value: Any, names: Collection[str], path: str, report: Report) -> None:
    """Write down what is wrong with the texts in a value, lists and objects included."""
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            report.add("too_long", path, f"{len(value)} characters are too many, {MAX_TEXT} are allowed")
        elif value.startswith("="):
            _check_expression(value, names, path, report)
        else:
            check_text(value, names, path, report)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check(item, names, f"{path}.{key}", report)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            check(item, names, f"{path}[{i}]", report)


def check_text(text: str, names: Collection[str], path: str, report: Report) -> None:
    if len(text) > MAX_TEXT:
        report.add("too_long", path, f"{len(text)} characters are too many, {MAX_TEXT} are allowed")
        return
    for match in _PART.finditer(text):
        if match[0] in ("{", "}"):
            report.add("bad_template", path, f"a lone {match[0]}: write {match[0] * 2} for the character itself")
        elif match[1] is not None:
            name, _, spec = match[1].partition(":")
            if name not in names:
                report.add("unknown_name", path, f"{match[0][:80]}: {did_you_mean(name, names)}")
            elif spec and _SPEC.fullmatch(spec) is None:
                report.add("bad_template", path, f"{match[0][:80]}: write such as {{{name}:.1f}}")


def context(rule: Rule, verdict: Verdict) -> dict[str, Any]:
    """What names stand for in the actions of an edge. Values that are not known are None."""
    found: dict[str, Any] = {name: result.get("actual_value") for name, result in verdict.conditions_result.items()}
    found.update(
        {
            "value": verdict.value, "threshold": threshold_of(rule, verdict), "source": verdict.source,
            "field": verdict.field, "edge": verdict.edge, "cause": verdict.cause, "time": iso(verdict.at_ms),
            "rule.id": rule.id, "rule.name": rule.name, "rule.description": rule.description,
            "rule.group_id": rule.group_id, "rule.priority": rule.priority,
        }
    )  # fmt: skip
    return found


def threshold_of(rule: Rule, verdict: Verdict) -> float | str | None:
    """The value that the triggering condition compares with; else that of the first that has one."""
    found = [leaf for leaf in rule.leaves() if isinstance(leaf, (Compare, Rate, Window))]
    own = [leaf for leaf in found if leaf.source == verdict.source] or found
    return own[0].value if own else None


def fill(value: Any, names: Mapping[str, Any]) -> Any:
    """The value with its texts filled in, lists and objects included. Raises ExpressionError, an Invalid, when an
    expression has no value, for one because what it needs is not known."""
    if isinstance(value, str):
        return _evaluate(value, names) if value.startswith("=") else fill_text(value, names)
    if isinstance(value, Mapping):
        return {key: fill(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill(item, names) for item in value]
    return value


def fill_text(text: str, names: Mapping[str, Any]) -> str:
    if "{" not in text and "}" not in text:
        return text
    return "".join(_filled(part, names) for part in _parts(text))


def number_for(value: float | str, names: Mapping[str, Any]) -> float:
    """The number that a control action writes. Raises Invalid when there is none."""
    found = fill(value, names)
    if isinstance(found, bool):
        return float(found)
    if isinstance(found, (int, float)):
        return float(found)
    raise Invalid(f"{value!r} gives {found!r}, not a number", code="not_a_number", hint="write a number or =expression")


@lru_cache(maxsize=1024)
def _parts(text: str) -> tuple[str | tuple[str, str], ...]:
    """Plain pieces, and names with how they are shown."""
    parts: list[str | tuple[str, str]] = []
    at = 0
    for match in _PART.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        if match[1] is None:
            parts.append(match[0][0])
        else:
            name, _, spec = match[1].partition(":")
            parts.append((name, spec))
    return (*parts, text[at:])


def _filled(part: str | tuple[str, str], names: Mapping[str, Any]) -> str:
    if isinstance(part, str):
        return part
    name, spec = part
    value = names.get(name)
    if spec and isinstance(value, (int, float)):
        return format(value, spec)
    return "unknown" if value is None else show(value)


def _identifiers(names: Collection[str]) -> Iterator[str]:
    return (name for name in names if name.isidentifier())


def _check_expression(text: str, names: Collection[str], path: str, report: Report) -> None:
    try:
        compile_expression(text[1:], names=frozenset(_identifiers(names)))
    except Invalid as error:
        for problem in error.problems:
            report.add(problem.code, path, f"{problem.path}: {problem.hint}")


def _evaluate(text: str, names: Mapping[str, Any]) -> Any:
    known = {name: value for name, value in names.items() if value is not None}
    return compile_expression(text[1:])(known)
