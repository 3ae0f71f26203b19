"""How people see a rule, and what a dry run found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind.cli.output import cell, facts, short, status_cell, table

if TYPE_CHECKING:
    from rich.console import RenderableType


def rule_view(rule: dict[str, Any]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    figures = rule["figures"]
    hidden = {"id", "name", "description", "state", "figures", "problems", "conditions", "actions", "enabled"}
    head = [
        ("rule", f"{rule['id']} {rule['name']}".rstrip()),
        *([("description", rule["description"])] if rule["description"] else []),
        ("state", status_cell(rule["state"])),
        *[(name, value) for name, value in rule.items() if name not in hidden and value not in ("", None)],
        ("fired", f"{figures['triggered']} ({figures['executions']} executions, {figures['failed']} failed)"),
        ("last fired", figures["fired_at"] or "-"),
        ("last edge", figures["last_at"] or "-"),
        *[("problem", f"{p['path']}: {p['hint']}") for p in rule["problems"]],
    ]
    conditions = [(_kind(c), c.get("field"), short(_rest(c), 120)) for c in rule["conditions"]]
    actions = [(a["type"], short(_rest(a.get("parameters", a)), 120)) for a in rule["actions"]]
    return Lines(
        facts(head),
        Text(),
        table(("condition", "field", "what"), conditions, empty="no conditions"),
        Text(),
        table(("action", "what"), actions, empty="no actions"),
    )


def _kind(condition: dict[str, Any]) -> str:
    """Also of one that does not say it."""
    kind = "group" if "conditions" in condition else "not" if "not" in condition else "compare"
    return str(condition.get("type", kind))


def _rest(part: dict[str, Any]) -> str:
    from tradewind.cli.output import json_text

    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json_text(value)}"
        for name, value in part.items()
        if name not in ("type", "field")
    )


def tested_view(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    words = {True: "true", False: "false", None: "unknown"}
    conditions = [(name, words[c["matched"]], c["actual_value"]) for name, c in found["conditions"].items()]
    sources = [(name, s["value"], s["at"], status_cell(s["quality"])) for name, s in found["sources"].items()]
    actions = [(a["type"], short(a.get("parameters", {}), 120), a.get("error")) for a in found["actions"]]
    return Lines(
        cell(f"{found['rule_id']} is {words[found['level']]} now" + (f": {found['error']}" if found["error"] else "")),
        table(("condition", "holds", "value"), conditions, empty="no conditions"),
        Text(),
        table(("source", "value", "at", "quality"), sources, empty="it reads nothing"),
        Text(),
        table(("would do", "with", "error"), actions, empty="it would do nothing"),
    )
