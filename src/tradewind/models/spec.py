"""Models as data: what a definition means once it is read and its template is filled in. Frozen."""

from __future__ import annotations

from typing import Any

import msgspec


class Input(msgspec.Struct, frozen=True, omit_defaults=True):
    """A name for a point. `default` stands in while the point is missing or bad; past `max_age_s` it is stale."""

    name: str
    address: str
    default: float | None = None
    max_age_s: float | None = None
    unit: str = ""


class Calculation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step. `inputs` are names of inputs and of other calculations, or numbers; an expression names them itself."""

    id: str
    function: str
    inputs: tuple[str | float, ...] = ()
    params: dict[str, Any] = {}
    expression: str = ""


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field of `modsrv:{model}:measurement`. Results outside `min` to `max` are uncertain; changes smaller than
    `deadband` are not written."""

    field: str
    source: str
    unit: str = ""
    min: float | None = None
    max: float | None = None
    deadband: float = 0.0


class Control(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field of `modsrv:{model}:control`. `address`: the point that a command to it writes, `` if none."""

    field: str
    address: str = ""
    min: float | None = None
    max: float | None = None
    step: float = 0.0
    unit: str = ""


class ModelSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    title: str = ""
    description: str = ""
    enabled: bool = True
    template: str = ""
    inputs: tuple[Input, ...] = ()
    calculations: tuple[Calculation, ...] = ()
    outputs: tuple[Output, ...] = ()
    controls: tuple[Control, ...] = ()
    properties: dict[str, Any] = {}
