"""Definitions from the files of a station folder: `models.yaml` (or .yml, .json) and `models/*`, say.

A file has lists of definitions by kind, or is one definition. JSON is YAML, so one reader does for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.documents import existing, read_document
from tradewind.errors import Invalid, Problem
from tradewind.points.tables import Findings
from tradewind.points.yaml_text import YamlText, read_yaml

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a definition stands."""

    file: str
    text: YamlText
    path: str

    def at(self, path: str) -> str:
        """`rules.yaml:12:conditions[0].source` of a path within the definition."""
        return ":".join(part for part in (self.file, str(self._line(path)), path) if part)

    def report(self, problems: Iterable[Problem], findings: Findings) -> None:
        """Of problems with paths within the definition."""
        for problem in problems:
            findings.add(problem.code, problem.hint, self.file, self._line(problem.path), problem.path)

    def _line(self, path: str) -> int:
        return self.text.line_of(f"{self.path}.{path}" if self.path and path else self.path or path)


@dataclass(frozen=True, slots=True)
class DefinitionFiles:
    """`name`: of the files, and of the kind that a file may be one of if it has some of the fields `signs`; `kinds`: of
    its lists; `suggest`: what to say about a field that is none of them."""

    name: str
    kinds: Sequence[str]
    signs: Sequence[str]
    suggest: Callable[[str], str]

    def read(self, folder: Path, findings: Findings) -> Iterator[tuple[str, Place, Any]]:
        """Kind, place and document of each; what cannot be read is put into `findings`."""
        for file in self._files(folder, findings):
            name = file.relative_to(folder).as_posix()
            try:
                text = read_yaml(read_document(file, shown=name), name)
            except Invalid as error:
                findings.problems.extend(error.problems)
            else:
                yield from self._documents(text, name, findings)

    def _files(self, folder: Path, findings: Findings) -> Iterator[Path]:
        yield from existing(folder, (f"{self.name}{suffix}" for suffix in SUFFIXES))
        yield from (file for file in findings.listed(folder / self.name, f"{self.name}/") if file.suffix in SUFFIXES)

    def _documents(self, text: YamlText, name: str, findings: Findings) -> Iterator[tuple[str, Place, Any]]:
        value = text.value
        if value is None:
            return
        if not isinstance(value, Mapping):
            lists = " and ".join(f"`{kind}`" for kind in self.kinds)
            hint = f"the file has the lists {lists}, or is one of {self.name}"
            findings.add(f"no_{self.name}", hint, name, 1)
            return
        if not any(kind in value for kind in self.kinds) and any(key in value for key in self.signs):
            yield self.name, Place(name, text, ""), value
            return
        for key, items in value.items():
            line = text.line_of(str(key))
            if key not in self.kinds:
                if key != "version" and not str(key).startswith("x-"):
                    findings.add("unknown_field", self.suggest(str(key)), name, line, str(key))
            elif not isinstance(items, list):
                if items is not None:
                    findings.add("wrong_type", "a list must stand here", name, line, str(key))
            else:
                for i, document in enumerate(items):
                    yield key, Place(name, text, f"{key}[{i}]"), document
