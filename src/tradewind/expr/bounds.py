"""Bounds of numbers: the proofs that let `build.py` use Python's own operators."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

from tradewind.expr.functions import Function
from tradewind.expr.limits import INTEGER_BITS

#: Inputs that are used as numbers are tested to be within ±2**63 before anything is computed from them.
INPUT_BITS = 63.0


@dataclass(frozen=True, slots=True)
class Part:
    """A built node. `bits`: it is a finite number of at most 2**bits in magnitude; None: it may be anything."""

    node: ast.expr
    bits: float | None = None


def largest_bits(*parts: Part) -> float | None:
    largest = 0.0
    for part in parts:
        if part.bits is None:
            return None
        largest = max(largest, part.bits)
    return largest


def operator_bits(op: ast.operator, left: Part, right: Part) -> float | None:
    """A bound of the result if Python's own operator is harmless: it gives a small finite number, or raises."""
    if left.bits is None or right.bits is None:
        return None
    literal = right.node.value if isinstance(right.node, ast.Constant) else None
    bits: float
    match op:
        case ast.Add() | ast.Sub():
            bits = max(left.bits, right.bits) + 1
        case ast.Mult():
            bits = left.bits + right.bits
        case ast.Mod():
            bits = max(left.bits, right.bits)
        case ast.Div() | ast.FloorDiv() if isinstance(literal, (int, float)) and literal:
            bits = left.bits + 1 + max(0.0, -math.log2(abs(literal)))
        case ast.Pow() if isinstance(literal, int) and literal >= 0:
            bits = left.bits * literal
        case _:
            return None
    return bits if max(bits, left.bits, right.bits) <= INTEGER_BITS else None


def function_bits(name: str, function: Function, parts: list[Part]) -> float | None:
    """The same for the functions that Python has."""
    largest = largest_bits(*parts)
    if function.native is None or largest is None or largest > INTEGER_BITS:
        return None
    if name in ("min", "max") and len(parts) == 1:
        return None
    if name == "round" and len(parts) == 2:
        digits = parts[1].node
        if not isinstance(digits, ast.Constant) or type(digits.value) is not int or digits.value > 100:
            return None
    bits = function.caps if function.caps is not None else largest + function.grows
    return bits if bits <= INTEGER_BITS or function.caps is not None else None


def is_native(left: Part, op: ast.cmpop, right: Part) -> bool:
    if isinstance(op, (ast.In, ast.NotIn)):
        is_literal = isinstance(left.node, ast.Constant) and isinstance(left.node.value, (str, int, float))
        is_tuple = isinstance(right.node, ast.Constant) and isinstance(right.node.value, tuple)
        return is_tuple and (left.bits is not None or is_literal)
    if left.bits is not None and right.bits is not None:
        return True
    ends = (left.node, right.node)
    return isinstance(op, (ast.Eq, ast.NotEq)) and any(
        isinstance(end, ast.Constant) and (end.value is None or isinstance(end.value, str)) for end in ends
    )
