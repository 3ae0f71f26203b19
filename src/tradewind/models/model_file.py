"""Models and templates from the files of a station folder: `models.yaml` (or .yml, .json) and `models/*`.

A file has the lists `models` and `templates`, or is one model. JSON is YAML, so one reader does for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import Invalid, Problem
from tradewind.models.check import read_models
from tradewind.models.document import MODEL_FIELDS, read_model
from tradewind.models.fields import did_you_mean
from tradewind.models.spec import ModelSpec
from tradewind.models.template import check_template
from tradewind.points.tables import Findings
from tradewind.points.yaml_text import YamlText, read_yaml

SUFFIXES = (".yaml", ".yml", ".json")
_LISTS = ("models", "templates")


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """Documents by name, as `ModelStore.apply` takes them, and what is wrong (at `models.yaml:12:inputs[0].source`).

    A model with a problem is in `models`, too, but not in `specs`.
    """

    models: dict[str, Any]
    templates: dict[str, Any]
    specs: dict[str, ModelSpec]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    file: str
    text: YamlText
    path: str

    def at(self, path: str) -> str:
        return f"{self.path}.{path}" if self.path and path else self.path or path


def load_models(path: Path | str, units: Mapping[str, str] | None = None) -> LoadedModels:
    """Never raises for what the files hold. `units`: those of points by address, where they are known."""
    folder, findings = Path(path), Findings()
    found: dict[str, list[tuple[_Place, Any]]] = {kind: [] for kind in _LISTS}
    for file in _files(folder):
        name = file.relative_to(folder).as_posix()
        try:
            text = read_yaml(file.read_bytes(), name)
        except Invalid as error:
            findings.problems.extend(error.problems)
            continue
        except OSError as error:
            findings.add("unreadable", f"cannot be read: {error.strerror}", name)
            continue
        for kind, place, document in _documents(text, name, findings):
            found[kind].append((place, document))
    templates: dict[str, Any] = {}
    for place, document in found["templates"]:
        problems = check_template(document)
        _report(findings, place, problems)
        if not problems:
            _keep(templates, document["name"], document, place, findings)
    models: dict[str, Any] = {}
    places: dict[str, _Place] = {}
    for place, document in found["models"]:
        spec, problems = read_model(document, templates)
        if spec is None:
            _report(findings, place, problems)
        elif _keep(models, spec.name, document, place, findings):
            places[spec.name] = place
    specs, together = read_models(models, templates, units)
    bad = set()
    for problem in together:
        owner, _, rest = problem.path.partition(".")
        bad.add(owner)
        _report(findings, places[owner], [Problem(problem.code, rest, problem.hint)])
    good = {name: spec for name, spec in specs.items() if name not in bad}
    return LoadedModels(models, templates, good, tuple(findings.problems))


def _files(folder: Path) -> Iterator[Path]:
    for suffix in SUFFIXES:
        if (folder / f"models{suffix}").is_file():
            yield folder / f"models{suffix}"
    yield from sorted(file for file in (folder / "models").glob("*") if file.suffix in SUFFIXES)


def _documents(text: YamlText, name: str, findings: Findings) -> Iterator[tuple[str, _Place, Any]]:
    value = text.value
    if value is None:
        return
    if not isinstance(value, Mapping):
        findings.add("no_models", "the file has the lists `models` and `templates`, or is one model", name, 1)
        return
    if not any(kind in value for kind in _LISTS) and any(key in value for key in ("inputs", "outputs", "template")):
        yield "models", _Place(name, text, ""), value
        return
    for key, items in value.items():
        line = text.line_of(str(key))
        if key not in _LISTS:
            if key != "version" and not str(key).startswith("x-"):
                hint = did_you_mean(str(key), (*_LISTS, *MODEL_FIELDS))
                findings.add("unknown_field", hint, name, line, str(key))
        elif not isinstance(items, list):
            if items is not None:
                findings.add("wrong_type", "a list must stand here", name, line, str(key))
        else:
            for i, document in enumerate(items):
                yield key, _Place(name, text, f"{key}[{i}]"), document


def _keep(kept: dict[str, Any], name: str, document: Any, place: _Place, findings: Findings) -> bool:
    if name in kept:
        line = place.text.line_of(place.path)
        findings.add("duplicate_name", f"{name!r} is defined above or in another file", place.file, line, "name")
        return False
    kept[name] = document
    return True


def _report(findings: Findings, place: _Place, problems: list[Problem]) -> None:
    for problem in problems:
        line = place.text.line_of(place.at(problem.path))
        findings.add(problem.code, problem.hint, place.file, line, problem.path)
