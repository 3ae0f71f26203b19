"""The reader of cron lines."""

from __future__ import annotations

import pytest

from tests.rules.rule_room import rule
from tradewind.cron import read_cron
from tradewind.errors import Invalid
from tradewind.flows.slots import parse_cron
from tradewind.rules.document import read_rule
from tradewind.tasks.periodic import Schedule, check_schedule


@pytest.mark.parametrize("line", ["*/5 8-17 * * 1-5", "0 0 29 2 *", "0 8 1,15 JAN MON#1", "0 0 L * *"])
def test_five_fields(line: str) -> None:
    assert read_cron(f" {line.replace(' ', '  ')}\n") == line


#: Six fields would be read as seconds and five more by the library: a schedule sixty times as quick as it looks.
BAD = {
    "": "five", "* * * *": "five", "* * * * * *": "five", "0 0 8 * * 1": "five", "@daily": "five", "² * * * *": "five",
    "61 * * * *": "Bad minute", "0 0 30 2 *": "day-of-month", "0 0 31 4,6 *": "day-of-month",
}  # fmt: skip


@pytest.mark.parametrize("line", BAD)
def test_anything_else_is_refused_wherever_it_is_written(line: str) -> None:
    with pytest.raises(ValueError, match=BAD[line]):
        read_cron(line)
    with pytest.raises(Invalid):
        parse_cron(line)
    with pytest.raises(Invalid):
        check_schedule(Schedule("s", "a", cron=line))
    found, problems = read_rule(rule(conditions=[{"type": "schedule", "cron": line}]))
    assert found is None and problems
