"""Any sequence of writes leaves the board and the feed as a plain Python model says."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import servers
from tests.points.board_room import BoardRoom, board_room
from tests.soak import repeats
from tradewind.clock import FakeClock
from tradewind.points.batch import Batch, Written
from tradewind.points.feed import FeedReader
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings

KEY = "comsrv:1001:m"
FUTURE_MS = 5000
IDS = st.sampled_from(["1", "2", "3", "4"])
VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.0000001, -2.5, 1e12])
#: Milliseconds from now; None: no time given.
OFFSETS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([FUTURE_MS, FUTURE_MS + 1, 60_000]))
WORDS = st.sampled_from(["good", "uncertain", "bad"])


@dataclass
class Model:
    """The rules of the board, point by point."""

    value: dict[str, str] = field(default_factory=dict)
    ts: dict[str, int] = field(default_factory=dict)
    quality: dict[str, str] = field(default_factory=dict)
    told: list[tuple[str, str, int, str, bool]] = field(default_factory=list)

    def write(self, values: dict[str, float], times: dict[str, int], words: dict[str, str], now: int) -> Written:
        accepted = late = duplicates = equal = clamped = replaced = 0
        new: list[tuple[str, str, int, str, bool]] = []
        old: list[tuple[str, str, int, str, bool]] = []
        for name, word in words.items():
            if name not in values and word != self.quality.get(name, "good"):
                self._mark(name, word)
        for name, number in values.items():
            text, ts, word = (
                f"{number:.6f}".replace("-0.000000", "0.000000"),
                times[name] or now,
                words.get(name, "good"),
            )
            if ts > now + FUTURE_MS:
                ts, clamped = now, clamped + 1
                word = "bad" if word == "bad" else "uncertain"
            had = self.ts.get(name)
            is_ahead = had is not None and had > now + FUTURE_MS
            if had is not None and not times[name] and not is_ahead:
                ts = max(ts, had)
            if had is not None and ts < had and not is_ahead:
                late += 1
                old.append((name, text, ts, word, True))
            elif had == ts and (self.value[name], self.quality.get(name, "good")) == (text, word):
                duplicates += 1
            else:
                accepted += 1
                equal += had == ts
                replaced += is_ahead
                self.value[name], self.ts[name] = text, ts
                self._mark(name, word)
                new.append((name, text, ts, word, False))
        self.told += [*new, *old]
        return Written(accepted, late, duplicates, equal, clamped, replaced)

    def _mark(self, name: str, word: str) -> None:
        self.quality[name] = word
        if word == "good":
            del self.quality[name]


@st.composite
def writes(draw: st.DrawFn) -> tuple[dict[str, float], Any, dict[str, str], int]:
    values = draw(st.dictionaries(IDS, VALUES, max_size=4))
    times = draw(st.one_of(OFFSETS, st.dictionaries(IDS, OFFSETS)))
    words = draw(st.one_of(st.just({}), st.dictionaries(IDS, WORDS, max_size=3)))
    return values, times, words, draw(st.sampled_from([0, 0, 1, 2000, -2000, -3_600_000]))


def absolute(offset: int | None, now: int) -> int:
    return 0 if offset is None else now + offset


async def check(url: str, sequence: list[tuple[dict[str, float], Any, dict[str, str], int]]) -> None:
    link = await open_link(RedisSettings(url=url))
    clock, model = FakeClock(), Model()
    async with board_room(link, f"t{secrets.token_hex(5)}:", clock) as room:
        reader = FeedReader(room.plane, "test", start="oldest")
        for values, offsets, words, step in sequence:
            clock.ms += step
            now = clock.ms
            is_each = isinstance(offsets, dict)
            each = {name: absolute(offsets.get(name) if is_each else offsets, now) for name in values}
            ts_ms = each if is_each else absolute(offsets, now)
            written = await room.board.write([Batch.of_channel("1001", "m", values, ts_ms, words)])
            assert written == model.write(values, each, words, now)
        await compare(room, reader, model)
        await reader.close()
    await link.close()


async def compare(room: BoardRoom, reader: FeedReader, model: Model) -> None:
    assert await room.hash_of(KEY) == model.value
    assert await room.hash_of(KEY, 1) == {name: str(ts) for name, ts in model.ts.items()}
    assert await room.hash_of(KEY, 2) == model.quality
    told = []
    while batch := await reader.read(1):
        for entry in batch.entries:
            times, words = entry.times(), entry.quality()
            assert not times or entry.ts_ms == max(times.values())
            for name, value in entry.values().items():
                told.append((name, f"{value:.6f}", times[name], words.get(name, "good"), entry.is_late))
    assert told == model.told


@settings(max_examples=repeats(25), deadline=None)
@given(st.lists(writes(), max_size=12))
def test_the_board_keeps_its_rules(redis_7: servers.Server, sequence: list[Any]) -> None:
    asyncio.run(check(redis_7.url, sequence))
