"""What is copied: every kind of thing that stands in Redis alone, as texts by id. Reads, changes nothing.

`mark` moves when a kind changes through our own doors, at the cost of one small read; None: there is no such thing. A
stranger's write may leave it where it is: everything is compared from time to time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType, is_wrong_type
from tradewind.tasks.plane import Plane

#: Commands in one round trip.
BATCH = 500
#: Numbers of cycles are copied in steps, so that a busy flow is not written at each of them.
CYCLE_STEP = 50
POLICY = "policy"


def digest_of(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def cycles_used(last_cycle: int) -> int:
    """A number that no cycle has when the copy is used: at least 50 and at most 100 beyond the last; -1 of none."""
    return -1 if last_cycle < 0 else (last_cycle // CYCLE_STEP + 2) * CYCLE_STEP


class Kind:
    """`fetch(ids)`: the texts of these ids, or of all. `ids()`: what there is."""

    def __init__(
        self,
        name: str,
        fetch: Callable[[], Awaitable[dict[str, str]]],
        mark: Callable[[], Awaitable[object]] | None = None,
        ids: Callable[[], Awaitable[Collection[str]]] | None = None,
        digests: Callable[[], Awaitable[dict[str, str]]] | None = None,
        some: Callable[[Collection[str]], Awaitable[dict[str, str]]] | None = None,
    ) -> None:
        self.name = name
        self._fetch, self._mark, self._ids, self._digests, self._some = fetch, mark, ids, digests, some
        self._read: dict[str, str] = {}

    async def mark(self) -> object:
        return await self._mark() if self._mark is not None else None

    async def ids(self) -> set[str]:
        return set(await self._ids()) if self._ids is not None else set(await self._fetch())

    async def digests(self) -> dict[str, str]:
        if self._digests is not None:
            return await self._digests()
        self._read = await self._fetch()
        return {name: digest_of(body) for name, body in self._read.items()}

    async def bodies(self, ids: Collection[str]) -> dict[str, str]:
        """Of those that `digests` has told of."""
        if self._some is not None:
            return await self._some(ids)
        return {name: self._read[name] for name in ids if name in self._read}

    def forget(self) -> None:
        self._read = {}


class Definitions:
    """Every method raises Unavailable."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        keys = plane.keys
        #: In the order of kind_names.
        self.kinds = (
            Kind("limits", self._hash(keys.rate_config())),
            Kind("paused", self._set(keys.paused())),
            Kind("schedules", self._hash(keys.schedules())),
            Kind(
                "channels",
                self._no_text,
                mark=lambda: self._ask("hget", keys.channel_versions(), "word"),
                ids=self._fields(keys.channels()),
                digests=self._channel_versions,
                some=self._channels,
            ),
            Kind("templates", self._hash(keys.model_templates()), mark=lambda: self._ask("get", keys.models_version())),
            Kind("models", self._hash(keys.models()), mark=lambda: self._ask("get", keys.models_version())),
            Kind(
                "alarms",
                self._no_text,
                mark=self._journal_end,
                ids=self._open_alarms,
                digests=self._alarm_digests,
                some=self._alarms,
            ),
            Kind(
                "groups",
                self._documents(keys.rule_groups(), keys.rule_group),
                mark=lambda: self._ask("get", keys.rules_version()),
                ids=self._set(keys.rule_groups()),
            ),
            Kind(
                "rules",
                self._documents(keys.rules(), keys.rule),
                mark=lambda: self._ask("get", keys.rules_version()),
                ids=self._set(keys.rules()),
            ),
            Kind("notifications", self._one(keys.notify_policy())),
            Kind("history", self._one(keys.history_policy())),
            Kind("flows", self._no_text, ids=self._flow_ids, digests=self._flow_digests, some=self._flows),
        )

    async def standing(self, kind: str, names: Sequence[str]) -> dict[str, str]:
        """Those of these names that are there, as they are read now; a kind of RELEASED. What cannot be read is never
        taken for absent: raises Unavailable, and WrongType for what somebody has put in its place."""
        keys = self._plane.keys
        hashes = {"channels": keys.channels(), "templates": keys.model_templates(), "models": keys.models()}
        if kind in hashes:
            texts = await self._ask("hmget", hashes[kind], list(names)) if names else []
            return {name: _text(text) for name, text in zip(names, texts, strict=True) if text}
        if kind in ("notifications", "history"):
            one = self._one(keys.notify_policy() if kind == "notifications" else keys.history_policy())
            return {name: body for name, body in (await one()).items() if name in names}
        if not names:
            return {}
        if kind == "flows":
            scores = await self._ask("zmscore", keys.flows(), list(names))
            known = [name for name, score in zip(names, scores, strict=True) if score is not None]
            return await self._flows(known, is_strict=True)
        index, key = (keys.rules(), keys.rule) if kind == "rules" else (keys.rule_groups(), keys.rule_group)
        flags = await self._ask("smismember", index, list(names))
        known = [name for name, is_member in zip(names, flags, strict=True) if is_member]
        texts = await self._many((("get", key(name)) for name in known), is_strict=True)
        return {name: _text(text) for name, text in zip(known, texts, strict=True) if text}

    async def station_id(self) -> str:
        return _text(await self._ask("get", self._plane.keys.station_id()))

    async def _ask(self, command: str, *args: Any) -> Any:
        with translated(self._plane.link):
            return await getattr(self._plane.redis, command)(*args)

    def _hash(self, key: str) -> Callable[[], Awaitable[dict[str, str]]]:
        async def read() -> dict[str, str]:
            return {_text(name): _text(value) for name, value in (await self._ask("hgetall", key)).items()}

        return read

    def _fields(self, key: str) -> Callable[[], Awaitable[Collection[str]]]:
        async def read() -> Collection[str]:
            return [_text(name) for name in await self._ask("hkeys", key)]

        return read

    def _set(self, key: str) -> Callable[[], Awaitable[dict[str, str]]]:
        async def read() -> dict[str, str]:
            return {_text(name): "1" for name in await self._ask("smembers", key)}

        return read

    def _one(self, key: str) -> Callable[[], Awaitable[dict[str, str]]]:
        async def read() -> dict[str, str]:
            found = _text(await self._ask("get", key))
            return {POLICY: found} if found else {}

        return read

    def _documents(self, index: str, key: Callable[[str], str]) -> Callable[[], Awaitable[dict[str, str]]]:
        async def read() -> dict[str, str]:
            names = [_text(name) for name in await self._ask("smembers", index)]
            texts = await self._many(("get", key(name)) for name in names)
            return {name: _text(text) for name, text in zip(names, texts, strict=True) if text}

        return read

    async def _many(self, commands: Iterable[tuple[Any, ...]], *, is_strict: bool = False) -> list[Any]:
        """A value of a wrong type, by somebody's hand, hides no other: its reply is None, or WrongType is raised where
        that matters (`is_strict`). Any other error is raised: what could not be read is not gone."""
        replies: list[Any] = []
        waiting = list(commands)
        for start in range(0, len(waiting), BATCH):
            some = waiting[start : start + BATCH]
            pipe = self._plane.redis.pipeline(transaction=False)
            for name, *args in some:
                getattr(pipe, name)(*args)
            with translated(self._plane.link):
                found = await pipe.execute(raise_on_error=False)
                for (_, key, *_rest), reply in zip(some, found, strict=True):
                    if is_strict and is_wrong_type(reply):
                        raise WrongType([key])
                    if isinstance(reply, Exception) and not is_wrong_type(reply):
                        raise reply
            replies += [None if isinstance(reply, Exception) else reply for reply in found]
        return replies

    async def _channel_versions(self) -> dict[str, str]:
        """They are digests already; a definition may be megabytes."""
        found = await self._ask("hgetall", self._plane.keys.channel_versions())
        return {_text(name): _text(version) for name, version in found.items() if name != b"word"}

    async def _channels(self, ids: Collection[str]) -> dict[str, str]:
        names = list(ids)
        texts = await self._ask("hmget", self._plane.keys.channels(), names) if names else []
        return {name: _text(text) for name, text in zip(names, texts, strict=True) if text}

    async def _flow_ids(self) -> list[str]:
        return [_text(name) for name in await self._ask("zrange", self._plane.keys.flows(), 0, -1)]

    async def _flow_digests(self) -> dict[str, str]:
        """Without the definitions: one may be megabytes."""
        names = await self._flow_ids()
        fields = ("version", "updated_ms", "status", "last_cycle")
        rows = await self._many(("hmget", self._plane.keys.flow(name), fields) for name in names)
        found = {}
        for name, row in zip(names, rows, strict=True):
            version, updated, status, last = map(_text, row or [None] * 4)
            if version and status != "deleting":
                found[name] = digest_of(f"{version} {updated} {status} {cycles_used(_number(last))}")
        return found

    async def _flows(self, ids: Collection[str], *, is_strict: bool = False) -> dict[str, str]:
        fields = ("config", "status", "last_cycle", "created_at", "once")
        commands = (("hmget", self._plane.keys.flow(name), fields) for name in ids)
        rows = await self._many(commands, is_strict=is_strict)
        found = {}
        for name, row in zip(ids, rows, strict=True):
            if row is not None and row[0] and row[1] != b"deleting":
                config, status, last, created, once = map(_text, row)
                flow = {"config": config, "status": status, "cycles": cycles_used(_number(last))}
                flow |= {"created_at": created, "once": once == "1"}
                found[name] = msgspec.json.encode(flow).decode()
        return found

    async def _journal_end(self) -> object:
        """Moves with every transition of an alarm; counts of one that is raised again and again do not move it."""
        try:
            [info] = await self._many([("xinfo_stream", self._plane.keys.alarm_journal())])
        except ResponseError as error:
            if "no such key" not in str(error):
                raise
            return None
        return info.get("last-generated-id") if isinstance(info, dict) else None

    async def _open_alarms(self) -> list[str]:
        return [_text(name) for name in await self._ask("zrange", self._plane.keys.alarm_order("open"), 0, -1)]

    async def _alarm_digests(self) -> dict[str, str]:
        names = await self._open_alarms()
        rows = await self._many(("hmget", self._plane.keys.alarm(name), ("version", "count")) for name in names)
        return {name: b":".join(row).decode() for name, row in zip(names, rows, strict=True) if row and all(row)}

    async def _alarms(self, ids: Collection[str]) -> dict[str, str]:
        rows = await self._many(("hgetall", self._plane.keys.alarm(name)) for name in ids)
        return {
            name: msgspec.json.encode({_text(field): _text(value) for field, value in row.items()}).decode()
            for name, row in zip(ids, rows, strict=True)
            if row
        }

    async def _no_text(self) -> dict[str, str]:
        raise NotImplementedError("this kind is read by digests")


def _number(text: str) -> int:
    return int(text) if text.lstrip("-").isdigit() else -1


def _text(data: bytes | None) -> str:
    return data.decode(errors="replace") if data else ""
