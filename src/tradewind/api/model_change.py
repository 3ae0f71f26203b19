"""Many models and templates that a request puts and removes at once."""

from __future__ import annotations

from typing import Any, NamedTuple

from tradewind.api.body import check_object, too_many
from tradewind.errors import Invalid, Problem
from tradewind.models.definitions import Definitions
from tradewind.models.document import read_model
from tradewind.problems import Problems

FIELDS = frozenset({"models", "templates", "remove", "remove_templates"})


class ModelChange(NamedTuple):
    models: list[Any]
    templates: list[Any]
    remove: list[str]
    remove_templates: list[str]


def is_change(document: Any) -> bool:
    """Whether it speaks of many models; one model has none of these fields."""
    return isinstance(document, list) or (isinstance(document, dict) and not document.keys().isdisjoint(FIELDS))


def read_change(document: Any, now: Definitions) -> ModelChange:
    """A list is a list of models. Raises Invalid; whether the definitions are good is not looked at here."""
    given = check_object(document if isinstance(document, dict) else {"models": document}, FIELDS)
    problems = Problems(
        Problem("not_a_list", name, "give a list") for name, each in given.items() if type(each) is not list
    )
    problems += too_many(given)
    if not problems and not any(given.values()):
        problems.append(Problem("nothing_asked", "models", "give models or templates, or names of some to remove"))
    if not problems:
        problems += _of_removed("model", "remove", given, now.models, given.get("models", []))
        problems += _of_removed("template", "remove_templates", given, now.templates, given.get("templates", []))
    if problems:
        message = f"nothing was stored: {problems[0].path}: {problems[0].hint}"
        raise Invalid(message, code="bad_model", hint=problems[0].hint, problems=problems)
    return ModelChange(*(list(given.get(name, [])) for name in ("models", "templates", "remove", "remove_templates")))


def _of_removed(noun: str, where: str, given: dict[str, Any], known: dict[str, Any], put: list[Any]) -> Problems:
    names = {name for name in (_name(noun, document) for document in put) if isinstance(name, str)}
    problems = Problems()
    for at, name in enumerate(given.get(where, [])):
        if not isinstance(name, str) or name not in known:
            problems.append(Problem(f"unknown_{noun}", f"{where}[{at}]", f"there is no {noun} {str(name)[:64]!r}"))
        elif name in names:
            problems.append(Problem("given_twice", f"{where}[{at}]", f"{name!r} is put, too"))
    return problems


def _name(noun: str, document: Any) -> Any:
    if not isinstance(document, dict):
        return None
    if noun == "template" or "template" in document:
        return document.get("name")
    spec, _ = read_model(document)  # in the seed's form it is called as its target says
    return spec.name if spec is not None else document.get("name")
