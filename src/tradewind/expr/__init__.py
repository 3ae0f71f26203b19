"""Expressions: a small safe language over JSON values, for conditions, models and rules; `docs/expressions.md`.

Needs nothing, emits nothing. Read: limits → source → check → operators, functions → bounds → build → expression.
"""

from __future__ import annotations

from tradewind.expr.errors import ExpressionError
from tradewind.expr.expression import Expression, compile_expression
from tradewind.expr.functions import CONSTANTS, FUNCTIONS
from tradewind.expr.limits import Limits

__all__ = ["CONSTANTS", "FUNCTIONS", "Expression", "ExpressionError", "Limits", "compile_expression"]
