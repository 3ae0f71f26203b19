"""The change feed: every written batch in order, for consumers that must not miss one.

A consumer stores its cursor together with the effect of what it has read, in its own script (`FeedBatch.cursor`) or
with `commit`; a new process goes on from there. Entries that all consumers have behind them go (feed_trim.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import msgspec
import redis.asyncio
import structlog

from tradewind.errors import Invalid, Unavailable
from tradewind.ids import is_id
from tradewind.points.feed_count import StreamCount, before, count_missed, count_stream, readable_cursors
from tradewind.points.feed_count import id_of as id_of
from tradewind.points.feed_missed import tell_missed
from tradewind.points.plane import PointPlane
from tradewind.points.values import whole
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType

log = structlog.get_logger(__name__)

#: How long a wait for entries lasts on the server, and how often a cluster is asked.
WAIT_MS = 2000
CLUSTER_PAUSE_S = 0.05
PAUSE_S = 0.5
BEFORE_ALL = "0-0"
UNREAD_PAGE = 1000
#: The field of `points:cursors` with the id up to which trimming may be under way for consumers it knew of.
FLOOR = "#floor"


class FeedEntry(msgspec.Struct, frozen=True):
    """One written batch. `key` is `comsrv:1001:m` or `modsrv:power_calc:measurement`; `ts_ms` the newest time in it.

    Values are decoded when asked for. An entry without values tells of qualities only. `is_late`: the board shows
    something newer. `is_event`: its readings came with times of their own, so each of them counts. `is_back`: the clock
    was set back, and these replace values of later times. No entry has a point twice.
    """

    id: str
    key: str
    ts_ms: int
    data: str
    qualities: str = ""
    is_late: bool = False
    origin: str = ""
    each_ts: str = ""
    is_event: bool = False
    is_back: bool = False

    def values(self) -> dict[str, float]:
        """Point id or field → value."""
        if not self.data:
            return {}
        flat = self.data.replace(":", ",").split(",")
        return dict(zip(flat[::2], map(float, flat[1::2]), strict=True))

    def fields(self) -> list[str]:
        return self.data.replace(":", ",").split(",")[::2] if self.data else []

    def times(self) -> dict[str, int]:
        """Point id → ms of its value."""
        if not self.each_ts:
            return dict.fromkeys(self.fields(), self.ts_ms)
        return dict(zip(self.fields(), map(int, self.each_ts.split(",")), strict=True))

    def quality(self) -> dict[str, str]:
        """Point id → `uncertain` or `bad`; `good` for a point without a value here whose mark was taken away. Points
        with a value here that are missing are good."""
        if not self.qualities:
            return {}
        flat = self.qualities.replace(":", ",").split(",")
        return dict(zip(flat[::2], flat[1::2], strict=True))


class FeedBatch(msgspec.Struct, frozen=True):
    """Entries in the order in which they were written (in a cluster: of each channel). `missed`: entries before these
    that were removed unread, since the last commit. `cursor`: field, value, … to HSET in `keys.feed_cursors()` when
    the effect of the entries is stored. `unreadable`: what somebody else wrote among them and is no entry.
    `more_after`: the entry after which there may be more that were not read; None: all that was there."""

    entries: tuple[FeedEntry, ...]
    missed: int
    cursor: tuple[str, ...]
    unreadable: int = 0
    more_after: FeedEntry | None = None


class Missed(msgspec.Struct, frozen=True):
    """How many entries a consumer has ever missed: of all feeds, and of those of channels (in a cluster)."""

    total: int
    of_channels: dict[str, int] = {}

    @classmethod
    def of(cls, name: str, fields: Mapping[str, str | bytes], end: str = "") -> Missed:
        """From fields `name` and `name@channel`, each with that end."""
        head = f"{name}@"
        found = {
            field[len(head) : len(field) - len(end)]: whole(count)
            for field, count in fields.items()
            if field.startswith(head) and field.endswith(end)
        }
        return cls(whole(fields.get(f"{name}{end}")), {key: count for key, count in found.items() if key.isdigit()})

    def at(self, channel: str) -> int:
        """Of one feed; ``: the home feed."""
        return self.of_channels.get(channel, 0) if channel else self.total - sum(self.of_channels.values())


class FeedReader:
    """One consumer; `name` is that of its role (`models`, `history`), shared by the processes that take over from each
    other. `start` says where a consumer without a cursor begins: with what comes from `now` on, or the `oldest` kept.

    `async for batch in reader` waits for entries, survives trouble with the server and never ends by itself.
    """

    def __init__(
        self, plane: PointPlane, name: str, *, start: Literal["now", "oldest"] = "now", count: int = 200
    ) -> None:
        if not is_id(name):
            raise Invalid(f"{name!r} is no name for a consumer of the feed", code="bad_id", hint="use a short word")
        self.plane = plane
        self.name = name
        #: Entries that one read takes at most (in a cluster: of each channel).
        self.count = count
        self._start = start
        self._at: dict[str, str] = {}
        self._known_missed = 0
        # Of each feed: how many of all entries ever written are behind `_at`, which number of missed ones is in it, and
        # which one was told in a batch.
        self._passed: dict[str, int] = {}
        self._passed_missed: dict[str, int] = {}
        self._told_missed: dict[str, int] = {}
        self._is_open = False
        self._client: redis.asyncio.Redis | None = None

    async def open(self) -> None:
        """Find the cursor; the first time set it, so that nothing after it is trimmed. What somebody removed unread is
        counted as missed. `read` does it when need be."""
        cursors, missed, channels = await self._stored()
        is_new = self.name not in cursors
        if is_new:
            await self._register(missed.total, channels)
        # Before the cursors: what happens in between makes a gap look smaller, never larger.
        counted = await asyncio.gather(*(count_stream(self.plane, channel) for channel in channels))
        counts = dict(zip(channels, counted, strict=True))
        cursors, missed, channels = await self._stored()
        self._at = {channel: cursors.get(field_of(self.name, channel), BEFORE_ALL) for channel in channels}
        for channel, at in self._at.items():
            # Trimming that began before this consumer was known may still take what lies before.
            floor = before(id_of(cursors.get(field_of(FLOOR, channel), BEFORE_ALL)))
            if (is_new or at == BEFORE_ALL) and floor > id_of(at):
                self._at[channel] = f"{floor[0]}-{floor[1]}"
        known = Missed.of(self.name, cursors, "#missed")
        self._known_missed = known.total
        self._passed, self._passed_missed, self._told_missed = {}, {}, {}
        for channel in channels:
            read = cursors.get(f"{field_of(self.name, channel)}#read")
            if read is None and channel and not is_new and self._at[channel] == BEFORE_ALL:
                read = "0"  # it came into being after this consumer: whatever is gone of it was not read
            count = counts[channel] if channel in counts else await count_stream(self.plane, channel)
            told = missed.at(channel) - known.at(channel)
            await self._begin(channel, count, read, missed.at(channel), told)
        self._is_open = True

    async def _begin(self, channel: str, count: StreamCount, read: str | None, missed: int, told: int) -> None:
        """Go on in a feed. `read`: how many of its entries are behind the cursor, as stored; `missed`: how many of them
        were counted as missed since ever, and `told`: since the cursor was stored."""
        at = id_of(self._at[channel])
        exact = count.read_upto(at)
        unknown = count.lost(at, whole(read)) - told if read else 0
        if unknown > 0:
            await self._count_missed(unknown, channel)
            missed += unknown
        self._passed[channel] = (
            min(max(whole(read) or count.added, count.gone), count.added) if exact is None else exact
        )
        self._passed_missed[channel] = missed
        self._told_missed[channel] = missed - max(unknown, 0) - told

    async def _register(self, missed: int, channels: list[str]) -> None:
        tails = await asyncio.gather(*(self._tail(channel) for channel in channels))
        first = dict(zip(channels, tails, strict=True))
        fields = [part for channel, at in first.items() for part in (field_of(self.name, channel), at)]
        # The home feed last: a consumer counts as known once that field stands.
        fields = [*fields[2:], *fields[:2]]
        with translated(self.plane.link):
            pipe = self.plane.redis.pipeline(transaction=True)
            pipe.hsetnx(self.plane.keys.feed_cursors(), f"{self.name}#missed", str(missed))
            for at in range(0, len(fields), 2):
                pipe.hsetnx(self.plane.keys.feed_cursors(), fields[at], fields[at + 1])
            await pipe.execute()

    async def _count_missed(self, count: int, channel: str) -> None:
        """Counted where trimming counts, so that the next batch tells it."""
        await count_missed(self.plane, self.name, channel, count)
        log.error("feed_entries_removed_from_outside", consumer=self.name, at_least=count)
        await tell_missed(self.plane)

    async def read(self, wait_ms: int = WAIT_MS) -> FeedBatch | None:
        """The next entries; None when none came in that time. What this object has read it does not read again, also
        when it was not committed (see `rewind`). Raises Unavailable."""
        if not self._is_open:
            await self.open()
        if self.plane.link.cluster:
            return await self._read_cluster(wait_ms)
        if self._client is None:
            self._client = self.plane.link.new_client(WAIT_MS / 1000)
        keys = self.plane.keys
        pipe: Any = self._client.pipeline(transaction=False)
        pipe.execute_command("XREAD", *self._options(), "BLOCK", min(wait_ms, WAIT_MS) or 1, *self._stream(""))
        pipe.hget(keys.feed_missed(), self.name)
        with translated(self.plane.link):
            found, missed = await pipe.execute()
        return self._batch({"": found}, Missed(whole(missed)))

    async def has_unread(self) -> bool:
        """Raises Unavailable."""
        for channel, at in list(self._at.items()):
            if id_of(await self._last(channel)) > id_of(at):
                return True
        return False

    async def unread(self, after: str = BEFORE_ALL) -> AsyncIterator[FeedEntry]:
        """What the feed has now behind what was read and behind the id `after`; moves nothing. Raises Unavailable."""
        if not self._is_open:
            await self.open()
        for channel, at in list(self._at.items()):
            place, name = self.plane.at(channel), self.plane.keys.feed(channel)
            last, end = max(id_of(at), id_of(after)), await self._last(channel)
            while last < id_of(end):
                command = ("XRANGE", name, f"({last[0]}-{last[1]}", end, "COUNT", UNREAD_PAGE)
                rows = (await place.ask([command]))[0]
                for row in rows:
                    entry = _entry(row)
                    if entry is not None:
                        yield entry
                if len(rows) < UNREAD_PAGE:
                    break
                last = id_of(rows[-1][0].decode())

    async def commit(self, batch: FeedBatch) -> None:
        """Store the cursor of a batch whose effect is stored."""
        with translated(self.plane.link):
            await self.plane.redis.execute_command("HSET", self.plane.keys.feed_cursors(), *batch.cursor)

    def rewind(self) -> None:
        """Go back to the stored cursor: what was not committed is read again."""
        self._is_open = False

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose(close_connection_pool=True)
            self._client = None

    async def __aiter__(self) -> AsyncIterator[FeedBatch]:
        while True:
            try:
                batch = await self.read()
            except Unavailable as error:
                log.warning("the feed cannot be read", consumer=self.name, error=error.message)
                await asyncio.sleep(PAUSE_S)
                continue
            if batch is not None:
                yield batch

    async def _read_cluster(self, wait_ms: int) -> FeedBatch | None:
        """One stream per channel, on many nodes: no command waits on all of them, so they are asked again and again."""
        end = asyncio.get_running_loop().time() + wait_ms / 1000
        while True:
            _, missed, channels = await self._stored()
            for channel in channels:
                if channel not in self._at:
                    count = await count_stream(self.plane, channel)
                    self._at[channel] = BEFORE_ALL
                    await self._begin(channel, count, "0", missed.at(channel), missed.at(channel))
                    missed = (await self._stored())[1]
            asked = [
                self.plane.at(channel).ask_each([("XREAD", *self._options(), *self._stream(channel))])
                for channel in channels
            ]
            replies = await asyncio.gather(*asked)
            found = {channel: _rows(channel, reply[0]) for channel, reply in zip(channels, replies, strict=True)}
            batch = self._batch(found, missed)
            if batch is not None or asyncio.get_running_loop().time() >= end:
                return batch
            await asyncio.sleep(CLUSTER_PAUSE_S)

    def _batch(self, found: dict[str, Any], missed: Missed) -> FeedBatch | None:
        entries: list[FeedEntry] = []
        cursor: list[str] = []
        rows_read = 0
        ends: list[FeedEntry] = []
        for channel, reply in found.items():
            rows = reply[0][1] if reply else ()
            if rows:
                readable = [entry for entry in map(_entry, rows) if entry is not None]
                entries += readable
                if len(rows) >= self.count:
                    ends += readable[-1:]
                rows_read += len(rows)
                self._at[channel] = last = rows[-1][0].decode()
                cursor += (field_of(self.name, channel), last)
            cursor += self._pass(channel, len(rows), missed.at(channel))
        if not cursor and missed.total == self._known_missed:
            return None
        if len(found) > 1:
            entries.sort(key=lambda entry: id_of(entry.id))
        lost, self._known_missed = missed.total - self._known_missed, missed.total
        cursor += (f"{self.name}#missed", str(missed.total))
        more_after = min(ends, key=lambda entry: id_of(entry.id), default=None)
        return FeedBatch(tuple(entries), lost, tuple(cursor), rows_read - len(entries), more_after)

    def _pass(self, channel: str, rows: int, missed: int) -> list[str]:
        """What is to be stored of how far a feed is read: nothing when that has not changed."""
        if not rows and missed == self._told_missed[channel]:
            return []
        self._passed[channel] += rows + missed - self._passed_missed[channel]
        self._passed_missed[channel] = self._told_missed[channel] = missed
        field = field_of(self.name, channel)
        told = [f"{field}#read", str(self._passed[channel])]
        return [*told, f"{field}#missed", str(missed)] if channel else told

    def _options(self) -> tuple[Any, ...]:
        return ("COUNT", self.count)

    def _stream(self, channel: str) -> tuple[str, ...]:
        return ("STREAMS", self.plane.keys.feed(channel), self._at[channel])

    async def _stored(self) -> tuple[dict[str, str], Missed, list[str]]:
        """All cursors, how many entries this consumer has ever missed, the channels with feeds (``: the home feed)."""
        keys = self.plane.keys
        cursors, found, channels = await self.plane.home.ask(
            [("HGETALL", keys.feed_cursors()), ("HGETALL", keys.feed_missed()), ("SMEMBERS", keys.feeds())]
        )
        missed = Missed.of(self.name, {field.decode(errors="replace"): count for field, count in found.items()})
        names = ["", *sorted(channel.decode() for channel in channels if channel.isdigit())]
        return readable_cursors(cursors), missed, names

    async def _tail(self, channel: str) -> str:
        return BEFORE_ALL if self._start == "oldest" else await self._last(channel)

    async def _last(self, channel: str) -> str:
        place = self.plane.at(channel)
        found = await place.ask_each([("XREVRANGE", self.plane.keys.feed(channel), "+", "-", "COUNT", 1)])
        last = _rows(channel, found[0])
        return last[0][0].decode() if last else BEFORE_ALL


def field_of(consumer: str, channel: str) -> str:
    """The field of a cursor in `points:cursors`."""
    return f"{consumer}@{channel}" if channel else consumer


def _rows(channel: str, reply: Any) -> Any:
    """Of one feed of many (in a cluster), which may hold another type: it holds up no other. Raises that of the one."""
    if not isinstance(reply, WrongType):
        return reply
    if not channel:
        raise reply
    return ()


def _entry(row: tuple[bytes, dict[bytes, bytes]]) -> FeedEntry | None:
    """None for what somebody else wrote into the stream and is no entry: it must not stop its readers for ever."""
    name, fields = row
    get = fields.get
    try:
        return FeedEntry(
            name.decode(),
            fields[b"k"].decode(),
            int(fields[b"t"]),
            fields[b"d"].decode(),
            get(b"q", b"").decode(),
            b"l" in fields,
            get(b"o", b"").decode(),
            get(b"p", b"").decode(),
            b"e" in fields,
            b"b" in fields,
        )
    except (KeyError, ValueError) as error:
        log.error("not an entry of the feed: left out", entry=name.decode(), error=repr(error))
        return None
