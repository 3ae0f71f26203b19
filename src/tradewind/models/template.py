"""Templates: a definition with `{property}` in it, filled in for each instance. Pure.

A text that is nothing but `{property}` becomes the value itself, so numbers stay numbers; inside of other text it is
written out. `{name}` is the name of the model. A model without a template may use its own properties in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tradewind.ids import ID
from tradewind.models.fields import Fields, Report, did_you_mean, kind, number
from tradewind.problems import Problems

TEMPLATE_FIELDS = frozenset(
    ("name", "title", "description", "properties", "inputs", "calculations", "outputs", "controls")
)
_INSTANCE = frozenset(("id", "name", "title", "description", "enabled", "template", "properties"))
_PROPERTY = frozenset(("name", "type", "default", "min", "max", "unit", "description", "choices"))
_PARTS = ("inputs", "calculations", "outputs", "controls")
_MARK = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
TYPES = ("number", "integer", "text", "boolean")


def check_template(document: Any) -> Problems:
    """What can be known without an instance: its properties, and that it uses no others."""
    report = Report()
    fields = Fields(document, "", report, TEMPLATE_FIELDS)
    fields.id("name", is_key=True)
    declared = _declared(fields, report)
    for part in _PARTS:
        for path, name in _marks(fields.items.get(part), part):
            if name not in declared and name != "name":
                report.add("unknown_property", path, f"{{{name}}}: {did_you_mean(name, declared, 'declared')}")
    if not fields.items.get("outputs"):
        fields.missing("outputs", "a template has outputs")
    return report.problems


def expand(document: Any, templates: Mapping[str, Any], report: Report) -> Any:
    """The definition with everything filled in; None when it cannot be."""
    if not isinstance(document, Mapping):
        report.add("wrong_type", "document", f"{kind(document)} stands where a model must: an object")
        return None
    if not document.get("template"):
        own = document.get("properties")
        plain = dict(own) if isinstance(own, Mapping) else {}
        return _filled(document, plain | {"name": document.get("id", document.get("name"))}, report)
    fields = Fields(document, "", report, _INSTANCE | set(_PARTS))
    for part in _PARTS:
        if part in document:
            report.add("not_of_an_instance", part, "an instance has what its template has; make another template")
    name = fields.text("template")
    template = templates.get(name)
    if not isinstance(template, Mapping):
        report.add("unknown_template", "template", did_you_mean(name, templates, "known"))
        return None
    values = _values(_declared(Fields(template, "", Report(), TEMPLATE_FIELDS), Report()), fields, report)
    if values is None:
        return None
    made = {part: template[part] for part in (*_PARTS, "description", "title") if part in template}
    made |= {key: value for key, value in document.items() if key not in _PARTS}
    return _filled({**made, "properties": values}, values | {"name": document.get("id", document.get("name"))}, report)


def _declared(fields: Fields, report: Report) -> dict[str, Fields]:
    """The properties of a template by name; a list with names, or an object. A bare value is a default."""
    found: dict[str, Fields] = {}
    given = fields.items.get("properties") or {}
    items: list[tuple[Any, Any, str]]
    if isinstance(given, Mapping):
        items = [(name, item, f"properties.{name}") for name, item in given.items()]
    elif isinstance(given, (list, tuple)):
        items = [
            (item.get("name") if isinstance(item, Mapping) else None, item, f"properties[{i}]")
            for i, item in enumerate(given)
        ]
    else:
        fields.wrong("properties", "an object")
        items = []
    for name, item, path in items:
        described = item if isinstance(item, Mapping) else {"default": item} if item is not None else {}
        if not isinstance(name, str) or ID.fullmatch(name) is None or name == "name":
            report.add("bad_name", path, "a property has 1 to 64 letters, digits, _ or -, and is not called name")
            continue
        if name in found:
            report.add("duplicate_name", path, f"the property {name!r} is declared twice")
        found[name] = about = Fields(described, path, report, _PROPERTY)
        word = about.text("type", _type_of(described.get("default")))
        if word not in TYPES:
            report.add("unknown_type", about.at("type"), did_you_mean(word, TYPES, "known"))
        elif described.get("default") is not None:
            _check_value(about, described["default"], about.at("default"), report)
    return found


def _type_of(default: Any) -> str:
    if isinstance(default, bool):
        return "boolean"
    if isinstance(default, str):
        return "text"
    return "number"


def _values(declared: Mapping[str, Fields], instance: Fields, report: Report) -> dict[str, Any] | None:
    """None when one is missing or wrong: filling in would only lead to further complaints."""
    before = report.problems.total
    given = instance.object("properties")
    for name in given:
        if name not in declared:
            report.add("unknown_property", f"properties.{name}", did_you_mean(name, declared, "declared"))
    values: dict[str, Any] = {}
    for name, about in declared.items():
        path = f"properties.{name}"
        value = given.get(name, about.items.get("default"))
        if value is None:
            report.add("missing_property", path, f"the template {instance.text('template')!r} needs it")
        elif _check_value(about, value, path, report):
            values[name] = value
    return values if report.problems.total == before else None


def _check_value(about: Fields, value: Any, path: str, report: Report) -> bool:
    word = about.text("type", _type_of(about.items.get("default")))
    is_right = {
        "number": number(value) is not None,
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "boolean": isinstance(value, bool),
        "text": isinstance(value, str),
    }.get(word, True)
    if not is_right:
        report.add("wrong_type", path, f"{kind(value)} stands where the property needs {word}")
        return False
    size, low, high = number(value), number(about.items.get("min")), number(about.items.get("max"))
    if size is not None and ((low is not None and size < low) or (high is not None and size > high)):
        report.add("out_of_range", path, f"{size:g} is not within {low} to {high}")
        return False
    choices = about.items.get("choices")
    if isinstance(choices, (list, tuple)) and value not in choices:
        report.add("out_of_range", path, f"{value!r} is none of {list(choices)!r}")
        return False
    return True


def _marks(value: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(path, name) for name in _MARK.findall(value)]
    if isinstance(value, Mapping):
        return [
            found
            for key, item in value.items()
            for found in (*_marks(key, f"{path}.{key}"), *_marks(item, f"{path}.{key}"))
        ]
    if isinstance(value, (list, tuple)):
        return [found for i, item in enumerate(value) for found in _marks(item, f"{path}[{i}]")]
    return []


def _filled(document: Mapping[str, Any], values: Mapping[str, Any], report: Report) -> dict[str, Any]:
    parts = (*_PARTS, "description", "title")
    return {key: _fill(item, values, str(key), report) if key in parts else item for key, item in document.items()}


def _fill(value: Any, values: Mapping[str, Any], path: str, report: Report) -> Any:
    if isinstance(value, str):
        return _fill_text(value, values, path, report) if "{" in value else value
    if isinstance(value, Mapping):
        return {
            _fill(str(key), values, f"{path}.{key}", report): _fill(item, values, f"{path}.{key}", report)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_fill(item, values, f"{path}[{i}]", report) for i, item in enumerate(value)]
    return value


def _fill_text(text: str, values: Mapping[str, Any], path: str, report: Report) -> Any:
    whole = _MARK.fullmatch(text)
    if whole is not None and whole[1] in values:
        return values[whole[1]]

    def put(match: re.Match[str]) -> str:
        if match[1] not in values:
            report.add("unknown_property", path, f"{match[0]}: {did_you_mean(match[1], values, 'known')}")
            return match[0]
        value = values[match[1]]
        if isinstance(value, bool):
            return "1" if value else "0"
        return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)

    return _MARK.sub(put, text)
