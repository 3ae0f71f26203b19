"""What a rule remembers between two judgements."""

from __future__ import annotations

from typing import Any

from tradewind.rules.timer import NEVER, Timer, moved_ms


class RuleState:
    """Mutable, belongs to one program. Lists go by source (`values`, `known`, `times`, `qualities`) or by condition.

    `due_ms`: when a timer must be judged next, 0: never. `note` is the engine's own: stored and given back untouched
    (anything that msgpack can hold); when it changes, the state must be stored. `seen` is the network's own: by source,
    the last entry of the feed that the state has in it, `` for none.
    """

    __slots__ = (
        "due_ms",  # derived
        "is_active",
        "is_doubtful",  # whether its sources are known will be found out only now; not stored
        "is_first",  # the rise that is waited for is that of the first level
        "is_quiet",  # it takes another level of a condition to change anything about the rule; derived
        "is_settled",  # the start-up is over
        "known",  # values that may be used, None for others; derived
        "levels",  # True, False or None
        "memories",
        "moment_ms",  # of the last change
        "note",
        "qualities",
        "risen_ms",
        "seen",
        "timer",  # of the edge that is waited for
        "timers",  # of conditions with a delay of their own
        "times",
        "values",
        "was",  # the last level that was known, for hysteresis
    )

    def __init__(self, sources: int, delays: list[bool], memories: list[Any]) -> None:
        self.is_active = False
        self.is_doubtful = False
        self.is_settled = False
        self.is_first = False
        self.is_quiet = False
        self.timer = Timer()
        self.risen_ms = NEVER
        self.moment_ms = 0
        self.values: list[Any] = [None] * sources
        self.known: list[Any] = [None] * sources
        self.times = [NEVER] * sources
        self.qualities = [0] * sources
        self.levels: list[bool | None] = [None] * len(delays)
        self.was = [False] * len(delays)
        self.timers = [Timer() if has_delay else None for has_delay in delays]
        self.memories = memories
        self.due_ms = 0
        self.note: Any = None
        self.seen = [""] * sources

    def move(self, by_ms: int) -> None:
        """The clock was set by so much. Memories are moved by their conditions; times of samples are what they are."""
        for timer in (self.timer, *self.timers):
            if timer is not None:
                timer.move(by_ms)
        self.risen_ms = moved_ms(self.risen_ms, by_ms)
        if self.moment_ms:
            self.moment_ms = max(1, self.moment_ms + by_ms)
