"""The columns of point and mapping tables: their names in both generations of files, their types, where they belong.

Parsers take the text of a cell or a value of YAML and JSON, and raise BadCell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tradewind.numerals import read_number, read_whole
from tradewind.points.spec import GOOD_ONLY, Kind, Quality

Parser = Callable[[Any], Any]

_ID = re.compile(r"[0-9]{1,20}")
_DATA_TYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64"
_TYPE_ALIASES = """
bit:bool boolean:bool coil:bool float:float32 real:float32 double:float64
short:int16 ushort:uint16 int:int16 uint:uint16 long:int32 ulong:uint32
"""  # an int is one register, as the Modbus driver has it
_TYPES: Final[dict[str, str]] = {name: name for name in _DATA_TYPES.split()} | {
    alias: name for alias, name in (pair.split(":") for pair in _TYPE_ALIASES.split())
}
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_CONTROLS: Final = {"latched": "latched", "direct": "latched", "momentary": "momentary", "pulse": "pulse"}
_ACCEPTED: Final = {
    frozenset({"good"}): GOOD_ONLY,
    frozenset({"good", "substituted"}): (Quality.GOOD, Quality.SUBSTITUTED),
}
_KINDS: Final[dict[str, str]] = {
    word: words[0]
    for words in ("m telemetry measurement t yc", "s signal yx", "c control yk", "a adjustment yt")
    for word in words.split()
}


class BadCell(ValueError):
    def __init__(self, code: str, hint: str) -> None:
        super().__init__(hint)
        self.code = code
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Column:
    """`kinds`: the kinds of point for which it means something."""

    field: str
    parse: Parser
    kinds: str = "msca"


def number(value: Any) -> float:
    made = math.nan
    if type(value) is str:
        try:
            return read_number(value)
        except ValueError as error:
            if "large" in str(error) or value.lower().lstrip("+-") in ("nan", "inf", "infinity"):
                raise BadCell("not_finite", f"give a finite number, not {_shown(value)}") from None
            hint = "write the decimals after a point: " if "," in value else "give a number such as 0.1, not "
            raise BadCell("not_a_number", f"{hint}{_shown(value)}") from None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            made = float(value)
        except OverflowError:
            made = math.inf
        if not math.isfinite(made):
            raise BadCell("not_finite", f"give a finite number, not {_shown(value)}")
        return made
    raise BadCell("not_a_number", f"give a number such as 0.1, not {_shown(value)}")


def at_least_0(value: Any) -> float:
    made = number(value)
    if made < 0:
        raise BadCell("out_of_range", f"give 0 or more, not {_shown(value)}")
    return made


def above_0(value: Any) -> float:
    made = number(value)
    if made <= 0:
        raise BadCell("out_of_range", f"give more than 0, not {_shown(value)}")
    return made


def whole(low: int, high: int) -> Parser:
    hint = f"give a whole number from {low} to {high}"

    def parse(value: Any) -> int:
        made = None
        if type(value) is str:
            try:
                made = read_whole(value, is_hex=True)
            except ValueError:
                made = None
        if made is None:
            try:
                as_float = number(value)  # 3.0, as spreadsheets write it
            except BadCell:
                raise BadCell("not_a_number", f"{hint}, not {_shown(value)}") from None
            if not as_float.is_integer():
                raise BadCell("not_a_whole_number", f"{hint}, not {_shown(value)}")
            made = value if type(value) is int else int(as_float)
        if not low <= made <= high:
            raise BadCell("out_of_range", f"{hint}, not {_shown(value)}")
        return made

    return parse


def flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    made = _FLAGS.get(str(value).lower())
    if made is None:
        raise BadCell("not_a_bool", f"give 1, 0, true, false, yes or no, not {_shown(value)}")
    return made


def text(limit: int) -> Parser:
    def parse(value: Any) -> str:
        if type(value) is not str:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise BadCell("not_text", f"give text, not {_shown(value)}")
            value = str(value)
        if len(value) > limit:
            raise BadCell("too_long", f"give at most {limit} characters")
        return str(value)

    return parse


def digits(value: Any) -> str:
    """The id of a channel or a point."""
    made = str(value) if type(value) is int else value
    if type(made) is not str or _ID.fullmatch(made) is None:
        raise BadCell("bad_id", f"an id is decimal digits, at most 20, not {_shown(value)}")
    return made


def kind_of(value: Any) -> Kind:
    """m, s, c, a, or one of their other names: telemetry, YC, T, …"""
    word = str(value).lower()
    try:
        return Kind(_KINDS.get(word, word))
    except ValueError:
        raise BadCell("bad_kind", f"give m, s, c or a, not {_shown(value)}") from None


def data_type(value: Any) -> str:
    return _one_of(_TYPES, _DATA_TYPES.replace(" ", ", "), "bad_data_type", value)


def control_type(value: Any) -> str:
    return _one_of(_CONTROLS, "latched, momentary, pulse", "bad_control_type", value)


def interlock_accepts(value: Any) -> tuple[Quality, ...]:
    """`good`, or `good substituted`; in YAML also as a list."""
    words = [part for part in re.split(r"[\s,;|]+", value) if part] if type(value) is str else value
    known = isinstance(words, (list, tuple)) and all(type(word) is str for word in words)
    made = _ACCEPTED.get(frozenset(word.lower() for word in words)) if known else None
    if made is None:
        raise BadCell("bad_interlock_accepts", f"give good, or good and substituted, not {_shown(value)}")
    return made


def upper(value: Any) -> str:
    return str(text(64)(value)).upper()


def any_scalar(value: Any) -> Any:
    """For columns that only the driver knows: a cell that reads as a number or as true or false becomes one."""
    if type(value) is not str:
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        made = number(value)
    except BadCell:
        return value
    is_whole = value.lstrip("+-").isdigit()
    # 007 is a name, not a number
    return value if is_whole and value.lstrip("+-") != str(abs(int(value))) else int(value) if is_whole else made


def _one_of(known: Mapping[str, str], shown: str, code: str, value: Any) -> str:
    made = known.get(value.lower()) if isinstance(value, str) else None
    if made is None:
        raise BadCell(code, f"give one of {shown}, not {_shown(value)}")
    return made


def _shown(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 40 else f"{said[:39]}…"


def _named(*columns: tuple[str, Column]) -> dict[str, Column]:
    return {name: column for names, column in columns for name in names.split()}


_TEXT, _LONG = text(200), text(2000)
_INTERVAL = whole(1, 86_400_000)

POINT_COLUMNS: Final[dict[str, Column]] = _named(
    ("point_id id", Column("id", digits)),
    ("signal_name name", Column("name", _TEXT)),
    ("description", Column("description", _LONG)),
    ("unit", Column("unit", text(40))),
    ("data_type", Column("data_type", data_type)),
    ("scale", Column("scale", number, "ma")),
    ("offset", Column("offset", number, "ma")),
    ("reverse", Column("reverse", flag, "sc")),
    ("deadband", Column("deadband", at_least_0, "ma")),
    ("min_value min", Column("min", number, "ma")),
    ("max_value max", Column("max", number, "ma")),
    ("step", Column("step", at_least_0, "a")),
    ("max_age_s max_age", Column("max_age_s", above_0)),
    ("normal_state", Column("normal_state", whole(0, 1), "s")),
    ("control_type", Column("control_type", control_type, "c")),
    ("on_value", Column("on_value", number, "sc")),
    ("off_value", Column("off_value", number, "sc")),
    ("pulse_duration_ms pulse_duration pulse_ms", Column("pulse_ms", whole(0, 600_000), "c")),
    ("interlock", Column("interlock", _LONG, "ca")),
    ("interlock_accepts", Column("interlock_accepts", interlock_accepts, "ca")),
    ("select_first", Column("select_first", flag, "ca")),
    ("read_back", Column("read_back", _TEXT, "ca")),
    ("tolerance", Column("tolerance", at_least_0, "ca")),
)
#: Columns of the seed-date files that say nothing about the point itself.
IGNORED_COLUMNS: Final = frozenset({"alarm_level"})
#: Fields that mean something, by kind.
KIND_FIELDS: Final[dict[Kind, frozenset[str]]] = {
    kind: frozenset(column.field for column in POINT_COLUMNS.values() if kind.value in column.kinds) for kind in Kind
}

_POINT_ID = ("point_id id", Column("id", digits))
_MODBUS = _named(
    _POINT_ID,
    ("slave_id unit_id", Column("slave_id", whole(0, 255))),
    ("function_code", Column("function_code", whole(1, 255))),
    ("register_address register address", Column("register_address", whole(0, 65535))),
    ("data_type data_format", Column("data_type", data_type)),
    ("byte_order", Column("byte_order", upper)),
    ("bit_position bit", Column("bit_position", whole(0, 15))),
    ("register_count", Column("register_count", whole(1, 125))),
)
_VIRTUAL = _named(
    _POINT_ID,
    ("expression", Column("expression", _LONG)),
    ("update_interval update_interval_ms", Column("update_interval", _INTERVAL)),
    ("initial_value", Column("initial_value", number)),
    ("noise_range", Column("noise_range", at_least_0)),
    ("column", Column("column", _TEXT)),
)
_MQTT = _named(
    _POINT_ID,
    ("topic", Column("topic", _LONG)),
    ("json_path", Column("json_path", _LONG)),
    ("qos", Column("qos", whole(0, 2))),
    ("retain", Column("retain", flag)),
    ("write_topic", Column("write_topic", _LONG)),
    ("write_payload", Column("write_payload", _LONG)),
    ("payload", Column("payload", _LONG)),
    ("timestamp_path", Column("timestamp_path", _LONG)),
)
_OPCUA = _named(_POINT_ID, ("node_id", Column("node_id", _LONG)), ("data_type", Column("data_type", _TEXT)))
_CAN = _named(
    _POINT_ID,
    ("can_id", Column("can_id", whole(0, 2**29 - 1))),
    ("msg_name", Column("msg_name", _TEXT)),
    ("signal_name", Column("signal_name", _TEXT)),
    ("start_bit", Column("start_bit", whole(0, 511))),
    ("bit_length", Column("bit_length", whole(1, 64))),
    ("signed", Column("signed", flag)),
)
_OTHER = _named(_POINT_ID)


def mapping_columns(protocol: str) -> dict[str, Column]:
    """The columns whose types are known; a mapping table may have others, which the driver judges."""
    if protocol.startswith("modbus"):
        return _MODBUS
    return {"virtual": _VIRTUAL, "mqtt": _MQTT, "opcua": _OPCUA, "can": _CAN}.get(protocol, _OTHER)
