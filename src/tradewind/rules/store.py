"""Rules and groups in Redis, under the seed's keys. What is stored has been checked.

Every change counts `rulesrv:version` up; whoever judges looks at it and reads again what changed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec

from tradewind.clock import Clock, iso
from tradewind.errors import Conflict, Invalid, NotFound, Problem, Unavailable
from tradewind.redis.connection import Link, translated
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, Scripts
from tradewind.rules.definitions import Change, Definitions, plan, stored, to_text, version_of
from tradewind.rules.document import read_rule
from tradewind.rules.history import RuleHistory
from tradewind.rules.script_context import rule_context
from tradewind.rules.spec import Rule
from tradewind.settings import Settings

#: How often a change is checked anew when others are faster.
ATTEMPTS = 5
#: Rules read with one command.
PIECE = 1000
WithRules = Literal["refuse", "cascade", "ungroup"]
Documents = list[dict[str, Any]]
_pack = msgspec.msgpack.Encoder().encode


class RuleStore:
    def __init__(self, link: Link, keys: Keys, settings: Settings, clock: Clock | None = None) -> None:
        self.history = RuleHistory(link, keys, settings.rules, clock)
        self._link = link
        self._keys = keys
        self._clock = clock or Clock()
        self._context = rule_context(keys, settings)
        self._scripts = Scripts(link, "tradewind.rules", settings.redis.max_retries)
        self._redis: Any = link.client
        self._known = Definitions()
        self._read: dict[str, tuple[bytes, Rule | None, list[Problem]]] = {}

    # reading

    async def version(self) -> str:
        with translated(self._link):
            found = await self._redis.get(self._keys.rules_version())
        return found.decode() if found else "0"

    async def load(self) -> Definitions:
        """Everything, as it is now. Kept until the version changes: do not modify it."""
        for _ in range(ATTEMPTS):
            version = await self.version()
            if version == self._known.version:
                return self._known
            rules = await self._documents(self._keys.rules(), self._keys.rule)
            groups = await self._documents(self._keys.rule_groups(), self._keys.rule_group)
            if version == await self.version():
                self._known = self._made_of(version, rules, groups)
                return self._known
        raise _too_busy()

    async def get(self, rule_id: str) -> dict[str, Any]:
        """The document as it is stored. Raises NotFound."""
        return await self._one(self._keys.rule(rule_id), "rule", rule_id)

    async def get_spec(self, rule_id: str) -> Rule:
        """Raises NotFound."""
        found = (await self.load()).specs.get(rule_id)
        if found is None:
            raise _missing("rule", rule_id)
        return found

    async def list(
        self, *, group_id: str | None = None, enabled: bool | None = None, source: str = "", search: str = ""
    ) -> Documents:
        """Documents by priority (higher first), then id. `source`: that read this address; `search`: in id, name or
        description."""
        now = await self.load()
        word = search.casefold()
        found = [
            document
            for rule_id, document in now.rules.items()
            if (group_id is None or (document.get("group_id") or "") == group_id)
            and (enabled is None or bool(document.get("enabled", True)) is enabled)
            and (not source or (rule_id in now.specs and source in now.specs[rule_id].addresses))
            and (not word or any(word in str(document.get(n, "")).casefold() for n in ("id", "name", "description")))
        ]
        ranks = {rule_id: -spec.priority for rule_id, spec in now.specs.items()}
        return sorted(found, key=lambda document: (ranks.get(document["id"], 0), document["id"]))

    async def get_group(self, group_id: str) -> dict[str, Any]:
        """Raises NotFound."""
        return await self._one(self._keys.rule_group(group_id), "group", group_id)

    async def list_groups(self) -> Documents:
        """By id, each with `rules`: how many it has."""
        now = await self.load()
        counts: dict[str, int] = {}
        for document in now.rules.values():
            group = document.get("group_id") or ""
            counts[group] = counts.get(group, 0) + 1
        return [{**now.groups[name], "rules": counts.get(name, 0)} for name in sorted(now.groups)]

    # changing

    async def put(self, document: Any, *, is_new: bool = False) -> dict[str, Any]:
        """Create or replace a rule; the document as it is stored then. Raises Invalid with all problems, Conflict when
        `is_new` and it exists, or when the document's `version` is not the stored one."""
        return (await self.apply([document], is_new=is_new))[0]

    async def remove(self, rule_id: str) -> None:
        """With its state, timers and history; its open alarms are marked and resolved. Raises NotFound."""
        await self.get(rule_id)
        await self.apply([], remove=[rule_id])

    async def enable(self, rule_id: str) -> dict[str, Any]:
        """Also lets a rule go on that the loop guard has stopped. Raises NotFound."""
        return await self._switch(rule_id, is_on=True)

    async def disable(self, rule_id: str) -> dict[str, Any]:
        """Its state and timers go, its open alarms are marked and resolved. Raises NotFound."""
        return await self._switch(rule_id, is_on=False)

    async def put_group(self, document: Any, *, is_new: bool = False) -> dict[str, Any]:
        """Create or replace a group. Raises Invalid, Conflict."""
        await self.apply([], groups=[document], is_new=is_new)
        return await self.get_group(document["id"])

    async def remove_group(self, group_id: str, rules: WithRules = "refuse") -> None:
        """Remove a group; its rules with it (`cascade`) or out of it (`ungroup`). Raises NotFound, Conflict when it has
        rules and nothing is said of them."""
        await self.get_group(group_id)
        for _ in range(ATTEMPTS):
            now = await self.load()
            inside = [document for document in now.rules.values() if document.get("group_id") == group_id]
            if inside and rules == "refuse":
                message = f"the group {group_id!r} has {len(inside)} rules"
                raise Conflict(message, code="group_has_rules", hint="remove them with it (cascade) or ungroup them")
            gone = [document["id"] for document in inside] if rules == "cascade" else []
            moved = [{**document, "group_id": ""} for document in inside] if rules == "ungroup" else []
            change = plan(now, self._now_iso(), moved, gone, (), [group_id])
            if await self._store(now, change):
                return
        raise _too_busy()

    async def apply(
        self,
        rules: Sequence[Any],
        *,
        remove: Collection[str] = (),
        groups: Sequence[Any] = (),
        is_new: bool = False,
    ) -> Documents:
        """All of it in one change, or nothing; the rules that were put. Raises Invalid with every problem, Conflict."""
        for _ in range(ATTEMPTS):
            now = await self.load()
            if is_new:
                _must_be_new(now, rules, groups)
            change = plan(now, self._now_iso(), rules, remove, groups)
            if await self._store(now, change):
                return change.put
        raise _too_busy()

    async def validate(self, document: Any) -> Rule:
        """What `put` would make of it, without storing anything. Raises Invalid, Conflict."""
        plan(await self.load(), self._now_iso(), [document])
        spec, problems = read_rule(document)
        if spec is None:
            raise Invalid("the rule is not valid", code="bad_rule", hint="see problems", problems=problems)
        return spec

    async def _switch(self, rule_id: str, *, is_on: bool) -> dict[str, Any]:
        for _ in range(ATTEMPTS):
            now = await self.load()
            document = now.rules.get(rule_id)
            if document is None:
                raise _missing("rule", rule_id)
            if "conditions" not in document:
                message = f"the rule {rule_id!r} cannot be read"
                raise Conflict(message, code="rule_faulty", hint="write it anew, or remove it")
            is_stopped = is_on and bool((await self.history.figures([rule_id]))[rule_id].stopped_ms)
            if bool(document.get("enabled", True)) is is_on and not is_stopped:
                return document
            made = {**document, "enabled": is_on, "updated_at": self._now_iso(), "version": version_of(document) + 1}
            group = document.get("group_id") or ""
            row = (rule_id, to_text(made), group, group, "" if is_on else "disabled")
            if await self._store(now, Change(rules=[row])):
                return made
        raise _too_busy()

    async def _store(self, now: Definitions, change: Change) -> bool:
        """False: somebody else was faster."""
        if change.is_empty:
            return True
        keys = self._keys
        names = [keys.rules(), keys.rule_groups(), keys.rules_version(), keys.rule_states(), keys.rule_figures()]
        packed = _pack({name: getattr(change, name) for name in ("rules", "gone", "groups", "dropped")})
        args: list[Arg] = [self._context, self._clock.now_arg(), now.version, packed]
        ok, _version = await self._scripts.run("rule_change", names, args)
        return bool(ok)

    def _made_of(self, version: str, rules: dict[str, bytes], groups: dict[str, bytes]) -> Definitions:
        made = Definitions(version, {}, {name: stored(name, text)[0] for name, text in groups.items()}, {}, [])
        read: dict[str, tuple[bytes, Rule | None, list[Problem]]] = {}
        for rule_id, text in rules.items():
            before = self._read.get(rule_id)
            document = self._known.rules.get(rule_id)
            if before is None or before[0] != text or document is None:
                document, unusable = stored(rule_id, text)
                before = (text, None, unusable) if unusable else (text, *read_rule(document))
            read[rule_id] = before
            made.rules[rule_id] = document
            if before[1] is not None and not before[2]:
                made.specs[rule_id] = before[1]
            made.problems += [Problem(p.code, f"{rule_id}.{p.path}", p.hint) for p in before[2]]
        self._read = read
        return made

    async def _documents(self, index: str, name: Any) -> dict[str, bytes]:
        with translated(self._link):
            ids = sorted(member.decode() for member in await self._redis.smembers(index))
            found: dict[str, bytes] = {}
            for start in range(0, len(ids), PIECE):
                piece = ids[start : start + PIECE]
                texts = await self._redis.mget([name(one) for one in piece])
                found |= {one: text for one, text in zip(piece, texts, strict=True) if text is not None}
        return found

    async def _one(self, key: str, noun: str, name: str) -> dict[str, Any]:
        with translated(self._link):
            found = await self._redis.get(key)
        if found is None:
            raise _missing(noun, name)
        return stored(name, found)[0]

    def _now_iso(self) -> str:
        """As the seed writes it: milliseconds only when there are any."""
        return iso(self._clock.now_ms()).replace(".000Z", "Z")


def _missing(noun: str, name: str) -> NotFound:
    return NotFound(f"there is no {noun} {name!r}", code=f"unknown_{noun}", hint=f"list the {noun}s")


def _too_busy() -> Unavailable:
    return Unavailable("the rules are being changed by others all the time", hint="try again")


def _must_be_new(now: Definitions, rules: Sequence[Any], groups: Sequence[Any]) -> None:
    for noun, known, documents in (("rule", now.rules, rules), ("group", now.groups, groups)):
        for document in documents:
            name = document.get("id") if isinstance(document, dict) else None
            if isinstance(name, str) and name in known:
                raise Conflict(f"the {noun} {name!r} exists", code=f"{noun}_exists", hint="use PUT to replace it")
