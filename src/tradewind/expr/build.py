"""The tree that is run: built anew, from what the whitelist has.

An operation becomes Python's own operator where that is proven to be harmless, else a call of `operators.py`. The proof
is a bound of each number: inputs that are used as numbers are first tested to be within ±2**63; a sum of two such is
within ±2**64, a product within ±2**126, and so on up to 2**256. What does not pass the test is evaluated once more,
guarded throughout, which also finds out what is wrong and where: the line number of a node is its offset in the text.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection

from tradewind.expr.bounds import INPUT_BITS, Part, function_bits, is_native, largest_bits, operator_bits
from tradewind.expr.check import named_input
from tradewind.expr.functions import CONSTANTS, FINITE, FUNCTIONS
from tradewind.expr.source import Source

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "modulo",
    ast.Pow: "power",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "unequal",
    ast.Lt: "less",
    ast.LtE: "at_most",
    ast.Gt: "greater",
    ast.GtE: "at_least",
    ast.In: "contains",
    ast.NotIn: "lacks",
}


class Builder:
    """Builds one tree. `numeric`: the inputs that were tested, with the local variables that hold them."""

    def __init__(self, source: Source, inputs: Collection[str], numeric: dict[str, str]) -> None:
        self.used: set[str] = set()
        self.input_at: dict[int, str] = {}
        self._source = source
        self._inputs = inputs
        self._numeric = numeric
        self._held = 0

    def result(self) -> ast.expr:
        part = self.build(self._source.tree)
        return part.node if part.bits is not None else self._call("outcome", 0, part.node)

    def build(self, node: ast.expr) -> Part:
        name = self.input_name(node)
        if name is not None:
            return self._input(node, name)
        match node:
            case ast.Constant(value=value):
                return self._constant(value, self._source.offset(node))
            case ast.Name(id=word):
                return self._constant(CONSTANTS[word], self._source.offset(node))
            case ast.BinOp():
                return self._binary(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return self._logical(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self._choose(node, node.test, node.body, node.orelse)
            case ast.List() | ast.Tuple():
                elements = [self.build(element).node for element in node.elts]
                return Part(self._at(ast.List(elements, ast.Load()), self._source.offset(node)))
            case ast.Dict():
                return self._mapping(node)
            case ast.Subscript():
                return self._item(node)
            case ast.Call(func=ast.Name(id=word)):
                return self._function(node, word)
        raise AssertionError(f"{type(node).__name__} passed the check")

    def input_name(self, node: ast.expr) -> str | None:
        name = named_input(node)
        if name is None and isinstance(node, ast.Name) and node.id in self._inputs:
            return node.id
        return name

    def _at(self, node: ast.expr, offset: int) -> ast.expr:
        node.lineno = node.end_lineno = offset + 1
        node.col_offset = node.end_col_offset = 0
        return node

    def _load(self, name: str, offset: int) -> ast.expr:
        return self._at(ast.Name(name, ast.Load()), offset)

    def _call(self, name: str, offset: int, *arguments: ast.expr) -> ast.expr:
        self.used.add(name)
        return self._at(ast.Call(self._load(name, offset), list(arguments), []), offset)

    def _constant(self, value: object, offset: int) -> Part:
        node = self._at(ast.Constant(value), offset)  # type: ignore[arg-type]
        if isinstance(value, (int, float)):
            return Part(node, max(0.0, math.log2(abs(value))) if value else 0.0)
        return Part(node)

    def _input(self, node: ast.expr, name: str) -> Part:
        offset = self._source.offset(node)
        self.input_at[offset] = name
        if name in self._numeric:
            return Part(self._load(self._numeric[name], offset), INPUT_BITS)
        key = self._at(ast.Constant(name), offset)
        return Part(self._at(ast.Subscript(self._load("values", offset), key, ast.Load()), offset))

    def _truth(self, node: ast.expr) -> ast.expr:
        """Where only its truth counts; NaN would be true."""
        part = self.build(node)
        if part.bits is not None or isinstance(part.node, (ast.Constant, ast.List, ast.Dict)):
            return part.node
        return self._call("finite", self._source.offset(node), part.node)

    def _unary(self, node: ast.UnaryOp) -> Part:
        offset = self._source.offset(node)
        if isinstance(node.op, ast.Not):
            return Part(self._at(ast.UnaryOp(ast.Not(), self._truth(node.operand)), offset), 0.0)
        part = self.build(node.operand)
        if part.bits is not None:
            op = ast.USub() if isinstance(node.op, ast.USub) else ast.UAdd()
            return Part(self._at(ast.UnaryOp(op, part.node), offset), part.bits)
        return Part(self._call("negative" if isinstance(node.op, ast.USub) else "positive", offset, part.node), FINITE)

    def _binary(self, node: ast.BinOp) -> Part:
        left, right = self.build(node.left), self.build(node.right)
        offset = self._source.offset(node.right)  # says which one it is in a + b + c, where all begin at a
        bits = operator_bits(node.op, left, right)
        if bits is not None:
            return Part(self._at(ast.BinOp(left.node, type(node.op)(), right.node), offset), bits)
        are_numbers = left.bits is not None and right.bits is not None
        may_be_other = isinstance(node.op, (ast.Add, ast.Mult)) and not are_numbers
        call = self._call(_BINARY[type(node.op)], offset, left.node, right.node)
        return Part(call, None if may_be_other else FINITE)

    def _logical(self, node: ast.BoolOp) -> Part:
        op = ast.And() if isinstance(node.op, ast.And) else ast.Or()
        last = self.build(node.values[-1])
        first = [self.build(value) for value in node.values[:-1]]
        nodes = [
            part.node if part.bits is not None else self._call("finite", self._source.offset(value), part.node)
            for part, value in zip(first, node.values, strict=False)
        ]
        joined = self._at(ast.BoolOp(op, [*nodes, last.node]), self._source.offset(node))
        return Part(joined, largest_bits(*first, last))

    def _choose(self, node: ast.expr, test: ast.expr, body: ast.expr, other: ast.expr) -> Part:
        then, otherwise = self.build(body), self.build(other)
        chosen = ast.IfExp(self._truth(test), then.node, otherwise.node)
        return Part(self._at(chosen, self._source.offset(node)), largest_bits(then, otherwise))

    def _compare(self, node: ast.Compare) -> Part:
        operands = [self.build(node.left), *(self._comparator(item) for item in node.comparators)]
        pairs = list(zip(operands, node.ops, operands[1:], strict=False))
        offset = self._source.offset(node)
        if all(is_native(left, op, right) for left, op, right in pairs):
            ops = [type(op)() for op in node.ops]
            native = ast.Compare(operands[0].node, ops, [part.node for part in operands[1:]])
            return Part(self._at(native, offset), 0.0)
        calls: list[ast.expr] = []
        left_node = operands[0].node
        for index, (_, op, right) in enumerate(pairs):
            at = self._source.offset(node.comparators[index])
            right_node, again = right.node, right.node
            if index < len(pairs) - 1:
                right_node, again = self._hold(right.node, at)
            calls.append(self._call(_COMPARE[type(op)], at, left_node, right_node))
            left_node = again
        return Part(calls[0] if len(calls) == 1 else self._at(ast.BoolOp(ast.And(), calls), offset), 0.0)

    def _comparator(self, node: ast.expr) -> Part:
        """A list of literals is made once, not for each evaluation."""
        if isinstance(node, (ast.List, ast.Tuple)) and all(isinstance(item, ast.Constant) for item in node.elts):
            values = tuple(item.value for item in node.elts if isinstance(item, ast.Constant))
            return Part(self._at(ast.Constant(values), self._source.offset(node)))  # type: ignore[arg-type]
        return self.build(node)

    def _hold(self, node: ast.expr, offset: int) -> tuple[ast.expr, ast.expr]:
        """The node, kept in a local variable, and that variable."""
        name = f"held{self._held}"
        self._held += 1
        target = ast.Name(name, ast.Store())
        self._at(target, offset)
        return self._at(ast.NamedExpr(target, node), offset), self._load(name, offset)

    def _mapping(self, node: ast.Dict) -> Part:
        offset = self._source.offset(node)
        keys = [self.build(key).node for key in node.keys if key is not None]
        values = [self.build(value).node for value in node.values]
        if all(isinstance(key, ast.Constant) for key in keys):
            return Part(self._at(ast.Dict([*keys], values), offset))
        pairs = [item for pair in zip(keys, values, strict=True) for item in pair]
        return Part(self._call("mapping", offset, *pairs))

    def _item(self, node: ast.Subscript) -> Part:
        whole = self.build(node.value).node
        if isinstance(node.slice, ast.Slice):
            offset = self._source.offset(node)
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            none = self._at(ast.Constant(None), offset)
            return Part(self._call("part", offset, whole, *(self.build(end).node if end else none for end in ends)))
        offset = self._source.offset(node.slice)
        return Part(self._at(ast.Subscript(whole, self.build(node.slice).node, ast.Load()), offset))

    def _function(self, node: ast.Call, name: str) -> Part:
        offset = self._source.offset(node)
        if name == "if_else":
            return self._choose(node, *node.args)
        if name == "coalesce":
            return self._coalesce(node.args)
        parts = [self.build(argument) for argument in node.args]
        nodes = [part.node for part in parts]
        function = FUNCTIONS[name]
        bits = function_bits(name, function, parts)
        if bits is not None:
            return Part(self._call(f"native_{name}", offset, *nodes), bits)
        gives_number = function.bits is None and function.native is not None and largest_bits(*parts) is not None
        return Part(self._call(f"call_{name}", offset, *nodes), FINITE if gives_number else function.bits)

    def _coalesce(self, arguments: list[ast.expr]) -> Part:
        first, *rest = arguments
        offset = self._source.offset(first)
        name = self.input_name(first)
        if name is not None:
            key = self._at(ast.Constant(name), offset)
            part = Part(self._call("lookup", offset, self._load("values", offset), key))
        else:
            part = self.build(first)
        if not rest:
            return part
        held, again = self._hold(part.node, offset)
        is_there = self._at(ast.Compare(held, [ast.IsNot()], [self._at(ast.Constant(None), offset)]), offset)
        otherwise = self._coalesce(rest)
        return Part(self._at(ast.IfExp(is_there, again, otherwise.node), offset), largest_bits(part, otherwise))
