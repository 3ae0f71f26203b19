"""Rules and groups in files, for commands; problems get the lines where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tradewind.cli.definition_file import Definition
from tradewind.documents import STDIN, read_document
from tradewind.errors import Invalid, Problem

KINDS = ("rules", "groups")
#: As `rule list --json` prints them.
LISTED = "items"
_PLACE = re.compile(r"(rules|groups)\[(\d+)\]\.?")


def read_files(files: Sequence[str]) -> dict[str, Definition]:
    """By kind and id (`rules hot`), groups first; the last one of an id wins. Raises Invalid with all that has not the
    shape of a rule or a group, in any file."""
    problems: list[Problem] = []
    found: dict[str, Definition] = {}
    for file in dict.fromkeys(files):
        for one in _read(file, problems):
            found[f"{one.kind} {one.document['id']}"] = one
    _must_be_well(problems)
    return dict(sorted(found.items(), key=lambda item: item[1].kind))


def read_one(rule_id: str | None, file: str | None) -> tuple[str, Definition | None]:
    """The id of a rule, and its definition if it comes from a file. Raises Invalid unless exactly one is named."""
    if file is None:
        if rule_id is None:
            raise Invalid("which rule?", code="usage", hint="name a rule of the station, or a file with --file")
        return rule_id, None
    problems: list[Problem] = []
    rules = {one.document["id"]: one for one in _read(file, problems) if one.kind == "rules"}
    _must_be_well(problems)
    names = ", ".join(rules) or "none"
    if rule_id is None and len(rules) != 1:
        message, hint = f"{file} does not say which rule is meant", f"name one of its rules: {names}"
        raise Invalid(message, code="usage", hint=hint)
    name = rule_id if rule_id is not None else next(iter(rules))
    if name not in rules:
        message, hint = f"there is no rule {name!r} in {file}", f"name one of its rules: {names}"
        raise Invalid(message, code="usage", hint=hint)
    return name, rules[name]


def place_of(path: str, found: Sequence[Definition]) -> str:
    """Where in the files that is what the station calls so; `found` in the order in which they were sent."""
    by_kind = {kind: [one for one in found if one.kind == kind] for kind in KINDS}
    match = _PLACE.match(path)
    kind, at = (match[1], int(match[2])) if match else ("rules" if by_kind["rules"] else "groups", 0)
    known = by_kind[kind]
    if at >= len(known) or not (match or len(known) == 1):
        return path
    return known[at].at(path[match.end() :] if match else path)


def placed(error: Invalid, found: Sequence[Definition]) -> Invalid:
    """The same error with each problem at its place in the files."""
    problems = [Problem(problem.code, place_of(problem.path, found), problem.hint) for problem in error.problems]
    return Invalid(error.message, code=error.code, hint=error.hint, problems=problems)


def _read(name: str, problems: list[Problem]) -> Iterator[Definition]:
    """Of a file (`-`: stdin) with lists `rules` and `groups`, a list of rules, or one rule. Raises Invalid."""
    from tradewind.points.yaml_text import read_yaml

    shown = "stdin" if name == STDIN else name
    text = read_yaml(read_document(name), shown)
    value = text.value
    if isinstance(value, Mapping) and not any(kind in value for kind in (*KINDS, LISTED)):
        given = [("rules", "", value)]
    else:
        lists = {"": value} if isinstance(value, list) else value if isinstance(value, Mapping) else {}
        given = []
        for kind in ("", *KINDS, LISTED):
            items = lists.get(kind) or []
            if not isinstance(items, list):
                problems.append(Problem("not_a_list", f"{shown}:{text.line_of(kind)}:{kind}", "give a list"))
                continue
            listed = kind if kind in KINDS else "rules"
            given += [(listed, f"{kind}[{at}]", document) for at, document in enumerate(items)]
    for kind, path, document in given:
        line = f"{shown}:{text.line_of(path)}"
        if not isinstance(document, Mapping):
            problems.append(Problem("not_an_object", f"{line}:{path}", "an object must stand here"))
        elif not isinstance(document.get("id"), str) or not document["id"]:
            hint = "give it an id" if document.get("id") in (None, "") else "an id is text: put it between quotes"
            problems.append(Problem("missing_field", f"{shown}:{text.line_of(f'{path}.id')}:id", hint))
        else:
            yield Definition(kind, dict(document), shown, path, text)
    if not given and not problems:
        hint = "the file has a list `rules` or `groups`, or is a list of rules, or one rule"
        raise Invalid(f"{shown} defines nothing", code="no_definitions", hint=hint)


def _must_be_well(problems: Sequence[Problem]) -> None:
    if problems:
        message = f"nothing was stored: {problems[0].path}: {problems[0].hint}"
        raise Invalid(message, code="bad_rule", hint=problems[0].hint, problems=problems)
