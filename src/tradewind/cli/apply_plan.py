"""What a station folder says, what a station has, and what would have to change. Reads both, changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.cli.apply_history import FILES as HISTORY_FILES
from tradewind.cli.apply_history import present_history, read_wanted_history
from tradewind.cli.apply_parts import channel_parts, comparable_channels, model_change
from tradewind.cli.apply_rules import (
    WantedRules,
    ask_rules,
    comparable_rules,
    kinds_of,
    present_rules,
    read_wanted_rules,
    unknown_points,
)
from tradewind.cli.flow_file import FlowFile, read_file
from tradewind.cli.http import Http, segment
from tradewind.documents import list_folder
from tradewind.errors import Invalid, Problem
from tradewind.points.difference import Difference, diff

if TYPE_CHECKING:
    from tradewind.models.spec import ModelSpec
    from tradewind.points.spec import ChannelSpec

#: In the order in which they are put; they are removed the other way round.
KINDS = ("channels", "templates", "models", "groups", "rules", "notifications", "history", "flows")
NOUNS = {
    "channels": "channel", "templates": "template", "models": "model", "groups": "rule group", "rules": "rule",
    "notifications": "notification", "history": "history", "flows": "flow",
}  # fmt: skip
PAGE = 1000
_ROW = re.compile(r"\.csv:(\d+)(?::|$)")
FLOW_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass
class Wanted:
    """What the folder says, by kind and id, as the API takes it. `has_files`: the kinds that it speaks of at all."""

    folder: Path
    documents: dict[str, dict[str, Any]]
    channels: dict[str, ChannelSpec]
    models: dict[str, ModelSpec]
    flows: dict[str, FlowFile]
    rules: WantedRules
    has_files: frozenset[str]
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: What version the station has of channels that are other than here.
    versions: dict[str, str] = field(default_factory=dict)

    def skip_bad_rows(self) -> list[Problem]:
        """Take the problems out that cost a row of a point table and nothing else; those rows are in no document."""
        bad: list[Problem] = []
        others: list[Problem] = []
        for problem in self.problems:
            found = _ROW.search(problem.path)
            (bad if found is not None and int(found[1]) > 1 else others).append(problem)
        self.problems = others
        return bad


def read_wanted(folder: Path) -> Wanted:
    """Everything with all that is wrong in any file. Raises Invalid only when there is no such folder."""
    import msgspec

    from tradewind.models.model_file import load_models
    from tradewind.points.channel_file import load_folder
    from tradewind.points.channel_store import channel_document
    from tradewind.points.driver_registry import DriverRegistry

    if not list_folder(folder) and not folder.is_dir():
        raise Invalid(f"there is no folder {folder}", code="no_folder", hint="make one with `tradewind init DIR`")
    drivers = DriverRegistry()
    loaded = load_folder(folder, check=drivers.check)
    units = {f"comsrv:{c.id}:{p.kind.value}:{p.id}": p.unit for c in loaded.channels for p in c.points}
    models = load_models(folder, units)
    flows, problems = _read_flows(folder)
    rules = read_wanted_rules(folder)
    history, history_problems = read_wanted_history(folder)
    documents = {
        **rules.documents,
        "history": history,
        "channels": {channel.id: channel_document(channel) for channel in loaded.channels},
        "templates": models.templates,
        "models": models.models,
        "flows": {flow_id: file.document for flow_id, file in flows.items()},
    }
    made = Wanted(
        folder,
        msgspec.to_builtins(documents),
        {channel.id: channel for channel in loaded.channels},
        models.specs,
        flows,
        rules,
        _kinds_of(folder),
        [*loaded.problems, *models.problems, *rules.problems, *history_problems, *problems],
    )
    if not made.has_files:
        message = f"{folder} has no channels, models, rules or flows"
        raise Invalid(message, code="nothing_to_apply", hint="make a station folder with `tradewind init DIR`")
    made.warnings += _unknown_points(made.channels, models.specs.values())
    declared = {c.id: {f"comsrv:{c.id}:{p.kind.value}:{p.id}" for p in c.points} for c in loaded.channels}
    made.warnings += unknown_points(rules, declared)
    return made


def _kinds_of(folder: Path) -> frozenset[str]:
    """A kind without any file is not spoken of, so pruning leaves it alone."""
    names = {path.name for path in list_folder(folder)}
    found = set()
    if names & {"channels.yaml", "channels.yml", "channels"}:
        found.add("channels")
    if names & {"models.yaml", "models.yml", "models.json", "models"}:
        found |= {"models", "templates"}
    if "flows" in names:
        found.add("flows")
    if names & set(HISTORY_FILES):
        found.add("history")
    return frozenset(found | kinds_of(names))


def _read_flows(folder: Path) -> tuple[dict[str, FlowFile], list[Problem]]:
    found: dict[str, FlowFile] = {}
    problems: list[Problem] = []
    try:
        listed = list_folder(folder / "flows", shown="flows/")
    except Invalid as error:
        return {}, list(error.problems)
    for path in (path for path in listed if path.suffix in FLOW_SUFFIXES):
        name = path.relative_to(folder).as_posix()
        try:
            file = read_file(str(path))
        except Invalid as error:
            line = error.problems[0].path.rpartition(":")[2] if error.problems else ""
            where = f"{name}:{line}" if line.isdigit() else name
            problems.append(Problem(error.code, where, error.hint))
            continue
        file.name = name
        if file.flow_id in found:
            hint = f"{file.flow_id!r} is in {found[file.flow_id].name} already"
            problems.append(Problem("duplicate_id", f"{name}:{file.line('id') or 1}:id", hint))
            continue
        problems += _flow_problems(file, _form(file))
        found[file.flow_id] = file
    return {flow_id: file for flow_id, file in found.items() if flow_id}, problems


def _form(file: FlowFile) -> list[Problem]:
    """What is wrong with it whatever node types there are; as a good one, it is what the station would store."""
    from tradewind.flows.syntax import read_flow

    spec, problems = read_flow(file.document)
    if spec is not None and not problems:
        file.document = spec.config
    return problems


def _flow_problems(file: FlowFile, problems: Iterable[Problem]) -> list[Problem]:
    """The same with file and line, as the problems of the other files have them."""
    return [Problem(p.code, f"{file.where(p)}:{p.path}", p.hint) for p in problems]


def _unknown_points(channels: Mapping[str, ChannelSpec], models: Iterable[ModelSpec]) -> Iterator[str]:
    """Inputs that name a point which a channel of the folder does not declare: fine if somebody sends its values."""
    known = {f"comsrv:{c.id}:{p.kind.value}:{p.id}" for c in channels.values() for p in c.points}
    for model in models:
        for item in model.inputs:
            service, channel, *_ = item.address.split(":")
            if service == "comsrv" and channel in channels and item.address not in known:
                yield f"model {model.name}: its input {item.name} is {item.address}, which channel {channel} lacks"


@dataclass
class Plan:
    """`differences` by kind. `kept`: what the station has beyond the folder and keeps, because nobody said --prune."""

    wanted: Wanted
    differences: dict[str, Difference]
    kept: dict[str, tuple[str, ...]]
    to_start: list[str]

    def __bool__(self) -> bool:
        return any(self.differences.values())

    def lines(self) -> Iterator[str]:
        for kind in KINDS:
            yield from self.differences[kind].lines(NOUNS[kind])

    def view(self) -> dict[str, Any]:
        """For --json."""
        shown = {}
        for kind, found in self.differences.items():
            changed = {name: [str(change) for change in changes] for name, changes in found.changed.items()}
            shown[kind] = {
                "added": found.added,
                "changed": changed,
                "removed": found.removed,
                "unchanged": found.unchanged,
                "kept": self.kept[kind],
            }
        return shown


def make_plan(station: Http, wanted: Wanted, *, prune: bool, start: bool) -> Plan:
    """Ask the station what it has, and what it thinks of what is new. Adds to `wanted.problems`."""
    present, statuses = _present(station, wanted)
    found_here = len(wanted.rules.problems)
    present |= present_rules(station, wanted.rules)
    present["history"] = present_history(station, wanted.documents["history"])
    wanted.problems += wanted.rules.problems[found_here:]
    compared = {
        **wanted.documents,
        **comparable_rules(wanted.rules),
        "channels": comparable_channels(wanted.documents["channels"], present["channels"], wanted.versions),
    }
    differences: dict[str, Difference] = {}
    kept: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        old, new = present[kind], compared[kind]
        extra = tuple(name for name in old if name not in new)
        is_pruned = prune and kind in wanted.has_files
        kept[kind] = () if is_pruned else extra
        differences[kind] = diff(old if is_pruned else {k: v for k, v in old.items() if k in new}, new)
    _ask(station, wanted, differences)
    to_start = [name for name in wanted.flows if statuses.get(name, "registered") == "registered"] if start else []
    return Plan(wanted, differences, kept, to_start)


def _present(station: Http, wanted: Wanted) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Definitions by kind and id, and the status of each flow. A channel of the same version is taken as it is."""
    from tradewind.points.channel_store import version_of
    from tradewind.points.secrets import masked

    present: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for item in _items(station, "/channels"):
        name, version = item["id"], item["version"]
        if version is None:  # nobody declared it: its values were sent
            continue
        ours = wanted.channels.get(name)
        if ours is not None and version_of(ours) == version:
            present["channels"][name] = masked(wanted.documents["channels"][name])
            continue
        present["channels"][name] = {}
        if ours is not None:
            shown = station.get(f"/channels/{segment(name)}")
            present["channels"][name], wanted.versions[name] = shown["config"], shown["version"]
    present["templates"] = {item["name"]: item for item in station.get("/model-templates")["items"]}
    present["models"] = {item["name"]: item["config"] for item in _items(station, "/models", config="true")}
    statuses: dict[str, str] = {}
    for item in _items(station, "/flows"):
        name = item["id"]
        is_ours = name in wanted.flows
        present["flows"][name] = station.get(f"/flows/{segment(name)}")["config"] if is_ours else {}
        statuses[name] = item["status"]
    return present, statuses


def _items(station: Http, path: str, **query: str) -> Iterator[dict[str, Any]]:
    for page in station.pages(path, {"limit": PAGE, **query}):
        yield from page["items"]


def _ask(station: Http, wanted: Wanted, differences: Mapping[str, Difference]) -> None:
    """Its drivers and node types may be others than ours, and it may have models that need ours."""
    for part in channel_parts(wanted.documents["channels"], differences["channels"]):
        answer = station.post("/channels/validate", {"channels": list(part.values())})
        names = list(part)
        for problem in answer["problems"]:
            at, _, path = problem["path"].removeprefix("channels[").partition("].")
            where = f"channel {names[int(at)]}:{path}" if at.isdigit() else problem["path"]
            wanted.problems.append(Problem(problem["code"], where, problem["hint"]))
    if change := model_change(wanted.documents, differences):
        answer = station.post("/models/validate", change)
        wanted.problems += [Problem(p["code"], f"model {p['path']}", p["hint"]) for p in answer["problems"]]
    wanted.problems += ask_rules(station, wanted.rules, differences)
    for file in wanted.flows.values():
        answer = station.post("/flows/validate", file.document)
        told = [Problem(p["code"], p["path"], p["hint"]) for p in answer["problems"]]
        known = {(p.code, p.path) for p in wanted.problems}
        wanted.problems += [p for p in _flow_problems(file, told) if (p.code, p.path) not in known]
