"""A channel as a document (YAML, or the body of a request) becomes a ChannelSpec, or everything that is wrong with it.

Paths are relative to the channel: `parameters.port`, `points[3].scale`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tradewind import codec
from tradewind.errors import Invalid, Problem
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.points.table_columns import (
    IGNORED_COLUMNS,
    KIND_FIELDS,
    POINT_COLUMNS,
    BadCell,
    Column,
    digits,
    flag,
    kind_of,
    mapping_columns,
    text,
    whole,
)
from tradewind.points.tables import did_you_mean
from tradewind.problems import Problems

#: What a driver thinks of a channel; see `Driver.check`.
Check = Callable[[ChannelSpec], Sequence[Problem]]
#: Takes code, path, hint.
Add = Callable[[str, str, str], None]

_TIMES: Final = {"poll_interval_ms": whole(10, 86_400_000), "timeout_ms": whole(10, 600_000)}
_CHANNEL: Final = {"name": text(200), "description": text(2000), "enabled": flag, **_TIMES}
_KNOWN: Final = frozenset({"id", "protocol", "parameters", "logging", "table_config", "points", *_CHANNEL})
_PROTOCOL = re.compile(r"[a-z0-9_]{1,64}")
_PROTOCOLS: Final = {"modbustcp": "modbus_tcp", "modbus": "modbus_tcp", "modbusrtuovertcp": "modbus_rtu_tcp"}
_DEFAULTS: Final = {
    name: default
    for name, default in zip(PointSpec.__struct_fields__[2:], PointSpec.__struct_defaults__, strict=True)
    if name != "mapping"
}


def validate_channel(document: Any, *, check: Check | None = None) -> ChannelSpec:
    """Raises Invalid with all problems. `check` is asked only when the document itself is sound."""
    problems = Problems()

    def add(code: str, path: str, hint: str) -> None:
        problems.append(Problem(code, path, hint))

    fields = channel_fields(document, add)
    points: tuple[PointSpec, ...] = ()
    if isinstance(document, Mapping):
        if "table_config" in document:
            add("no_tables_here", "table_config", "tables are files of a station folder; give the points in `points`")
        points = tuple(point for _, point in inline_points(document, fields.get("protocol", ""), add))
    if not problems:
        channel = ChannelSpec(**fields, points=points)
        problems.extend(check(channel) if check is not None else ())
        if not problems:
            return channel
    name = document.get("id") if isinstance(document, dict) else None
    message = f"channel {str(name)[:40]} is not valid" if name is not None else "the channel is not valid"
    raise Invalid(message, code="bad_channel", hint=problems[0].hint, problems=problems)


def channel_fields(document: Any, bad: Add) -> dict[str, Any]:
    """Everything of a ChannelSpec but its points; without what `bad` was told of."""
    if not isinstance(document, Mapping):
        bad("not_an_object", "$", "a channel is an object with id, protocol, parameters and points")
        return {}
    for key in document:
        if key not in _KNOWN and not str(key).startswith("x-"):
            bad("unknown_field", str(key), f"{did_you_mean(str(key), _KNOWN)}known: {', '.join(sorted(_KNOWN))}")
    fields: dict[str, Any] = {}
    parameters = _mapping(document, "parameters", bad)
    _mapping(document, "logging", bad)  # of the seed's files; how we log is a setting of the station
    for name in _TIMES:
        # the later files of the seed's product have them among the parameters
        if name in parameters and document.get(name) is not None:
            bad("given_twice", f"parameters.{name}", f"{name} stands at the channel, too; keep one")
        elif name in parameters:
            document = {**document, name: parameters.pop(name)}
    parsers: dict[str, Callable[[Any], Any]] = {"id": digits, **_CHANNEL, "protocol": _protocol}
    for name, parse in parsers.items():
        value = document.get(name)
        if value is None:
            if name == "id" or name == "protocol":
                bad("missing_field", name, f"a channel has {'an' if name == 'id' else 'a'} {name}")
            continue
        try:
            fields[name] = parse(value)
        except BadCell as error:
            bad(error.code, name, error.hint)
    fields["parameters"] = parameters
    return fields


def inline_points(document: Mapping[str, Any], protocol: str, add: Add) -> Iterator[tuple[str, PointSpec]]:
    """Path and point of each sound point in `points`: a list of points with a kind, or lists by kind."""
    seen: dict[tuple[Kind, str], str] = {}
    for path, kind, raw in _listed(document.get("points"), add):
        point = _inline_point(raw, path, kind, protocol, add)
        if point is None:
            continue
        key = (point.kind, point.id)
        if key in seen:
            add("duplicate_id", f"{path}.id", f"{point.kind.value} {point.id} stands at {seen[key]} already")
            continue
        seen[key] = path
        yield path, point


def make_point(kind: Kind, fields: dict[str, Any], mapping: dict[str, Any], bad: Add) -> PointSpec | None:
    """A point from parsed fields; `bad` gets code, field and hint of each thing that does not fit together."""
    is_good = True

    def add(code: str, field: str, hint: str) -> None:
        nonlocal is_good
        is_good = False
        bad(code, field, hint)

    for name in fields.keys() - KIND_FIELDS[kind]:
        if fields[name] == _DEFAULTS[name]:
            continue
        hint = "use a scale of -1" if name == "reverse" else f"points of kind {kind.value} have no {name}"
        add("not_for_kind", name, hint)
    if kind is Kind.SIGNAL or kind is Kind.CONTROL:
        fields.setdefault("data_type", "bool")
        if fields.get("on_value", 1.0) == fields.get("off_value", 0.0):
            add("same_values", "on_value", "on_value and off_value must differ")
    elif fields.get("scale") == 0:
        add("bad_scale", "scale", "a scale of 0 loses the value; leave it out for 1")
    if fields.get("min", -math.inf) > fields.get("max", math.inf):
        add("min_above_max", "min", f"{fields['min']:g} is above the maximum {fields['max']:g}")
    if fields.get("control_type") in ("pulse", "momentary") and not fields.get("pulse_ms"):
        add("missing_pulse", "pulse_ms", "a pulse has a duration in milliseconds; without one nobody would release it")
    return PointSpec(kind=kind, mapping=mapping, **fields) if is_good else None


def _inline_point(raw: Any, path: str, kind: Kind | None, protocol: str, add: Add) -> PointSpec | None:
    if not isinstance(raw, Mapping):
        add("not_an_object", path, "a point is an object with kind, id and more")
        return None
    is_good = True

    def bad(code: str, field: str, hint: str) -> None:
        nonlocal is_good
        is_good = False
        add(code, f"{path}.{field}", hint)

    if kind is None:
        if raw.get("kind") is None:
            bad("missing_field", "kind", "give m, s, c or a")
        else:
            try:
                kind = kind_of(raw["kind"])
            except BadCell as error:
                bad(error.code, "kind", error.hint)
    fields = _parsed(raw, POINT_COLUMNS, "", bad, ("kind", "mapping"))
    if "id" not in fields and raw.get("id") is None and raw.get("point_id") is None:
        bad("missing_id", "id", "every point has an id of decimal digits")
    columns = {name: column for name, column in mapping_columns(protocol).items() if column.field != "id"}
    mapping = _parsed(_mapping(raw, "mapping", bad), columns, "mapping.", bad, None)
    return make_point(kind, fields, mapping, bad) if is_good and kind is not None else None


def _parsed(
    raw: Mapping[str, Any], columns: Mapping[str, Column], where: str, bad: Add, others: tuple[str, ...] | None
) -> dict[str, Any]:
    """Values by field. `others`: names that are read elsewhere; None: other names are kept for the driver."""
    fields: dict[str, Any] = {}
    for name, value in raw.items():
        column = columns.get(name)
        if column is None:
            if others is None:
                fields[name] = value
            elif name not in others and name not in IGNORED_COLUMNS and not name.startswith("x-"):
                bad("unknown_field", f"{where}{name}", did_you_mean(name, columns) or f"known: {', '.join(columns)}")
        elif value is not None:
            if column.field in fields:
                bad("given_twice", f"{where}{name}", f"{name} is another name of {column.field}; keep one")
                continue
            try:
                fields[column.field] = column.parse(value)
            except BadCell as error:
                bad(error.code, f"{where}{name}", error.hint)
    return fields


def _listed(points: Any, add: Add) -> Iterator[tuple[str, Kind | None, Any]]:
    if points is None:
        return
    if isinstance(points, (list, tuple)):
        for index, raw in enumerate(points):
            yield f"points[{index}]", None, raw
        return
    if not isinstance(points, Mapping):
        add("not_a_list", "points", "give a list of points, or lists by kind")
        return
    for word, raws in points.items():
        try:
            kind = kind_of(word)
        except BadCell as error:
            add(error.code, f"points.{word}", error.hint)
            continue
        if not isinstance(raws, list):
            add("not_a_list", f"points.{word}", "give a list of points")
            continue
        for index, raw in enumerate(raws):
            yield f"points.{word}[{index}]", kind, raw


def _mapping(raw: Mapping[str, Any], name: str, bad: Add) -> dict[str, Any]:
    value = raw.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        bad("not_an_object", name, "give an object such as {host: 192.0.2.5}")
        return {}
    if codec.has_non_finite(value):
        bad("not_finite", name, "give finite numbers only")
    return dict(value)


def _protocol(value: Any) -> str:
    word = value.lower().replace("-", "_") if isinstance(value, str) else ""
    if _PROTOCOL.fullmatch(word) is None:
        raise BadCell("bad_protocol", "give the name of a driver, such as virtual or modbus_tcp")
    return _PROTOCOLS.get(word.replace("_", ""), word)
