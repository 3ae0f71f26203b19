"""The state of one part of a station, as every room reports it to health. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "off", "degraded", "down", "unknown"]


@dataclass(frozen=True, slots=True)
class Part:
    """`off`: there is none, and nothing needs it. `degraded`: it works, but not as it should. `unknown`: it could not
    be asked, and `detail` says why. `hint`: what to do about it."""

    status: Status
    detail: str
    hint: str = ""

    def view(self) -> dict[str, str]:
        return {"status": self.status, "detail": self.detail} | ({"hint": self.hint} if self.hint else {})
