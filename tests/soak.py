"""How long tests go on that repeat something: `make test` does what notices a fault, `make soak` goes on longer."""

from __future__ import annotations

import os

#: `SOAK=5` makes it five times as long.
SOAK = max(1, int(os.environ.get("SOAK", "1")))


def repeats(least: int) -> int:
    """How often: of examples, kills, rounds."""
    return least * SOAK
