"""Definitions in a YAML or JSON file: one of them, or lists of them; problems get the lines where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tradewind.documents import STDIN, read_document
from tradewind.errors import Invalid, Problem

if TYPE_CHECKING:
    from tradewind.points.yaml_text import YamlText


@dataclass(frozen=True)
class Definition:
    """`kind`: the list that it stands in (a single one: the first of those that are known)."""

    kind: str
    document: dict[str, Any]
    file: str
    path: str
    text: YamlText

    def placed(self, error: Invalid) -> Invalid:
        """The same error with each problem at its place: `file:line:path`."""
        problems = [Problem(p.code, self.at(p.path), p.hint) for p in error.problems]
        return Invalid(f"{self.file}: {error.message}", code=error.code, hint=error.hint, problems=problems)

    def at(self, path: str) -> str:
        """`file:line:path` of a path within the definition."""
        whole = f"{self.path}.{path}" if self.path and path else self.path or path
        return f"{self.file}:{self.text.line_of(whole)}:{path}"


def read_definitions(name: str, kinds: Sequence[str]) -> list[Definition]:
    """Of a file (`-`: stdin) with lists of these names, or with a single definition. Raises Invalid."""
    from tradewind.points.yaml_text import read_yaml

    shown = "stdin" if name == STDIN else name
    text = read_yaml(read_document(name), shown)
    value = text.value
    if isinstance(value, Mapping) and not any(kind in value for kind in kinds):
        return [Definition(kinds[0], dict(value), shown, "", text)]
    found = []
    for kind in kinds if isinstance(value, Mapping) else ():
        items = value.get(kind)
        for at, document in enumerate(items if isinstance(items, list) else ()):
            if not isinstance(document, Mapping):
                where = f"{shown}:{text.line_of(f'{kind}[{at}]')}:{kind}[{at}]"
                problem = Problem("not_an_object", where, "an object must stand here")
                raise Invalid(f"{shown} cannot be read", code=problem.code, hint=problem.hint, problems=[problem])
            found.append(Definition(kind, dict(document), shown, f"{kind}[{at}]", text))
    if not found:
        hint = f"the file has a list {' or '.join(f'`{kind}`' for kind in kinds)}, or one definition"
        raise Invalid(f"{shown} defines nothing", code="no_definitions", hint=hint)
    return found
