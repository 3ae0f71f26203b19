"""Rules and groups from the files of a station folder: `rules.yaml` (or .yml, .json) and `rules/*`.

A file has the lists `rules` and `groups`, or is one rule. JSON is YAML, so one reader does for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import Invalid, Problem
from tradewind.models.fields import did_you_mean
from tradewind.points.tables import Findings
from tradewind.points.yaml_text import YamlText, read_yaml
from tradewind.rules.document import RULE_FIELDS, read_rule
from tradewind.rules.groups import read_group

SUFFIXES = (".yaml", ".yml", ".json")
KINDS = ("groups", "rules")


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    text: YamlText
    path: str

    def at(self, path: str) -> str:
        """`rules.yaml:12:conditions[0].source` of a path within the definition."""
        whole = f"{self.path}.{path}" if self.path and path else self.path or path
        return ":".join(part for part in (self.file, str(self.text.line_of(whole)), path) if part)


@dataclass(frozen=True, slots=True)
class LoadedRules:
    """Documents by kind and id, as `RuleStore.apply` takes them, where each stands, and what is wrong."""

    documents: dict[str, dict[str, Any]]
    places: dict[tuple[str, str], Place]
    problems: tuple[Problem, ...]


def load_rules(path: Path | str) -> LoadedRules:
    """Never raises for what the files hold."""
    folder, findings = Path(path), Findings()
    documents: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    places: dict[tuple[str, str], Place] = {}
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
            problems = read_rule(document)[1] if kind == "rules" else read_group(document)[1]
            findings.problems += [Problem(p.code, place.at(p.path), p.hint) for p in problems]
            its_id = document.get("id") if isinstance(document, Mapping) else None
            if not isinstance(its_id, str):
                continue
            if its_id in documents[kind]:
                hint = f"{its_id!r} is defined above or in another file"
                findings.problems.append(Problem("duplicate_id", place.at("id"), hint))
                continue
            documents[kind][its_id] = document
            places[kind, its_id] = place
    return LoadedRules(documents, places, tuple(findings.problems))


def _files(folder: Path) -> Iterator[Path]:
    for suffix in SUFFIXES:
        if (folder / f"rules{suffix}").is_file():
            yield folder / f"rules{suffix}"
    yield from sorted(file for file in (folder / "rules").glob("*") if file.suffix in SUFFIXES)


def _documents(text: YamlText, name: str, findings: Findings) -> Iterator[tuple[str, Place, Any]]:
    value = text.value
    if value is None:
        return
    if not isinstance(value, Mapping):
        findings.add("no_rules", "the file has the lists `rules` and `groups`, or is one rule", name, 1)
        return
    if not any(kind in value for kind in KINDS) and "conditions" in value:
        yield "rules", Place(name, text, ""), value
        return
    for key, items in value.items():
        line = text.line_of(str(key))
        if key not in KINDS:
            if key != "version" and not str(key).startswith("x-"):
                hint = did_you_mean(str(key), (*KINDS, *RULE_FIELDS))
                findings.add("unknown_field", hint, name, line, str(key))
        elif not isinstance(items, list):
            if items is not None:
                findings.add("wrong_type", "a list must stand here", name, line, str(key))
        else:
            for i, document in enumerate(items):
                yield key, Place(name, text, f"{key}[{i}]"), document
