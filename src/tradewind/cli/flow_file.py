"""A flow in a file: read, checked without a station, and its problems at the lines where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.documents import STDIN, read_document
from tradewind.errors import Invalid, Problem
from tradewind.ids import is_id

if TYPE_CHECKING:
    import yaml

_STEP = re.compile(r'\["([^"]*)"\]|\[(\d+)\]|\.?([A-Za-z0-9_-]+)')
_PLACE = re.compile(r"line (\d+), column \d+")
#: The other names that a file may use for what problems call by its plain name.
_OTHER_NAMES = {"source_handle": "sourceHandle", "target_handle": "targetHandle"}


@dataclass
class FlowFile:
    name: str
    text: str
    document: dict[str, Any]

    @property
    def flow_id(self) -> str:
        """Empty when the document has none that is text."""
        found = self.document.get("id")
        return found if isinstance(found, str) else ""

    @cached_property
    def _root(self) -> yaml.Node | None:
        """The document with its places. JSON is read as YAML, too, where a tab may stand only in text."""
        import yaml

        try:
            return yaml.compose(self.text.replace("\t", " "), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, RecursionError, ValueError):
            return None

    def line(self, path: str) -> int | None:
        """The line of what a problem's path names, or of the nearest thing around it."""
        node = self._root
        if node is None:
            return None
        found: int = node.start_mark.line + 1
        for step in _steps(path):
            below = _below(node, step)
            if below is None:
                break
            found, node = below
        return found

    def where(self, problem: Problem) -> str:
        """`flow.yaml:12`, or only the name of the file."""
        line = self.line(problem.path)
        return f"{self.name}:{line}" if line else self.name

    def placed(self, error: Invalid) -> Invalid:
        """The same error with each problem at its place in the file."""
        problems = [Problem(p.code, f"{self.where(p)} {p.path}", p.hint) for p in error.problems]
        made = Invalid(f"{self.name}: {error.message}", code=error.code, hint=error.hint, problems=problems)
        for note in getattr(error, "__notes__", []):
            made.add_note(note)
        return made


def read_file(name: str, flow_id: str | None = None) -> FlowFile:
    """JSON or YAML (`-`: stdin). The id is `flow_id`, else the file's own, else the file's name. Raises Invalid."""
    from tradewind.flows.syntax_text import read_text

    shown = "stdin" if name == STDIN else name
    data = read_document(name)
    try:
        document = read_text(data, "" if name == STDIN else name)
    except Invalid as error:
        place = _PLACE.match(error.hint)
        path = f"{shown}:{place[1]}" if place else shown
        raise Invalid(
            f"{shown} cannot be read",
            code=error.code,
            hint=error.hint,
            problems=[Problem(error.code, path, error.hint)],
        ) from error
    stem = Path(name).stem
    if flow_id is not None:
        document["id"] = flow_id
    elif document.get("id") is None and is_id(stem) and name != STDIN:
        document["id"] = stem
    return FlowFile(shown, data.decode("utf-8-sig"), document)


def load_node_types(imports: Sequence[str]) -> dict[str, str]:
    """Make the node types of this installation and of the modules known; packages that cannot be loaded, with why."""
    from tradewind.flows.node_registry import discover

    problems = discover()
    if imports:
        from tradewind.process import import_modules

        import_modules(imports)
    return problems


def check_document(document: dict[str, Any]) -> list[Problem]:
    """Everything that a station with the same node types would refuse."""
    from tradewind.flows.check import check_flow
    from tradewind.flows.known_types import config_problems
    from tradewind.flows.node_registry import node_types
    from tradewind.flows.syntax import read_flow

    spec, problems = read_flow(document)
    if spec is None:
        return problems
    return [*problems, *check_flow(spec, node_types.describe()), *config_problems(spec, node_types)]


def check_files(files: Sequence[FlowFile], imports: Sequence[str]) -> None:
    """Raises Invalid with everything that is wrong in any of them."""
    load_node_types(imports)
    found = [(file, problem) for file in files for problem in check_document(file.document)]
    if found:
        problems = [Problem(p.code, f"{file.where(p)} {p.path}", p.hint) for file, p in found]
        names = ", ".join(dict.fromkeys(file.name for file, _ in found))
        raise Invalid(f"{names} is not a valid flow", code="invalid_flow", hint="see problems", problems=problems)


def _steps(path: str) -> Iterator[str | int]:
    at = 0
    while found := _STEP.match(path, at):
        at = found.end()
        yield int(found[2]) if found[2] is not None else found[1] if found[1] is not None else found[3]


def _below(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    """Line and value of a part of an object or a list."""
    import yaml

    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        child = node.value[step]
        return child.start_mark.line + 1, child
    if not isinstance(node, yaml.MappingNode):
        return None
    parts = {key.value: (key.start_mark.line + 1, value) for key, value in node.value}
    name = str(step)
    if name in parts:
        return parts[name]
    if name in _OTHER_NAMES:
        return parts.get(_OTHER_NAMES[name])
    if "data" in parts:  # an editor's form keeps config there
        return _below(parts["data"][1], step)
    return None
