"""What goes wrong while an expression is evaluated."""

from __future__ import annotations

from tradewind.errors import Invalid, Problem

_SHOWN = 100


class ExpressionError(Invalid):
    """An evaluation has no value. `position` (such as `col 7`) is where in the `expression`, `reason` is why."""

    code = "expression_failed"

    def __init__(self, expression: str, position: str, reason: str, *, code: str, hint: str = "") -> None:
        shown = expression if len(expression) <= _SHOWN else expression[: _SHOWN - 1] + "…"
        super().__init__(
            f"{reason} at {position} of {shown!r}",
            code=code,
            hint=hint,
            problems=(Problem(code=code, path=position, hint=f"{reason}; {hint}" if hint else reason),),
        )
        self.expression = expression
        self.position = position
        self.reason = reason


class Refusal(Exception):
    """Raised by our operators and functions; becomes an ExpressionError once its position is known."""

    def __init__(self, code: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.hint = hint


def explained(error: Exception) -> tuple[str, str, str]:
    """Code, reason and hint for what evaluating can raise by itself."""
    match error:
        case Refusal():
            return error.code, error.reason, error.hint
        case ZeroDivisionError():
            return "division_by_zero", "division by zero", "guard it: x / y if y != 0 else 0"
        case KeyError():
            return "no_such_item", f"there is no key {_key(error.args[0])}", "get(object, key, default) allows for it"
        case IndexError():
            return "no_such_item", "the position is outside the list", "get(list, position, default) allows for it"
        case OverflowError() | MemoryError() | RecursionError():
            return "too_large", "a value is too large", "use smaller values"
        case TypeError():
            return "wrong_type", str(error)[:200], "convert it first, or check which type arrives"
        case ValueError():
            return "out_of_range", str(error)[:200], "check the argument first"
        case _:
            return "failed", f"{type(error).__name__}: {str(error)[:200]}", "the inputs must be plain JSON data"


def _key(key: object) -> str:
    return repr(key[:100]) if isinstance(key, str) else f"that is a {type(key).__name__}"
