"""Units of measure through the calculations of a model, as far as they are known. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.models.fields import Report
from tradewind.models.functions import EXPRESSION, FUNCTIONS
from tradewind.models.spec import Calculation, ModelSpec

#: What integrating a unit over hours gives.
_HOURLY = {"W": "Wh", "kW": "kWh", "MW": "MWh", "var": "varh", "kvar": "kvarh", "A": "Ah"}


class Units:
    """A unit is known when an input states it, or the point table; most functions keep it, others end the trail."""

    def __init__(self, spec: ModelSpec, points: Mapping[str, str], report: Report) -> None:
        self._spec = spec
        self._report = report
        self._units = {item.name: item.unit or points.get(item.address, "") for item in spec.inputs}
        self._calculations = {item.id: (i, item) for i, item in enumerate(spec.calculations)}

    def check(self) -> None:
        """Reports sums of different units, and outputs that state another unit than they have."""
        for calculation in self._spec.calculations:
            self._resolve(calculation.id)
        for i, output in enumerate(self._spec.outputs):
            unit = self._units.get(output.source, "")
            if unit and output.unit and unit != output.unit:
                hint = f"{output.source} is in {unit}, not in {output.unit}; scale it, or correct the unit"
                self._report.add("unit_mismatch", f"outputs[{i}].unit", hint)

    def _resolve(self, name: str) -> None:
        """Everything below the name first, without recursion: a chain may be long."""
        todo = [name]
        while todo:
            name = todo[-1]
            known = self._calculations.get(name)
            if name in self._units or known is None:
                todo.pop()
                continue
            place, calculation = known
            needed = [item for item in calculation.inputs if isinstance(item, str)]
            waiting = [item for item in needed if item not in self._units and item in self._calculations]
            if waiting:
                todo += waiting
            else:
                self._units[name] = self._unit(calculation, f"calculations[{place}]")
                todo.pop()

    def _unit(self, calculation: Calculation, path: str) -> str:
        function = FUNCTIONS.get(calculation.function)
        if calculation.function == EXPRESSION or function is None:
            return ""
        units = [self._units.get(item, "") for item in calculation.inputs if isinstance(item, str)]
        if calculation.function == "energy" or (
            calculation.function == "integrate" and calculation.params.get("per") == "h"
        ):
            is_plain = calculation.params.get("factor", 1.0) == 1
            return _HOURLY.get(units[0], "") if len(units) == 1 and is_plain else ""
        if not function.keeps_unit:
            return ""
        known = list(dict.fromkeys(unit for unit in units if unit))
        if len(known) > 1:
            hint = f"{calculation.function} of {' and '.join(known)}; bring them to one unit with scale first"
            self._report.add("unit_mismatch", f"{path}.inputs", hint)
            return ""
        return known[0] if known and all(units) else ""
