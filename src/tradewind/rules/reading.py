"""Reading rules and groups from Redis, where they stand under the seed's keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from tradewind.errors import NotFound, Problem
from tradewind.ids import ID
from tradewind.offload import offload
from tradewind.redis.connection import Link, translated
from tradewind.redis.keys import Keys
from tradewind.rules.definitions import Definitions, stored
from tradewind.rules.document import read_rule
from tradewind.rules.spec import Rule

#: How often everything is read anew because it changed meanwhile.
ATTEMPTS = 3
#: Rules read with one command.
PIECE = 1000
Documents = list[dict[str, Any]]
#: What each rule's text means.
Read = dict[str, tuple[bytes, Rule | None, list[Problem]]]


class RuleReader:
    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._redis: Any = link.client
        self._known = Definitions()
        self._read: Read = {}

    async def version(self) -> str:
        with translated(self._link):
            found = await self._redis.get(self._keys.rules_version())
        return found.decode(errors="replace") if found else "0"

    async def load(self) -> Definitions:
        """Everything, as it is now. Kept until the version changes: do not modify it.

        While others change rules all the time, it has a version that is over already: whoever depends on it will look
        again.
        """
        for attempt in range(ATTEMPTS):
            version = await self.version()
            if version == self._known.version:
                break
            rules = await self._documents(self._keys.rules(), self._keys.rule)
            groups = await self._documents(self._keys.rule_groups(), self._keys.rule_group)
            if attempt == ATTEMPTS - 1 or version == await self.version():
                self._known, self._read = await offload(self._made_of, version, rules, groups)
                break
        return self._known

    async def about(self, rule_ids: Iterable[str]) -> Definitions:
        """Only these rules, of those that there are, and all groups, as they are now: what it takes to change them."""
        wanted = [name for name in dict.fromkeys(rule_ids) if ID.fullmatch(name)]
        rules = await self._texts(wanted, self._keys.rule)
        groups = await self._documents(self._keys.rule_groups(), self._keys.rule_group)
        return await offload(self._made_about, rules, groups)

    def _made_about(self, rules: dict[str, bytes], groups: dict[str, bytes]) -> Definitions:
        found = Definitions("", {}, {}, {}, [], {})
        for rule_id, text in rules.items():
            document, unusable = stored(rule_id, text)
            before = self._read.get(rule_id)
            if before is None or before[0] != text:  # reading one anew costs a lot more than all the rest
                before = (text, None, unusable) if unusable else (text, *read_rule(document))
            found.add(rule_id, document, before[1], before[2])
            found.signs[f"rule:{rule_id}"] = hashlib.sha1(text).hexdigest()
        for name, text in groups.items():
            found.groups[name] = stored(name, text)[0]
            found.signs[f"group:{name}"] = hashlib.sha1(text).hexdigest()
        return found

    async def ids(self) -> set[str]:
        """Of all rules."""
        with translated(self._link):
            return set(_texts_of(await self._redis.smembers(self._keys.rules())))

    async def get(self, rule_id: str) -> dict[str, Any]:
        """The document as it is stored. Raises NotFound."""
        return await self._one(self._keys.rule(rule_id), "rule", rule_id)

    async def get_spec(self, rule_id: str) -> Rule:
        """Raises NotFound."""
        found = (await self.load()).specs.get(rule_id)
        if found is None:
            raise missing("rule", rule_id)
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

    def _made_of(self, version: str, rules: dict[str, bytes], groups: dict[str, bytes]) -> tuple[Definitions, Read]:
        made = Definitions(version, {}, {name: stored(name, text)[0] for name, text in groups.items()}, {}, [])
        read: Read = {}
        for rule_id, text in rules.items():
            before = self._read.get(rule_id)
            document = self._known.rules.get(rule_id)
            if before is None or before[0] != text or document is None:
                document, unusable = stored(rule_id, text)
                before = (text, None, unusable) if unusable else (text, *read_rule(document))
            read[rule_id] = before
            made.add(rule_id, document, before[1], before[2])
        return made, read

    async def _documents(self, index: str, name: Any) -> dict[str, bytes]:
        with translated(self._link):
            ids = sorted(_texts_of(await self._redis.smembers(index)))
        return await self._texts(ids, name)

    async def _texts(self, ids: Sequence[str], name: Any) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        with translated(self._link):
            for start in range(0, len(ids), PIECE):
                piece = ids[start : start + PIECE]
                texts = await self._redis.mget([name(one) for one in piece])
                found |= {one: text for one, text in zip(piece, texts, strict=True) if text is not None}
        return found

    async def _one(self, key: str, noun: str, name: str) -> dict[str, Any]:
        with translated(self._link):
            found = await self._redis.get(key)
        if found is None:
            raise missing(noun, name)
        return stored(name, found)[0]


def _texts_of(members: Iterable[bytes]) -> list[str]:
    """Without those that are no text: no rule has such an id, whoever put it there."""
    found = [member.decode(errors="replace") for member in members]
    return [name for name in found if "\ufffd" not in name]


def missing(noun: str, name: str) -> NotFound:
    return NotFound(f"there is no {noun} {name!r}", code=f"unknown_{noun}", hint=f"list the {noun}s")
