"""Finding the lines that InfluxDB does not take, among those that it does. No I/O of its own.

InfluxDB stores the good lines of a request that it answers with 400, but does not say for sure which were bad: so the
request is cut in halves and sent again, until the bad ones stand alone. Sending a good line again changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tradewind.history.influx_http import Rejection
from tradewind.history.sample import Refused, Row
from tradewind.history.sink import SinkAway

Send = Callable[[Sequence[str]], Awaitable[Rejection | None]]


async def split(rows: Sequence[Row], lines: Sequence[str], rejection: Rejection, send: Send) -> list[Refused]:
    """The rows among these that the server refuses; the others are stored. All of them were sent once.

    Raises SinkAway also when every line is refused for something unknown: then it is hardly the lines. One that stands
    alone waits for others, which show whether it is.
    """
    # Type conflicts and retention depend on measurement and time: in this order the bad ones stand together. Rows of
    # one key keep their order.
    order = sorted(range(len(rows)), key=lambda at: (lines[at].partition(",")[0], rows[at].ts_ms))
    refused: list[Refused] = []
    await _halve([rows[at] for at in order], [lines[at] for at in order], rejection, send, refused)
    if len(refused) == len(rows) and all(reason == "refused" for _, reason in refused):
        hint = "look at influx.* and the server's log"
        raise SinkAway(f"InfluxDB refuses every line: {rejection.message}", hint=hint)
    return refused


async def _halve(
    rows: Sequence[Row], lines: Sequence[str], rejection: Rejection, send: Send, refused: list[Refused]
) -> None:
    if len(rows) == 1 or rejection.dropped == len(rows):
        refused += [Refused(row, rejection.reason) for row in rows]
        return
    middle = len(rows) // 2
    for part in (slice(0, middle), slice(middle, None)):
        answer = await send(lines[part])
        if answer is not None:
            await _halve(rows[part], lines[part], answer, send, refused)
