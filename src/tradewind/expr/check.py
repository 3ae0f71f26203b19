"""The whitelist: what the language has. Everything else is a problem; all problems are found at once."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection

from tradewind.errors import Problem
from tradewind.expr.functions import ANY, CONSTANTS, FUNCTIONS
from tradewind.expr.limits import INTEGER_BITS, LARGEST_INTEGER, Limits
from tradewind.expr.source import Source
from tradewind.problems import closest, some_of

#: The name under which inputs are read whose own names are no identifiers.
INPUTS = "inputs"

_MOST_PROBLEMS = 50
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_UNARY = (ast.UAdd, ast.USub, ast.Not)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)

#: What people try, and what to write instead. Their insides are not looked at.
_FOREIGN: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda is not allowed",
    ast.ListComp: "comprehensions are not allowed; use sum, any, all, …",
    ast.SetComp: "comprehensions are not allowed; use sum, any, all, …",
    ast.DictComp: "comprehensions are not allowed; use sum, any, all, …",
    ast.GeneratorExp: "comprehensions are not allowed; use sum, any, all, …",
    ast.JoinedStr: "f-strings are not allowed; use str(x) + …",
    ast.NamedExpr: "assignments are not allowed; use == to compare",
    ast.Await: "await is not allowed",
    ast.Yield: "yield is not allowed",
    ast.YieldFrom: "yield is not allowed",
    ast.Starred: "* in front of a value is not allowed; write the values out",
    ast.Set: "sets are not allowed; use a list: [a, b]",
}


def named_input(node: ast.AST) -> str | None:
    """The input that `inputs["a-b"]` reads."""
    match node:
        case ast.Subscript(value=ast.Name(id="inputs"), slice=ast.Constant(value=str(name))):
            return name
    return None


class Check:
    """`problems` and the `inputs` that are read, after `run`."""

    def __init__(self, source: Source, names: Collection[str] | None, limits: Limits) -> None:
        self.problems: list[Problem] = []
        self.inputs: set[str] = set()
        self._source = source
        self._names = names
        self._limits = limits

    def run(self) -> None:
        self._visit(self._source.tree)

    def _visit(self, node: ast.AST) -> None:
        if len(self.problems) >= _MOST_PROBLEMS:
            return
        name = named_input(node)
        if name is not None:
            self._input(node, name)
            return
        match node:
            case ast.Constant():
                self._constant(node)
                return
            case ast.Name(id=word):
                self._name(node, word)
                return
            case ast.BinOp(op=op) if not isinstance(op, _OPERATORS):
                self._problem("not_allowed", node, "bit operators are not allowed; use and, or, **")
            case ast.UnaryOp(op=op) if not isinstance(op, _UNARY):
                self._problem("not_allowed", node, "~ is not allowed; use not")
            case ast.Compare(ops=ops) if not all(isinstance(op, _COMPARISONS) for op in ops):
                self._problem("not_allowed", node, "is and is not are not allowed; use == and !=")
            case ast.Attribute(attr=attr):
                self._problem("not_allowed", node, f'attributes are not allowed; write x["{attr}"] for an item')
            case ast.Dict():
                self._mapping(node)
            case ast.Call():
                self._call(node)
                return
            case ast.Subscript(value=ast.Name(id="inputs")):
                self._problem("not_allowed", node, 'inputs takes one name in quotes: inputs["a-b"]')
                self._visit(node.slice)
                return
            case ast.Subscript(slice=ast.Tuple()):
                self._problem("not_allowed", node.slice, "one position or one slice only: x[0][1], x[1:3]")
                self._visit(node.value)
                return
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp():
                pass
            case ast.Subscript() | ast.Slice() | ast.List() | ast.Tuple():
                pass
            case _:
                hint = _FOREIGN.get(type(node), f"{type(node).__name__} is not part of the language")
                self._problem("not_allowed", node, hint)
                return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.expr, ast.keyword)):
                self._visit(child)

    def _constant(self, node: ast.Constant) -> None:
        match node.value:
            case None | bool():
                return
            case int(value) if abs(value) > LARGEST_INTEGER:
                self._problem("bad_literal", node, f"an integer is at most 2**{INTEGER_BITS}; write it as 1e80")
            case float(value) if not math.isfinite(value):
                self._problem("bad_literal", node, "a number is at most about 1.8e308")
            case str(value):
                if len(value) > self._limits.literal:
                    hint = f"a string of {len(value):,} characters: at most {self._limits.literal:,}"
                    self._problem("bad_literal", node, hint)
                if not is_text(value):
                    self._problem("bad_literal", node, "a surrogate is not a character")
            case int() | float():
                return
            case _:
                self._problem("bad_literal", node, "write a number, a string, True, False or None")

    def _name(self, node: ast.Name, word: str) -> None:
        if word == INPUTS:
            self._problem("not_allowed", node, 'inputs takes one name in quotes: inputs["a-b"]')
        elif word.startswith("__"):
            self._problem("not_allowed", node, "names that begin with __ are not allowed")
        elif word not in CONSTANTS or (self._names is not None and word in self._names):
            self._input(node, word)

    def _input(self, node: ast.AST, name: str) -> None:
        if self._names is None or name in self._names:
            self.inputs.add(name)
            return
        near = closest(name, self._names)
        word = {"true": "True", "false": "False", "null": "None", "none": "None"}.get(name.lower())
        if word is not None:
            hint = f"write {word}"
        elif near:
            hint = f"did you mean {near}?"
        elif name in FUNCTIONS:
            hint = f"call the function: {name}(…)"
        else:
            hint = f"there are: {some_of(self._names, 10)}"
        self._problem("unknown_name", node, f"there is no input {name[:100]!r}; {hint}")

    def _call(self, node: ast.Call) -> None:
        for argument in (*node.args, *node.keywords):
            if isinstance(argument, ast.keyword):
                self._problem("not_allowed", argument.value, "arguments have no names: clamp(x, 0, 10)")
                self._visit(argument.value)
            else:
                self._visit(argument)
        if not isinstance(node.func, ast.Name):
            self._problem("unknown_function", node, "only functions can be called, by their names")
            self._visit(node.func)
            return
        name = node.func.id
        function = FUNCTIONS.get(name)
        if function is None:
            near = closest(name, FUNCTIONS)
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(sorted(FUNCTIONS))}"
            self._problem("unknown_function", node, f"there is no function {name[:100]}; {hint}")
        elif not function.least <= len(node.args) + len(node.keywords) <= function.most:
            least, most = function.least, function.most
            wanted = str(least) if least == most else f"at least {least}" if most == ANY else f"{least} to {most}"
            self._problem("wrong_arguments", node, f"{name} takes {wanted} arguments, not {len(node.args)}")

    def _mapping(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self._problem("not_allowed", value, "** is not allowed; write the items out")
            elif isinstance(key, ast.Constant) and not isinstance(key.value, str):
                self._problem("bad_literal", key, 'the key of an object is a string: {"a": 1}')

    def _problem(self, code: str, node: ast.AST, hint: str) -> None:
        self.problems.append(self._source.problem(code, node, hint))


def is_text(value: str) -> bool:
    """False if there are surrogates, which no JSON text can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
