"""What goes into a judgement and what comes out of it. Frozen."""

from __future__ import annotations

from typing import Any

import msgspec

from tradewind.models.program import BAD, GOOD, SUBSTITUTED, UNCERTAIN

__all__ = ["BAD", "GOOD", "STALE", "SUBSTITUTED", "UNCERTAIN", "Sample", "Verdict", "is_known", "show"]

#: Quality of a value past its age; like bad ones it is unknown.
STALE = 3


def is_known(quality: int) -> bool:
    return quality < BAD or quality == SUBSTITUTED


class Sample(msgspec.Struct, frozen=True, gc=False):
    """What a source shows. Known with quality 0 (good), 1 (uncertain) or 4 (substituted); not with 2 (bad), 3 (stale)
    or without a value. Text only from control values of models."""

    value: float | str | None
    ts_ms: int
    quality: int = GOOD


class Verdict(msgspec.Struct, frozen=True):
    """`edge`: `rise`, `fall` or ``. `is_changed`: the state must be stored together with the cursor.

    The rest is filled only with an edge. `cause`: `sample`, `timer`, `startup` (the first level, not an edge: acting
    actions only with on_startup=run) or `bad` (on_bad decided: acting actions never). `at_ms`: event time of the edge.
    `conditions_result` as in the seed's history, `matched` None when unknown. `source`, `field`, `value`: what
    triggered it; when a timer did, the first condition. `substituted`: sources whose values people have given.
    """

    edge: str = ""
    is_changed: bool = False
    cause: str = ""
    at_ms: int = 0
    conditions_result: dict[str, dict[str, Any]] = {}
    source: str = ""
    field: str = ""
    value: float | str | None = None
    substituted: tuple[str, ...] = ()


def show(value: Any) -> str:
    """A value as text: numbers with up to six decimals, as the board has them, without zeros at the end."""
    if isinstance(value, float):
        text = f"{value:.6f}".rstrip("0").rstrip(".")
        return "0" if text == "-0" else text
    return str(value)
