"""Rules as data: what a document means once it is read and checked (document.py). Frozen. Times in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tradewind.alarms.record import STATION

OPERATORS = (">", "<", ">=", "<=", "==", "!=", "contains", "regex")
#: Those that order numbers; the only ones for rates and windows beside == and !=.
ORDERING = frozenset((">", "<", ">=", "<="))
FUNCTIONS = ("avg", "min", "max", "count", "stddev", "sum")
LOGICS = ("all", "any")
ON_BAD = ("hold", "false", "true")
ON_STARTUP = ("skip", "run")
EDGES = ("rise", "fall", "both")
#: Names of alarm levels by what may be written for them, in lower case.
LEVELS = {
    "critical": "Critical", "high": "High", "major": "High", "medium": "Medium", "minor": "Medium",
    "low": "Low", "warning": "Low", "info": "Info",
}  # fmt: skip
#: Whose alarms are no rule's: faults of the station, and what programs raise without naming one.
BUILT_IN = frozenset((STATION, "external"))
STATUSES = ("New", "Acknowledged", "Escalated", "Suppressed", "Resolved", "Closed")


class Compare(msgspec.Struct, frozen=True, omit_defaults=True, tag="compare"):
    """`value` is a number where the text of the document is one, else text; contains and regex always have text."""

    source: str
    operator: str
    value: float | str
    field: str = ""
    hysteresis: float = 0.0
    for_ms: int = 0


class Range(msgspec.Struct, frozen=True, omit_defaults=True, tag="range"):
    """True within the bounds, which belong to it; with `inside` false, true outside of them."""

    source: str
    min: float | None = None
    max: float | None = None
    inside: bool = True
    field: str = ""
    hysteresis: float = 0.0
    for_ms: int = 0


class Rate(msgspec.Struct, frozen=True, omit_defaults=True, tag="rate"):
    """Change per second between the two newest samples, or with `over_ms` between the newest and the oldest that is not
    older than so long before it (when there is none, the one before the newest)."""

    source: str
    operator: str
    value: float
    over_ms: int = 0
    field: str = ""
    hysteresis: float = 0.0
    for_ms: int = 0


class Window(msgspec.Struct, frozen=True, omit_defaults=True, tag="window"):
    """Over the good samples of the last `window_ms`, by event time. `stddev` is that of a sample."""

    source: str
    function: str
    window_ms: int
    operator: str
    value: float
    field: str = ""
    hysteresis: float = 0.0
    for_ms: int = 0


class Change(msgspec.Struct, frozen=True, omit_defaults=True, tag="change"):
    """True from a change of the value (away from `before`, to `after`, where given) until the next change. Another
    change that fits makes it false for an instant first, so that it is an edge again."""

    source: str
    before: float | str | None = None
    after: float | str | None = None
    field: str = ""
    for_ms: int = 0


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, tag="schedule"):
    """True for `duration_ms` from each moment of the cron on."""

    cron: str
    duration_ms: int = 60_000
    timezone: str = "UTC"
    field: str = ""
    for_ms: int = 0


class Formula(msgspec.Struct, frozen=True, omit_defaults=True, tag="expression"):
    """`inputs`: name in the expression → address. Numbers other than 0 are true."""

    expression: str
    inputs: dict[str, str]
    field: str = ""
    for_ms: int = 0


class AlarmOpen(msgspec.Struct, frozen=True, omit_defaults=True, tag="alarm"):
    """True while an alarm of that rule is open; `alarm_source`: of that source only; `statuses`: in one of these only.

    Its samples (1 or 0) come from the engine under `address`."""

    rule_id: str
    alarm_source: str = ""
    statuses: tuple[str, ...] = ()
    field: str = ""
    for_ms: int = 0

    @property
    def address(self) -> str:
        """`alarm:{rule_id}`, with filters `alarm:{rule_id}|{source}|{status,status}`."""
        if not self.alarm_source and not self.statuses:
            return f"alarm:{self.rule_id}"
        return f"alarm:{self.rule_id}|{self.alarm_source}|{','.join(self.statuses)}"


class Group(msgspec.Struct, frozen=True, omit_defaults=True, tag="group"):
    """`negated`: true when its conditions together are false, and false when they are true; unknown stays that."""

    logic: str
    conditions: tuple[Condition, ...]
    negated: bool = False


Leaf = Compare | Range | Rate | Window | Change | Schedule | Formula | AlarmOpen
Condition = Leaf | Group


class CreateAlarm(msgspec.Struct, frozen=True, omit_defaults=True, tag="create_alarm"):
    """Texts are templates (template.py). `escalate_ms` None: as the settings say; `notify` None: as the policy says."""

    level: str
    title: str
    description: str = ""
    category: str = "general"
    tags: tuple[str, ...] = ()
    latched: bool = False
    escalate_ms: int | None = None
    notify: tuple[str, ...] | None = None
    on: str = "rise"


class SendControl(msgspec.Struct, frozen=True, omit_defaults=True, tag="send_control"):
    """`value` is a number or an expression that begins with `=`. `address` of a point (kind c or a); `` when the kind
    follows from the value, then it is that of `channel_id` and `point_id`: `address_for(value)`."""

    value: float | str
    address: str = ""
    channel_id: str = ""
    point_id: str = ""
    on: str = "rise"

    def address_for(self, value: float) -> str:
        if self.address:
            return self.address
        return f"comsrv:{self.channel_id}:{'c' if value in (0, 1) else 'a'}:{self.point_id}"


class SendNotification(msgspec.Struct, frozen=True, omit_defaults=True, tag="send_notification"):
    """`recipients` are names of targets of the notification policy."""

    message: str
    recipients: tuple[str, ...] = ()
    on: str = "rise"


class LogEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag="log_event"):
    message: str
    level: str = "info"
    on: str = "rise"


class StartFlow(msgspec.Struct, frozen=True, omit_defaults=True, tag="start_flow"):
    flow_id: str
    payload: dict[str, Any] = {}
    on: str = "rise"


class SubmitTask(msgspec.Struct, frozen=True, omit_defaults=True, tag="submit_task"):
    task_type: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    on: str = "rise"


class SetValue(msgspec.Struct, frozen=True, omit_defaults=True, tag="set_value"):
    """A control value of a model; `value` as that of SendControl, or a text (a template)."""

    model: str
    field: str
    value: float | str
    on: str = "rise"


Action = CreateAlarm | SendControl | SendNotification | LogEvent | StartFlow | SubmitTask | SetValue


def kind_of(part: Action | Condition) -> str:
    """As the document calls it: `send_control`, `compare`, …"""
    return str(type(part).__struct_config__.tag)


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """`hysteresis` has reached the conditions already. `inhibited_by`: rules whose open alarms suppress this one's."""

    id: str
    name: str = ""
    description: str = ""
    group_id: str = ""
    enabled: bool = True
    priority: int = 0
    logic: str = "all"
    conditions: tuple[Condition, ...] = ()
    actions: tuple[Action, ...] = ()
    for_ms: int = 0
    off_delay_ms: int = 0
    cooldown_ms: int = 0
    hysteresis: float = 0.0
    on_bad: str = "hold"
    on_startup: str = "skip"
    inhibited_by: tuple[str, ...] = ()
    latched: bool = False
    version: int = 0
    created_at: str = ""
    updated_at: str = ""

    def leaves(self) -> Iterator[Leaf]:
        """All conditions that are no groups, in the order of the document."""
        return leaves_of(self.conditions)

    @property
    def addresses(self) -> tuple[str, ...]:
        """What it reads, without repetition: points, models' fields, `alarm:…`; the first is its `source`."""
        return tuple(dict.fromkeys(address for leaf in self.leaves() for address in sources_of(leaf)))

    @property
    def source(self) -> str:
        """The source of its alarms: the first address it reads, `rule:{id}` when it reads none (only schedules)."""
        return next((address for address in self.addresses if not address.startswith("alarm:")), f"rule:{self.id}")

    @property
    def is_acting(self) -> bool:
        """It does something that cannot be taken back: more than alarms, notifications and log entries."""
        return any(isinstance(action, (SendControl, StartFlow, SubmitTask, SetValue)) for action in self.actions)


def leaves_of(conditions: tuple[Condition, ...]) -> Iterator[Leaf]:
    for condition in conditions:
        if isinstance(condition, Group):
            yield from leaves_of(condition.conditions)
        else:
            yield condition


def sources_of(leaf: Leaf) -> tuple[str, ...]:
    """The addresses that a condition reads."""
    if isinstance(leaf, Schedule):
        return ()
    if isinstance(leaf, Formula):
        return tuple(leaf.inputs.values())
    if isinstance(leaf, AlarmOpen):
        return (leaf.address,)
    return (leaf.source,)
