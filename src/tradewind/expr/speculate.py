"""Which inputs look like numbers. A guess that is wrong costs time, never the result: see `build.py`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tradewind.expr.functions import FUNCTIONS

_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_NUMERIC_CALLS = frozenset({name for name, function in FUNCTIONS.items() if function.native} | {"clamp", "pow", "sign"})
_TESTS = frozenset({"isnan", "is_finite", "bool", "str", "if_else"})


def numeric_inputs(tree: ast.expr, name_of: Callable[[ast.expr], str | None]) -> list[str]:
    """The inputs that are used as numbers and never otherwise, in order of their names."""
    numbers: set[str | None] = set()
    others: set[str | None] = set()
    for node in ast.walk(tree):
        for operand, is_number in _uses(node):
            (numbers if is_number else others).add(name_of(operand))
    return sorted(name for name in numbers - others if name is not None)


def _uses(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Operands, and whether each is used as a number."""
    match node:
        case ast.BinOp(left=left, right=right):
            if not _is_other(right):
                yield left, True
            if not _is_other(left):
                yield right, True
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            yield operand, True
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            operands = [left, *comparators]
            for first, op, second in zip(operands, ops, operands[1:], strict=False):
                for one, other in ((first, second), (second, first)):
                    if isinstance(op, _ORDERED) and not _is_other(other):
                        yield one, True
                    elif isinstance(op, (ast.Eq, ast.NotEq)) and isinstance(other, ast.Constant):
                        yield one, type(other.value) in (int, float)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            takes_numbers = name in _NUMERIC_CALLS and not (name in ("min", "max") and len(arguments) == 1)
            for argument in arguments if name not in _TESTS else ():
                yield argument, takes_numbers
        case ast.Subscript(value=value):
            yield value, False


def _is_other(node: ast.expr) -> bool:
    """True if it is certainly no number, so that what it is joined or compared with is none either."""
    match node:
        case ast.Constant(value=value):
            return not isinstance(value, (int, float))
        case ast.Call(func=ast.Name(id=name)):
            return name in ("str", "lower", "upper", "strip", "sorted")
    return isinstance(node, (ast.List, ast.Tuple, ast.Dict))
