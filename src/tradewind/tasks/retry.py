"""What follows a failed attempt: another one after a while, or the end. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tradewind.tasks.record import Request, Status


def backoff_ms(request: Request, failures: int, chance: Callable[[], float]) -> int:
    """Exponential backoff with full jitter: anything from nothing to base × 2^(failures-1), capped."""
    ceiling: int = min(request.backoff_max_ms, request.backoff_ms * 2 ** min(failures - 1, 40))
    return round(ceiling * chance())


#: Attempts of a task that asks to be run again (Retry) and says nothing about how often.
MAX_ASKED = 25


def after_failure(
    request: Request,
    attempt: int,
    stalls: int,
    last: Status,
    *,
    is_retryable: bool = True,
    asks_again: bool = False,
) -> Status:
    """RETRYING while attempts are left, else the state the task ends in.

    `attempt` counts starts; starts that ended because the worker was lost (`stalls`) do not use attempts up.
    `last` is FAILED or TIMEOUT: how this attempt ended. `asks_again`: it raised Retry.
    """
    if not is_retryable:
        return Status.FAILED
    most = request.max_attempts
    if asks_again and most == 1 and not request.only_one:
        most = MAX_ASKED
    if attempt - stalls < most:
        return Status.RETRYING
    if last is Status.TIMEOUT:
        return Status.TIMEOUT
    return Status.DEAD if most > 1 else Status.FAILED
