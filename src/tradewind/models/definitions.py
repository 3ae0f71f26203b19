"""All definitions as one whole, and what a change would make of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.models.check import read_models
from tradewind.models.document import read_model
from tradewind.models.spec import ModelSpec
from tradewind.models.template import check_template
from tradewind.problems import Problems, below, nothing_stored


class Definitions(msgspec.Struct):
    """All documents as they were stored, and what they mean; `specs` lacks those with `problems`."""

    version: str
    models: dict[str, Any]
    templates: dict[str, Any]
    specs: dict[str, ModelSpec]
    problems: Problems


def made_of(version: str, models: dict[str, Any], templates: dict[str, Any]) -> Definitions:
    specs, problems = read_models(models, templates)
    bad = {problem.path.partition(".")[0] for problem in problems}
    return Definitions(version, models, templates, {n: s for n, s in specs.items() if n not in bad}, problems)


def plan(
    now: Definitions,
    models: Sequence[Any],
    remove: Collection[str] = (),
    templates: Sequence[Any] = (),
    remove_templates: Collection[str] = (),
) -> tuple[Definitions, dict[str, Any], dict[str, Any]]:
    """How it will be, and the models and templates to store by name.

    Raises Invalid with everything that is wrong: with what is put, and with others because of it. Paths begin with the
    name of the model (`models[2]` while that is unknown) or with `templates.` and that of the template, unless one
    alone is put and the problem is its own.
    """
    problems = Problems()
    texts: dict[str, Any] = {}
    is_alone = len(models) + len(templates) == 1
    for i, document in enumerate(templates):
        found = check_template(document)
        name = document.get("name") if isinstance(document, Mapping) else None
        where = f"templates.{name}" if isinstance(name, str) else f"templates[{i}]"
        problems += below("" if is_alone else f"{where}.", found)
        if isinstance(name, str):
            texts[name] = document
    known = {name: text for name, text in now.templates.items() if name not in remove_templates} | texts
    put: dict[str, Any] = {}
    for i, document in enumerate(models):
        spec, found = read_model(document, known)
        if spec is None:
            problems += below("" if is_alone else f"models[{i}].", found)
        elif spec.name in put:
            problems.append(Problem("duplicate_name", f"models[{i}].name", f"two models are called {spec.name!r}"))
        else:
            put[spec.name] = document
    left = {name: document for name, document in now.models.items() if name not in remove}
    wanted = made_of(now.version, left | put, known)
    before = set(now.problems)
    alone = next(iter(put)) if is_alone and put else None
    for problem in wanted.problems:
        owner, _, path = problem.path.partition(".")
        if owner in put or problem not in before:
            problems.append(Problem(problem.code, path, problem.hint) if owner == alone else problem)
    if problems:
        problems.left_out += max(0, wanted.problems.left_out - now.problems.left_out)
        message = nothing_stored(problems)
        raise Invalid(message, code="bad_model", hint="correct the definitions", problems=problems)
    return wanted, put, texts
