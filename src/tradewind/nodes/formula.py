"""Expressions in the config of a node: compiled once per text, evaluated over the node's inputs. No node by itself."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

from tradewind.errors import Invalid, Problem
from tradewind.expr import Expression, compile_expression
from tradewind.flows.node_errors import NodeValidationException

KEPT = 4096
formula = functools.lru_cache(maxsize=KEPT)(compile_expression)


def evaluate(text: str, values: Mapping[str, Any], node_id: str) -> Any:
    """Raises NodeValidationException, which no other attempt would heal."""
    try:
        return formula(text)(values)
    except Invalid as error:
        raise NodeValidationException(
            f"node {node_id!r}: {error.message}", ["expression"], node_id, hint=error.hint
        ) from error


def check(text: Any, names: Collection[str], path: str) -> list[Problem]:
    """What is wrong with an expression over these names: that it does not compile, or asks for what is not there."""
    if not isinstance(text, str):
        return []  # the schema says that already
    try:
        found: Expression = formula(text)
    except Invalid as error:
        problems = error.problems or (Problem(error.code, "", error.hint or error.message),)
        return [Problem(p.code, f"{path} ({p.path})" if p.path else path, p.hint) for p in problems]
    known = ", ".join(sorted(names)) or "none"
    return [
        Problem("unknown_name", path, f"{name!r} is no input of this node; its inputs: {known}")
        for name in sorted(found.names - set(names))
    ]
