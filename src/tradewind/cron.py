"""The one reader of cron lines that people write, for schedules of tasks, flows and rules. Pure.

The library also takes six fields (the first are then seconds) and digits of other scripts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

_FIELD = re.compile(r"[0-9A-Za-z*/,#-]{1,200}")
_A_YEAR = datetime(2024, 1, 1, tzinfo=UTC)  # a leap year, so that 29 February is found at once


def read_cron(text: str) -> str:
    """The five fields (minute hour day month weekday), with single spaces.

    Raises ValueError with the reason, also for a moment that never comes.
    """
    fields = text.split()
    if len(fields) != 5 or not all(_FIELD.fullmatch(field) for field in fields):
        raise ValueError("it needs five fields")
    cron = " ".join(fields)
    try:
        next(CronSim(cron, _A_YEAR))
    except StopIteration:
        raise ValueError("that never happens") from None
    except (CronSimError, ValueError, AssertionError) as error:
        raise ValueError(str(error) or "it cannot be read") from None
    return cron
