"""The five kinds of error that every room speaks.

TradewindError
 ├─ NotFound     the thing named does not exist            HTTP 404, exit 4
 ├─ Conflict     it exists, but its state forbids this     HTTP 409, exit 5
 ├─ Invalid      the input is wrong; carries all problems  HTTP 422, exit 2
 ├─ Unavailable  a part that we need does not answer       HTTP 503 (429 when `overloaded`), exit 6
 └─ TimedOut     it did not happen in the time allowed     HTTP 504, exit 7

Each carries a `code` for machines, a message that says what happened, and a hint that says what to do.
Room errors subclass one kind; the API and the CLI map only the kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input: machine code, where (JSON path such as `tasks[3].delay_s`), what to do."""

    code: str
    path: str
    hint: str


#: Problems that an error carries; the others are counted.
MOST_PROBLEMS = 100
_MOST_PATH, _MOST_HINT = 300, 600


def error_text(error: BaseException) -> str:
    """An error in words, for a log line: many say nothing by themselves (`TimeoutError()`), then their kind tells."""
    return str(error) or type(error).__name__


class TradewindError(Exception):
    code = "error"

    def __init__(self, message: str, *, code: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code


class NotFound(TradewindError):
    code = "not_found"


class Conflict(TradewindError):
    code = "conflict"


class Invalid(TradewindError):
    """Bad input. `problems` lists everything that is wrong, not just the first, `more` counts what the list leaves out
    (it has room for `MOST_PROBLEMS`)."""

    code = "invalid"

    def __init__(
        self, message: str, *, code: str | None = None, hint: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.problems = tuple(_short(problem) for problem in problems[:MOST_PROBLEMS])
        self.more = max(0, len(problems) - MOST_PROBLEMS) + int(getattr(problems, "left_out", 0))


def _short(problem: Problem) -> Problem:
    """Names and values of the input may stand in it, of any length."""
    if len(problem.path) <= _MOST_PATH and len(problem.hint) <= _MOST_HINT:
        return problem
    return replace(problem, path=_cut(problem.path, _MOST_PATH), hint=_cut(problem.hint, _MOST_HINT))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Unavailable(TradewindError):
    code = "unavailable"


class Overloaded(Unavailable):
    """A bound is reached; the caller should try again after `retry_after_s`."""

    code = "overloaded"

    def __init__(self, message: str, *, code: str | None = None, hint: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after_s = retry_after_s


class TimedOut(TradewindError):
    code = "timed_out"
