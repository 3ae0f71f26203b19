"""Rules as YAML that `rule create`, `rule update` and `apply` take back."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from tradewind.cli.apply_rules import ADDED, DEFAULTS
from tradewind.cli.http import Http
from tradewind.errors import NotFound

PAGE = 1000
#: Texts that nobody could take for anything else; all others stand between quotes.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*( [A-Za-z0-9_-]+)*")


def exported(station: Http, ids: Collection[str], group: str | None) -> dict[str, Any]:
    """`{groups, rules}`: the rules of these ids, those of the group, or all, and the groups that they are in. Raises
    NotFound for an id or a group that is not there."""
    groups = {each["id"]: each for each in station.get("/rule-groups")["items"]}
    if group is not None and group not in groups:
        raise NotFound(f"there is no group {group!r}", code="unknown_group", hint="see `tradewind rule-group list`")
    query = {"limit": PAGE, "group_id": group}
    rules = {each["id"]: each for page in station.pages("/rules", query) for each in page["items"]}
    if lacking := [name for name in ids if name not in rules]:
        where = f" in the group {group!r}" if group is not None else ""
        message = f"there is no rule {', '.join(map(repr, lacking))}{where}"
        raise NotFound(message, code="unknown_rule", hint="see `tradewind rule list`")
    chosen = [rule for name, rule in rules.items() if not ids or name in ids]
    used = {rule["group_id"] for rule in chosen} | ({group} if group is not None else set())
    if not ids and group is None:
        used |= groups.keys()
    found = {
        "groups": [_definition(groups[name], {"description": ""}) for name in sorted(used & groups.keys())],
        "rules": [_definition(rule, DEFAULTS) for rule in chosen],
    }
    return {kind: each for kind, each in found.items() if each or kind == "rules"}


def as_yaml(document: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        style = None if _PLAIN.fullmatch(value) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    found: str = yaml.dump(
        document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None
    )
    return found


def _definition(shown: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Without what the station adds, and without what is so anyway."""
    return {
        name: value
        for name, value in shown.items()
        if name not in ADDED and name != "rules" and not (name in defaults and defaults[name] == value)
    }
