"""Random raises, clears, faults, operators, timers, clock jumps, restarts and cut connections, on every Redis.

TRADEWIND_TEST_SEED repeats a run; the seed is printed. The mutants show that the checks would notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from tests import servers
from tests.alarms.machine import AlarmMachine, CutScripts
from tests.soak import repeats
from tradewind.redis.connection import open_link
from tradewind.redis.scripts import Arg, Call, source
from tradewind.settings import RedisSettings

QUICK = settings(
    deadline=None, database=None, print_blob=True, derandomize=False, suppress_health_check=list(HealthCheck)
)


@pytest.fixture
def machine(
    any_redis: servers.Server | servers.Cluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[type[AlarmMachine]]:
    # Hundreds of calls are cut: the pause before each repeat was most of the time, and changes nothing.
    monkeypatch.setattr("tradewind.redis.scripts.random", SimpleNamespace(uniform=lambda low, high: 0.0))
    with asyncio.Runner() as runner:
        link = runner.run(open_link(RedisSettings(url=any_redis.url)))
        yield type("Life", (AlarmMachine,), {"runner": runner, "link": link})
        runner.run(link.close())


def live(machine: type[AlarmMachine], chosen: settings) -> None:
    number = int(os.environ.get("TRADEWIND_TEST_SEED") or secrets.randbits(32))
    print(f"TRADEWIND_TEST_SEED={number}")  # noqa: T201 — shown by pytest when the test fails
    run_state_machine_as_test(seed(number)(machine), settings=chosen)


@pytest.mark.timeout(300)
def test_no_index_disagrees_and_no_alarm_is_lost_or_doubled(
    machine: type[AlarmMachine], request: pytest.FixtureRequest
) -> None:
    on_redis_7 = request.node.callspec.params["any_redis"] == "redis_7"
    live(machine, settings(QUICK, max_examples=repeats(20 if on_redis_7 else 6), stateful_step_count=40))


#: Script, what stands there, what stands there instead, what must be noticed.
MUTANTS = {
    "the nonce is not looked at": (
        "alarm_raise",
        "if before then return { before, before == a.id } end",
        "",
        "counted twice|said to be new",
    ),
    "the status index is left behind": (
        "alarm_act",
        "if not has[key] then redis.call('SREM', key, id) end",
        "if not has[key] and not string.find(key, ':status:') then redis.call('SREM', key, id) end",
        r"indexes disagree with the records: \[\('alarm:status:",
    ),
    "the slot stays taken": (
        "alarm_clear",
        "redis.call('HDEL', A .. 'open', new.slot)",
        "redis.call('PING')",
        r"indexes disagree with the records: \[\('alarm:open'",
    ),
    "a level moves no index": (
        "alarm_raise",
        "level = a.level, priority",
        "priority",
        "the priority is not that of the level",
    ),
}


def mutated(name: str, old: str, new: str) -> type[CutScripts]:
    """Scripts of which one differs. The server keeps both: they have different SHAs."""
    text = source("tradewind.alarms", name)
    assert old in text, f"the mutant of {name} does not apply any more"
    text = text.replace(old, new, 1)

    class Mutated(CutScripts):
        is_steady = True

        def command(self, call: Call) -> tuple[Arg, ...]:
            command = super().command(call)
            if call[0] != name:
                return command
            return (command[0], hashlib.sha1(text.encode()).hexdigest(), *command[2:])

        async def load(self, calls: Sequence[Call]) -> None:
            await super().load(calls)
            await self.link.client.script_load(text)

    return Mutated


@pytest.mark.timeout(300)
@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_script_is_noticed(mutant: str, machine: type[AlarmMachine]) -> None:
    *change, noticed = MUTANTS[mutant]
    broken: Any = type("BrokenLife", (machine,), {"scripts": mutated(*change), "with_chance": False})
    chosen = settings(
        QUICK, max_examples=400, stateful_step_count=40, phases=[Phase.generate], report_multiple_bugs=False
    )
    with pytest.raises(AssertionError, match=noticed):
        for _ in range(3):
            with contextlib.suppress(FlakyStrategyDefinition):  # what is broken draws otherwise the second time
                live(broken, chosen)
