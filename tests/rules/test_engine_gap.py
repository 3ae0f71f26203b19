"""kill -9 of the engine at each step of a rule's life, with excursions while nobody judges: each raises once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests import servers
from tests.rules.engine_process import open_room
from tests.rules.rule_room import RuleRoom, rule, until
from tests.rules.test_engine_kill import engine_process
from tradewind.clock import now_ms
from tradewind.errors import Unavailable
from tradewind.points.batch import Batch
from tradewind.redis.connection import open_link
from tradewind.redis.scripts import Scripts
from tradewind.rules.program import RuleProgram, Sample
from tradewind.settings import RedisSettings

SOURCE = "comsrv:1001:m:1"
#: Value, and how long it stands in seconds.
EXCURSIONS = [(90.0, 0.003), (10.0, 0.003)] * 5


class Life:
    """A rule's life over engines that are killed: what was written since it was saved, and what that must raise."""

    def __init__(self, room: RuleRoom, url: str) -> None:
        self.room = room
        self.url = url
        self.samples: list[tuple[int, float]] = []

    def engine(self) -> Any:
        return engine_process(self.url, self.room.settings.key_prefix)

    async def write(self, values: Sequence[tuple[float, float]]) -> None:
        for value, stands_s in values:
            at = max(now_ms(), self.samples[-1][0] + 1 if self.samples else 0)
            self.samples.append((at, value))
            await self.room.write(at, {"1": value})
            await asyncio.sleep(stands_s)

    async def burst(self) -> None:
        """20 excursions of 50 ms each within two seconds, in one call."""
        start = self.samples[-1][0] + 1
        self.samples += [(start + 50 * n, 90.0 if n % 2 == 0 else 10.0) for n in range(40)]
        batches = [Batch.of_channel("1001", "m", {"1": value}, at) for at, value in self.samples[-40:]]
        await asyncio.sleep(max(0.0, (self.samples[-1][0] - now_ms()) / 1000))  # no reading is of a time to come
        await self.room.board.write(batches)

    async def judges(self, count: int) -> None:
        await until(lambda: self._is_at_least("judges", count), 60)

    async def hold(self, script: str) -> None:
        await self.room.plane.redis.set(f"{self.room.settings.key_prefix}test:hold", script)

    async def is_held(self) -> None:
        await until(self._is_held, 60)

    async def release(self) -> None:
        await self.room.plane.redis.delete(f"{self.room.settings.key_prefix}test:hold")

    async def end(self, *rule_ids: str) -> None:
        """Engines judge all that is left; what became of it must be what one engine that never died makes of it."""
        with self.engine():
            await until(self._is_settled, 60)
            specs = (await self.room.store.load()).specs
            for rule_id in rule_ids or ["hot"]:
                program = RuleProgram(specs[rule_id])
                state = program.fresh()
                told = [v for at, x in self.samples for v in program.run(state, {SOURCE: Sample(x, at)}, at)]
                told += program.past(state, now_ms())
                expected = [verdict.edge for verdict in told if verdict.edge]
                assert "rise" in expected, "the test must try something"
                await self._has_told(rule_id, len(expected))
                history = await self.room.history.read(rule_id, limit=1000)
                edges = ["rise" if run.triggered else "fall" for run in reversed(history)]
                if any(run.actions_executed == ["create_alarm", "submit_task"] for run in history):
                    edges, expected = sorted(edges), sorted(expected)  # what acts is told when it has acted
                assert edges == expected, (rule_id, self.samples, [run.timestamp for run in reversed(history)])
                own = [alarm for alarm in await self.room.alarms() if alarm["rule_id"] == rule_id]
                assert sum(int(alarm["count"]) for alarm in own) == expected.count("rise"), rule_id
                assert len(own) == expected.count("rise")

    async def _is_at_least(self, name: str, count: int) -> bool:
        return int(await self.room.plane.redis.get(f"{self.room.settings.key_prefix}test:{name}") or 0) >= count

    async def _is_held(self) -> bool:
        return bool(await self.room.plane.redis.exists(f"{self.room.settings.key_prefix}test:held"))

    async def _is_settled(self) -> bool:
        left = await self.room.plane.redis.xlen(self.room.keys.rule_outbox())
        left += await self.room.plane.redis.llen(self.room.keys.rule_pending())
        return not left and await self.room.is_caught_up()

    async def _has_told(self, rule_id: str, count: int) -> None:
        async def is_so() -> bool:
            return int(await self.room.plane.redis.llen(self.room.keys.rule_history(rule_id))) >= count

        try:
            await until(is_so, 30)
        except TimeoutError:
            found = await self.room.history.read(rule_id, limit=1000)
            told = [(run.timestamp, run.triggered, run.cause) for run in reversed(found)]
            raise AssertionError(f"{rule_id}: {told} instead of {count} of {self.samples}") from None


@pytest.fixture
async def life(redis_7: servers.Server, key_prefix: str) -> AsyncIterator[Life]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield Life(open_room(link, key_prefix), redis_7.url)
    await link.close()


async def test_excursions_between_saving_a_rule_and_loading_it_raise(life: Life) -> None:
    with life.engine():
        await life.judges(1)
    await life.room.write(now_ms() - 5, {"1": 99.0})  # before the rule was there: none of its business
    await life.room.write(now_ms(), {"1": 10.0})
    await life.room.store.put(rule())
    await life.write(EXCURSIONS)
    await life.end()


async def test_a_source_that_did_not_move_since_the_rule_was_saved_counts_as_it_stands(life: Life) -> None:
    with life.engine():
        await life.judges(1)
    await life.room.write(now_ms(), {"2": 50.0})
    document = rule()
    document["conditions"].append({"operator": ">", "value": 40, "source": "comsrv:1001:m:2"})
    await life.room.store.put(document)
    await life.write(EXCURSIONS)
    with life.engine():
        await until(life._is_settled, 60)
        assert [alarm["count"] for alarm in await life.room.alarms()] == ["1"] * 5


async def test_excursions_after_a_kill_between_loading_a_rule_and_storing_that_raise(life: Life) -> None:
    with life.engine():
        await life.judges(1)
    await life.room.store.put(rule())
    await life.hold("rule_commit")
    with life.engine():
        await life.write([(10.0, 0)])
        await life.is_held()
    await life.release()
    await life.write(EXCURSIONS)
    await life.end()


async def test_excursions_after_a_kill_before_the_first_value_raise(life: Life) -> None:
    await life.room.store.put(rule())
    with life.engine():
        await life.judges(1)
    await life.write(EXCURSIONS)
    await life.end()


async def test_a_rule_that_another_program_wrote_is_followed_from_when_it_was_loaded(life: Life) -> None:
    """By the Redis protocol: SET and SADD, without a notice."""
    room = life.room
    await room.store.put(rule())
    document = await room.plane.redis.get(room.keys.rule("hot"))
    await room.store.remove("hot")
    await room.plane.redis.set(room.keys.rule("hot"), document)
    await room.plane.redis.sadd(room.keys.rules(), "hot")
    with life.engine():
        await life.judges(1)
    await life.write(EXCURSIONS)
    await life.end()


async def test_excursions_after_a_kill_between_the_first_value_and_its_commit_raise(life: Life) -> None:
    await life.room.store.put(rule())
    with life.engine():
        await life.judges(1)
        await life.hold("rule_commit")
        await life.write([(10.0, 0)])
        await life.is_held()
    await life.release()
    await life.write(EXCURSIONS)
    await life.end()


async def test_excursions_after_a_kill_before_the_commit_of_an_edge_raise(life: Life) -> None:
    await life.room.store.put(rule())
    with life.engine():
        await life.judges(1)
        await life.write([(10.0, 0.1)])
        await until(life.room.is_caught_up)
        await life.hold("rule_commit")
        await life.write([(90.0, 0)])
        await life.is_held()
    await life.release()
    await life.write([(10.0, 0.01), *EXCURSIONS])
    await life.end()


async def test_excursions_after_a_kill_between_commit_and_apply_of_a_big_round_raise(life: Life) -> None:
    names = [f"r{number}" for number in range(12)]
    await life.room.store.apply([rule(name) for name in names])
    with life.engine():
        await life.judges(1)
        await life.write([(10.0, 0.1)])
        await until(life.room.is_caught_up)
        await life.hold("rule_apply")
        await life.write([(90.0, 0)])
        await life.is_held()
        assert await life.room.plane.redis.llen(life.room.keys.rule_pending())
    await life.release()
    await life.write([(10.0, 0.01), *EXCURSIONS])
    await life.end(*names)


async def test_excursions_after_a_kill_between_an_action_and_its_note_raise_and_act_once(life: Life) -> None:
    document = rule()
    document["actions"].append({"type": "submit_task", "parameters": {"type": "echo", "args": ["{rule.id}"]}})
    await life.room.store.put(document)
    with life.engine():
        await life.judges(1)
        await life.write([(10.0, 0.1)])
        await until(life.room.is_caught_up)
        await life.hold("rule_done")
        await life.write([(90.0, 0)])
        await life.is_held()
    await life.release()
    await life.write([(10.0, 0.01), *EXCURSIONS])
    await life.end()
    assert await life.room.plane.redis.llen(life.room.keys.queue("normal")) == 6


@pytest.mark.parametrize("is_killed", [False, True])
async def test_twenty_short_excursions_of_one_burst_raise_twenty_times(life: Life, is_killed: bool) -> None:
    """Readings with their own times, written by one call, as after a queue of a device was read."""
    await life.room.store.apply([rule(), rule("slow", for_ms=60)])
    with life.engine():
        await life.judges(1)
        await life.write([(10.0, 0.1)])
        await until(life.room.is_caught_up)
        if not is_killed:
            await life.burst()
            await until(life.room.is_caught_up)
    if is_killed:
        await life.burst()
    await life.end()
    assert len([alarm for alarm in await life.room.alarms() if alarm["rule_id"] == "hot"]) == 20
    assert not [alarm for alarm in await life.room.alarms() if alarm["rule_id"] == "slow"], "none was that long"


async def test_what_could_not_be_stored_is_judged_and_stored_again(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each third round fails to be stored, before or after the server has it."""
    run, rounds = Scripts.run, itertools.count(1)

    async def fails_at_times(self: Scripts, name: str, *rest: Any) -> Any:
        turn = next(rounds) % 6 if name in ("rule_commit", "rule_apply", "rule_done") else 0
        if turn == 3:
            raise Unavailable("gone before it was stored", code="redis_unavailable")
        found = await run(self, name, *rest)
        if turn == 5:
            raise Unavailable("gone before it was told", code="redis_unavailable")
        return found

    monkeypatch.setattr(Scripts, "run", fails_at_times)
    monkeypatch.setattr("tradewind.rules.engine.TROUBLE_PAUSE_S", 0.01)
    document = rule()
    document["actions"].append({"type": "submit_task", "parameters": {"type": "echo", "args": ["{rule.id}"]}})
    await life.room.store.apply([document, rule("sum", **WAITING["a window that is half filled"][0])])
    async with life.room.engine(entries=20, steps_a_call=4):
        await life.write([(90.0, 0.05), (10.0, 0.05)] * 8)
        await until(life._is_settled, 60)
    assert next(rounds) > 12, "many were stored, and some were not"
    monkeypatch.undo()
    await life.end("hot", "sum")
    submitted = await life.room.plane.redis.llen(life.room.keys.queue("normal"))
    assert submitted == 7, "each rise once; the first level of all is a start, which does not act"


WAITING: dict[str, tuple[dict[str, Any], list[tuple[float, float]], list[tuple[float, float]]]] = {
    "for_ms, which is broken off in the gap": (
        {"for_ms": 2000},
        [(10.0, 0.1), (90.0, 1.2)],
        [(10.0, 0.01), (90.0, 2.1), (10.0, 0.01), (90.0, 0.3), (10.0, 0.01)],
    ),
    "off_delay_ms, which is broken off in the gap": (
        {"off_delay_ms": 2000},
        [(10.0, 0.1), (90.0, 0.1), (10.0, 1.2)],
        [(90.0, 0.01), (10.0, 2.1), (90.0, 0.01), (10.0, 2.1)],
    ),
    "cooldown_ms, which ends in the gap": (
        {"cooldown_ms": 2500},
        [(10.0, 0.1), (90.0, 0.1), (10.0, 1.2)],
        [(90.0, 0.01), (10.0, 1.5), (90.0, 0.01), (10.0, 0.01)],
    ),
    "a window that is half filled": (
        {"conditions": [{"type": "window", "function": "avg", "window_ms": 1500, "operator": ">", "value": 50,
                         "source": SOURCE}]},
        [(10.0, 0.5), (30.0, 1.2)],
        [(90.0, 0.4), (10.0, 1.0), (200.0, 0.1), (5.0, 0.01)],
    ),
    "a rate": (
        {"conditions": [{"type": "rate", "operator": ">", "value": 0, "source": SOURCE}]},
        [(10.0, 1.2)],
        [(20.0, 0.01), (10.0, 0.01), (20.0, 0.01), (10.0, 0.01)],
    ),
    "a change": (
        {"conditions": [{"type": "change", "to": 80, "source": SOURCE}]},
        [(10.0, 1.2)],
        [(80.0, 0.01), (10.0, 0.01), (80.0, 0.01), (10.0, 0.01)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("waits_for", WAITING)
async def test_a_kill_while_a_rule_waits_changes_nothing(life: Life, waits_for: str) -> None:
    more, before, after = WAITING[waits_for]
    await life.room.store.put(rule(**more))
    with life.engine():
        await life.judges(1)
        await life.write(before)
        await until(life.room.is_caught_up)
    await life.write(after)
    await life.end()
