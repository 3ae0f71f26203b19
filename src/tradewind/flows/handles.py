"""What fits a handle: `any`, `bool`, `int`, `float`, `str`, `list`, `dict`, or several of them joined by `|`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "list": (list, tuple),
    "dict": (dict,),
    "null": (type(None),),
}


@lru_cache(maxsize=1024)
def kinds(handle_type: str) -> frozenset[str]:
    return frozenset(part.strip() for part in handle_type.split("|"))


@lru_cache(maxsize=4096)
def can_feed(offered: str, wanted: str) -> bool:
    """False when nothing that is offered is wanted; of `int|str` into `int` only the values can tell."""
    given, taken = kinds(offered), kinds(wanted)
    if "any" in given or "any" in taken or given & taken:
        return True
    return "int" in given and "float" in taken


def fits(value: Any, wanted: str) -> bool:
    """Whether a JSON value is of the type; a whole number is a float, too, but a bool is no number."""
    for kind in kinds(wanted):
        known = _KINDS.get(kind)
        if known is None:  # any, or a name that only the node itself understands
            return True
        if isinstance(value, known) and (kind == "bool" or not isinstance(value, bool)):
            return True
    return False


def name_of(value: Any) -> str:
    """The handle type that a JSON value has."""
    if isinstance(value, bool):
        return "bool"
    return next((name for name, known in _KINDS.items() if isinstance(value, known)), type(value).__name__)
