"""What follows a failed attempt: another one after a while, or the end. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tradewind.tasks.record import Request, Status


def backoff_ms(request: Request, failures: int, chance: Callable[[], float]) -> int:
    """Exponential backoff with full jitter: anything from nothing to base × 2^(failures-1), capped."""
    ceiling: int = min(request.backoff_max_ms, request.backoff_ms * 2 ** min(failures - 1, 40))
    return round(ceiling * chance())


def after_failure(request: Request, attempt: int, stalls: int, last: Status, *, is_retryable: bool = True) -> Status:
    """RETRYING while attempts are left, else the state the task ends in.

    `attempt` counts starts; starts that ended because the worker was lost (`stalls`) do not use attempts up.
    `last` is FAILED or TIMEOUT: how this attempt ended.
    """
    if not is_retryable:
        return Status.FAILED
    if attempt - stalls < request.max_attempts:
        return Status.RETRYING
    if last is Status.TIMEOUT:
        return Status.TIMEOUT
    return Status.DEAD if request.max_attempts > 1 else Status.FAILED
