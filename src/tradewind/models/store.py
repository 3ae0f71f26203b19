"""Definitions of models and templates in Redis. What is stored has been checked together with all the others.

Every change counts `models:version` up; whoever computes looks at it and reads everything again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from tradewind import codec
from tradewind.errors import Conflict, Invalid, NotFound, Unavailable
from tradewind.models.definitions import Definitions, made_of, plan
from tradewind.models.spec import Control, ModelSpec
from tradewind.offload import offload
from tradewind.points.address import CONTROL, MEASUREMENT
from tradewind.points.command_check import Control as CommandTarget
from tradewind.points.command_check import check_control
from tradewind.points.values import ControlValue
from tradewind.problems import few_suggestions
from tradewind.redis.connection import Link, translated
from tradewind.redis.faults import SpoiltRecord
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, Scripts

log = structlog.get_logger(__name__)

T = TypeVar("T")
#: How often a change is checked anew when others are faster.
ATTEMPTS = 5
MAX_WORD = 200
_encoder = msgspec.json.Encoder(order="deterministic")


class ModelStore:
    def __init__(self, link: Link, keys: Keys, retries: int = 3) -> None:
        self._link = link
        self._keys = keys
        self._scripts = Scripts(link, "tradewind.models", retries)
        self._redis: Any = link.client
        self._known: Definitions | None = None

    # reading

    async def version(self) -> str:
        with translated(self._link):
            found = await self._redis.get(self._keys.models_version())
        return found.decode(errors="replace") if found else "0"

    async def load(self) -> Definitions:
        """Everything, as it is now. Kept until the version changes: do not modify it."""
        version = await self.version()
        if self._known is not None and self._known.version == version:
            return self._known
        with translated(self._link):
            pipe = self._redis.pipeline(transaction=True)
            pipe.get(self._keys.models_version())
            pipe.hgetall(self._keys.models())
            pipe.hgetall(self._keys.model_templates())
            found, models, templates = await pipe.execute()
        self._known = known = await offload(
            _made_of, found.decode(errors="replace") if found else "0", models, templates
        )
        return known

    async def get(self, name: str) -> dict[str, Any]:
        """The definition as it was stored. Raises NotFound."""
        return _object(_found(await self._one(self._keys.models(), name), "model", name), "model", name)

    async def get_spec(self, name: str) -> ModelSpec:
        """The model with its template filled in. Raises NotFound."""
        return _found((await self.load()).specs.get(name), "model", name)

    async def get_template(self, name: str) -> dict[str, Any]:
        """Raises NotFound."""
        return _object(_found(await self._one(self._keys.model_templates(), name), "template", name), "template", name)

    async def list(self) -> list[ModelSpec]:
        """All models that can be read, by name."""
        specs = (await self.load()).specs
        return [specs[name] for name in sorted(specs)]

    async def list_templates(self) -> dict[str, Any]:
        templates = (await self.load()).templates
        return {name: templates[name] for name in sorted(templates)}

    async def find_control(self, model: str, field: str) -> CommandTarget | None:
        """The point and the bounds behind a control field, for commands; None when there is none."""
        try:
            control = await self._control(model, field)
        except NotFound:
            return None
        if control is None or not control.address:
            return None
        return CommandTarget(control.address, control.min, control.max, control.step, control.unit)

    # changing

    async def put(self, document: Any, *, is_new: bool = False) -> ModelSpec:
        """Create or replace a model. Raises Invalid with all problems, Conflict when `is_new` and it exists."""
        return (await self.apply([document], is_new=is_new))[0]

    async def put_template(self, document: Any) -> None:
        """Create or replace a template; its instances change with it. Raises Invalid, also when one of them breaks."""
        await self.apply([], templates=[document])

    async def remove(self, name: str) -> None:
        """Remove a model, its values and its memory. Raises NotFound, Invalid while another model needs it."""
        await self.get(name)
        await self.apply([], remove=[name])

    async def remove_template(self, name: str) -> None:
        """Raises NotFound, Invalid while it has instances."""
        await self.get_template(name)
        await self.apply([], remove_templates=[name])

    async def apply(
        self,
        models: Sequence[Any],
        *,
        remove: Collection[str] = (),
        templates: Sequence[Any] = (),
        remove_templates: Collection[str] = (),
        is_new: bool = False,
    ) -> tuple[ModelSpec, ...]:
        """All of it at once, or nothing; the models that were put. Raises Invalid naming every problem."""
        for _ in range(ATTEMPTS):
            now = await self.load()
            wanted, put, texts = await offload(plan, now, models, remove, templates, remove_templates)
            if is_new:
                _must_be_new(now, put)
            args: list[Arg] = [now.version, len(put), len(remove), len(texts), len(remove_templates)]
            for name, document in put.items():
                args += (name, _encoder.encode(document), int(not wanted.specs[name].enabled))
            args += remove
            for name, document in texts.items():
                args += (name, _encoder.encode(document))
            args += remove_templates
            ok, _version = await self._scripts.run("model_change", [*self._names(), *self._values(remove)], args)
            if ok:
                return tuple(wanted.specs[name] for name in put)
        raise Unavailable("the models are being changed by others all the time", hint="try again")

    async def validate(self, document: Any) -> ModelSpec:
        """What `put` would make of it, without storing anything. Raises Invalid."""
        wanted, put, _ = await offload(plan, await self.load(), [document], (), (), ())
        return wanted.specs[next(iter(put))]

    async def validate_all(
        self,
        models: Sequence[Any],
        *,
        remove: Collection[str] = (),
        templates: Sequence[Any] = (),
        remove_templates: Collection[str] = (),
    ) -> None:
        """What `apply` would refuse, without storing anything. Raises Invalid naming every problem."""
        await offload(plan, await self.load(), models, remove, templates, remove_templates)

    async def set_control(self, model: str, field: str, value: float | str, source: str) -> ControlValue:
        """Write a control value (not to the device: that is what commands are for) and publish it.

        Raises NotFound for a model or a field that is not there, Invalid for a value out of bounds.
        """
        control = await self._control(model, field)
        if control is None:
            raise NotFound(f"model {model!r} has no control {field!r}", code="unknown_control", hint="see the model")
        text = _control_text(control, value)
        str(ControlValue(text, 0, source))  # refuses a bad source
        keys = self._keys
        args = [model, field, text, source, "", f"{keys.channel_prefix}modsrv:{model}:{CONTROL}"]
        reply = await self._scripts.run("control_set", [keys.model_values(model, CONTROL), keys.models()], args)
        if reply == b"0":
            raise _missing("model", model)
        return ControlValue(text, int(reply), source)

    async def controls(self, model: str) -> dict[str, ControlValue]:
        """The control values that were set."""
        with translated(self._link):
            stored = await self._redis.hgetall(self._keys.model_values(model, CONTROL))
        found = {}
        for field, text in stored.items():
            try:
                found[field.decode()] = ControlValue.parse(text.decode())
            except (Invalid, ValueError):  # of another program
                log.warning("control_unreadable", model=model, field=field.decode(errors="replace"))
        return found

    async def _control(self, model: str, field: str) -> Control | None:
        spec = await self.get_spec(model)
        return next((control for control in spec.controls if control.field == field), None)

    async def _one(self, key: str, name: str) -> Any:
        with translated(self._link):
            found = await self._redis.hget(key, name)
        return None if found is None else _document(found)

    def _names(self) -> tuple[str, ...]:
        keys = self._keys
        return keys.models(), keys.model_templates(), keys.model_states(), keys.models_version()

    def _values(self, models: Collection[str]) -> tuple[str, ...]:
        keys = self._keys
        kinds = (MEASUREMENT, CONTROL)
        makers = (keys.model_values, keys.model_ts, keys.model_quality, keys.model_mark)
        return tuple(make(model, kind) for model in models for kind in kinds for make in makers)


def _made_of(version: str, models: Mapping[bytes, bytes], templates: Mapping[bytes, bytes]) -> Definitions:
    with few_suggestions():
        return made_of(version, _decoded(models), _decoded(templates))


def _decoded(stored: Mapping[bytes, bytes]) -> dict[str, Any]:
    return {name.decode(errors="replace"): _document(text) for name, text in stored.items()}


def _document(text: bytes) -> Any:
    """The definition; text that is no JSON is passed on as text, which is then refused as a definition by itself."""
    try:
        return codec.decode(text)
    except Invalid:
        return text.decode(errors="replace")[:200]


def _found(what: T | None, noun: str, name: str) -> T:
    if what is None:
        raise _missing(noun, name)
    return what


def _object(document: Any, noun: str, name: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise SpoiltRecord(f"the {noun} {name!r}", "it is no object")
    return dict(document)


def _missing(noun: str, name: str) -> NotFound:
    return NotFound(f"there is no {noun} {name!r}", code=f"unknown_{noun}", hint=f"list the {noun}s")


def _must_be_new(now: Definitions, put: Mapping[str, Any]) -> None:
    for name in put:
        if name in now.models:
            raise Conflict(f"the model {name!r} exists", code="model_exists", hint="use PUT to replace it")


def _control_text(control: Control, value: float | str) -> str:
    """As it stands in Redis: numbers in their shortest form, words as they are. Raises Invalid."""
    if isinstance(value, str):
        if not 0 < len(value) <= MAX_WORD or not value.isprintable():
            hint = f"1 to {MAX_WORD} printable characters"
            raise Invalid(f"{value[:40]!r} is no control value", code="bad_control_value", hint=hint)
        return value
    if not math.isfinite(value):
        raise Invalid(f"{value!r} is not a finite number", code="not_finite", hint="send a finite number")
    target = CommandTarget(control.address, control.min, control.max, control.step, control.unit)
    problems = check_control(target, value)
    if problems:
        message = f"{control.field}: {problems[0].hint}"
        raise Invalid(message, code=problems[0].code, hint="see the controls of the model", problems=problems)
    return str(int(value)) if isinstance(value, int) else repr(value)
