"""All rules and groups as one whole, and what a change would make of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tradewind import codec
from tradewind.clock import from_iso
from tradewind.errors import Conflict, Invalid, Problem
from tradewind.problems import Problems, below, nothing_stored
from tradewind.rules.document import read_rule
from tradewind.rules.groups import read_group
from tradewind.rules.spec import BUILT_IN, CreateAlarm, Rule
from tradewind.rules.state_store import sign_of

#: The seed's fields stand first, in its order.
FIRST = (
    "id",
    "name",
    "description",
    "group_id",
    "enabled",
    "priority",
    "conditions",
    "actions",
    "created_at",
    "updated_at",
)
_DEFAULTS: dict[str, Any] = {
    "name": "",
    "description": "",
    "group_id": "",
    "enabled": True,
    "priority": 0,
    "actions": [],
}
#: Rules that one change takes: it is one script, which holds the server for a tenth of a second.
MAX_CHANGE = 10_000
#: What we write, whatever the document says.
_OURS = frozenset(("created_at", "updated_at", "version"))


def to_text(document: Mapping[str, Any]) -> str:
    """As it stands in Redis. Text, because the msgpack of Redis knows no bytes."""
    return msgspec.json.encode(document).decode()


class Definitions(msgspec.Struct):
    """Documents as they are stored, and what they mean; `specs` lacks those with `problems`. `signs` of what stands in
    Redis (`rule:{id}`, `group:{id}`), for a change that must find it so."""

    version: str = "0"
    rules: dict[str, dict[str, Any]] = {}
    groups: dict[str, dict[str, Any]] = {}
    specs: dict[str, Rule] = {}
    problems: list[Problem] = []
    signs: dict[str, str] = {}

    def add(self, rule_id: str, document: dict[str, Any], spec: Rule | None, problems: Sequence[Problem]) -> None:
        self.rules[rule_id] = document
        if spec is not None and not problems:
            self.specs[rule_id] = spec
        self.problems += [Problem(p.code, f"{rule_id}.{p.path}", p.hint) for p in problems]


def judged(documents: Sequence[dict[str, Any]]) -> Definitions:
    """What these rules mean, without looking at anything else."""
    found = Definitions("", {}, {}, {}, [])
    for document in documents:
        found.add(document["id"], document, *read_rule(document))
    return found


def stored(name: str, text: bytes) -> tuple[dict[str, Any], list[Problem]]:
    """What stands in Redis under that id, whoever wrote it there, and why it cannot be used: one hides no other."""
    try:
        document = codec.decode(text)
    except Invalid as error:
        return {"id": name}, [Problem("bad_json", "document", error.message)]
    if isinstance(document, dict) and document.get("id") == name:
        return document, []
    known = document if isinstance(document, dict) else {}
    return {**known, "id": name}, [Problem("id_mismatch", "id", f"an object with the id {name!r} must stand here")]


def version_of(document: Mapping[str, Any] | None) -> int:
    """0 of one that another program wrote without."""
    found = (document or {}).get("version")
    return found if type(found) is int else 0


class Change(msgspec.Struct):
    """For rule_change: rules (id, JSON, group, former group, word for its open alarms, 1 when its conditions begin
    anew), gone (id, group, word), groups
    (id, JSON), dropped (ids of groups). `put`: the rules as they are then, also those that stay as they were; `specs`:
    what the rules that were given mean."""

    rules: list[tuple[str, str, str, str, str, int]] = []
    gone: list[tuple[str, str, str]] = []
    groups: list[tuple[str, str]] = []
    dropped: list[str] = []
    put: list[dict[str, Any]] = []
    specs: list[Rule] = []

    @property
    def is_empty(self) -> bool:
        return not (self.rules or self.gone or self.groups or self.dropped)


def plan(
    now: Definitions,
    at_iso: str,
    rules: Sequence[Any],
    remove: Collection[str] = (),
    groups: Sequence[Any] = (),
    remove_groups: Collection[str] = (),
    *,
    is_new: bool = False,
) -> Change:
    """What is to be stored. Raises Invalid with everything that is wrong, Conflict for a version that has moved, or
    for what exists when all must be new.

    `now` needs to have these rules and all groups only. Paths begin with `rules[2].` when several rules are put.
    """
    if len(rules) + len(remove) > MAX_CHANGE:
        message = f"{len(rules) + len(remove)} rules are too many for one change"
        raise Invalid(message, code="too_many", hint=f"change at most {MAX_CHANGE} at once")
    if is_new:
        _must_be_new(now, rules, groups)
    change, problems = Change(dropped=list(remove_groups)), Problems()
    put = _plan_groups(change, now, at_iso, groups, problems, is_new=is_new)
    known = (set(now.groups) - set(remove_groups)) | put
    seen: set[str] = set()
    for i, document in enumerate(rules):
        spec, found = read_rule(document)
        found += _around(document, known, seen)
        if spec is not None and sum(isinstance(action, CreateAlarm) for action in spec.actions) > 1:
            found.append(Problem("two_alarms", "actions", "a rule has one open alarm: write one create_alarm"))
        path = f"rules[{i}]." if len(rules) > 1 else ""
        problems += below(path, found)
        if spec is not None:
            change.specs.append(spec)
            _plan_rule(change, now, at_iso, document, spec, is_new=is_new)
    for rule_id in remove:
        if rule_id in now.rules:
            word = "" if rule_id in BUILT_IN else "deleted"
            change.gone.append((rule_id, now.rules[rule_id].get("group_id") or "", word))
    if problems:
        raise Invalid(nothing_stored(problems), code="bad_rule", hint="correct the rules", problems=problems)
    return change


def _around(document: Any, known: Collection[str], seen: set[str]) -> Iterator[Problem]:
    """What can be said only with a look at groups and at the other rules; also of a rule that is wrong otherwise."""
    if not isinstance(document, Mapping):
        return
    name, group = document.get("id"), document.get("group_id")
    if isinstance(name, str) and name:
        if name in seen:
            yield Problem("duplicate_id", "id", f"two rules are called {name!r}")
        seen.add(name)
    if isinstance(group, str) and group and group not in known:
        yield Problem("unknown_group", "group_id", f"there is no group {group[:64]!r}: create it")


def _plan_rule(
    change: Change, now: Definitions, at_iso: str, document: Mapping[str, Any], spec: Rule, *, is_new: bool
) -> None:
    old = now.rules.get(spec.id)
    if not is_new:
        _must_fit(old, document, "rule", spec.id)
    made = _ordered(document, old, at_iso)
    if old is not None and _same(old, made):
        change.put.append(old)
        return
    change.put.append(made)
    group, former = made["group_id"] or "", (old or {}).get("group_id") or ""
    before = now.specs.get(spec.id)
    word = ""
    if not spec.enabled:
        word = "disabled"
    elif before is not None and (before.source != spec.source or (_alarms(before) and not _alarms(spec))):
        word = "edited"  # nobody would clear them any more
    begins = spec.enabled and (before is None or not before.enabled or sign_of(before) != sign_of(spec))
    change.rules.append((spec.id, to_text(made), group, former, word, int(begins)))


def _alarms(spec: Rule) -> bool:
    return any(isinstance(action, CreateAlarm) for action in spec.actions)


def _plan_groups(
    change: Change, now: Definitions, at_iso: str, groups: Sequence[Any], problems: Problems, *, is_new: bool
) -> set[str]:
    put: set[str] = set()
    for i, document in enumerate(groups):
        path = f"groups[{i}]." if len(groups) > 1 else ""
        group, found = read_group(document)
        problems += below(path, found)
        if found:
            continue
        old = now.groups.get(group["id"])
        if not is_new:
            _must_fit(old, document, "group", group["id"])
        put.add(group["id"])
        made = {**group, "created_at": (old or {}).get("created_at", at_iso), "updated_at": at_iso}
        made["version"] = version_of(old) + 1
        if old is None or not _same(old, made):
            change.groups.append((group["id"], to_text(made)))
    return put


def _must_fit(old: Mapping[str, Any] | None, document: Mapping[str, Any], noun: str, name: str) -> None:
    """A document that says which version it was made of must have been made of the newest. None has version 0."""
    wanted = document.get("version")
    if wanted is None or wanted == version_of(old):
        return
    if old is None:
        message = f"there is no {noun} {name!r} whose version could be {wanted}"
        hint = "it was removed, or never there: leave the version out to create it"
    else:
        message = f"the {noun} {name!r} has version {version_of(old)}, not {wanted}"
        hint = "read it again, or leave the version out"
    raise Conflict(message, code="version_moved", hint=hint)


def _must_be_new(now: Definitions, rules: Sequence[Any], groups: Sequence[Any]) -> None:
    for noun, known, documents in (("rule", now.rules, rules), ("group", now.groups, groups)):
        for document in documents:
            name = document.get("id") if isinstance(document, dict) else None
            if isinstance(name, str) and name in known:
                raise Conflict(f"the {noun} {name!r} exists", code=f"{noun}_exists", hint="use PUT to replace it")


def _ordered(document: Mapping[str, Any], old: Mapping[str, Any] | None, at_iso: str) -> dict[str, Any]:
    given = {**_DEFAULTS, **{name: value for name, value in document.items() if name not in _OURS}}
    given["created_at"] = _time((old or {}).get("created_at")) or _time(document.get("created_at")) or at_iso
    given["updated_at"] = at_iso
    made = {name: given.pop(name) for name in FIRST if name in given}
    return {**made, **given, "version": version_of(old) + 1}


def _same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return {k: v for k, v in old.items() if k not in _OURS} == {k: v for k, v in new.items() if k not in _OURS}


def _time(text: Any) -> str:
    try:
        return text if isinstance(text, str) and from_iso(text) else ""
    except ValueError:
        return ""
