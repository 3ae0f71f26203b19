"""One finding of `tradewind doctor`, and how the state of a part becomes one."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.health_part import Part

#: From best to worst; `unknown`: it could not be looked at.
STATES = ("ok", "warn", "unknown", "fail")
_OF_PART = {"ok": "ok", "off": "ok", "degraded": "warn", "down": "fail", "unknown": "unknown"}


@dataclass
class Check:
    """`status`: one of STATES."""

    name: str
    status: str
    detail: str
    hint: str = ""


def of_part(name: str, part: Part) -> Check:
    return Check(name, _OF_PART[part.status], part.detail, part.hint)


def bounded(name: str, count: int, most: int, hint: str) -> Check:
    """A count with a bound: warn from a tenth of it, fail at it; 0 is no bound."""
    status = "ok" if not most or count < most / 10 else "fail" if count >= most else "warn"
    return Check(name, status, f"{count} of {most}" if most else str(count), "" if status == "ok" else hint)
