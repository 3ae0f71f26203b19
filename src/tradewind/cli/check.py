"""One finding of `tradewind doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Check:
    """`status`: ok, warn or fail."""

    name: str
    status: str
    detail: str
    hint: str = ""


def bounded(name: str, count: int, most: int, hint: str) -> Check:
    """A count with a bound: warn from a tenth of it, fail at it; 0 is no bound."""
    status = "ok" if not most or count < most / 10 else "fail" if count >= most else "warn"
    return Check(name, status, f"{count} of {most}" if most else str(count), "" if status == "ok" else hint)
