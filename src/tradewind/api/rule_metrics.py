"""Figures of rules, alarms and notifications for Prometheus."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tradewind.api.rule_room import RuleServices


class RuleFiguresMetrics:
    def __init__(self, room: RuleServices) -> None:
        self._room = room

    async def collect(self) -> list[Metric]:
        return [*await self._of_rules(), *await self._of_alarms(), *await self._of_notifications()]

    async def _of_rules(self) -> list[Metric]:
        rules, now = self._room.rules, await self._room.rules.load()
        totals = await rules.history.totals()
        enabled = sum(1 for spec in now.specs.values() if spec.enabled)
        by_state = GaugeMetricFamily("tradewind_rules", "Rules by whether they are judged.", labels=["state"])
        by_state.add_metric(["enabled"], enabled)
        by_state.add_metric(["disabled"], len(now.specs) - enabled)
        by_state.add_metric(["faulty"], len(now.rules) - len(now.specs))
        plane = self._room.plane
        (waiting,) = await plane.home.ask([("XLEN", plane.keys.rule_outbox())])
        return [
            by_state,
            CounterMetricFamily("tradewind_rule_executions", "Edges of rules.", totals["executions"]),
            CounterMetricFamily("tradewind_rule_triggered", "Of these: became active.", totals["triggered"]),
            CounterMetricFamily("tradewind_rule_failed", "Of these: an action failed.", totals["failed"]),
            CounterMetricFamily("tradewind_rule_seconds", "Time that executions took.", totals["ms"] / 1000),
            GaugeMetricFamily("tradewind_rule_outbox_waiting", "Executions whose actions are not done.", waiting),
        ]

    async def _of_alarms(self) -> list[Metric]:
        found = await self._room.statistics(1)
        is_open = GaugeMetricFamily("tradewind_alarms_open", "Open alarms by level.", labels=["level"])
        raised = CounterMetricFamily("tradewind_alarms_raised", "New alarms by level.", labels=["level"])
        for level, count in found.open.items():
            is_open.add_metric([level], count)
        for level, count in found.raised_by_level.items():
            raised.add_metric([level], count)
        statuses = GaugeMetricFamily("tradewind_alarms", "Alarms by status.", labels=["status"])
        for status, count in found.statuses.items():
            statuses.add_metric([status], count)
        dropped = CounterMetricFamily(
            "tradewind_alarm_journal_dropped",
            "Transitions that a reader never had: the journal was full.",
            labels=["reader"],
        )
        for reader, count in found.journal_dropped.items():
            dropped.add_metric([reader], count)
        waiting = found.journal_waiting
        return [
            is_open,
            raised,
            statuses,
            CounterMetricFamily("tradewind_alarms_acknowledged", "Alarms acknowledged.", found.acknowledged),
            CounterMetricFamily("tradewind_alarms_resolved", "Alarms resolved.", found.resolved),
            GaugeMetricFamily("tradewind_alarms_standing", "Open for more than a day.", found.standing),
            GaugeMetricFamily("tradewind_alarm_flood", "1 while there is a flood.", int(found.is_flood)),
            GaugeMetricFamily("tradewind_alarm_journal_waiting", "Transitions that not all readers have yet.", waiting),
            dropped,
            GaugeMetricFamily("tradewind_notify_outbox_waiting", "Messages not planned yet.", found.outbox_waiting),
            CounterMetricFamily("tradewind_notify_outbox_dropped", "Messages nobody was told.", found.outbox_dropped),
        ]

    async def _of_notifications(self) -> list[Metric]:
        plane = self._room.plane
        (jobs,) = await plane.home.ask([("HLEN", plane.keys.notify_jobs())])
        return [
            GaugeMetricFamily("tradewind_notify_deliveries_open", "Deliveries that have not ended.", jobs),
        ]
