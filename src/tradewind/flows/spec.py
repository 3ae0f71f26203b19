"""A flow as data: what Weather Syntax means once it is read, and what a node type offers. Frozen, no behaviour.

`syntax.py` makes these from JSON or YAML, `plan.py` turns them into what Redis runs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class TriggerRule(StrEnum):
    """When a node runs, once each of its inputs is a value or a tombstone."""

    ALL_SUCCESS = "all_success"
    NONE_FAILED = "none_failed"
    ANY_SUCCESS = "any_success"
    ALL_DONE = "all_done"


class Handle(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input or output of a node type. `type` is any, bool, int, float, str, list, dict, or several joined by `|`.

    `external`: filled from outside (an operator, a foreign program, the run's own request), never required to have an
    edge. `max_age_s`: an older signal counts as missing.
    """

    name: str
    type: str = "any"
    required: bool = True
    aggregate: bool = False
    unit: str = ""
    description: str = ""
    default: Any = None
    external: bool = False
    max_age_s: float | None = None


class NodeType(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `GET /node-types` shows and what a flow is checked against. `open_inputs`, `open_outputs`: any other handle
    name is fine, too (an expression takes whatever it is wired to)."""

    type: str
    description: str = ""
    category: str = "general"
    inputs: tuple[Handle, ...] = ()
    outputs: tuple[Handle, ...] = ()
    config_schema: dict[str, Any] = {}
    open_inputs: bool = False
    open_outputs: bool = False
    timeout_s: float = 0
    retries: int = 0


class Edge(msgspec.Struct, frozen=True):
    source: str
    source_handle: str
    target: str
    target_handle: str


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """`inputs`: values for handles that no edge feeds. timeout, backoff: seconds; 0 and None: the type's, or the
    station's. `external`: handles of this node that wait for a signal from outside."""

    id: str
    type: str
    config: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS
    timeout_s: float = 0
    retries: int | None = None
    backoff_s: float = 1.0
    labels: tuple[str, ...] = ()
    priority: str = "normal"
    external: tuple[str, ...] = ()


class ScheduleSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """When cycles start. `interval_ms` 0 and no cron: once. Slots of an interval count from `anchor_ms` (0: the moment
    the flow is started). `grace_s`: how late a slot may start before the misfire policy applies (0: a second at least,
    the interval at most, never more than 60 s)."""

    interval_ms: int = 0
    cron: str = ""
    anchor_ms: int = 0
    misfire: str = "latest"
    overlap: str = "buffer_latest"
    grace_s: float = 0
    manual: bool = False


class FlowSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """`cycle_timeout_s`, `signal_ttl_s` 0: the station's, the cycle's. `max_failures`: so many failed cycles in a row
    end the flow as failed (0: never). `on_failure`: isolate, stop_component or stop_flow."""

    id: str
    schedule: ScheduleSpec
    nodes: tuple[NodeSpec, ...]
    edges: tuple[Edge, ...] = ()
    description: str = ""
    cycle_timeout_s: float = 0
    signal_ttl_s: float = 0
    max_failures: int = 0
    on_failure: str = "isolate"
    webhook: bool = False
    triggers: tuple[dict[str, Any], ...] = ()
    config: dict[str, Any] = {}
