"""Reading which alarms are open: for conditions on alarms, and at the start for rules that are not active any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType
from tradewind.redis.text import text_of
from tradewind.rules.edge import wanted_of
from tradewind.rules.effects import pack_clear
from tradewind.rules.network import RuleNetwork
from tradewind.rules.spec import AlarmOpen
from tradewind.rules.verdict import Sample


async def alarm_samples(plane: PointPlane, conditions: Mapping[str, AlarmOpen], now_ms: int) -> dict[str, Sample]:
    """By address: 1 while an alarm as the condition wants it is open, else 0; left out where that cannot be told,
    because another program has written to a key. Raises Unavailable."""
    if not conditions:
        return {}
    keys = plane.keys
    rules = list(dict.fromkeys(condition.rule_id for condition in conditions.values()))
    replies = await plane.home.ask_each([("SMEMBERS", keys.alarm_rule(rule_id)) for rule_id in rules])
    ids = {
        rule_id: None if isinstance(found, WrongType) else list(map(text_of, found))
        for rule_id, found in zip(rules, replies, strict=True)
    }
    flat = [alarm for found in ids.values() for alarm in found or ()]
    asked = [("HMGET", keys.alarm(alarm), "source_point", "status") for alarm in flat]
    rows: dict[str, Any] = dict(zip(flat, await plane.home.ask_each(asked) if flat else (), strict=True))
    samples: dict[str, Sample] = {}
    for address, condition in conditions.items():
        alarms = ids[condition.rule_id]
        found = None if alarms is None else [_is_wanted(condition, rows[alarm]) for alarm in alarms]
        if found is not None and (True in found or None not in found):
            samples[address] = Sample(float(True in found), now_ms)
    return samples


def _is_wanted(condition: AlarmOpen, row: Any) -> bool | None:
    """None: it cannot be told."""
    if isinstance(row, WrongType):
        return None
    source, status = map(text_of, row)
    is_of_source = not condition.alarm_source or source == condition.alarm_source
    return is_of_source and (not condition.statuses or status in condition.statuses)


async def journal_place(plane: PointPlane) -> bytes:
    """Moves whenever an alarm does. Raises Unavailable."""
    with translated(plane.link):
        last = await plane.redis.xrevrange(plane.keys.alarm_journal(), count=1)
    return last[0][0] if last else b""


class LeftOpen:
    """Alarms that were open when a term began, of rules that turn out to be false: edited ones begin afresh and have no
    edge that clears them."""

    def __init__(self, slots: set[tuple[str, str]] | None = None) -> None:
        self._slots = slots or set()

    @classmethod
    async def read(cls, plane: PointPlane) -> LeftOpen:
        """Raises Unavailable."""
        with translated(plane.link):
            fields = await plane.redis.hkeys(plane.keys.alarm_open())
        return cls({(rule_id, source) for rule_id, _, source in (text_of(field).partition("|") for field in fields)})

    def steps(self, network: RuleNetwork) -> list[bytes]:
        """What resolves those of which it is known by now; each once."""
        steps: list[bytes] = []
        for slot in list(self._slots):
            rule_id, source = slot
            program = network.programs.get(rule_id)
            if program is not None and program.rule.source == source:
                state = network.states[rule_id]
                if not state.is_active:
                    if wanted_of(program.rule, program.level(state)) is not False:
                        continue
                    steps.append(pack_clear(rule_id, source))
            self._slots.discard(slot)
        return steps
