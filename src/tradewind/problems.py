"""Collecting what is wrong with an input: the first problems are kept, the rest is counted; suggestions are few.

An answer must not grow with what a caller got wrong, and looking for similar words costs far more than reading them.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self, SupportsIndex

from tradewind.errors import MOST_PROBLEMS, Problem

#: Unknown words of one input that are compared with the known ones.
MOST_SUGGESTIONS = 5
#: Known words that one is compared with, and characters of it that are looked at.
MOST_KNOWN = 300
MOST_LETTERS = 64

_left: ContextVar[list[int] | None] = ContextVar("suggestions_left", default=None)


class Problems(list[Problem]):
    """A list that keeps its first entries and counts the others in `left_out`."""

    def __init__(self, found: Iterable[Problem] = (), *, most: int = MOST_PROBLEMS) -> None:
        super().__init__()
        self.most = most
        self.left_out = 0
        self.extend(found)

    @property
    def total(self) -> int:
        """All that were ever added: this grows when `len` does not any more."""
        return len(self) + self.left_out

    @property
    def is_full(self) -> bool:
        return len(self) >= self.most

    def append(self, problem: Problem) -> None:
        if self.is_full:
            self.left_out += 1
        else:
            super().append(problem)

    def extend(self, found: Iterable[Problem]) -> None:
        for problem in found:
            self.append(problem)
        self.left_out += left_out_of(found)

    def __iadd__(self, found: Iterable[Problem], /) -> Self:  # type: ignore[override, misc]
        self.extend(found)
        return self

    def insert(self, index: SupportsIndex, problem: Problem) -> None:
        raise NotImplementedError("problems are kept in the order in which they are found")


def below(prefix: str, found: Iterable[Problem]) -> Problems:
    """The same problems of a part of a larger input."""
    made = Problems(Problem(problem.code, f"{prefix}{problem.path}", problem.hint) for problem in found)
    made.left_out += left_out_of(found)
    return made


def nothing_stored(problems: Problems) -> str:
    """A message: how many there are, and the first of them."""
    few = "; ".join(f"{problem.path[:200]}: {problem.hint[:200]}" for problem in problems[:3])
    return f"{problems.total} problem{'s' if problems.total > 1 else ''}, nothing was stored: {few}"


def left_out_of(found: Iterable[Problem]) -> int:
    """How many more there were than are listed."""
    return found.left_out if isinstance(found, Problems) else 0


def unknown_words(words: Iterable[str], known: Collection[str], problems: Problems) -> Iterator[str]:
    """Words that are not known, while there is room for problems; the rest is counted, not looked at."""
    strange = (word for word in words if word not in known)
    for word in strange:
        if problems.is_full:
            problems.left_out += 1 + sum(1 for _ in strange)
            return
        yield word


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known word that is most like this one, or nothing: none is alike, or enough were looked for already."""
    left = _left.get()
    if left is not None:
        if not left[0]:
            return ""
        left[0] -= 1
    some = list(itertools.islice(known, MOST_KNOWN))
    return next(iter(difflib.get_close_matches(word[:MOST_LETTERS], some, 1, cutoff)), "")


def some_of(known: Collection[str], most: int) -> str:
    """The first of the known words; of very many only how many there are: sorting them takes longer than reading."""
    if len(known) > MOST_KNOWN:
        return f"{len(known)} names"
    return ", ".join(sorted(known)[:most]) or "none"


@contextmanager
def few_suggestions(most: int = MOST_SUGGESTIONS) -> Iterator[None]:
    """In here, also in threads that are started from here, `closest` looks for this many words; then it finds none."""
    if _left.get() is not None:  # a part of an input that is being read already
        yield
        return
    token = _left.set([most])
    try:
        yield
    finally:
        _left.reset(token)
