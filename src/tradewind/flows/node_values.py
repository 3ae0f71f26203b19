"""Values on their way through a node: what an annotation allows, reading a value so, making a payload plain JSON."""

from __future__ import annotations

import enum
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec

from tradewind import codec
from tradewind.flows.node_errors import NodeValidationException

Reader = Callable[[Any], Any]

_NAMES: dict[Any, str] = {
    bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict", tuple: "list", set: "list",
    frozenset: "list", datetime: "str", date: "str", time: "str", timedelta: "str", UUID: "str", Decimal: "str",
    bytes: "str", Sequence: "list", Mapping: "dict", type(None): "null",
}  # fmt: skip
_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,), "int": (int,), "float": (float, int), "str": (str,), "list": (list,), "dict": (dict,),
    "null": (type(None),),
}  # fmt: skip
_PLAIN: tuple[Any, ...] = (float, int, str, list, dict)
_FAST = (bool, int, float, str, list, dict)


def _names(annotation: Any) -> set[str]:
    """JSON kinds of an annotation; `any` when it is not known."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _names(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return set().union(*(_names(part) for part in typing.get_args(annotation)))
    if origin is Literal:
        return set().union(*(_names(type(value)) for value in typing.get_args(annotation)))
    if annotation is None:
        return {"null"}
    plain = origin or annotation
    if plain in _NAMES:
        return {_NAMES[plain]}
    if isinstance(plain, type) and issubclass(plain, enum.Enum):
        return set().union(*(_names(type(member.value)) for member in plain)) or {"any"}
    if isinstance(plain, type) and (issubclass(plain, msgspec.Struct) or hasattr(plain, "__dataclass_fields__")):
        return {"dict"}
    if typing.is_typeddict(plain):
        return {"dict"}
    return {"any"}


def type_name(annotation: Any) -> str:
    """How a handle with this annotation describes itself: `float`, `int|str`, `any`."""
    names = _names(annotation) - {"null"}
    return "any" if not names or "any" in names else "|".join(sorted(names))


def kinds_of(annotation: Any) -> frozenset[type] | None:
    """The Python types that a JSON payload of this annotation may have; None: any."""
    names = _names(annotation)
    return None if "any" in names else frozenset(kind for name in names for kind in _KINDS[name])


def reader_of(annotation: Any) -> Reader | None:
    """Turns JSON into what the annotation says, raising msgspec.ValidationError; None: takes it as it is.

    A whole number is taken for a float; nothing else is bent.
    """
    if annotation is Any or annotation is object:
        return None

    def convert(value: Any) -> Any:
        return msgspec.convert(value, annotation, str_keys=True)

    if annotation not in _FAST:
        return convert

    def read(value: Any) -> Any:
        return value if type(value) is annotation else convert(value)

    return read


def show_type(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _simplify(value: Any) -> Any:
    """For numbers and arrays of libraries such as NumPy, and for subclasses of the plain types."""
    for plain in _PLAIN:
        if isinstance(value, plain):
            return plain(value)
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        return to_list()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_encoder = msgspec.json.Encoder(enc_hook=_simplify)


def as_json(value: Any, what: str, *names: str) -> Any:
    """The value as plain JSON, a copy of its own. Raises NodeValidationException with `what % names` as its subject."""
    kind = type(value)
    if value is None or kind is bool or kind is int or (kind is float and math.isfinite(value)):
        return value
    if kind is str and value.isascii():
        return value
    try:
        data = _encoder.encode(value)
        if b"null" in data and codec.has_non_finite(msgspec.to_builtins(value, enc_hook=_simplify)):
            raise NodeValidationException(
                f"{what % names} is not JSON: it holds NaN or Infinity", hint="send None, or leave the value out"
            )
        return codec.decode(data)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise NodeValidationException(f"{what % names} is not JSON: {error}", hint="send plain data") from error


def tolerant_json(value: Any) -> Any:
    """For logs, which must never make a node fail: what is not JSON is shown as text."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=repr))
    except BaseException:  # noqa: BLE001 — the fence around user code: objects may do anything when read
        pass
    try:
        return {"value": ascii(value)[:1000]}
    except BaseException:  # noqa: BLE001 — the same
        return {"value": "(cannot be read)"}
