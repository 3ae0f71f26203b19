"""The part of `tradewind apply` for rules, their groups and the notification policy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.cli.http import Http, segment
from tradewind.documents import existing, read_document
from tradewind.errors import Invalid, Problem

if TYPE_CHECKING:
    from tradewind.points.definition_file import Place
    from tradewind.points.difference import Difference
    from tradewind.points.yaml_text import YamlText

#: Rules in one request.
PART = 5000
PAGE = 1000
POLICY = "policy"
_POLICY_FILES = ("notify.yaml", "notify.yml", "notify.json")
#: What a station adds to a rule or a group.
ADDED = frozenset(("state", "figures", "problems", "warnings", "version", "created_at", "updated_at"))
DEFAULTS: dict[str, Any] = {
    "name": "", "description": "", "group_id": "", "enabled": True, "priority": 0, "actions": [],
}  # fmt: skip
_INDEX = re.compile(r"(groups|rules)\[(\d+)\]\.?")


@dataclass
class WantedRules:
    """What the folder says. `policy_text`: of its file, for lines; `policy_name`: of the file."""

    documents: dict[str, dict[str, Any]]
    places: dict[tuple[str, str], Place]
    problems: list[Problem]
    policy_text: YamlText | None = None
    policy_name: str = ""
    #: The policy as the station would show it, and whether that is new to it.
    shown: dict[str, Any] = field(default_factory=dict)


def read_wanted_rules(folder: Path) -> WantedRules:
    """Everything with all that is wrong in any file."""
    from tradewind.points.yaml_text import read_yaml
    from tradewind.rules.rule_file import load_rules

    loaded = load_rules(folder)
    made = WantedRules({**loaded.documents, "notifications": {}}, loaded.places, list(loaded.problems))
    for file in existing(folder, _POLICY_FILES):
        name = file.name
        if made.policy_name:
            made.problems.append(Problem("duplicate_id", name, f"{made.policy_name} is the policy already"))
            continue
        made.policy_name = name
        try:
            made.policy_text = text = read_yaml(read_document(file, shown=name), name)
        except Invalid as error:
            made.problems += error.problems
            continue
        if isinstance(text.value, Mapping):
            made.documents["notifications"][POLICY] = {k: v for k, v in text.value.items() if k != "version"}
        elif text.value is not None:
            made.problems.append(Problem("not_an_object", f"{name}:1", "targets, routes, … must stand here"))
    return made


def kinds_of(names: set[str]) -> set[str]:
    """The kinds that a folder with files of these names speaks of."""
    found = set()
    if names & {"rules", "rules.yaml", "rules.yml", "rules.json"}:
        found |= {"rules", "groups"}
    if names & set(_POLICY_FILES):
        found.add("notifications")
    return found


def present_rules(station: Http, wanted: WantedRules) -> dict[str, dict[str, Any]]:
    """What the station has, by kind and id. Asks it what it thinks of the policy, too, and notes that."""
    rules = [each for page in station.pages("/rules", {"limit": PAGE}) for each in page["items"]]
    groups = station.get("/rule-groups")["items"]
    found: dict[str, dict[str, Any]] = {
        "rules": {each["id"]: _without(each, ADDED) for each in rules},
        "groups": {each["id"]: _without(each, ADDED | {"rules"}) for each in groups},
        "notifications": {},
    }
    policy = station.get("/notifications/policy")
    if policy["version"]:
        found["notifications"][POLICY] = _without(policy, frozenset({"version"}))
    if POLICY in wanted.documents["notifications"]:
        answer = station.post("/notifications/policy/validate", wanted.documents["notifications"][POLICY])
        wanted.problems += [Problem(p["code"], _policy_place(wanted, p["path"]), p["hint"]) for p in answer["problems"]]
        wanted.shown = _without(answer.get("policy") or {}, frozenset({"version"}))
        if answer.get("changed") and wanted.shown == found["notifications"].get(POLICY):
            wanted.shown["secrets"] = "*** (changed)"  # nothing else of them may be told
    return found


def comparable_rules(wanted: WantedRules) -> dict[str, dict[str, Any]]:
    """What the folder says as the station would show it."""
    found = {
        "rules": {name: {**DEFAULTS, **_without(each, ADDED)} for name, each in wanted.documents["rules"].items()},
        "groups": {
            name: {"description": "", **_without(each, ADDED), "name": each.get("name") or name}
            for name, each in wanted.documents["groups"].items()
        },
        "notifications": dict.fromkeys(wanted.documents["notifications"], wanted.shown),
    }
    return found


def ask_rules(station: Http, wanted: WantedRules, differences: Mapping[str, Difference]) -> list[Problem]:
    """What the station finds wrong with what is new, beyond what was found here."""
    problems = []
    for change in rule_changes(wanted, differences):
        for p in station.post("/rules/validate", change)["problems"]:
            match = _INDEX.match(p["path"])
            kind, at = (match[1], int(match[2])) if match else ("rules" if change.get("rules") else "groups", 0)
            path = p["path"][match.end() :] if match else p["path"]
            known = change.get(kind, [])
            place = wanted.places.get((kind, known[at].get("id", ""))) if at < len(known) else None
            problems.append(Problem(p["code"], place.at(path) if place else p["path"], p["hint"]))
    return problems


def rule_changes(wanted: WantedRules, differences: Mapping[str, Difference]) -> Iterator[dict[str, Any]]:
    """Requests for `PUT /rules`: all groups and what is to go with the first, the rules in parts that are not too
    long. Nothing when nothing differs."""
    documents = {
        kind: [
            _without(wanted.documents[kind][name], frozenset({"version"}))
            for name in (*differences[kind].added, *differences[kind].changed)
        ]
        for kind in ("groups", "rules")
    }
    head = {"groups": documents["groups"], "remove": list(differences["rules"].removed)}
    rules = documents["rules"]
    for start in range(0, max(len(rules), 1), PART):
        change = {**(head if start == 0 else {}), "rules": rules[start : start + PART]}
        if any(change.values()):
            yield {name: each for name, each in change.items() if each}


def rule_steps(wanted: WantedRules, differences: Mapping[str, Difference]) -> list[dict[str, Any]]:
    """Rules and groups, then groups that go, then the notification policy."""
    from tradewind.cli.apply_steps import step

    steps = []
    for change in rule_changes(wanted, differences):
        what = [f"rule group {each['id']}" for each in change.get("groups", ())]
        what += [f"rule {each['id']}" for each in change.get("rules", ())]
        what += [f"rule {name} (removed)" for name in change.get("remove", ())]
        steps.append(step("PUT", "/rules", change, what))
    for name in differences["groups"].removed:
        steps.append(
            step("DELETE", f"/rule-groups/{segment(name)}?rules=ungroup", None, [f"rule group {name} (removed)"])
        )
    if differences["notifications"].added or differences["notifications"].changed:
        policy = wanted.documents["notifications"][POLICY]
        steps.append(step("PUT", "/notifications/policy", policy, ["notification policy"]))
    return steps


def unknown_points(wanted: WantedRules, declared: Mapping[str, set[str]]) -> Iterator[str]:
    """Sources that a channel of the folder does not declare. `declared`: addresses by channel."""
    from tradewind.rules.document import read_rule

    for name, document in wanted.documents["rules"].items():
        spec, _ = read_rule(document)
        for address in spec.addresses if spec is not None else ():
            service, channel, *_ = address.split(":")
            if service == "comsrv" and channel in declared and address not in declared[channel]:
                yield f"rule {name}: it reads {address}, which channel {channel} lacks"


def _policy_place(wanted: WantedRules, path: str) -> str:
    line = wanted.policy_text.line_of(path) if wanted.policy_text is not None else 0
    return ":".join(part for part in (wanted.policy_name, str(line) if line else "", path) if part)


def _without(document: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}
