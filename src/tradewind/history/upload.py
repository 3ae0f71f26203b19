"""Samples from outside into the sink: checked as a whole first, then written; told how far it came."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.history.sample import Refused, Row, refusal
from tradewind.history.sink import Sink, SinkAway

#: Rows of one write.
PART = 10_000
REASONS = {
    "not_finite": "the value is not finite",
    "not_a_number": "the value is no number",
    "bad_time": "the time is no whole number of milliseconds between 1970 and 2262",
    "bad_quality": "the quality is none of 0, 1, 2",
    "bad_series": "it is no address such as comsrv:1001:m:10001",
    "too_old": "retention has removed that time already",
}


class Uploaded(msgspec.Struct, frozen=True):
    """`refused`: by the sink, though the rows are sound; the others are stored."""

    stored: int
    refused: list[Refused]


def check_rows(rows: Sequence[Row], path: str = "rows") -> None:
    """Raises Invalid that names every bad row (the first thousand) when there is one."""
    problems = [
        Problem(reason, f"{path}[{at}]", REASONS.get(reason, reason))
        for at, row in enumerate(rows)
        if (reason := refusal(row)) is not None
    ]
    if problems:
        message = f"{len(problems)} of {len(rows)} rows are bad: nothing was stored"
        raise Invalid(message, code="bad_rows", hint="correct what is named", problems=problems[:1000])


async def upload(sink: Sink, rows: Sequence[Row]) -> Uploaded:
    """Write rows that are checked. Writing them again does no harm, so after SinkAway, which says how many are stored,
    the same can be sent once more."""
    stored = 0
    refused: list[Refused] = []
    for at in range(0, len(rows), PART):
        try:
            written = await sink.write(rows[at : at + PART])
        except SinkAway as error:
            hint = f"{stored} of {len(rows)} rows are stored for certain: send all of them again"
            raise SinkAway(error.message, code=error.code, hint=hint, retry_after_s=error.retry_after_s) from error
        stored += written.stored
        refused += written.refused
    return Uploaded(stored, refused)
