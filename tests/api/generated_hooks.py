"""Which of the generated requests are sent: all, unless TRADEWIND_GENERATED_EVERY=n says that every n-th is enough once
an operation has got its first ones."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import schemathesis

FIRST = 12
_every = int(os.environ.get("TRADEWIND_GENERATED_EVERY", "1"))
_seen: Counter[str] = Counter()


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """The cases of the coverage phase come in a fixed order, so it is always the same ones."""
    if case.meta is None or case.meta.phase.name.value != "coverage":
        return True
    _seen[case.operation.label] += 1
    at = _seen[case.operation.label]
    return at <= FIRST or at % _every == 0
