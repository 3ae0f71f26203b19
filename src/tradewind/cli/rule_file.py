"""Rules and groups in files, for commands; problems get the lines where they are."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tradewind.cli.definition_file import Definition, read_definitions
from tradewind.errors import Invalid, Problem

KINDS = ("rules", "groups")
_PLACE = re.compile(r"(rules|groups)\[(\d+)\]\.?")


def read_files(files: Sequence[str]) -> dict[str, Definition]:
    """By kind and id (`rules hot`), groups first; the last one of an id wins. Raises Invalid."""
    found: dict[str, Definition] = {}
    for file in dict.fromkeys(files):
        for one in read_definitions(file, KINDS):
            found[f"{one.kind} {id_of(one)}"] = one
    return dict(sorted(found.items(), key=lambda item: item[1].kind))


def read_one(rule_id: str | None, file: str | None) -> tuple[str, Definition | None]:
    """The id of a rule, and its definition if it comes from a file. Raises Invalid unless exactly one is named."""
    if file is None:
        if rule_id is None:
            raise Invalid("which rule?", code="usage", hint="name a rule of the station, or a file with --file")
        return rule_id, None
    rules = [one for one in read_definitions(file, KINDS) if one.kind == "rules"]
    fitting = [one for one in rules if rule_id is None or id_of(one) == rule_id]
    if len(fitting) != 1:
        names = ", ".join(id_of(one) for one in rules) or "none"
        raise Invalid(f"{file} does not say which rule is meant", code="usage", hint=f"name one of its rules: {names}")
    return id_of(fitting[0]), fitting[0]


def id_of(one: Definition) -> str:
    found = one.document.get("id")
    if not isinstance(found, str) or not found:
        problem = Problem("missing_field", "id", "give it an id")
        raise one.placed(Invalid("no id", code="bad_rule", hint=problem.hint, problems=[problem]))
    return found


def placed(error: Invalid, found: Sequence[Definition]) -> Invalid:
    """The same error with each problem at its place in the files; `found` in the order in which they were sent."""
    by_kind = {kind: [one for one in found if one.kind == kind] for kind in KINDS}
    problems = []
    for problem in error.problems:
        match = _PLACE.match(problem.path)
        kind, at = (match[1], int(match[2])) if match else ("rules" if by_kind["rules"] else "groups", 0)
        known = by_kind[kind]
        path = problem.path[match.end() :] if match else problem.path
        where = known[at].at(path) if at < len(known) and (match or len(known) == 1) else problem.path
        problems.append(Problem(problem.code, where, problem.hint))
    return Invalid(error.message, code=error.code, hint=error.hint, problems=problems)
