"""What a request about flows says: which flow, cycle and node, a definition as JSON or YAML, what a run is given."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from starlette.requests import Request

from tradewind.api.body import check_object, check_tree, read_bytes, read_json, read_json_or_none
from tradewind.api.errors import Refused
from tradewind.errors import Invalid, Problem
from tradewind.flows.starting import MODES, RunRequest
from tradewind.flows.syntax_text import read_any
from tradewind.ids import is_id

YAML_TYPES = ("application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml")
MAX_REASON = 500
_MAX_NUMBER = 10**15
_RUN_FIELDS = frozenset({"signals", "node", "mode", "from_cycle", "again", "run_id"})


async def read_definition(request: Request, max_bytes: int) -> Any:
    """The document of a definition, JSON or YAML, not checked: any value, an object or not. Raises Refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in YAML_TYPES:
        return await read_json(request, max_bytes)
    data = await read_bytes(request, max_bytes)
    return await asyncio.to_thread(_read_yaml, data)  # a long one takes seconds


def _read_yaml(data: bytes) -> Any:
    """YAML can say what JSON cannot; what could not be answered or stored as JSON is refused."""
    try:
        document = read_any(data, "body.yaml")
    except Invalid as error:
        raise Refused(400, error.message, code=error.code, hint=error.hint, problems=error.problems) from error
    check_tree(document, "YAML")
    return document


def path_id(request: Request, name: str = "id") -> str:
    """An id out of the path. Raises Invalid: Redis has fields beside those of nodes, so nothing else may get there."""
    text: str = request.path_params[name]
    if not is_id(text):
        problem = Problem("bad_id", name, "letters, digits, _ and -, at most 64 characters, no reserved word")
        raise Invalid(f"{text[:64]!r} is not an id", code=problem.code, hint=problem.hint, problems=[problem])
    return text


def path_number(request: Request, name: str = "n") -> int:
    return _number(request.path_params[name], name)


def query_cycle(request: Request, name: str = "cycle") -> int | None:
    text = request.query_params.get(name)
    return None if text is None else _number(text, name)


def _number(text: str, path: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        problem = Problem("bad_number", path, "give a whole number from 0")
        raise Invalid(f"{text[:64]!r} is not a number", code=problem.code, hint=problem.hint, problems=[problem])
    return int(text)


def query_id(request: Request, name: str) -> str | None:
    text = request.query_params.get(name)
    if text is not None and not is_id(text):
        problem = Problem("bad_id", name, "letters, digits, _ and -, at most 64 characters")
        raise Invalid("the query is not valid", code=problem.code, hint=problem.hint, problems=[problem])
    return text


def query_word(request: Request, name: str, known: tuple[str, ...]) -> str | None:
    """One of the known words, in any case. Raises Invalid."""
    text = request.query_params.get(name)
    if text is None:
        return None
    found = next((word for word in known if word.lower() == text.lower()), None)
    if found is None:
        problem = Problem(f"unknown_{name}", name, f"{text[:32]!r} is none of {', '.join(known)}")
        raise Invalid("the query is not valid", code=problem.code, hint=problem.hint, problems=[problem])
    return found


class Run(NamedTuple):
    """A cycle to start. `again`: as that earlier one, then `request` is empty."""

    request: RunRequest
    again: int | None
    run_id: str


async def read_run(request: Request, max_bytes: int) -> Run:
    """Raises Refused, and Invalid with every problem; whether nodes and handles exist is the room's to say."""
    body = await _read_optional(request, max_bytes, _RUN_FIELDS)
    problems = []
    signals, node, mode, run_id = (body.get(name, default) for name, default in _RUN_DEFAULTS)
    if not isinstance(signals, dict):
        problems.append(Problem("not_an_object", "signals", 'give {"node.handle": value}'))
    if not isinstance(node, str) or (node and not is_id(node)):
        problems.append(Problem("bad_id", "node", "give the id of a node"))
    if mode != "" and mode not in MODES:
        problems.append(Problem("unknown_mode", "mode", f"give one of {', '.join(MODES)}"))
    elif mode and not node:
        problems.append(Problem("missing_node", "node", "say from which node it is seen"))
    if not isinstance(run_id, str) or (run_id and not is_id(run_id)):
        problems.append(Problem("bad_id", "run_id", "letters, digits, _ and -, at most 64 characters"))
    for name in ("from_cycle", "again"):
        number = body.get(name)
        if number is not None and (type(number) is not int or not 0 <= number < _MAX_NUMBER):
            problems.append(Problem("bad_number", name, "give the number of a cycle"))
    again = body.get("again")
    if again is not None and (signals or node or mode or body.get("from_cycle") is not None):
        problems.append(
            Problem("not_alone", "again", "it runs with what the earlier cycle was given: leave the rest out")
        )
    if problems:
        raise Invalid("the run is not valid", code="invalid_run", hint="see problems", problems=problems)
    return Run(RunRequest(signals, node, mode, body.get("from_cycle")), again, run_id)


_RUN_DEFAULTS: tuple[tuple[str, Any], ...] = (("signals", {}), ("node", ""), ("mode", ""), ("run_id", ""))


async def read_reason(request: Request, max_bytes: int, default: str) -> str:
    body = await _read_optional(request, max_bytes, frozenset({"reason"}))
    reason = body.get("reason")
    if reason is None:
        return default
    if not isinstance(reason, str) or not 0 < len(reason) <= MAX_REASON:
        problem = Problem("bad_reason", "reason", f"give text of at most {MAX_REASON} characters")
        raise Invalid("the reason is not valid", code=problem.code, hint=problem.hint, problems=[problem])
    return reason


async def _read_optional(request: Request, max_bytes: int, known: frozenset[str]) -> dict[str, Any]:
    """No body and null stand for an object without fields, and null for a field that is left out."""
    value = await read_json_or_none(request, max_bytes)
    return {} if value is None else {k: v for k, v in check_object(value, known).items() if v is not None}
