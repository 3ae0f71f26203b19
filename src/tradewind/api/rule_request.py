"""What a request about rules says: a definition, or many of them at once; times and flags of a query."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from starlette.requests import Request

from tradewind.api.body import check_object, too_many
from tradewind.api.rule_room import SHOWN
from tradewind.clock import now_ms
from tradewind.errors import Invalid, Problem
from tradewind.history.times import time_ms
from tradewind.problems import Problems

FIELDS = frozenset({"rules", "groups", "remove"})


class RuleChange(NamedTuple):
    rules: list[Any]
    groups: list[Any]
    remove: list[str]


def definition(document: Any, rule_id: str = "", shown: tuple[str, ...] = SHOWN) -> Any:
    """Without what is only shown. `rule_id`: of the path; a definition without an id has it. Raises Invalid."""
    if not isinstance(document, dict):
        return document
    found = {name: value for name, value in document.items() if name not in shown}
    if not rule_id:
        return found
    if found.setdefault("id", rule_id) != rule_id:
        problem = Problem("id_mismatch", "id", f"the path says {rule_id!r}")
        message = f"its id is {str(found['id'])[:64]!r} in the definition"
        raise Invalid(message, code=problem.code, hint=problem.hint, problems=[problem])
    return found


def ungrouped(document: Any, rule_id: str) -> Any:
    """A definition that is only tried: its group may not be there yet, its version is no matter. Raises Invalid."""
    return definition(document, rule_id, (*SHOWN, "group_id", "version"))


def is_change(document: Any) -> bool:
    """Whether it speaks of many rules; one rule has none of these fields."""
    return isinstance(document, list) or (isinstance(document, dict) and not document.keys().isdisjoint(FIELDS))


def read_change(document: Any, known: Collection[str]) -> RuleChange:
    """A list is a list of rules. `known`: ids of all rules. Raises Invalid; whether the definitions are good is not
    looked at here."""
    given = check_object(document if isinstance(document, dict) else {"rules": document}, FIELDS)
    problems = Problems(
        Problem("not_a_list", name, "give a list") for name, each in given.items() if type(each) is not list
    )
    problems += too_many(given)
    if not problems and not any(given.values()):
        problems.append(Problem("nothing_asked", "rules", "give rules or groups, or ids of rules to remove"))
    if not problems:
        ids = [document.get("id") for document in given.get("rules", []) if isinstance(document, dict)]
        put = {rule_id for rule_id in ids if isinstance(rule_id, str)}
        for at, name in enumerate(given.get("remove", [])):
            if not isinstance(name, str) or name not in known:
                problems.append(Problem("unknown_rule", f"remove[{at}]", f"there is no rule {str(name)[:64]!r}"))
            elif name in put:
                problems.append(Problem("given_twice", f"remove[{at}]", f"{name!r} is put, too"))
    if problems:
        message = f"nothing was stored: {problems[0].path}: {problems[0].hint}"
        raise Invalid(message, code="bad_rule", hint=problems[0].hint, problems=problems)
    rules = [definition(each) for each in given.get("rules", [])]
    groups = [definition(each, shown=("rules",)) for each in given.get("groups", [])]
    return RuleChange(rules, groups, list(given.get("remove", [])))


def query_time(request: Request, name: str) -> int | None:
    """Milliseconds since the epoch, of a time as questions to the history have them. Raises Invalid."""
    text = request.query_params.get(name)
    return None if text is None else time_of(text, name)


def time_of(value: Any, path: str) -> int:
    """Raises Invalid."""
    return time_ms(value, now_ms(), path)


def query_flag(request: Request, name: str) -> bool | None:
    """Raises Invalid."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        problem = Problem(f"unknown_{name}", name, "give true or false")
        raise Invalid("the query is not valid", code=problem.code, hint=problem.hint, problems=[problem])
    return text.lower() == "true"
