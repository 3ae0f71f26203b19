"""The channels of a station folder: `channels.yaml` or `channels/*.yaml`, and per channel a folder of point tables.

Every bad row, point or channel is named and left out; the others are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tradewind.documents import existing, read_document
from tradewind.errors import Invalid, Problem
from tradewind.points.channel_check import Check, channel_fields, inline_points, make_point
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.points.table_columns import POINT_COLUMNS, mapping_columns
from tradewind.points.tables import Findings, Table, did_you_mean, read_table
from tradewind.points.yaml_text import YamlText, read_yaml

#: The name of each kind in file names.
TABLE_NAMES: Final = {
    Kind.MEASUREMENT: "telemetry",
    Kind.SIGNAL: "signal",
    Kind.CONTROL: "control",
    Kind.ADJUSTMENT: "adjustment",
}
#: A device of these protocols cannot be asked for a point that has no mapping.
_MAPPED = ("modbus", "opcua", "can", "iec104", "gpio", "di_do")
_POINT_PATH = re.compile(r"points\[([0-9]+)\]\.?(.*)")
_FILE_KEYS: Final = frozenset({"channels", "version", "service"})
_CONFIG_KEYS: Final = frozenset(
    ("four_telemetry_route", "four_telemetry_files", "protocol_mapping_route", "protocol_mapping_files")
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What could be loaded, by channel id, and what is wrong with the rest."""

    channels: tuple[ChannelSpec, ...]
    problems: tuple[Problem, ...]


class _Origin(NamedTuple):
    """Where a point was written down: a line of tables, or a path in YAML."""

    path: str
    table: Table | None = None
    line: int = 0
    mapping: Table | None = None
    mapping_line: int = 0


def load_folder(path: Path | str, *, check: Check | None = None) -> Loaded:
    """`check`: what the drivers think of a channel, see `Driver.check`. Never raises for what the files hold."""
    folder, findings = Path(path), Findings()
    if not folder.is_dir():
        findings.add("missing_folder", "no such folder", str(folder))
        return Loaded((), tuple(findings.problems))
    channels: dict[str, ChannelSpec] = {}
    seen: dict[str, str] = {}
    for file in _files(folder, findings):
        name = file.relative_to(folder).as_posix()
        try:
            text = read_yaml(read_document(file, shown=name), name)
        except Invalid as error:
            findings.problems.extend(error.problems)
            continue
        for where, document in _documents(text, name, findings):
            reader = _ChannelReader(folder, file, text, where, findings)
            channel_id = str(document.get("id")) if isinstance(document, Mapping) else ""
            if channel_id in seen:
                reader.add("duplicate_id", "id", f"channel {channel_id} stands in {seen[channel_id]} already")
                continue
            channel = reader.read(document, check)
            seen[channel_id] = f"{name}:{text.line_of(where)}"
            if channel is not None:
                channels[channel.id] = channel
    for place in findings.listed(folder, str(folder)):
        if place.name.isdecimal() and place.is_dir() and place.name not in seen:
            findings.add("tables_without_channel", f"no channel has the id {place.name}", f"{place.name}/")
    return Loaded(tuple(channels[key] for key in sorted(channels, key=int)), tuple(findings.problems))


def _files(folder: Path, findings: Findings) -> Iterator[Path]:
    yield from existing(folder, ("channels.yaml", "channels.yml"))
    yield from (file for file in findings.listed(folder / "channels", "channels/") if file.suffix in (".yaml", ".yml"))


def _documents(text: YamlText, name: str, findings: Findings) -> Iterator[tuple[str, Any]]:
    """Path and document of each channel of a file: a list `channels`, or one channel."""
    value = text.value
    if isinstance(value, Mapping) and "channels" not in value and "id" in value:
        yield "", value
        return
    if value is None or (isinstance(value, Mapping) and value.get("channels", 0) is None):
        return
    if not isinstance(value, Mapping) or not isinstance(value.get("channels"), list):
        findings.add("no_channels", "the file has a list `channels`", name, 1, "channels")
        return
    for key in value:
        if key not in _FILE_KEYS and not key.startswith("x-"):
            findings.add("unknown_field", did_you_mean(key, _FILE_KEYS) or "not used", name, text.line_of(key), key)
    for index, document in enumerate(value["channels"]):
        yield f"channels[{index}]", document


class _ChannelReader:
    """Reads one channel; `where` is its path in the YAML file."""

    def __init__(self, folder: Path, file: Path, text: YamlText, where: str, findings: Findings) -> None:
        self.folder = folder
        self.file = file
        self.name = file.relative_to(folder).as_posix()
        self.text = text
        self.where = where
        self.findings = findings

    def add(self, code: str, path: str, hint: str) -> None:
        full = f"{self.where}.{path}" if self.where else path
        self.findings.add(code, hint, self.name, self.text.line_of(full), path)

    def read(self, document: Any, check: Check | None) -> ChannelSpec | None:
        before = len(self.findings.problems)
        fields = channel_fields(document, self.add)
        is_good = len(self.findings.problems) == before
        if "id" not in fields or "protocol" not in fields:
            return None
        points: dict[tuple[Kind, str], tuple[PointSpec, _Origin]] = {}
        for path, point in inline_points(document, fields["protocol"], self.add):
            points[point.kind, point.id] = (point, _Origin(path))
        has_tables = False
        for kind, file, mapping_file in self._tables(fields["id"], document.get("table_config")):
            has_tables = True
            for point, origin in self._table_points(kind, fields["protocol"], file, mapping_file):
                key = (point.kind, point.id)
                if key in points and origin.table is not None:
                    hint = f"{point.id} is in {self.name} already ({points[key][1].path})"
                    self.findings.add("duplicate_id", hint, origin.table.name, origin.line, origin.table.headers["id"])
                    continue
                points[key] = (point, origin)
        if not has_tables and not document.get("points") and fields["protocol"] != "http":
            self.add("no_points", "points", f"give points here, or tables in the folder {fields['id']}/")
        return self._checked(ChannelSpec(**fields), list(points.values()), check) if is_good else None

    def _checked(
        self, channel: ChannelSpec, points: list[tuple[PointSpec, _Origin]], check: Check | None
    ) -> ChannelSpec | None:
        """Without the points that the driver does not like; None when it does not like the channel."""
        made = _with_points(channel, [point for point, _ in points])
        refused: set[int] = set()
        is_good = True
        for problem in check(made) if check is not None else ():
            match = _POINT_PATH.fullmatch(problem.path)
            if match is None or int(match[1]) >= len(points):
                self.add(problem.code, problem.path, problem.hint)
                is_good = False
                continue
            refused.add(int(match[1]))
            self._add_at(points[int(match[1])][1], match[2], problem)
        if not is_good:
            return None
        if refused:
            made = _with_points(channel, [point for index, (point, _) in enumerate(points) if index not in refused])
        return made

    def _add_at(self, origin: _Origin, field: str, problem: Problem) -> None:
        table, line = origin.table, origin.line
        if table is None:
            self.add(problem.code, f"{origin.path}.{field}".rstrip("."), problem.hint)
            return
        if field.startswith("mapping.") and origin.mapping is not None:
            table, line, field = origin.mapping, origin.mapping_line, field.removeprefix("mapping.")
        self.findings.add(problem.code, problem.hint, table.name, line, table.headers.get(field, field))

    def _table_points(
        self, kind: Kind, protocol: str, file: Path | None, mapping_file: Path | None
    ) -> Iterator[tuple[PointSpec, _Origin]]:
        findings = self.findings
        mapping = None
        if mapping_file is not None:
            columns = mapping_columns(protocol)
            mapping = read_table(mapping_file, self._name(mapping_file), columns, findings, is_open=True)
        if file is None:
            if mapping is not None:
                hint = f"there is no {TABLE_NAMES[kind]}.csv with its points"
                findings.add("mapping_without_points", hint, mapping.name)
            return
        table = read_table(file, self._name(file), POINT_COLUMNS, findings)
        is_mapped = mapping is not None or protocol.startswith(_MAPPED)
        if mapping is None and is_mapped and table.rows:
            hint = f"{protocol} needs mapping/{TABLE_NAMES[kind]}_mapping.csv; its points are left out"
            findings.add("missing_mapping_table", hint, table.name)
            return
        known = table.rows.keys() | table.left_out
        for point_id, (line, fields) in table.rows.items():
            mapping_line, row = mapping.rows.get(point_id, (0, None)) if mapping is not None else (0, None)

            def bad(code: str, field: str, hint: str, line: int = line) -> None:
                findings.add(code, hint, table.name, line, table.headers.get(field, field))

            point = make_point(kind, fields, {k: v for k, v in row.items() if k != "id"} if row else {}, bad)
            if mapping is not None and row is None:
                if point_id not in mapping.left_out:
                    bad("missing_mapping", "id", f"point {point_id} has no row in {mapping.name}; it is left out")
            elif point is not None:
                yield point, _Origin("", table, line, mapping, mapping_line)
        for point_id, (line, _) in mapping.rows.items() if mapping is not None else ():
            if point_id not in known and mapping is not None:
                hint = f"there is no point {point_id} in {table.name}"
                findings.add("mapping_without_point", hint, mapping.name, line, mapping.headers["id"])

    def _tables(self, channel_id: str, config: Any) -> Iterator[tuple[Kind, Path | None, Path | None]]:
        """Point table and mapping table of each kind that has one."""
        if config is not None:
            yield from self._configured(config)
            return
        base = self.file.parent / channel_id
        if not base.is_dir():
            base = self.folder / channel_id
        for kind, word in TABLE_NAMES.items():
            table = next(existing(base, (f"{word}.csv",)), None)
            found = list(existing(base, (f"mapping/{word}_mapping.csv", f"mapping_{word}.csv")))
            if len(found) == 2:
                hint = f"{self._name(found[0])} is there, too, and is used; keep one"
                self.findings.add("two_tables", hint, self._name(found[1]))
            if table is not None or found:
                yield kind, table, found[0] if found else None

    def _configured(self, config: Any) -> Iterator[tuple[Kind, Path | None, Path | None]]:
        """The seed-date form: a folder and file names for point tables, and the same for mapping tables."""
        if not isinstance(config, Mapping):
            self.add("not_an_object", "table_config", "give four_telemetry_route and more")
            return
        for key in config:
            if key not in _CONFIG_KEYS:
                self.add("unknown_field", f"table_config.{key}", did_you_mean(key, _CONFIG_KEYS) or "not used")
        for kind, word in TABLE_NAMES.items():
            table = self._file(config, "four_telemetry_route", "four_telemetry_files", f"{word}_file")
            mapping = self._file(config, "protocol_mapping_route", "protocol_mapping_files", f"{word}_mapping")
            if table is not None or mapping is not None:
                yield kind, table, mapping

    def _file(self, config: Mapping[str, Any], route: str, files: str, key: str) -> Path | None:
        names = config.get(files)
        given = names.get(key) if isinstance(names, Mapping) else None
        if given is None:
            return None
        path = f"table_config.{files}.{key}"
        place = self.folder / str(config.get(route) or config.get("four_telemetry_route") or "") / str(given)
        if not place.resolve().is_relative_to(self.folder.resolve()):
            self.add("outside_folder", path, "tables stand inside the station folder")
        elif not place.exists():
            self.add("missing_file", path, f"there is no file {self._name(place)}")
        else:
            return place
        return None

    def _name(self, file: Path) -> str:
        return file.relative_to(self.folder).as_posix() if file.is_relative_to(self.folder) else str(file)


def _with_points(channel: ChannelSpec, points: list[PointSpec]) -> ChannelSpec:
    values = {name: getattr(channel, name) for name in channel.__struct_fields__}
    return ChannelSpec(**{**values, "points": tuple(points)})
