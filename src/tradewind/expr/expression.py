"""From text to something that is called with values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import Any, NoReturn

from tradewind.errors import Problem
from tradewind.expr.bounds import INPUT_BITS
from tradewind.expr.build import Builder
from tradewind.expr.check import Check
from tradewind.expr.errors import ExpressionError, explained
from tradewind.expr.functions import FUNCTIONS
from tradewind.expr.limits import DEFAULT_LIMITS, Limits
from tradewind.expr.operators import operators
from tradewind.expr.source import Source, quietly, refused
from tradewind.expr.speculate import numeric_inputs

_GUARDED = """
def guarded(values):
    try:
        return RESULT
    except Exception as error:
        return fail(error, values)
"""
_PROVEN = """
def proven(values):
    try:
        LOADS
        if TEST:
            return RESULT
    except Exception:
        pass
    return guarded(values)
"""


class Expression(partial[Any]):
    """Called with the inputs by name, gives a plain JSON value or raises ExpressionError. Any thread may call it.

    `names` are the inputs that it reads. It is a `partial` because that is called without a Python frame of its own.
    """

    text: str
    names: frozenset[str]
    _made_from: tuple[str, frozenset[str] | None, Limits]

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> Any:
        return _compiled, self._made_from


def compile_expression(
    text: str, *, names: Collection[str] | None = None, limits: Limits = DEFAULT_LIMITS
) -> Expression:
    """Raises Invalid with all problems of the text. `names`: the inputs that there are; None allows any.

    The last 1,024 are kept, so asking again for the same text is cheap.
    """
    if not isinstance(text, str):
        hint = "write the expression as a string"
        raise refused([Problem(code="not_text", path="col 1", hint=f"a {type(text).__name__} is no text; {hint}")])
    try:
        return _compiled(text, None if names is None else frozenset(names), limits)
    except RecursionError:  # the limit of depth is far below Python's, but the caller may be deep already
        hint = "too deeply nested for where it is compiled; split it up"
        raise refused([Problem(code="too_deep", path="col 1", hint=hint)]) from None


@lru_cache(maxsize=1024)
def _compiled(text: str, names: frozenset[str] | None, limits: Limits) -> Expression:
    source = Source(text, limits)
    check = Check(source, names, limits)
    check.run()
    if check.problems:
        raise refused(check.problems)
    inputs = frozenset(check.inputs)
    guarded = Builder(source, inputs, {})
    module = ast.parse(_GUARDED)
    _put(module, "RESULT", guarded.result())
    used = guarded.used
    numeric = numeric_inputs(source.tree, guarded.input_name)
    if numeric:
        proven = Builder(source, inputs, {name: f"number{index}" for index, name in enumerate(numeric)})
        result = proven.result()
        used = used | proven.used
        module.body += ast.parse(_proven_text(numeric)).body
        _put(module, "RESULT", result)
    space = _namespace(source, used, limits)
    space["fail"] = _failing(source, text, guarded.input_at)
    with quietly():  # of odd but harmless things, such as an item of a literal
        code = compile(module, "<expression>", "exec", dont_inherit=True)
    exec(code, space)
    expression = Expression(space["proven" if numeric else "guarded"])
    expression.text = text
    expression.names = inputs
    expression._made_from = (text, names, limits)
    return expression


def _proven_text(numeric: list[str]) -> str:
    largest = 2.0**INPUT_BITS
    loads = "; ".join(f"number{index} = values[{name!r}]" for index, name in enumerate(numeric))
    tests = (f"{-largest!r} < number{index} < {largest!r}" for index in range(len(numeric)))
    return _PROVEN.replace("TEST", " and ".join(tests)).replace("LOADS", loads)


def _put(module: ast.Module, mark: str, node: ast.expr) -> None:
    for statement in ast.walk(module):
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name) and statement.value.id == mark:
            statement.value = node


def _namespace(source: Source, used: set[str], limits: Limits) -> dict[str, Any]:
    """The only globals that the tree has: the operators and functions that it uses."""
    places = (ast.BinOp, ast.Call, ast.Slice, ast.cmpop)
    places_count = sum(isinstance(node, places) for node in ast.walk(source.tree))
    items = min(limits.items, limits.work // max(places_count, 1))
    bounds = {"items": items, "chars": limits.chars}
    space: dict[str, Any] = {"__builtins__": {}, "Exception": Exception}
    known = operators(items, limits.chars, limits.result_items)
    for name in used:
        kind, _, function = name.partition("_")
        if kind == "native":
            space[name] = FUNCTIONS[function].native
        elif kind == "call":
            chosen = FUNCTIONS[function]
            space[name] = partial(chosen.call, bounds[chosen.bounded]) if chosen.bounded else chosen.call
        else:
            space[name] = known[name]
    return space


def _failing(source: Source, text: str, input_at: dict[int, str]) -> Callable[[Exception, Any], NoReturn]:
    def fail(error: Exception, values: Any) -> NoReturn:
        trace = error.__traceback__  # its first entry is the tree itself, where a line number is an offset
        offset = trace.tb_lineno - 1 if trace is not None else 0
        code, reason, hint = explained(error)
        name = input_at.get(offset)
        if not isinstance(values, Mapping):
            code, reason, hint = "wrong_type", f"a {type(values).__name__} instead of values by name", "give a dict"
        elif isinstance(error, KeyError) and name is not None and name not in values:
            code, reason = "missing_input", f"there is no value for the input {name!r}"
            hint = f"send one, or write coalesce({name}, …)" if name.isidentifier() else "send one"
        raise ExpressionError(text, source.position(offset), reason, code=code, hint=hint) from None

    return fail
