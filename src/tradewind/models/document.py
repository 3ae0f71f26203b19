"""From a definition (YAML or JSON, already parsed) to a ModelSpec: its form. What it means is for check.py. Pure.

The seed's form is taken too: `id` and a title in `name`, outputs with `name` and `target`. Such a model is called as
its target says, because that is the key under which programs look for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tradewind.errors import Invalid
from tradewind.ids import ID, is_id
from tradewind.models.fields import ID_HINT, Fields, Report, number
from tradewind.models.functions import EXPRESSION
from tradewind.models.spec import Calculation, Control, Input, ModelSpec, Output
from tradewind.models.template import expand
from tradewind.points.address import MEASUREMENT, Address
from tradewind.problems import Problems

MODEL_FIELDS = frozenset(
    ("id", "name", "title", "description", "enabled", "template", "inputs", "calculations", "outputs", "controls",
     "properties", "version")
)  # fmt: skip
_INPUT = frozenset(("name", "source", "address", "default", "max_age", "unit", "description"))
_CALCULATION = frozenset(("id", "function", "expression", "inputs", "params", "description"))
_OUTPUT = frozenset(("field", "name", "target", "source", "unit", "min", "max", "deadband", "description"))
_CONTROL = frozenset(("address", "min", "max", "step", "unit", "description"))
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|min|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TARGET = re.compile(r"modsrv:([A-Za-z0-9_-]{1,64}):measurement")


def read_model(document: Any, templates: Mapping[str, Any] | None = None) -> tuple[ModelSpec | None, Problems]:
    """The model, as far as it can be read, and everything that is wrong with its form.

    None comes back only when not even its name is known.
    """
    report = Report()
    filled = expand(document, templates or {}, report)
    if filled is None:
        return None, report.problems
    spec = _Reader(filled, report).read()
    return (spec if spec.name else None), report.problems


class _Reader:
    def __init__(self, document: Any, report: Report) -> None:
        self.report = report
        self.fields = Fields(document, "", report, MODEL_FIELDS)

    def read(self) -> ModelSpec:
        fields = self.fields
        outputs = tuple(self._output(item, f"outputs[{i}]") for i, item in enumerate(fields.list("outputs")))
        name = self._name()
        title = fields.text("title") or (fields.text("name") if fields.text("name") != name else "")
        return ModelSpec(
            name=name,
            title=title,
            description=fields.text("description"),
            enabled=fields.flag("enabled", True),
            template=fields.text("template"),
            inputs=tuple(self._input(item, f"inputs[{i}]") for i, item in enumerate(fields.list("inputs"))),
            calculations=tuple(
                self._calculation(item, f"calculations[{i}]") for i, item in enumerate(fields.list("calculations"))
            ),
            outputs=outputs,
            controls=tuple(self._control(*item) for item in fields.object("controls").items()),
            properties=fields.object("properties"),
        )

    def _name(self) -> str:
        fields = self.fields
        targets: dict[str, str] = {}
        for i, output in enumerate(fields.list("outputs")):
            target = output.get("target") if isinstance(output, Mapping) else None
            match = _TARGET.fullmatch(target) if isinstance(target, str) else None
            if match is not None:
                targets.setdefault(match[1], f"outputs[{i}].target")
            elif target is not None:
                hint = f"{target!r}: write modsrv:<model>:measurement"
                self.report.add("bad_target", f"outputs[{i}].target", hint)
        if len(targets) > 1:
            first, *others = targets
            for other in others:
                hint = f"another output names {first!r}; a model writes to one target, so make two models"
                self.report.add("two_targets", targets[other], hint)
        if targets:
            name = next(iter(targets))
            if not is_id(name):
                self.report.add("bad_name", targets[name], f"{name!r} is a reserved word; choose another name")
            own = fields.items.get("name")
            if "id" not in fields.items and isinstance(own, str) and is_id(own) and own != name:
                hint = f"the model is called {own!r}; leave the target out, or give the model that name"
                self.report.add("foreign_target", targets[name], hint)
            return name
        return fields.id("id" if "id" in fields.items else "name", is_key=True)

    def _input(self, document: Any, path: str) -> Input:
        fields = Fields(document, path, self.report, _INPUT)
        place = "address" if "address" in fields.items and "source" not in fields.items else "source"
        return Input(
            name=fields.id("name"),
            address=self._source(fields, place),
            default=fields.number("default"),
            max_age_s=self._duration(fields, "max_age"),
            unit=fields.text("unit"),
        )

    def _source(self, fields: Fields, place: str) -> str:
        source = fields.items.get(place)
        if isinstance(source, Mapping):
            inner = Fields(source, fields.at(place), self.report, ("model", "field"))
            model, field = inner.id("model"), inner.id("field")
            return f"modsrv:{model}:{MEASUREMENT}:{field}" if model and field else ""
        if source is None:
            fields.missing(place, "give an address such as comsrv:1001:m:10001, or {model: …, field: …}")
            return ""
        return self._address(fields, place)

    def _address(self, fields: Fields, place: str) -> str:
        text = fields.text(place)
        try:
            return str(Address.parse(text)) if text else ""
        except Invalid as error:
            self.report.add("bad_address", fields.at(place), f"{error.message}; {error.hint}")
            return ""

    def _duration(self, fields: Fields, name: str) -> float | None:
        value = fields.items.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            match = _DURATION.fullmatch(value.strip())
            found = float(match[1]) * _SECONDS[match[2]] if match else None
        else:
            found = number(value)
        if found is None or found <= 0:
            self.report.add("bad_duration", fields.at(name), "write seconds above 0, or such as 500ms, 30s, 5m, 1h")
            return None
        return found

    def _calculation(self, document: Any, path: str) -> Calculation:
        fields = Fields(document, path, self.report, _CALCULATION)
        expression, function = fields.text("expression"), fields.text("function")
        params = fields.object("params")
        if function == EXPRESSION and not expression:  # the text may stand among the parameters
            expression = str(params.pop(EXPRESSION, ""))
        if expression and function not in ("", EXPRESSION):
            self.report.add("two_functions", path, "give a function or an expression, not both")
        elif not expression and function in ("", EXPRESSION):
            fields.missing("function", "give a function, or an expression")
        inputs: list[str | float] = []
        for i, item in enumerate(fields.list("inputs")):
            constant = number(item)
            if isinstance(item, str):
                inputs.append(item)
            elif constant is not None:
                inputs.append(constant)
            else:
                hint = "name an input or a calculation, or write a number"
                self.report.add("wrong_type", f"{fields.at('inputs')}[{i}]", hint)
        return Calculation(
            id=fields.id("id"),
            function=EXPRESSION if expression else function,
            inputs=tuple(inputs),
            params=params,
            expression=expression,
        )

    def _output(self, document: Any, path: str) -> Output:
        fields = Fields(document, path, self.report, _OUTPUT)
        field = fields.id("field" if "field" in fields.items or "name" not in fields.items else "name")
        source = fields.text("source")
        if not source:
            fields.missing("source", "name the calculation that it shows")
        low, high = _bounds(fields)
        deadband = fields.number("deadband", least=0.0)
        return Output(field, source, fields.text("unit"), low, high, deadband or 0.0)

    def _control(self, field: str, document: Any) -> Control:
        path = f"controls.{field}"
        if ID.fullmatch(field) is None:
            self.report.add("bad_name", path, ID_HINT)
        fields = Fields({} if document is None else document, path, self.report, _CONTROL)
        low, high = _bounds(fields)
        step = fields.number("step", least=0.0)
        return Control(field, self._address(fields, "address"), low, high, step or 0.0, fields.text("unit"))


def _bounds(fields: Fields) -> tuple[float | None, float | None]:
    low, high = fields.number("min"), fields.number("max")
    if low is not None and high is not None and low > high:
        fields.report.add("out_of_range", fields.at("min"), f"{low:g} is above max, {high:g}")
    return low, high
