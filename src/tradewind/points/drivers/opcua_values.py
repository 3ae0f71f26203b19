"""What OPC UA's node ids, data values and types mean for points. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

from asyncua import ua
from asyncua.ua.uaerrors import UaError

from tradewind.errors import Invalid
from tradewind.points.convert import INTEGER_RANGES
from tradewind.points.spec import PointSpec, Quality, Reading

TYPES: Final = {
    "boolean": "Boolean", "bool": "Boolean", "sbyte": "SByte", "byte": "Byte", "int8": "SByte", "uint8": "Byte",
    "int16": "Int16", "uint16": "UInt16", "int32": "Int32", "uint32": "UInt32", "int64": "Int64", "uint64": "UInt64",
    "float": "Float", "float32": "Float", "double": "Double", "float64": "Double", "string": "String",
}  # fmt: skip
#: Info type "data value" and its bit "overflow" in a status code.
_DATA_VALUE: Final = 0x0400
_OVERFLOW: Final = 0x0080
#: A status code without its info bits; GoodLocalOverride.
_CODE: Final = 0xFFFF0000
_OVERRIDDEN: Final = 0x00960000
_RANGES: Final = {"SByte": INTEGER_RANGES["int8"], "Byte": INTEGER_RANGES["uint8"]} | {
    TYPES[name]: INTEGER_RANGES[name] for name in ("int16", "uint16", "int32", "uint32", "int64", "uint64")
}


def node_id_of(point: PointSpec) -> tuple[str, ua.NodeId]:
    """Namespace URI (or none) and node id of a point. Raises Invalid."""
    text = str(point.mapping.get("node_id") or "")
    uri = ""
    rest = text
    if text.startswith("nsu="):
        uri, _, rest = text[4:].partition(";")
    try:
        if not text:
            raise ValueError("no node id")
        return uri, ua.NodeId.from_string(rest)
    except (UaError, ValueError, TypeError, KeyError) as error:
        hint = "name the node like ns=2;s=Boiler.Temperature"
        raise Invalid(f"{text!r} is not a node id", code="bad_node_id", hint=hint) from error


def reading_of(point: PointSpec, found: ua.DataValue) -> Reading:
    status = found.StatusCode
    raw = _number(found.Value.Value if found.Value is not None else None)
    if math.isnan(raw) or (status is not None and status.is_bad()):
        quality = Quality.BAD
    elif status is not None and (not status.is_good() or status.value & _CODE == _OVERRIDDEN):
        # Overridden: a person says so there, not the input.
        quality = Quality.UNCERTAIN
    else:
        quality = Quality.GOOD
    return Reading(point.kind, point.id, raw, _ms(found.SourceTimestamp or found.ServerTimestamp), quality)


def has_overflowed(found: ua.DataValue) -> bool:
    """The server has dropped values of this node since the one before: its queue was full (part 4, 7.39.1)."""
    code = found.StatusCode.value if found.StatusCode is not None else 0
    return code & _DATA_VALUE == _DATA_VALUE and bool(code & _OVERFLOW)


def nothing(point: PointSpec) -> Reading:
    return Reading(point.kind, point.id, math.nan, 0, Quality.BAD)


def _ms(moment: datetime | None) -> int:
    if moment is None:
        return 0
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, round(aware.timestamp() * 1000))


def _number(value: Any) -> float:
    """NaN for what is no number: text, arrays, nothing."""
    if isinstance(value, (bool, int, float)):
        return float(value) if abs(value) < 1e300 else math.nan
    return math.nan


def variant_of(point: PointSpec, raw: float, kind: ua.VariantType) -> ua.Variant:
    if kind is ua.VariantType.Boolean:
        return ua.Variant(raw != 0, kind)
    if kind.name in _RANGES:
        low, high = _RANGES[kind.name]
        whole = math.floor(raw + 0.5) if raw >= 0 else math.ceil(raw - 0.5)
        if not low <= whole <= high:
            hint = f"the node is {kind.name}: {low} to {high}"
            raise Invalid(f"{raw:g} does not fit point {point.id}", code="does_not_fit", hint=hint)
        return ua.Variant(whole, kind)
    if kind in (ua.VariantType.Float, ua.VariantType.Double):
        return ua.Variant(raw, kind)
    if kind is ua.VariantType.String:
        return ua.Variant(f"{raw:g}", kind)
    raise Invalid(
        f"point {point.id}: cannot write a {kind.name}", code="bad_data_type", hint="map a node with a number"
    )


def said(error: BaseException) -> str:
    return str(error) or type(error).__name__
