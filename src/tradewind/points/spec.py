"""Channels and points as data: what their YAML and CSV files mean once they are read. Frozen, no behaviour."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec


class Kind(StrEnum):
    """The seed's four kinds of point, as they stand in keys."""

    MEASUREMENT = "m"
    SIGNAL = "s"
    CONTROL = "c"
    ADJUSTMENT = "a"


class Quality(StrEnum):
    """From best to worst. `substituted`: a person of this station says so, not the device; see substitution.py."""

    GOOD = "good"
    SUBSTITUTED = "substituted"
    UNCERTAIN = "uncertain"
    BAD = "bad"


#: One object, because what is at its default is left out by identity.
GOOD_ONLY: Final = (Quality.GOOD,)


class PointSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Engineering value = raw × scale + offset; `reverse` flips s and c. `deadband`: smaller changes are not written.

    `min`, `max`, `step`: bounds of what may be written to c and a, of what is plausible for m. `max_age_s`: an
    older value is stale. `interlock_accepts`: qualities of the values that the interlock may look at.
    `mapping`: the row of the protocol's mapping table."""

    kind: Kind
    id: str
    name: str = ""
    unit: str = ""
    description: str = ""
    data_type: str = "float32"
    scale: float = 1.0
    offset: float = 0.0
    reverse: bool = False
    deadband: float = 0.0
    min: float | None = None
    max: float | None = None
    step: float = 0.0
    max_age_s: float | None = None
    normal_state: int = 0
    control_type: str = "latched"
    on_value: float = 1
    off_value: float = 0
    pulse_ms: int = 0
    interlock: str = ""
    interlock_accepts: tuple[Quality, ...] = GOOD_ONLY
    select_first: bool = False
    read_back: str = ""
    tolerance: float = 0.0
    mapping: dict[str, Any] = {}


class ChannelSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One connection to one device. Times in milliseconds. `parameters` belong to the protocol."""

    id: str
    name: str = ""
    protocol: str = "virtual"
    description: str = ""
    enabled: bool = True
    poll_interval_ms: int = 1000
    timeout_ms: int = 3000
    parameters: dict[str, Any] = {}
    points: tuple[PointSpec, ...] = ()


class Reading(msgspec.Struct, frozen=True):
    """What a driver got for a point: the raw value as the device has it. ts_ms 0: now."""

    kind: Kind
    id: str
    raw: float
    ts_ms: int = 0
    quality: Quality = Quality.GOOD
