"""`tradewind flow lint`: everything that is wrong with flow files, without a station."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tradewind.cli.flow_file import FlowFile, check_document, load_node_types, read_file
from tradewind.cli.group import Session
from tradewind.cli.output import plain
from tradewind.documents import STDIN, short_name
from tradewind.errors import Invalid

WRONG_INPUT = 2


def lint(
    ctx: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Weather Syntax, YAML or JSON; - is stdin.")],
    imports: Annotated[
        list[str] | None, typer.Option("--import", metavar="MODULE", help="Your @node types; repeatable.")
    ] = None,
) -> int:
    """Check flow files against the node types of this installation; exit 2 on problems."""
    cli: Session = ctx.obj
    broken = load_node_types(imports or [])
    for package, why in broken.items():
        cli.out.note(f"warning: the node package {package} cannot be loaded: {why}")
    found = [check_file(name) for name in files]
    is_valid = all(report["valid"] for report in found)
    cli.out.show({"valid": is_valid, "files": found}, lambda: "\n".join(line for r in found for line in _lines(r)))
    return 0 if is_valid else WRONG_INPUT


def check_file(name: str) -> dict[str, Any]:
    """{file, flow_id, valid, nodes, edges, problems [{code, path, hint, line}]}; also of what cannot be read."""
    shown = "stdin" if name == STDIN else short_name(name)
    report: dict[str, Any] = {"file": shown, "flow_id": None, "valid": False, "nodes": 0, "edges": 0, "problems": []}
    try:
        file = read_file(name)
    except Invalid as error:
        hint = error.problems[0].hint if error.problems else error.hint
        problem = {"code": error.code, "path": "$", "hint": hint, "line": _line_of(error)}
        return {**report, "problems": [problem]}
    problems = [
        {"code": p.code, "path": p.path, "hint": p.hint, "line": file.line(p.path)}
        for p in check_document(file.document)
    ]
    sizes = {part: _size(file, part) for part in ("nodes", "edges")}
    return {**report, "flow_id": file.flow_id or None, "valid": not problems, **sizes, "problems": problems}


def _size(file: FlowFile, part: str) -> int:
    found = file.document.get(part)
    return len(found) if isinstance(found, list) else 0


def _line_of(error: Invalid) -> int | None:
    place = error.problems[0].path.rpartition(":")[2] if error.problems else ""
    return int(place) if place.isdigit() else None


def _lines(report: dict[str, Any]) -> list[str]:
    name = plain(report["file"])
    if report["valid"]:
        return [f"{name}: ok, {report['nodes']} nodes and {report['edges']} edges"]
    return [
        f"{name}{':' + str(p['line']) if p['line'] else ''}: {plain(p['path'])}: {plain(p['hint'])} [{p['code']}]"
        for p in report["problems"]
    ]
