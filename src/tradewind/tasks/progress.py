"""What the parts of a role that leads did last, and what they met: told to Redis by the thread that holds the lead.

The lead is renewed by a thread, so a process whose loop is blocked, or a part that waits for something that never
comes, keeps it. Health reads these reports and says since when a part is stuck.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
#: A part that has not gone on for so long is stuck.
STUCK_MS = 30_000
#: Trouble is told for so long after it was met last.
TROUBLE_MS = 30_000
LOOP = "event loop"


class Report(msgspec.Struct, frozen=True):
    """As stored. `ages_ms`: part → how long ago it went on; `trouble`: part → what it met and how long ago."""

    ages_ms: dict[str, int] = {}
    trouble: dict[str, tuple[str, int]] = {}

    def stuck(self) -> dict[str, int]:
        """The parts that do not go on, and for how many ms. While the loop is blocked only that is named."""
        stuck = {part: age for part, age in self.ages_ms.items() if age > STUCK_MS}
        return {LOOP: stuck[LOOP]} if LOOP in stuck else stuck


class Progress:
    """Of one process. Written on the loop, read by the thread of the lead."""

    def __init__(self) -> None:
        self._went_on: dict[str, float] = {}
        self._trouble: dict[str, tuple[str, float]] = {}

    def mark(self, part: str) -> None:
        self._went_on[part] = time.monotonic()

    def met(self, part: str, trouble: str) -> None:
        """Something that the part tries again by itself."""
        self._trouble[part] = trouble, time.monotonic()

    async def watch(self, part: str, work: Coroutine[Any, Any, T]) -> T:
        """Run it; each time it goes on after a wait counts as progress. For work that never waits long by itself: one
        that waits for children alone looks stuck."""
        try:
            return await _marked(work, lambda: self.mark(part))
        finally:
            self._went_on.pop(part, None)

    def report(self) -> Report:
        now = time.monotonic()
        trouble = {part: (text, _ms(now - at)) for part, (text, at) in list(self._trouble.items())}
        recent = {part: told for part, told in trouble.items() if told[1] < TROUBLE_MS}
        return Report({part: _ms(now - at) for part, at in list(self._went_on.items())}, recent)


def read_report(text: bytes | None) -> Report | None:
    """None: nothing was told, or something that is no report."""
    try:
        return msgspec.json.decode(text, type=Report) if text else None
    except msgspec.MsgspecError:
        return None


@types.coroutine
def _marked(work: Coroutine[Any, Any, T], mark: Callable[[], None]) -> Generator[Any, None, T]:
    error: BaseException | None = None
    while True:
        mark()
        try:
            waits_for = work.throw(error) if error is not None else work.send(None)
        except StopIteration as end:
            found: T = end.value
            return found
        error = None
        try:
            yield waits_for
        except BaseException as raised:  # noqa: BLE001 (for the work: a cancellation, most of all)
            error = raised


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
