"""Models and templates from the files of a station folder: `models.yaml` (or .yml, .json) and `models/*`.

A file has the lists `models` and `templates`, or is one model. JSON is YAML, so one reader does for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import Problem
from tradewind.models.check import read_models
from tradewind.models.document import MODEL_FIELDS, read_model
from tradewind.models.fields import did_you_mean
from tradewind.models.spec import ModelSpec
from tradewind.models.template import check_template
from tradewind.points.definition_file import DefinitionFiles, Place
from tradewind.points.tables import Findings

_FILES = DefinitionFiles(
    "models",
    ("models", "templates"),
    ("inputs", "outputs", "template"),
    lambda key: did_you_mean(key, ("models", "templates", *MODEL_FIELDS)),
)


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """Documents by name, as `ModelStore.apply` takes them, and what is wrong (at `models.yaml:12:inputs[0].source`).

    A model with a problem is in `models`, too, but not in `specs`.
    """

    models: dict[str, Any]
    templates: dict[str, Any]
    specs: dict[str, ModelSpec]
    problems: tuple[Problem, ...]


def load_models(path: Path | str, units: Mapping[str, str] | None = None) -> LoadedModels:
    """Never raises for what the files hold. `units`: those of points by address, where they are known."""
    findings = Findings()
    found: dict[str, list[tuple[Place, Any]]] = {kind: [] for kind in _FILES.kinds}
    for kind, place, document in _FILES.read(Path(path), findings):
        found[kind].append((place, document))
    templates: dict[str, Any] = {}
    for place, document in found["templates"]:
        problems = check_template(document)
        place.report(problems, findings)
        if not problems:
            _keep(templates, document["name"], document, place, findings)
    models: dict[str, Any] = {}
    places: dict[str, Place] = {}
    for place, document in found["models"]:
        spec, problems = read_model(document, templates)
        if spec is None:
            place.report(problems, findings)
        elif _keep(models, spec.name, document, place, findings):
            places[spec.name] = place
    specs, together = read_models(models, templates, units)
    bad = set()
    for problem in together:
        owner, _, rest = problem.path.partition(".")
        bad.add(owner)
        places[owner].report([Problem(problem.code, rest, problem.hint)], findings)
    good = {name: spec for name, spec in specs.items() if name not in bad}
    return LoadedModels(models, templates, good, tuple(findings.problems))


def _keep(kept: dict[str, Any], name: str, document: Any, place: Place, findings: Findings) -> bool:
    if name in kept:
        problem = Problem("duplicate_name", "name", f"{name!r} is defined above or in another file")
        place.report([problem], findings)
        return False
    kept[name] = document
    return True
