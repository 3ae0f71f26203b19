"""Why a delivery did not work, whether it may be tried again, and when. Pure."""

from __future__ import annotations

import random

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 300.0


class DeliveryFailed(Exception):
    """`is_final`: another attempt would not help. `retry_after_s`: what the other side asked for."""

    def __init__(self, message: str, *, is_final: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.retry_after_s = retry_after_s


def wait_ms(attempts: int, retry_after_s: float = 0.0, chance: float | None = None) -> int:
    """How long to wait after so many attempts: twice as long each time, with a share of chance."""
    full_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(attempts - 1, 20))
    share = 0.5 + 0.5 * (random.random() if chance is None else chance)
    return int(max(full_s * share, retry_after_s) * 1000)
