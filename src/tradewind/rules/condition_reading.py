"""Conditions of a rule's document: form and meaning, every problem with its path. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from tradewind.cron import read_cron
from tradewind.errors import Invalid
from tradewind.expr import compile_expression
from tradewind.models.fields import Fields, Report, did_you_mean, number
from tradewind.points.address import CONTROL, Address
from tradewind.rules.document_fields import choice, delay, hysteresis, milliseconds, scalar
from tradewind.rules.regex import compile_pattern
from tradewind.rules.spec import (
    FUNCTIONS,
    LOGICS,
    OPERATORS,
    ORDERING,
    STATUSES,
    AlarmOpen,
    Change,
    Compare,
    Condition,
    Formula,
    Group,
    Leaf,
    Range,
    Rate,
    Schedule,
    Window,
)
from tradewind.rules.verdict import show

T = TypeVar("T")
#: Of groups in groups.
MAX_DEPTH = 8
MAX_CONDITIONS = 200
_NUMERIC = (*sorted(ORDERING), "==", "!=")
_COMMON = ("type", "field", "for_ms", "on_delay_ms", "description")
_BAND = ("hysteresis", "deadband")
_SWITCHED = {"true": 1.0, "on": 1.0, "false": 0.0, "off": 0.0}


class ConditionReader:
    """`hysteresis`: that of the rule, for comparisons and ranges without one of their own."""

    def __init__(self, report: Report, hysteresis: float) -> None:
        self.report = report
        self.hysteresis = hysteresis
        self.count = 0
        self._kinds: dict[str, tuple[tuple[str, ...], Callable[[Fields], Leaf]]] = {
            "compare": (("source", "operator", "value", *_BAND), self._compare),
            "range": (("source", "min", "max", "inside", *_BAND), self._range),
            "rate": (("source", "operator", "value", "over_ms", *_BAND), self._rate),
            "window": (("source", "function", "window_ms", "operator", "value", *_BAND), self._window),
            "change": (("source", "from", "to"), self._change),
            "schedule": (("cron", "duration_ms", "timezone"), self._schedule),
            "expression": (("expression", "inputs"), self._formula),
            "alarm": (("rule_id", "source", "status"), self._alarm),
        }

    def read_all(self, fields: Fields, depth: int = 0) -> tuple[Condition, ...]:
        """The field `conditions` of a rule or a group."""
        items = fields.list("conditions")
        path = fields.at("conditions")
        if not items and not any(problem.path == path for problem in self.report.problems):
            fields.missing("conditions", "give at least one condition")
        if depth > MAX_DEPTH:
            self.report.add("too_deep", path, f"at most {MAX_DEPTH} levels of groups")
            return ()
        return tuple(self._condition(item, f"{path}[{i}]", depth) for i, item in enumerate(items))

    def _condition(self, document: Any, path: str, depth: int) -> Condition:
        given = document.get("type") if isinstance(document, Mapping) else None
        kind = given if isinstance(given, str) else ""
        if given is None:
            named = document if isinstance(document, Mapping) else {}
            kind = "group" if "conditions" in named else "not" if "not" in named else "compare"
        if kind == "not":
            return self._not(Fields(document, path, self.report, ("type", "not", "description")), depth + 1)
        if kind == "group":
            fields = Fields(document, path, self.report, ("type", "logic", "conditions", "description"))
            return Group(choice(fields, "logic", LOGICS, "all"), self.read_all(fields, depth + 1))
        self.count += 1
        if self.count == MAX_CONDITIONS + 1:
            self.report.add("too_many", path, f"at most {MAX_CONDITIONS} conditions in a rule")
        if kind not in self._kinds:
            hint = did_you_mean(str(given), (*self._kinds, "group", "not"))
            self.report.add("unknown_type", f"{path}.type", hint)
            return Compare("", ">", 0.0)
        known, read = self._kinds[kind]
        return read(Fields(document, path, self.report, (*_COMMON, *known)))

    def _not(self, fields: Fields, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            self.report.add("too_deep", fields.at("not"), f"at most {MAX_DEPTH} levels of groups")
            return Group("all", (), True)
        if fields.items.get("not") is None:
            fields.missing("not", "give the condition that must not hold")
            return Group("all", (), True)
        return Group("all", (self._condition(fields.items["not"], fields.at("not"), depth),), True)

    def _compare(self, fields: Fields) -> Compare:
        operator = choice(fields, "operator", OPERATORS)
        return Compare(
            **self._head(fields),
            operator=operator,
            value=self._compared(fields, operator),
            hysteresis=self._band(fields, operator),
        )

    def _compared(self, fields: Fields, operator: str) -> float | str:
        given = fields.items.get("value")
        if operator in ORDERING or not operator:
            return self._number(fields, "value") or 0.0
        value = scalar(fields, "value")
        if value is None:
            if given is None:
                fields.missing("value", "give the value to compare with")
            return ""
        if operator in ("==", "!="):
            return self._comparable(fields, "value", value)
        text = given if isinstance(given, str) else show(value)
        if not text:
            self.report.add("missing_field", fields.at("value"), "an empty text is found everywhere")
        elif operator == "regex":
            try:
                compile_pattern(text)
            except Invalid as error:
                self.report.add("bad_regex", fields.at("value"), error.hint)
        return text

    def _range(self, fields: Fields) -> Range:
        low, high = (self._number(fields, name, is_needed=False) for name in ("min", "max"))
        band, inside = self._band(fields, ">"), fields.flag("inside", True)
        if fields.items.get("min") is None and fields.items.get("max") is None:
            fields.missing("min", "give min or max, or both")
        elif low is not None and high is not None:
            if low > high:
                self.report.add("out_of_range", fields.at("min"), f"{low:g} is above max, {high:g}")
            elif not inside and band and band * 2 >= high - low:
                hint = f"with {band:g} it could never become false again; below {(high - low) / 2:g}"
                self.report.add("out_of_range", fields.at("hysteresis"), hint)
        return Range(**self._head(fields), min=low, max=high, inside=inside, hysteresis=band)

    def _rate(self, fields: Fields) -> Rate:
        operator = choice(fields, "operator", _NUMERIC)
        return Rate(
            **self._head(fields),
            operator=operator,
            value=self._number(fields, "value") or 0.0,
            over_ms=milliseconds(fields, "over_ms"),
            hysteresis=self._band(fields, operator, is_own=True),
        )

    def _window(self, fields: Fields) -> Window:
        operator = choice(fields, "operator", _NUMERIC)
        return Window(
            **self._head(fields),
            function=choice(fields, "function", FUNCTIONS),
            window_ms=milliseconds(fields, "window_ms", is_needed=True),
            operator=operator,
            value=self._number(fields, "value") or 0.0,
            hysteresis=self._band(fields, operator, is_own=True),
        )

    def _change(self, fields: Fields) -> Change:
        before, after = (self._comparable(fields, name, scalar(fields, name)) for name in ("from", "to"))
        if before is not None and before == after:
            self.report.add("same_value", fields.at("to"), "from and to are the same, so that is no change")
        return Change(**self._head(fields), before=before, after=after)

    def _schedule(self, fields: Fields) -> Schedule:
        zone = fields.text("timezone", "UTC")
        try:
            ZoneInfo(zone)
        except (OSError, ValueError, LookupError):
            self.report.add("bad_timezone", fields.at("timezone"), f"{zone[:80]!r}: write such as Europe/Berlin, UTC")
        duration = milliseconds(fields, "duration_ms") if fields.items.get("duration_ms") is not None else 60_000
        if duration == 0 and number(fields.items.get("duration_ms")) == 0:
            self.report.add("out_of_range", fields.at("duration_ms"), "it must be above 0")
        return Schedule(**self._head(fields, ""), cron=self._cron(fields), duration_ms=duration, timezone=zone)

    def _cron(self, fields: Fields) -> str:
        try:
            return read_cron(fields.text("cron"))
        except ValueError as error:
            hint = f'minute hour day month weekday, such as "0 8 * * 1-5": {error}'
            self.report.add("bad_cron", fields.at("cron"), hint)
            return ""

    def _formula(self, fields: Fields) -> Formula:
        inputs: dict[str, str] = {}
        given = fields.object("inputs")
        for name in given:
            inner = Fields(given, fields.at("inputs"), self.report, given)
            if not name.isidentifier():
                self.report.add("bad_name", inner.at(name), "letters, digits and _, no digit first")
            inputs[name] = self._address(inner, name)
        text = fields.text("expression")
        if not text:
            fields.missing("expression", "give an expression such as a > b * 2")
        else:
            try:
                used = compile_expression(text, names=inputs).names
                for name in sorted(inputs.keys() - used):
                    self.report.add("unused_input", f"{fields.at('inputs')}.{name}", "the expression does not name it")
            except Invalid as error:
                for problem in error.problems:
                    self.report.add(problem.code, fields.at("expression"), f"{problem.path}: {problem.hint}")
        return Formula(**self._head(fields, ""), expression=text, inputs=inputs)

    def _alarm(self, fields: Fields) -> AlarmOpen:
        statuses: list[str] = []
        given = fields.items.get("status")
        for i, item in enumerate([given] if isinstance(given, str) else fields.list("status")):
            if item in STATUSES[:4]:
                statuses.append(item)
            else:
                hint = f"an open alarm is {', '.join(STATUSES[:4])}"
                self.report.add("bad_choice", f"{fields.at('status')}[{i}]", hint)
        source = fields.text("source")
        if any(char in source for char in "|*") or len(source) > 200:
            hint = "the source of one alarm, such as comsrv:1001:m:10001; leave it out for any"
            self.report.add("bad_source", fields.at("source"), hint)
        return AlarmOpen(
            **self._head(fields, ""),
            rule_id=fields.id("rule_id"),
            alarm_source=source,
            statuses=tuple(sorted(set(statuses), key=STATUSES.index)),
        )

    def _head(self, fields: Fields, source: str = "source") -> dict[str, Any]:
        """What all conditions have."""
        field = fields.text("field")
        if len(field) > 64 or any(char in field for char in "{}:\n"):
            self.report.add("bad_name", fields.at("field"), "at most 64 characters, no braces, no colon")
        head: dict[str, Any] = {"field": field, "for_ms": delay(fields, "for_ms", "on_delay_ms")}
        if source:
            head["source"] = self._address(fields, source)
        return head

    def _address(self, fields: Fields, name: str) -> str:
        text = fields.text(name)
        if not text:
            if fields.items.get(name) in (None, ""):
                fields.missing(name, "give an address such as comsrv:1001:m:10001")
            return ""
        try:
            return str(Address.parse(text))
        except Invalid as error:
            self.report.add("bad_address", fields.at(name), f"{error.message}; {error.hint}")
            return ""

    def _comparable(self, fields: Fields, name: str, value: T) -> T | float:
        """What the source may be equal to. All but control values of models are numbers: on and off are 1 and 0."""
        if not isinstance(value, str) or f":{CONTROL}:" in str(fields.items.get("source")):
            return value
        word = value.strip().lower()
        if word in _SWITCHED:
            return _SWITCHED[word]
        hint = f"{value[:80]!r}: its source is a number and never equal to that; true, on, false and off are 1 and 0"
        self.report.add("not_a_number", fields.at(name), hint)
        return value

    def _band(self, fields: Fields, operator: str, *, is_own: bool = False) -> float:
        found = hysteresis(fields)
        if operator and operator not in ORDERING:
            if found:
                self.report.add("bad_hysteresis", fields.at("hysteresis"), f"only for {' '.join(sorted(ORDERING))}")
            return 0.0
        return found if found is not None else 0.0 if is_own else self.hysteresis

    def _number(self, fields: Fields, name: str, *, is_needed: bool = True) -> float | None:
        """Also of a text, as in the seed."""
        given = fields.items.get(name)
        if given is None or given == "":
            if is_needed:
                fields.missing(name, "give a number")
            return None
        value = scalar(fields, name)
        if isinstance(value, str):
            self.report.add("not_a_number", fields.at(name), f"{value[:80]!r} is not a number")
            return None
        return value
