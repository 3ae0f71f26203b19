"""How much text an expression may have, and how much work one evaluation may do."""

from __future__ import annotations

from dataclasses import dataclass

#: The largest integer; the proofs of `build.py` rest on it, so it is not a setting.
INTEGER_BITS = 256
LARGEST_INTEGER = 1 << INTEGER_BITS


@dataclass(frozen=True, slots=True)
class Limits:
    """Text: `text` and `literal` (one string literal) in characters, `nodes` and `depth` of the syntax tree.

    Evaluation: a string made by an operation has at most `chars` characters; a list that an operation reads or makes
    has at most `items` items, or `work` divided by the number of operations in the expression if that is less (so that
    one evaluation never touches more than `work`); lists and objects that are compared with each other have at most a
    quarter of that, a result has at most `result_items`, both with the items inside of items counted.
    """

    text: int = 4_000
    nodes: int = 1_000
    depth: int = 50
    literal: int = 1_000
    chars: int = 10_000
    items: int = 10_000
    work: int = 200_000
    result_items: int = 50_000


DEFAULT_LIMITS = Limits()
