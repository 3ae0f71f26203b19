"""The text of an expression: parsed by Python's own parser, with the position of each node."""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from tradewind.errors import Invalid, Problem
from tradewind.expr.limits import Limits

#: catch_warnings changes what the whole process does about warnings: one thread at a time.
_quiet = threading.Lock()

#: Nodes that the parser adds to others; they are not counted.
_MARKS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


@contextmanager
def quietly() -> Iterator[None]:
    """No warnings of the parser or the compiler about what a user wrote."""
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Source:
    """A parsed text. It is parsed as the only item of a list, so that it may span lines and begin with spaces."""

    def __init__(self, text: str, limits: Limits) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._lines = self.text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        if len(text) > limits.text:
            raise self.refused("too_long", 0, f"{len(text):,} characters: at most {limits.text:,}; split it up")
        if not text.strip():
            raise self.refused("empty", 0, "write an expression, such as a > 10")
        self.tree = self._parse()
        self._measure(limits)

    def offset(self, node: ast.AST) -> int:
        """Where a node begins, in characters from the start of the text."""
        return self._offset(getattr(node, "lineno", 1), getattr(node, "col_offset", 1))

    def _offset(self, number: int, column: int) -> int:
        row = number - 1
        line = self._lines[min(row, len(self._lines) - 1)]
        if row == 0:
            column -= 1
        if not line.isascii():  # the parser counts bytes
            column = len(line.encode()[:column].decode(errors="ignore"))
        return self._starts[row] + column

    def position(self, offset: int) -> str:
        """`col 7`, or `line 2 col 7` if there are several lines."""
        row = self.text.count("\n", 0, offset)
        column = f"col {offset - self._starts[row] + 1}"
        return f"line {row + 1} {column}" if "\n" in self.text.strip() else column

    def problem(self, code: str, at: int | ast.AST, hint: str) -> Problem:
        offset = at if isinstance(at, int) else self.offset(at)
        return Problem(code=code, path=self.position(offset), hint=hint)

    def refused(self, code: str, at: int | ast.AST, hint: str) -> Invalid:
        return refused([self.problem(code, at, hint)])

    def _parse(self) -> ast.expr:
        try:
            with quietly():
                tree = ast.parse(f"[{self.text}\n]", mode="eval").body
        except SyntaxError as error:
            raise self._malformed(error) from None
        except (RecursionError, MemoryError):
            raise self.refused("too_deep", 0, "it is nested too deeply; split it up") from None
        except ValueError:
            raise self.refused("syntax", 0, "there are characters that text cannot have (NUL, surrogates)") from None
        if isinstance(tree, ast.ListComp):
            raise self.refused("not_allowed", tree.elt, "comprehensions are not allowed; use sum, any, all, …")
        if not isinstance(tree, ast.List):
            raise self.refused("syntax", 0, "a bracket is closed that was not opened")
        if not tree.elts:
            raise self.refused("empty", 0, "write an expression, such as a > 10")
        if len(tree.elts) > 1 or self._ends_with_comma(tree.elts[0]):
            raise self.refused("syntax", tree.elts[-1], "one expression only; write brackets around a list: [a, b]")
        return tree.elts[0]

    def _ends_with_comma(self, tree: ast.expr) -> bool:
        end = self._offset(tree.end_lineno or 1, tree.end_col_offset or 1)
        return self.text[end:].lstrip(" \t\f\n)\\").startswith(",")

    def _malformed(self, error: SyntaxError) -> Invalid:
        if (error.lineno or 1) > len(self._lines):
            return self.refused("syntax", len(self.text.rstrip()), "something is missing at the end")
        row = max(error.lineno or 1, 1) - 1
        column = (error.offset or 1) - (2 if row == 0 else 1)
        offset = self._starts[row] + min(max(column, 0), len(self._lines[row]))
        reason = error.msg
        if "'['" in reason or "']'" in reason:  # speaks of the brackets that we added
            reason = "the brackets do not match"
        return self.refused("syntax", offset, f"{reason}; write one expression, such as a > 10")

    def _measure(self, limits: Limits) -> None:
        count = 0
        level: list[ast.AST] = [self.tree]
        depth = 1
        while level:
            count += len(level)
            if depth > limits.depth:
                hint = f"nested more than {limits.depth} deep; use sum([…]), any([…]), all([…]), or split it up"
                raise self.refused("too_deep", level[0], hint)
            below = (child for node in level for child in ast.iter_child_nodes(node))
            level = [child for child in below if not isinstance(child, _MARKS)]
            depth += 1
        if count > limits.nodes:
            raise self.refused("too_many_parts", 0, f"{count:,} parts: at most {limits.nodes:,}; split it up")


def refused(problems: list[Problem]) -> Invalid:
    first = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return Invalid(f"bad expression: {first}{more}", code="bad_expression", hint=problems[0].hint, problems=problems)
