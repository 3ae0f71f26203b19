"""Point addresses: `comsrv:1001:m:10001`, `modsrv:power_calc:measurement:total_power`; and the keys they stand in."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.ids import ID, RESERVED
from tradewind.points.spec import Kind

#: Channel and point ids.
NUMBER = re.compile(r"[0-9]{1,20}")
MEASUREMENT = "measurement"
CONTROL = "control"
KINDS = frozenset(Kind)
MODEL_KINDS = frozenset((MEASUREMENT, CONTROL))
SWITCHED = frozenset((Kind.SIGNAL, Kind.CONTROL))

_HINT = "write comsrv:<channel>:<m|s|c|a>:<point id> or modsrv:<model>:<measurement|control>:<field>"


def is_number(text: str) -> bool:
    """True for a channel or point id: 1 to 20 decimal digits."""
    return NUMBER.fullmatch(text) is not None


class Address(msgspec.Struct, frozen=True):
    """One point. `entity` is the channel or the model, `kind` m, s, c, a, measurement or control, `field` the point id
    or the model's field. Made by `parse`, `point` or `model`, which refuse what is not an address."""

    service: str
    entity: str
    kind: str
    field: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises Invalid (`bad_address`) with a hint."""
        parts = text.split(":")
        if len(parts) != 4:
            raise _refused(text, f"it has {len(parts)} part{'s' if len(parts) > 1 else ''}, not 4")
        return cls(*parts).checked()

    @classmethod
    def parse_all(cls, texts: Iterable[str], path: str = "address") -> list[Address]:
        """All of them, or Invalid with a problem per bad one (`address[3]`)."""
        found, problems = [], []
        for at, text in enumerate(texts):
            try:
                found.append(cls.parse(text))
            except Invalid as error:
                problems.append(Problem("bad_address", f"{path}[{at}]", f"{error.message}; {_HINT}"))
        if problems:
            raise Invalid(f"{len(problems)} bad addresses", code="bad_address", hint=_HINT, problems=problems)
        return found

    @classmethod
    def point(cls, channel: str, kind: str, point: str) -> Address:
        return cls("comsrv", channel, str(kind), point).checked()

    @classmethod
    def model(cls, model: str, field: str, kind: str = MEASUREMENT) -> Address:
        return cls("modsrv", model, kind, field).checked()

    def checked(self) -> Address:
        """Itself. Raises Invalid if a part is not what its place needs."""
        if self.service == "comsrv":
            if not is_number(self.entity):
                raise _refused(str(self), f"channel {self.entity!r} is not a number of 1 to 20 digits")
            if self.kind not in KINDS:
                raise _refused(str(self), f"kind {self.kind!r} is none of m, s, c, a")
            if not is_number(self.field):
                raise _refused(str(self), f"point {self.field!r} is not a number of 1 to 20 digits")
        elif self.service == "modsrv":
            if self.kind not in MODEL_KINDS:
                raise _refused(str(self), f"{self.kind!r} is neither measurement nor control")
            if ID.fullmatch(self.entity) is None or self.entity in RESERVED:
                raise _refused(str(self), f"{self.entity!r} is no name for a model")
            if ID.fullmatch(self.field) is None:
                raise _refused(str(self), f"{self.field!r} is no name for a field")
        else:
            raise _refused(str(self), f"{self.service!r} is neither comsrv nor modsrv")
        return self

    @property
    def key(self) -> str:
        """The key of its hash, without the configured prefix: `comsrv:1001:m`, as in the feed."""
        return f"{self.service}:{self.entity}:{self.kind}"

    @property
    def is_point(self) -> bool:
        return self.service == "comsrv"

    @property
    def is_switched(self) -> bool:
        """Its values are 0 or 1."""
        return self.service == "comsrv" and self.kind in SWITCHED

    def __str__(self) -> str:
        return f"{self.service}:{self.entity}:{self.kind}:{self.field}"


def channel_of(key: str) -> str:
    """The channel of a hash key, `` for one of a model."""
    service, entity, _ = key.split(":")
    return entity if service == "comsrv" else ""


def _refused(text: str, why: str) -> Invalid:
    return Invalid(f"{text!r} is not an address: {why}", code="bad_address", hint=_HINT)
