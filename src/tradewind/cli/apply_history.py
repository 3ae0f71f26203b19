"""The part of `tradewind apply` for what is recorded: `history.yaml`, and the policy of a station in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.documents import STDIN, existing, read_document
from tradewind.errors import Invalid, Problem

if TYPE_CHECKING:
    from tradewind.cli.http import Http
    from tradewind.points.difference import Difference
    from tradewind.points.yaml_text import YamlText

POLICY = "policy"
FILES = ("history.yaml", "history.yml", "history.json")


def read_wanted_history(folder: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The policy as a station would show it, by its one name; empty when the folder has none. All that is wrong."""
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for file in existing(folder, FILES):
        name = file.name
        if found or problems:
            problems.append(Problem("duplicate_id", name, "one file says what is recorded: remove the others"))
            continue
        try:
            found[POLICY] = _policy_of(read_document(file, shown=name), name)
        except Invalid as error:
            problems += error.problems
    return found, problems


def read_policy_file(name: str) -> dict[str, Any]:
    """Of a file, or of stdin (`-`). Raises Invalid with the lines of all that is wrong."""
    return _policy_of(read_document(name), "stdin" if name == STDIN else name)


def present_history(station: Http, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What the station has, if the folder speaks of it."""
    return {POLICY: station.get("/history/policy")} if wanted else {}


def history_steps(wanted: Mapping[str, Any], found: Difference) -> list[dict[str, Any]]:
    from tradewind.cli.apply_steps import step

    if not found.added and not found.changed:
        return []
    return [step("PUT", "/history/policy", wanted[POLICY], ["history policy"])]


def _policy_of(data: bytes, name: str) -> dict[str, Any]:
    import msgspec

    from tradewind.history.policy import read_policy
    from tradewind.points.yaml_text import read_yaml

    text = read_yaml(data, name)
    try:
        policy: dict[str, Any] = msgspec.to_builtins(read_policy(text.value))
    except Invalid as error:
        problems = [Problem(p.code, _place(text, name, p.path), p.hint) for p in error.problems]
        raise Invalid(f"{name}: {error.message}", code=error.code, hint=error.hint, problems=problems) from None
    return policy


def _place(text: YamlText, name: str, path: str) -> str:
    return f"{name}:{text.line_of(path)}:{path}"
