"""Finds where a source file can be changed by one small mistake. Pure: text in, mutations out.

A mutation replaces one span of the text. Left alone: comments, docstrings, annotations, log calls, messages,
module-level names such as `__all__`, and blocks that only type checkers read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARE = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGGERS = {"log", "_log", "logger", "_logger", "LOG"}


@dataclass(frozen=True)
class Mutation:
    """`file[start:end]` becomes `text`; `kind` says what was done, `line` counts from 1."""

    file: str
    line: int
    start: int
    end: int
    old: str
    text: str
    kind: str

    @property
    def id(self) -> str:
        return f"{self.file}:{self.line}:{self.start}:{self.kind}"

    def apply(self, source: str) -> str:
        assert source[self.start : self.end] == self.old, f"{self.id}: the file is not the one that was read"
        return source[: self.start] + self.text + source[self.end :]

    def __str__(self) -> str:
        old, new = (" ".join(part.split())[:60] for part in (self.old, self.text))
        return f"{self.file}:{self.line}  {self.kind}: {old!r} → {new!r}"


def find(file: str, source: str) -> list[Mutation]:
    """All mutations of one file, in the order of the text."""
    found = _lua(file, source) if file.endswith(".lua") else _Python(file, source).find()
    return sorted(set(found), key=lambda m: (m.start, m.end, m.kind, m.text))


def group(file: str, source: str) -> str:
    """`lua`, `active` (it waits, talks or runs threads) or `pure`."""
    if file.endswith(".lua"):
        return "lua"
    return (
        "active" if re.search(r"^\s*(async def|await )|import (threading|subprocess|sqlite3)", source, re.M) else "pure"
    )


def files(root: Path) -> list[str]:
    """What is worth mutating: everything of the product but declarations, migrations and the page."""
    skipped = re.compile(r"/(migrations|web)/|__init__\.py$|__main__\.py$|_schemas\.py$|/schemas\.py$|/keys\.py$")
    found = [*root.glob("src/tradewind/**/*.py"), *root.glob("src/tradewind/**/*.lua")]
    return sorted(name for path in found if not skipped.search(name := str(path.relative_to(root))))


class _Python(ast.NodeVisitor):
    def __init__(self, file: str, source: str) -> None:
        self._file = file
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._texts = source.splitlines(keepends=True)
        self._found: list[Mutation] = []

    def find(self) -> list[Mutation]:
        self.visit(ast.parse(self._source))
        return self._found

    def _at(self, line: int, column: int) -> int:
        """Offset of an AST position: its columns count bytes of UTF-8."""
        text = self._texts[line - 1]
        return self._lines[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode()))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno or 0, node.end_col_offset or 0)

    def _add(self, node: ast.AST, start: int, end: int, text: str, kind: str) -> None:
        line = self._source.count("\n", 0, start) + 1
        self._found.append(Mutation(self._file, line, start, end, self._source[start:end], text, kind))

    def _replace(self, node: ast.AST, text: str, kind: str) -> None:
        self._add(node, *self._span(node), text, kind)

    def _between(self, left: ast.AST, right: ast.AST, old: str, new: str, kind: str) -> None:
        """The operator `old` between two operands becomes `new`."""
        start, end = self._span(left)[1], self._span(right)[0]
        match = re.search(rf"(?<![\w<>=!*/]){re.escape(old)}(?![\w<>=*/])", self._source[start:end])
        if match:
            self._add(left, start + match.start(), start + match.end(), new, kind)

    def _walk(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            self.visit(default)
        self._walk(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            start, end = self._span(node.test)
            self._add(node.test, start, end, f"not ({self._source[start:end]})", "negate-if")
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._replace(node.test, "False", "never-loop")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        start, end = self._span(node.test)
        self._add(node.test, start, end, f"not ({self._source[start:end]})", "negate-choice")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left: ast.expr = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            old, new = COMPARE[type(op)]
            self._between(left, right, old, new, "compare")
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new, "logic")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = any(isinstance(side, ast.JoinedStr | ast.List) or _is_text(side) for side in (node.left, node.right))
        if type(node.op) in ARITHMETIC and not texts:
            self._between(node.left, node.right, *ARITHMETIC[type(node.op)], "arithmetic")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node.operand)
            self._replace(node, self._source[start:end], "drop-not")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value), "boolean")
        elif isinstance(node.value, int | float):
            self._replace(node, repr(node.value * 2 if node.value > 2 else node.value + 1), "number")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass  # positions inside are not reliable before Python 3.12, and most are messages

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self._replace(node, "pass", "no-raise")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._replace(node, "return None", "return-none")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue", "break")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break", "continue")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass", "drop-statement")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in NAMES:
            self._replace(node.func, NAMES[node.func.id], "opposite")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(value, ast.Call):
            return  # a docstring, or a bare name
        if isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Name | ast.Attribute):
            owner = value.func.value
            if (owner.id if isinstance(owner, ast.Name) else owner.attr) in LOGGERS:
                return
        self._replace(node, "pass", "drop-statement")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if not any(isinstance(part, ast.Raise) for part in node.body):
            start, end = self._span(node.body[0])[0], self._span(node.body[-1])[1]
            self._add(node.body[0], start, end, "raise", "no-recovery")
        self._walk(node.body)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


_LUA = re.compile(
    r"(?P<skip>--\[\[.*?\]\]|--[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\[\[.*?\]\])"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)?(?![\w.]))"
    r"|(?P<word>\b(?:and|or|not|true|false)\b)"
    r"|(?P<operator>==|~=|<=|>=|\.\.|<|>|\+|-(?=\s)|\*|/)",
    re.S,
)
_LUA_SWAP = {
    "==": "~=",
    "~=": "==",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "and": "or",
    "or": "and",
    "true": "false",
    "false": "true",
    "not": "",
}
_LUA_CALL = re.compile(
    r"^[ \t]*((?:redis\.call|[a-z_][\w.]*)\((?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*\))[ \t]*$", re.M
)
_LUA_IF = re.compile(r"\b(if|elseif)\s+(.+?)\s+then\b")
_LUA_RETURN = re.compile(r"^[ \t]*(return\s+(?!nil\b)\S[^\n]*?)(?=[ \t]*(?:end[ \t]*)?$)", re.M)


def _lua(file: str, source: str) -> Iterator[Mutation]:
    dark = [(m.start(), m.end()) for m in _LUA.finditer(source) if m.lastgroup == "skip"]

    def add(start: int, end: int, text: str, kind: str) -> Iterator[Mutation]:
        if not any(low <= start < high for low, high in dark):
            yield Mutation(file, source.count("\n", 0, start) + 1, start, end, source[start:end], text, kind)

    for match in _LUA.finditer(source):
        token = match[0]
        if match.lastgroup == "number":
            yield from add(*match.span(), str(int(token) + 1) if token.isdigit() else f"{token}1", "number")
        elif match.lastgroup in ("word", "operator") and token in _LUA_SWAP:
            yield from add(*match.span(), _LUA_SWAP[token], {"and": "logic", "or": "logic"}.get(token, "swap"))
    for match in _LUA_CALL.finditer(source):
        yield from add(*match.span(1), "", "drop-statement")
    for match in _LUA_IF.finditer(source):
        yield from add(*match.span(2), f"not ({match[2]})", "negate-if")
    for match in _LUA_RETURN.finditer(source):
        yield from add(*match.span(1), "return nil", "return-nil")
