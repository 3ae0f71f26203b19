"""kill -9 of the engine at any moment, real timers over a takeover, a restart of Redis: no alarm lost, none twice."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import servers
from tests.rules.engine_process import open_room
from tests.rules.rule_room import RuleRoom, rule, until
from tests.soak import repeats
from tradewind.clock import now_ms
from tradewind.redis.connection import open_link
from tradewind.rules.program import RuleProgram, Sample
from tradewind.settings import RedisSettings

RULES = 8
KILLS = repeats(4)
FOR_MS = 4000


@contextmanager
def engine_process(url: str, prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "tests.rules.engine_process", url, prefix]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, preexec_fn=servers.die_with_parent)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def acting_rule(number: int) -> dict[str, Any]:
    document = rule(f"r{number}", point=str(number), limit=50)
    document["actions"].append({"type": "submit_task", "parameters": {"type": "echo", "args": ["{rule.id}"]}})
    return document


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_killed_again_and_again_the_engine_loses_no_alarm_and_fires_none_twice(
    redis_7: servers.Server, key_prefix: str
) -> None:
    link = await open_link(RedisSettings(url=redis_7.url))
    room = open_room(link, key_prefix)
    chance = random.Random(11)
    rises = dict.fromkeys(range(RULES), 0)
    level = dict.fromkeys(range(RULES), 10.0)
    over = asyncio.Event()

    async def write() -> None:
        """Every write turns some rules over; the last one leaves half of them active."""
        while not over.is_set():
            turned = chance.sample(range(RULES), chance.randrange(1, RULES + 1))
            await turn(turned)
            await asyncio.sleep(0.03)
        await turn([number for number in range(RULES) if (level[number] > 50) != (number < RULES // 2)])

    async def turn(numbers: list[int]) -> None:
        for number in numbers:
            level[number] = 90.0 if level[number] < 50 else 10.0
            rises[number] += level[number] > 50
        if numbers:
            await room.write(now_ms(), {str(number): level[number] for number in numbers})
            await asyncio.sleep(0.002)  # the next write has a time of its own

    try:
        await room.store.apply([acting_rule(number) for number in range(RULES)])
        await room.write(now_ms(), {str(number): value for number, value in level.items()})
        with engine_process(redis_7.url, key_prefix):
            await until(lambda: _knows(room, RULES))
        writing = asyncio.create_task(write())
        for _ in range(KILLS):
            with engine_process(redis_7.url, key_prefix):
                before = await _cursor(room)
                await until(lambda before=before: _moved(room, before), 30)  # type: ignore[misc]
                await asyncio.sleep(chance.random() * 0.15)
        over.set()
        await writing
        with engine_process(redis_7.url, key_prefix):
            await until(lambda: _settled(room), 60)
        alarms = await room.alarms()
        for number in range(RULES):
            own = [alarm for alarm in alarms if alarm["rule_id"] == f"r{number}"]
            assert len(own) == rises[number], f"r{number}"
            assert {alarm["count"] for alarm in own} <= {"1"}
            is_open = [alarm for alarm in own if alarm["status"] == "New"]
            assert len(is_open) == (number < RULES // 2)
            history = await room.history.read(f"r{number}", limit=10_000)
            assert sum(execution.triggered for execution in history) == rises[number]
            assert all(execution.success for execution in history), history
        assert sum(rises.values()) > KILLS * RULES // 2
        ended = await room.plane.redis.llen(room.keys.queue("normal"))
        assert ended == sum(rises.values()), "each rise has submitted one task"
    finally:
        await link.close()


@pytest.mark.slow
async def test_killed_between_an_edge_and_the_cursor_memories_are_made_again_and_no_edge_comes_twice(
    redis_7: servers.Server, key_prefix: str
) -> None:
    """A sum over a window and a rate: one sample lost, or taken twice, and their edges are others from then on."""
    link = await open_link(RedisSettings(url=redis_7.url))
    room = open_room(link, key_prefix)
    chance = random.Random(7)
    source = {"source": "comsrv:1001:m:1"}
    documents = [
        rule(),
        rule("sum", conditions=[{"type": "window", "function": "sum", "window_ms": 3_600_000, "operator": ">",
                                 "value": 0, **source}]),
        rule("rate", conditions=[{"type": "rate", "operator": ">", "value": 0, **source}]),
        rule("to", conditions=[{"type": "change", "to": 80, **source}]),
    ]  # fmt: skip
    written = [(now_ms(), -1.0)]
    over = asyncio.Event()

    async def write() -> None:
        while not over.is_set():
            at, total = now_ms(), sum(value for _, value in written)
            written.append((at, chance.choice((80.0, 60.0, 100.0)) * (-1 if total > 0 else 1)))
            await room.write(at, {"1": written[-1][1]})
            await asyncio.sleep(chance.choice((0.005, 0.02)))

    try:
        await room.store.apply(documents)
        await room.write(written[0][0], {"1": written[0][1]})
        with engine_process(redis_7.url, key_prefix):
            await until(lambda: _knows(room, len(documents)), 30)
        writing = asyncio.create_task(write())
        between = 0
        for _ in range(KILLS):
            with engine_process(redis_7.url, key_prefix):
                cursor, edges = await _cursor(room), await _edges(room)
                await until(lambda edges=edges: _has_edges(room, edges), 30)  # type: ignore[misc]
                await asyncio.sleep(chance.choice((0.0, 0.05, 0.4, 1.2)))
            between += await _cursor(room) == cursor
        assert between >= KILLS // 4, "the engine was killed after edges whose entries are still behind the cursor"
        over.set()
        await writing
        with engine_process(redis_7.url, key_prefix):
            await until(lambda: _settled(room), 60)
        for document in documents:
            name = document["id"]
            program = RuleProgram((await room.store.load()).specs[name])
            state = program.fresh()
            told = [v for at, value in written for v in program.run(state, {source["source"]: Sample(value, at)}, at)]
            expected = [verdict.edge == "rise" for verdict in told if verdict.edge]
            history = await room.history.read(name, limit=100_000)
            assert [execution.triggered for execution in reversed(history)] == expected, name
            own = [alarm for alarm in await room.alarms() if alarm["rule_id"] == name]
            assert len(expected) > 2 * KILLS and sum(int(alarm["count"]) for alarm in own) == sum(expected)
    finally:
        await link.close()


async def test_a_duration_goes_on_in_the_next_process_and_ends_at_its_own_time(
    redis_7: servers.Server, key_prefix: str
) -> None:
    link = await open_link(RedisSettings(url=redis_7.url))
    room = open_room(link, key_prefix)
    try:
        await room.store.put(rule(for_ms=FOR_MS))
        await room.write(now_ms(), {"1": 10.0})
        with engine_process(redis_7.url, key_prefix) as first:
            await until(lambda: _knows(room, 1))
            with engine_process(redis_7.url, key_prefix):
                await until(lambda: _are_ready(room, 2), 60)
                began = now_ms()
                await room.write(began, {"1": 90.0})
                await until(room.is_caught_up)
                await asyncio.sleep(1)
                first.kill()
                alarm = (await room.alarms_become("New"))[0]
        late = int(alarm["first_seen"]) - (began + FOR_MS)
        assert 0 <= late <= 150, f"{late} ms late"
    finally:
        await link.close()


async def test_a_restart_of_redis_makes_no_false_edge(key_prefix: str) -> None:
    with servers.redis_server(appendonly=True, extra=("--appendfsync", "always")) as server:
        link = await open_link(RedisSettings(url=server.url))
        room = open_room(link, key_prefix)
        await room.store.apply([rule(), rule("other", point="2")])
        async with room.leading() as engine:
            await room.write(now_ms(), {"1": 90.0, "2": 10.0})
            await room.alarms_become("New")
            await until(room.is_caught_up)
            server.kill()
            server.start()
            rounds = engine.stats.rounds
            await until(lambda: _goes_on(engine, rounds), 30)
            assert [alarm["count"] for alarm in await room.alarms()] == ["1"]
            await room.write(now_ms(), {"1": 91.0, "2": 91.0})
            await room.alarms_become("New", "New", timeout_s=30)
            await room.write(now_ms() + 1, {"1": 10.0})
            await room.alarms_become("New", "Resolved", timeout_s=30)
        assert {alarm["count"] for alarm in await room.alarms()} == {"1"}
        await link.close()


async def _cursor(room: RuleRoom) -> bytes | None:
    found: bytes | None = await room.plane.redis.hget(room.keys.feed_cursors(), "rulesrv")
    return found


async def _edges(room: RuleRoom) -> int:
    return int(await room.plane.redis.xlen(room.keys.alarm_journal()))


async def _has_edges(room: RuleRoom, before: int) -> bool:
    return await _edges(room) > before + 3


async def _moved(room: RuleRoom, before: bytes | None) -> bool:
    return await _cursor(room) != before


async def _knows(room: RuleRoom, count: int) -> bool:
    return int(await room.plane.redis.hlen(room.keys.rule_states())) == count


async def _settled(room: RuleRoom) -> bool:
    """Everything was read, carried out and told."""
    left = await room.plane.redis.xlen(room.keys.rule_outbox()) + await room.plane.redis.llen(room.keys.rule_pending())
    return not left and await room.is_caught_up()


async def _are_ready(room: RuleRoom, count: int) -> bool:
    return int(await room.plane.redis.get(f"{room.settings.key_prefix}test:ready") or 0) >= count


async def _goes_on(engine: Any, rounds: int) -> bool:
    return bool(engine.is_leading and engine.stats.rounds != rounds)
