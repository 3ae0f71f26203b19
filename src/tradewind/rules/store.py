"""Rules and groups in Redis, under the seed's keys. What is stored has been checked.

Every change counts `rulesrv:version` up; whoever judges looks at it and reads again what changed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Literal

import msgspec

from tradewind.clock import Clock, iso
from tradewind.errors import Conflict, Unavailable
from tradewind.offload import offload
from tradewind.redis.connection import Link
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, Scripts
from tradewind.rules.definitions import Change, Definitions, plan, to_text, version_of
from tradewind.rules.history import RuleHistory
from tradewind.rules.reading import Documents, RuleReader, missing
from tradewind.rules.script_context import rule_context
from tradewind.rules.spec import BUILT_IN, Rule
from tradewind.settings import Settings

#: How long a change is tried anew when others change the very same rules.
PATIENCE_S = 20.0
WithRules = Literal["refuse", "cascade", "ungroup"]
_pack = msgspec.msgpack.Encoder().encode


class RuleStore(RuleReader):
    def __init__(self, link: Link, keys: Keys, settings: Settings, clock: Clock | None = None) -> None:
        super().__init__(link, keys)
        self.history = RuleHistory(link, keys, settings.rules, clock)
        self._clock = clock or Clock()
        self._context = rule_context(keys, settings)
        self._scripts = Scripts(link, "tradewind.rules", settings.redis.max_retries)

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
        async for _ in _attempts():
            now, inside = await self._inside(group_id)
            if inside and rules == "refuse":
                message = f"the group {group_id!r} has {len(inside)} rule{'s' if len(inside) > 1 else ''}"
                raise Conflict(message, code="group_has_rules", hint="remove them with it (cascade) or ungroup them")
            gone = [document["id"] for document in inside] if rules == "cascade" else []
            moved = [{**document, "group_id": ""} for document in inside] if rules == "ungroup" else []
            if await self._store(now, await offload(plan, now, self._now_iso(), moved, gone, (), [group_id])):
                return

    async def switch_group(self, group_id: str, *, is_on: bool) -> tuple[Documents, list[str]]:
        """Enable or disable all rules of a group in one change; all of them, and the ids of those that were not so.
        Those that cannot be read stay as they are. Raises NotFound."""
        await self.get_group(group_id)
        async for _ in _attempts():
            now, inside = await self._inside(group_id)
            change = await self._switched(inside, is_on=is_on)
            if await self._store(now, change):
                break
        return change.put, [row[0] for row in change.rules]

    async def apply(
        self,
        rules: Sequence[Any],
        *,
        remove: Collection[str] = (),
        groups: Sequence[Any] = (),
        is_new: bool = False,
    ) -> Documents:
        """All of it in one change, or nothing; the rules that were put. Without a version the last one wins. Raises
        Invalid with every problem, Conflict."""
        return (await self.change(rules, remove=remove, groups=groups, is_new=is_new)).put

    async def change(
        self,
        rules: Sequence[Any],
        *,
        remove: Collection[str] = (),
        groups: Sequence[Any] = (),
        is_new: bool = False,
    ) -> Change:
        """As `apply`; all that is known of what was stored."""
        async for _ in _attempts():
            now = await self.about((*_ids_of(rules), *remove))
            change = await offload(plan, now, self._now_iso(), rules, remove, groups, is_new=is_new)
            if await self._store(now, change):
                break
        return change

    async def check(self, rules: Sequence[Any], remove: Collection[str] = (), groups: Sequence[Any] = ()) -> list[Rule]:
        """As `apply`, without storing anything; what the rules mean. Raises Invalid, Conflict."""
        now = await self.about((*_ids_of(rules), *remove))
        return (await offload(plan, now, self._now_iso(), rules, remove, groups)).specs

    async def validate(self, document: Any) -> Rule:
        """What `put` would make of it, without storing anything. Raises Invalid, Conflict."""
        return (await self.check([document]))[0]

    async def _switch(self, rule_id: str, *, is_on: bool) -> dict[str, Any]:
        async for _ in _attempts():
            now = await self.about([rule_id])
            document = now.rules.get(rule_id)
            if document is None:
                raise missing("rule", rule_id)
            if "conditions" not in document:
                message = f"the rule {rule_id!r} cannot be read"
                raise Conflict(message, code="rule_faulty", hint="write it anew, or remove it")
            change = await self._switched([document], is_on=is_on)
            if await self._store(now, change):
                break
        return change.put[0]

    async def _switched(self, documents: Documents, *, is_on: bool) -> Change:
        """Also those that the loop guard has stopped are switched on anew."""
        usable = [document for document in documents if "conditions" in document]
        figures = await self.history.figures([document["id"] for document in usable]) if is_on else {}
        change = Change([], [], [], [], [])
        for document in usable:
            rule_id, group = document["id"], document.get("group_id") or ""
            is_stopped = is_on and bool(figures[rule_id].stopped_ms)
            if bool(document.get("enabled", True)) is is_on and not is_stopped:
                change.put.append(document)
                continue
            made = {**document, "enabled": is_on, "updated_at": self._now_iso(), "version": version_of(document) + 1}
            word = "" if is_on or rule_id in BUILT_IN else "disabled"
            begins = int(is_on and not bool(document.get("enabled", True)))
            change.rules.append((rule_id, to_text(made), group, group, word, begins))
            change.put.append(made)
        return change

    async def _inside(self, group_id: str) -> tuple[Definitions, Documents]:
        """The rules of a group."""
        everything = await self.load()
        now = await self.about(i for i, each in everything.rules.items() if each.get("group_id") == group_id)
        return now, [document for document in now.rules.values() if document.get("group_id") == group_id]

    async def _store(self, now: Definitions, change: Change) -> bool:
        """False: what is to be changed is not what `now` says any more."""
        if change.is_empty:
            return True
        keys, signs = self._keys, now.signs
        names = [keys.rules(), keys.rule_groups(), keys.rules_version(), keys.rule_states(), keys.rule_figures()]
        names += [keys.rule_since(), keys.feed(), *(() if keys.is_cluster else (keys.feed_cursors(),))]
        packed = _pack(
            {
                "rules": [(*row, signs.get(f"rule:{row[0]}", "")) for row in change.rules],
                "gone": [(*row, signs.get(f"rule:{row[0]}", "")) for row in change.gone],
                "groups": [(*row, signs.get(f"group:{row[0]}", "")) for row in change.groups],
                "dropped": change.dropped,
            }
        )
        args: list[Arg] = [self._context, self._clock.now_arg(), packed]
        ok, _version = await self._scripts.run("rule_change", names, args)
        return bool(ok)

    def _now_iso(self) -> str:
        """As the seed writes it: milliseconds only when there are any."""
        return iso(self._clock.now_ms()).replace(".000Z", "Z")


def _ids_of(documents: Sequence[Any]) -> list[str]:
    found = (document.get("id") for document in documents if isinstance(document, dict))
    return [name for name in found if isinstance(name, str)]


async def _attempts() -> AsyncIterator[int]:
    """Until one succeeds: each time one of all who change the same rules does. Raises Unavailable in the end."""
    end, attempt = time.monotonic() + PATIENCE_S, 0
    while time.monotonic() < end:
        yield attempt
        attempt += 1
        await asyncio.sleep(random.uniform(0, min(0.1, 0.005 * attempt)))
    raise Unavailable("others change the very same rules all the time", code="rules_busy", hint="try again")
