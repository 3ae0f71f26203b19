"""Actions of a rule's document: form and meaning, every problem with its path. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tradewind.errors import Invalid
from tradewind.models.fields import ID_HINT, Fields, Report, did_you_mean, number
from tradewind.points.address import CONTROL, Address, is_number
from tradewind.points.spec import Kind
from tradewind.points.values import parse_value
from tradewind.rules import template
from tradewind.rules.document_fields import choice, milliseconds
from tradewind.rules.spec import (
    EDGES,
    LEVELS,
    Action,
    CreateAlarm,
    LogEvent,
    SendControl,
    SendNotification,
    SetValue,
    StartFlow,
    SubmitTask,
)

MAX_ACTIONS = 50
LOG_LEVELS = ("debug", "info", "warning", "error")


class ActionReader:
    """`names`: those that templates may use; `latched`: that of the rule."""

    def __init__(self, report: Report, names: Collection[str], *, latched: bool) -> None:
        self.report = report
        self.names = names
        self.latched = latched
        self._kinds: dict[str, tuple[tuple[str, ...], Callable[[Fields, str], Action]]] = {
            "create_alarm": (
                ("level", "title", "description", "category", "tags", "latched", "escalate_ms", "notify"),
                self._create_alarm,
            ),
            "send_control": (("channel_id", "point_id", "type", "address", "value"), self._send_control),
            "send_notification": (("recipients", "message"), self._send_notification),
            "log_event": (("level", "message"), self._log_event),
            "start_flow": (("flow_id", "payload"), self._start_flow),
            "submit_task": (("type", "args", "kwargs"), self._submit_task),
            "set_value": (("model", "field", "value"), self._set_value),
        }

    def read_all(self, fields: Fields) -> tuple[Action, ...]:
        items = fields.list("actions")
        if len(items) > MAX_ACTIONS:
            self.report.add("too_many", fields.at("actions"), f"at most {MAX_ACTIONS} actions in a rule")
        found = (self._action(item, f"{fields.at('actions')}[{i}]") for i, item in enumerate(items))
        return tuple(action for action in found if action is not None)

    def _action(self, document: Any, path: str) -> Action | None:
        fields = Fields(document, path, self.report, ("type", "parameters", "on", "description"))
        kind = fields.text("type")
        if kind not in self._kinds:
            if not kind:
                fields.missing("type", f"one of {', '.join(self._kinds)}")
            else:
                self.report.add("unknown_type", fields.at("type"), did_you_mean(kind, self._kinds))
            return None
        known, read = self._kinds[kind]
        given = Fields(fields.object("parameters"), fields.at("parameters"), self.report, known)
        on = choice(fields, "on", EDGES, "rise")
        if kind == "create_alarm" and on == "both":
            hint = "an alarm is raised by one edge and cleared by the other: rise or fall"
            self.report.add("bad_choice", fields.at("on"), hint)
        return read(given, on)

    def _create_alarm(self, fields: Fields, on: str) -> CreateAlarm:
        given = fields.text("level")
        level = LEVELS.get(given.lower(), "")
        if not given:
            fields.missing("level", "Critical, High, Medium, Low or Info")
        elif not level:
            self.report.add("bad_choice", fields.at("level"), f"{given[:80]!r}: Critical, High, Medium, Low or Info")
        return CreateAlarm(
            level=level,
            title=self._text(fields, "title", "{rule.name}"),
            description=self._text(fields, "description", ""),
            category=fields.id("category", is_key=True) if "category" in fields.items else "general",
            tags=tuple(self._texts(fields, "tags")),
            latched=fields.flag("latched", self.latched),
            escalate_ms=milliseconds(fields, "escalate_ms") if fields.items.get("escalate_ms") is not None else None,
            notify=tuple(self._texts(fields, "notify")) if fields.items.get("notify") is not None else None,
            on=on,
        )

    def _send_control(self, fields: Fields, on: str) -> SendControl:
        value = self._value(fields)
        address = fields.text("address")
        channel, point = (fields.text(name) for name in ("channel_id", "point_id"))
        if address:
            if channel or point:
                self.report.add("two_targets", fields.at("address"), "give the address, or channel_id and point_id")
            self._check_target(address, fields.at("address"))
            return self._switchable(fields, SendControl(value, address=address, on=on))
        for name, text in (("channel_id", channel), ("point_id", point)):
            if not text:
                fields.missing(name, "decimal digits; or give an address")
            elif not is_number(text):
                self.report.add("bad_address", fields.at(name), f"{text[:80]!r}: 1 to 20 decimal digits")
        kind = choice(fields, "type", ("c", "a"), "auto")
        if kind != "auto":
            return self._switchable(fields, SendControl(value, address=f"comsrv:{channel}:{kind}:{point}", on=on))
        action = SendControl(value, "", channel, point, on)
        if isinstance(value, str):
            return action
        return SendControl(value, address=action.address_for(value), on=on)

    def _switchable(self, fields: Fields, action: SendControl) -> SendControl:
        is_switched = action.address.startswith("comsrv:") and f":{Kind.CONTROL}:" in action.address
        if is_switched and isinstance(action.value, float) and action.value not in (0.0, 1.0):
            self.report.add("out_of_range", fields.at("value"), f"{action.value:g}: a point of kind c is 0 or 1")
        return action

    def _check_target(self, text: str, path: str) -> None:
        try:
            address = Address.parse(text)
        except Invalid as error:
            self.report.add("bad_address", path, f"{error.message}; {error.hint}")
            return
        if address.kind not in (Kind.CONTROL, Kind.ADJUSTMENT, CONTROL):
            self.report.add("bad_address", path, f"{text!r} cannot be written: kinds c, a and control can")

    def _send_notification(self, fields: Fields, on: str) -> SendNotification:
        given = fields.items.get("recipients")
        recipients = [given] if isinstance(given, str) and given else self._texts(fields, "recipients")
        return SendNotification(self._text(fields, "message"), tuple(recipients), on)

    def _log_event(self, fields: Fields, on: str) -> LogEvent:
        return LogEvent(self._text(fields, "message"), choice(fields, "level", LOG_LEVELS, "info"), on)

    def _start_flow(self, fields: Fields, on: str) -> StartFlow:
        return StartFlow(fields.id("flow_id"), self._filled(fields, "payload", fields.object("payload")), on)

    def _submit_task(self, fields: Fields, on: str) -> SubmitTask:
        kind = fields.text("type")
        if not kind:
            fields.missing("type", "the type of the task")
        elif len(kind) > 64 or any(char.isspace() for char in kind):
            self.report.add("bad_name", fields.at("type"), ID_HINT)
        args = self._filled(fields, "args", fields.list("args"))
        return SubmitTask(kind, tuple(args), self._filled(fields, "kwargs", fields.object("kwargs")), on)

    def _set_value(self, fields: Fields, on: str) -> SetValue:
        return SetValue(fields.id("model", is_key=True), fields.id("field"), self._value(fields, is_text=True), on)

    def _value(self, fields: Fields, *, is_text: bool = False) -> float | str:
        """A number, also as text or truth value, or an expression; `is_text`: a template, too."""
        given = fields.items.get("value")
        if given is None or given == "":
            fields.missing("value", "a number, or an expression such as =value * 2")
            return 0.0
        if isinstance(given, bool):
            return float(given)
        if isinstance(given, str) and given.startswith("="):
            template.check(given, self.names, fields.at("value"), self.report)
            return given
        if isinstance(given, str):
            try:
                return parse_value(given.strip())
            except Invalid:
                if is_text:
                    template.check_text(given, self.names, fields.at("value"), self.report)
                    return given
                hint = f"{given[:80]!r}: a number, or an expression such as =value * 2"
                self.report.add("not_a_number", fields.at("value"), hint)
                return 0.0
        found = number(given)
        if found is None:
            fields.wrong("value", "a finite number")
        return found or 0.0

    def _text(self, fields: Fields, name: str, default: str | None = None) -> str:
        text = fields.text(name)
        if not text:
            if default is None and fields.items.get(name) in (None, ""):
                fields.missing(name, "give a text")
            return default or ""
        template.check_text(text, self.names, fields.at(name), self.report)
        return text

    def _texts(self, fields: Fields, name: str) -> list[str]:
        found = []
        for i, item in enumerate(fields.list(name)):
            if isinstance(item, str) and item and len(item) <= 200:
                found.append(item)
            else:
                self.report.add(
                    "wrong_type", f"{fields.at(name)}[{i}]", "a text of 1 to 200 characters must stand here"
                )
        return found

    def _filled(self, fields: Fields, name: str, value: Any) -> Any:
        template.check(value, self.names, fields.at(name), self.report)
        return value
