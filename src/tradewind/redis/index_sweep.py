"""Finds and mends indexes that disagree with the records: members taken out or put in by hand, records deleted under
their index, an index of another type. The scripts of the rooms never leave such; a hand in redis-cli, another program
or a server that lost its last second does.

Each room names its keys (`Family`) and has one script that decides and mends, atomically, for some entries of indexes
and some records at a time. What cannot be derived from a record is named, never invented.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from redis.exceptions import RedisError

from tradewind.errors import TradewindError, Unavailable, error_text
from tradewind.fence import Fence
from tradewind.redis.connection import Link, translated
from tradewind.redis.faults import WrongType
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, Scripts

log = structlog.get_logger(__name__)
#: How often the leader of a room looks at its indexes.
SWEEP_S = 3600.0
#: How soon a new leader begins with it.
LEADS_S = 1.0
#: Faults that one sweep logs one by one.
LOGGED = 20
#: look: change nothing. sweep: mend what follows from the records. repair: also give up what is lost.
Mode = Literal["look", "sweep", "repair"]
#: Entries and records that one script looks at.
BATCH = 200
_SCAN = 1000
#: How long a value is kept that stood where an index should be.
ASIDE_MS = 7 * 86_400_000
_MENDED = {"look": "", "sweep": "mt", "repair": "mtd"}
#: Key without the prefix, member or field, score or value; the key itself has no member and the value `#`.
Entry = tuple[str, bytes, bytes]
ITSELF = b"#"


@dataclass(frozen=True, slots=True)
class IndexFault:
    """`flag`: m follows from the records, t left of an expired record, d its record is lost, n only named; see
    lua/repair.lua."""

    key: str
    what: str
    flag: str
    is_mended: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Keys of one kind: `pattern` matches the name without the prefix. `is_record`: each of the keys is one record, of
    the others the members are looked at. `is_derived`: all of it follows from records, so it can be made anew.
    `has_values`: the script looks at the values of its fields, too; definitions may be long, so others are not read."""

    pattern: re.Pattern[str]
    kind: str
    is_record: bool = False
    is_derived: bool = True
    has_values: bool = False


def records(pattern: str, kind: str = "hash") -> Family:
    return Family(re.compile(pattern), kind, is_record=True)


def index(pattern: str, kind: str, *, has_values: bool = False) -> Family:
    return Family(re.compile(pattern), kind, has_values=has_values)


def kept(pattern: str, kind: str, *, has_values: bool = False) -> Family:
    """Holds what nothing else says: definitions, decisions of people, work on its way."""
    return Family(re.compile(pattern), kind, is_derived=False, has_values=has_values)


class IndexSweep:
    """`script`: of `scripts`, run with KEYS 1 `routed` and ARGV `head`, mode, number of entries, per entry its key,
    member, value, then names of records. `glob`: where all keys of the room are found, after the prefix."""

    families: Sequence[Family] = ()
    script = ""
    glob = "*"

    def __init__(self, link: Link, keys: Keys, scripts: Scripts, routed: str) -> None:
        self.link = link
        self.keys = keys
        self._scripts = scripts
        self._shared = Scripts(link, "tradewind.redis")
        self._routed = routed

    @property
    def _redis(self) -> Any:
        return self.link.client

    def head(self) -> list[Arg]:
        """What the script's arguments begin with."""
        return []

    async def answer(self, mode: Mode, asked: Sequence[tuple[str, str]]) -> list[IndexFault]:
        """What follows from the questions of the script: (what is asked, of whom)."""
        return []

    async def run(self, mode: Mode = "sweep") -> list[IndexFault]:
        """Look at everything once, in small steps; what is wrong, or was. Raises Unavailable, WrongType when a key
        changes its type meanwhile."""
        indexes = [(name, kind, family) async for name, kind, family in self._keys(is_record=False)]
        faults: list[IndexFault] = []
        for name, kind, family in indexes:
            if kind != family.kind:
                faults.append(await self._set_aside(mode, name, kind, family))
        try:
            await self._compare(mode, indexes, faults)
        except WrongType:
            if all(fault.is_mended for fault in faults):
                raise  # else: it is named already, and the script has stumbled over it
        return faults

    async def _compare(self, mode: Mode, indexes: Sequence[tuple[str, str, Family]], faults: list[IndexFault]) -> None:
        asked: list[tuple[str, str]] = []
        found: list[str] = []
        async for name, kind, family in self._keys(is_record=True):
            if kind != family.kind:
                what = f"is a {kind}, its record would be a {family.kind}: another program wrote it"
                faults.append(IndexFault(f"{self.keys.p}{name}", what, "n"))
                continue
            found.append(name)
            if len(found) == BATCH:
                faults += await self._decide(mode, [], found, asked)
                found = []
        faults += await self._decide(mode, [], found, asked)
        entries: list[Entry] = []
        for name, kind, family in indexes:
            if kind != family.kind:
                continue
            async for entry in self._entries(name, family):
                entries.append(entry)
                if len(entries) == BATCH:
                    faults += await self._decide(mode, entries, [], asked)
                    entries = []
        faults += await self._decide(mode, entries, [], asked)
        faults += await self.answer(mode, asked)

    async def decide(self, mode: Mode, entries: Sequence[Entry], names: Sequence[str]) -> list[IndexFault]:
        """Run the script once. Raises Unavailable, WrongType."""
        return await self._decide(mode, entries, names, [])

    async def _decide(
        self, mode: Mode, entries: Sequence[Entry], names: Sequence[str], asked: list[tuple[str, str]]
    ) -> list[IndexFault]:
        if not entries and not names:
            return []
        args: list[Arg] = [*self.head(), mode, len(entries)]
        args += [word for entry in entries for word in entry]
        args += names
        flat = [part.decode(errors="replace") for part in await self._scripts.run(self.script, [self._routed], args)]
        faults = []
        for key, what, flag in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            if flag == "?":
                asked.append((key, what))
            else:
                faults.append(IndexFault(key, what, flag, is_mended=flag in _MENDED[mode]))
        return faults

    async def _set_aside(self, mode: Mode, name: str, kind: str, family: Family) -> IndexFault:
        key, flag = f"{self.keys.p}{name}", "m" if family.is_derived else "d"
        what = f"is a {kind} and should be a {family.kind}"
        if flag not in _MENDED[mode]:
            return IndexFault(key, what if family.is_derived else f"{what}: what it held is lost", flag)
        aside = self.keys.aside(name)
        await self._shared.run("index_aside", [key, aside], [family.kind, ASIDE_MS])
        return IndexFault(key, f"{what}: set aside as {aside}", flag, is_mended=True)

    async def _keys(self, *, is_record: bool) -> AsyncIterator[tuple[str, str, Family]]:
        """Name without the prefix, type, family."""
        prefix, cursor = self.keys.p, 0
        pattern = "".join(f"\\{c}" if c in "*?[]\\^" else c for c in prefix) + self.glob
        while True:
            with translated(self.link):
                cursor, keys = await self._redis.scan(cursor, match=pattern, count=_SCAN)
                names = [key.decode(errors="replace").removeprefix(prefix) for key in keys]
                met = [(name, family) for name in names if (family := self._family(name)) is not None]
                met = [(name, family) for name, family in met if family.is_record is is_record]
                pipe = self._redis.pipeline(transaction=False)
                for name, _ in met:
                    pipe.type(f"{prefix}{name}")
                kinds = [kind.decode() for kind in await pipe.execute()] if met else []
            for (name, family), kind in zip(met, kinds, strict=True):
                if kind != "none":
                    yield name, kind, family
            if not cursor:
                return

    def _family(self, name: str) -> Family | None:
        return next((family for family in self.families if family.pattern.fullmatch(name)), None)

    async def _entries(self, name: str, family: Family) -> AsyncIterator[Entry]:
        kind = family.kind
        yield name, b"", ITSELF
        if kind in ("string", "stream"):
            return
        key, cursor = f"{self.keys.p}{name}", 0
        while True:
            found: list[tuple[bytes, bytes]] = []
            with translated(self.link):
                if kind == "list":
                    page = await self._redis.lrange(key, cursor, cursor + _SCAN - 1)
                    found = [(member, b"") for member in page]
                    cursor = cursor + len(page) if len(page) == _SCAN else 0
                elif kind == "set":
                    cursor, page = await self._redis.sscan(key, cursor, count=_SCAN)
                    found = [(member, b"") for member in page]
                elif kind == "zset":
                    cursor, page = await self._redis.zscan(key, cursor, count=_SCAN)
                    found = [(member, repr(score).encode()) for member, score in page]
                elif not family.has_values:
                    found = [(field, b"") for field in await self._redis.hkeys(key)]
                else:
                    cursor, page = await self._redis.hscan(key, cursor, count=_SCAN)
                    found = list(page.items())
            for member, value in found:
                yield name, member, value
            if not cursor:
                return


async def sweep_for_ever(
    sweeps: Sequence[IndexSweep],
    room: str,
    every_s: float,
    *,
    mended: Callable[[int], None] | None = None,
    leads: Callable[[], bool] | None = None,
) -> None:
    """A job of the leader of a room: mend its indexes now and every `every_s`; what cannot be looked at is logged and
    looked at again next time. `mended`: is told how much was wrong. `leads`: whether it is to be done here. Does not
    end."""
    fence = Fence(job="index sweep", room=room)
    while True:
        began = time.monotonic()
        is_here = leads is None or leads()
        for sweep in sweeps if is_here else ():
            try:
                faults = [fault for fault in await sweep.run() if fault.flag != "t"]
            except Unavailable:  # whoever leads says so
                continue
            except (TradewindError, RedisError) as error:
                log.warning("indexes_not_swept", room=room, error=error_text(error))
                continue
            except Exception as error:  # noqa: BLE001 - who started the sweep does not look after it
                fence.met(error)
                continue
            done = [fault for fault in faults if fault.is_mended]
            if mended is not None:
                mended(len(done))
            for fault in faults[:LOGGED]:
                event = "index_mended" if fault.is_mended else "index_fault"
                log.warning(event, room=room, key=fault.key, what=fault.what)
            if len(faults) > LOGGED:
                log.warning("index_faults_more", room=room, faults=len(faults) - LOGGED, hint="tradewind doctor")
        await asyncio.sleep(max(LEADS_S, every_s - (time.monotonic() - began)) if is_here else LEADS_S)
