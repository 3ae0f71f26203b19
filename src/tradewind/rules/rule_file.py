"""Rules and groups from the files of a station folder: `rules.yaml` (or .yml, .json) and `rules/*`.

A file has the lists `rules` and `groups`, or is one rule. JSON is YAML, so one reader does for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import Problem
from tradewind.models.fields import did_you_mean
from tradewind.points.definition_file import DefinitionFiles, Place
from tradewind.points.tables import Findings
from tradewind.rules.document import RULE_FIELDS, read_rule
from tradewind.rules.groups import read_group

_FILES = DefinitionFiles(
    "rules", ("groups", "rules"), ("conditions",), lambda key: did_you_mean(key, ("groups", "rules", *RULE_FIELDS))
)


@dataclass(frozen=True, slots=True)
class LoadedRules:
    """Documents by kind and id, as `RuleStore.apply` takes them, where each stands, and what is wrong."""

    documents: dict[str, dict[str, Any]]
    places: dict[tuple[str, str], Place]
    problems: tuple[Problem, ...]


def load_rules(path: Path | str) -> LoadedRules:
    """Never raises for what the files hold."""
    findings = Findings()
    documents: dict[str, dict[str, Any]] = {kind: {} for kind in _FILES.kinds}
    places: dict[tuple[str, str], Place] = {}
    for kind, place, document in _FILES.read(Path(path), findings):
        problems = read_rule(document)[1] if kind == "rules" else read_group(document)[1]
        place.report(problems, findings)
        its_id = document.get("id") if isinstance(document, Mapping) else None
        if not isinstance(its_id, str):
            continue
        if its_id in documents[kind]:
            hint = f"{its_id!r} is defined above or in another file"
            place.report([Problem("duplicate_id", "id", hint)], findings)
            continue
        documents[kind][its_id] = document
        places[kind, its_id] = place
    return LoadedRules(documents, places, tuple(findings.problems))
