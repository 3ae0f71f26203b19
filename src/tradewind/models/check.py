"""Whether models mean something: names, functions, parameters, circles, units, also across models. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tradewind.errors import Invalid, Problem
from tradewind.expr import compile_expression
from tradewind.models.document import read_model
from tradewind.models.fields import Report, did_you_mean, number
from tradewind.models.functions import EXPRESSION, FUNCTIONS, Function, Param
from tradewind.models.graph import ordered, shown
from tradewind.models.spec import Calculation, ModelSpec
from tradewind.models.units import Units
from tradewind.problems import Problems, below

MAX_PARTS = 10_000
#: Problems of all models together: each must keep one at least, for what has one is not computed.
MOST_OF_ALL = 1_000_000


def constants(spec: ModelSpec) -> dict[str, float]:
    """The properties that calculations may name like inputs: the numbers."""
    found = {name: number(value) for name, value in spec.properties.items()}
    return {name: value for name, value in found.items() if value is not None}


def read_models(
    documents: Mapping[str, Any], templates: Mapping[str, Any], units: Mapping[str, str] | None = None
) -> tuple[dict[str, ModelSpec], Problems]:
    """All models by name, and all problems; the paths begin with the key of the document.

    `units` are those of points by address, where they are known.
    """
    specs: dict[str, ModelSpec] = {}
    keys: dict[str, str] = {}
    problems = Problems(most=MOST_OF_ALL)
    for key, document in documents.items():
        spec, found = read_model(document, templates)
        problems += below(f"{key}.", found)
        if spec is None:
            continue
        problems += below(f"{key}.", check_model(spec, units))
        if spec.name in specs:
            hint = f"{keys[spec.name]} has this name, too"
            problems.append(Problem("duplicate_name", f"{key}.name", hint))
        else:
            specs[spec.name], keys[spec.name] = spec, key
    problems += check_together(specs, keys)
    return specs, problems


def check_model(spec: ModelSpec, units: Mapping[str, str] | None = None) -> Problems:
    """Problems of one model by itself."""
    return _Check(spec, units or {}).run()


def check_together(specs: Mapping[str, ModelSpec], keys: Mapping[str, str] | None = None) -> Problems:
    """Problems between models: fields that there are not, circles, units. `keys`: what paths begin with, by model."""
    report = Report()
    keys = keys or {name: name for name in specs}
    fields = {name: {output.field: output for output in spec.outputs} for name, spec in specs.items()}
    controls = {name: {control.field for control in spec.controls} for name, spec in specs.items()}
    needs: dict[str, list[str]] = {}
    for name, spec in specs.items():
        needs[name] = []
        for i, item in enumerate(spec.inputs):
            service, _, rest = item.address.partition(":")
            if service != "modsrv":
                continue
            model, kind, field = rest.split(":")
            path = f"{keys[name]}.inputs[{i}].source"
            if model not in specs:
                report.add("unknown_model", path, f"there is no model {model!r}; {did_you_mean(model, specs)}")
            elif kind == "control":
                if field not in controls[model]:
                    report.add("unknown_field", path, f"{model!r}: {did_you_mean(field, controls[model], 'a control')}")
            elif field not in fields[model]:
                report.add("unknown_field", path, f"{model!r}: {did_you_mean(field, fields[model], 'an output')}")
            else:
                needs[name].append(model)
                unit = fields[model][field].unit
                if unit and item.unit and unit != item.unit:
                    hint = f"{model}.{field} is in {unit}, here it is taken as {item.unit}"
                    report.add("unit_mismatch", f"{keys[name]}.inputs[{i}].unit", hint)
    for circle in ordered(needs)[1]:
        report.add("cycle", f"{keys[circle[0]]}.inputs", f"each of these models needs the next: {shown(circle)}")
    return report.problems


class _Check:
    def __init__(self, spec: ModelSpec, units: Mapping[str, str]) -> None:
        self.spec = spec
        self.units = units
        self.report = Report()
        self.names: set[str] = set()

    def run(self) -> Problems:
        spec, report = self.spec, self.report
        for part in ("inputs", "calculations", "outputs"):
            if len(getattr(spec, part)) > MAX_PARTS:
                report.add("too_many", part, f"{len(getattr(spec, part))}; at most {MAX_PARTS} in one model")
                return report.problems
        if not spec.outputs and not spec.controls:
            report.add("missing_field", "outputs", "a model has outputs or controls")
        self._names()
        needs: dict[str, list[str]] = {}
        for i, calculation in enumerate(spec.calculations):
            needs[calculation.id] = self._calculation(calculation, f"calculations[{i}]")
        circles = ordered(needs)[1]
        for circle in circles:
            hint = f"each of these calculations needs the next: {shown(circle)}"
            report.add("cycle", f"calculations.{circle[0]}", hint)
        self._outputs()
        if not circles:
            Units(spec, self.units, report).check()
        return report.problems

    def _names(self) -> None:
        first: dict[str, str] = {}
        places = [(item.name, f"inputs[{i}].name") for i, item in enumerate(self.spec.inputs)]
        places += [(item.id, f"calculations[{i}].id") for i, item in enumerate(self.spec.calculations)]
        places += [(name, f"properties.{name}") for name in constants(self.spec)]
        for name, path in places:
            if name and first.setdefault(name, path) != path:
                self.report.add("duplicate_name", path, f"{first[name]} is called {name!r}, too")
        self.names = set(first) - {""}

    def _calculation(self, calculation: Calculation, path: str) -> list[str]:
        """Reports; the names that it needs."""
        if calculation.function == EXPRESSION:
            return self._expression(calculation, path)
        needed = []
        for i, item in enumerate(calculation.inputs):
            if isinstance(item, str):
                needed.append(item)
                self._known(item, f"{path}.inputs[{i}]")
        function = FUNCTIONS.get(calculation.function)
        if function is None:
            if calculation.function:
                hint = did_you_mean(calculation.function, {*FUNCTIONS, EXPRESSION})
                self.report.add("unknown_function", f"{path}.function", hint)
            return needed
        self._count(calculation, function, path)
        self._params(calculation, function, path)
        return needed

    def _known(self, name: str, path: str) -> None:
        if name not in self.names:
            hint = f"no input, calculation or number property is called {name!r}; {did_you_mean(name, self.names)}"
            self.report.add("missing_input", path, hint)

    def _expression(self, calculation: Calculation, path: str) -> list[str]:
        if calculation.params:
            self.report.add("unknown_param", f"{path}.params", "an expression has none")
        allowed: Collection[str] = self.names
        if calculation.inputs:
            allowed = [item for item in calculation.inputs if isinstance(item, str)]
            for i, item in enumerate(calculation.inputs):
                if isinstance(item, str):
                    self._known(item, f"{path}.inputs[{i}]")
                else:
                    hint = "write the number into the expression"
                    self.report.add("wrong_type", f"{path}.inputs[{i}]", hint)
        try:
            return sorted(compile_expression(calculation.expression, names=allowed).names)
        except Invalid as error:
            for problem in error.problems:
                self.report.add(problem.code, f"{path}.expression", f"{problem.path}: {problem.hint}")
            return []

    def _count(self, calculation: Calculation, function: Function, path: str) -> None:
        count, least, most = len(calculation.inputs), function.least, function.most
        if count < least or (most is not None and count > most):
            wanted = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            self.report.add(
                "wrong_inputs", f"{path}.inputs", f"{calculation.function} takes {wanted}, here are {count}"
            )

    def _params(self, calculation: Calculation, function: Function, path: str) -> None:
        before = self.report.problems.total
        for name, value in calculation.params.items():
            at = f"{path}.params.{name}"
            param = function.params.get(name)
            if param is None:
                hint = did_you_mean(name, function.params, f"a parameter of {calculation.function}")
                self.report.add("unknown_param", at, hint)
            elif value is not None:
                self._param(param, value, at)
        for name, param in function.params.items():
            if param.is_required and calculation.params.get(name) is None:
                self.report.add("missing_param", f"{path}.params.{name}", f"{calculation.function} needs it")
        if calculation.function == "clamp" and self.report.problems.total == before:
            low, high = calculation.params.get("min"), calculation.params.get("max")
            if low is None and high is None:
                self.report.add("missing_param", f"{path}.params", "clamp needs min or max, or both")
            elif low is not None and high is not None and low > high:
                self.report.add("bad_param", f"{path}.params.min", f"{low:g} is above max, {high:g}")

    def _param(self, param: Param, value: Any, path: str) -> None:
        if param.choices:
            if value not in param.choices:
                self.report.add("bad_param", path, f"{value!r} is none of {', '.join(param.choices)}")
            return
        found = number(value)
        if found is None or (param.is_integer and not found.is_integer()):
            wanted = "an integer" if param.is_integer else "a finite number"
            self.report.add("bad_param", path, f"{value!r} is not {wanted}")
        elif param.above is not None and found <= param.above:
            self.report.add("bad_param", path, f"{found:g} is not above {param.above:g}")
        elif param.most is not None and found > param.most:
            self.report.add("bad_param", path, f"{found:g} is above {param.most:g}")

    def _outputs(self) -> None:
        first: dict[str, int] = {}
        for i, output in enumerate(self.spec.outputs):
            if output.field and first.setdefault(output.field, i) != i:
                hint = f"outputs[{first[output.field]}] writes it, too"
                self.report.add("duplicate_name", f"outputs[{i}].field", hint)
            if output.source:
                self._known(output.source, f"outputs[{i}].source")
