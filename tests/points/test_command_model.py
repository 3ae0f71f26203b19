"""Any sequence of submit, take, finish, cancel, sweep and time leaves every command in exactly one place."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import servers
from tests.points.test_command_store import put
from tests.soak import repeats
from tradewind.clock import FakeClock
from tradewind.points.command_record import Command, CommandConflict, CommandStatus, Outcome, Result
from tradewind.points.command_store import OVERRUN_MS, CommandStore
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings

TIMEOUT_MS = 10_000
OWNERS = ("one", "two")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from([1000, 5000, 60_000])),
        st.tuples(st.just("take"), st.sampled_from([0, 1])),
        st.tuples(st.just("finish"), st.integers(0, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("advance"), st.sampled_from([500, 1000, TIMEOUT_MS, OVERRUN_MS])),
        st.tuples(st.just("sweep"), st.just(0)),
    ),
    max_size=30,
)
OUTCOMES = (
    Outcome(CommandStatus.SUCCESS, Result.DONE),
    Outcome(CommandStatus.FAILED, Result.REFUSED),
    Outcome(CommandStatus.TIMEOUT, Result.UNKNOWN),
)


@dataclass
class Model:
    """The rules, in plain Python: state, expiry and deadline by id; the queue; who carries what out."""

    state: dict[str, str] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    doing: tuple[str, str] | None = None

    def submit(self, name: str, due: int) -> None:
        self.state[name], self.due[name] = "pending", due
        self.queue.append(name)

    def take(self, owner: str, now: int) -> str | None:
        if self.doing is not None:
            if self.doing[1] == owner:
                return None
            self.end(self.doing[0], "timeout")
        while self.queue:
            name = self.queue[0]
            if self.due[name] <= now:
                self.end(name, "timeout")
                continue
            self.queue.pop(0)
            self.state[name], self.due[name], self.doing = "executing", now + TIMEOUT_MS + OVERRUN_MS, (name, owner)
            return name
        return None

    def end(self, name: str, state: str) -> None:
        self.state[name] = state
        if name in self.queue:
            self.queue.remove(name)
        if self.doing is not None and self.doing[0] == name:
            self.doing = None

    def sweep(self, now: int) -> set[str]:
        over = {n for n, s in self.state.items() if s in ("pending", "executing") and self.due[n] <= now}
        for name in over:
            self.end(name, "timeout")
        return over


async def stands_as(store: CommandStore, model: Model) -> None:
    keys, redis = store.plane.keys, store.plane.redis
    found = await store.read(list(model.state))
    assert {c.id: c.status.value for c in found if c is not None} == model.state
    queue = [item.decode() for item in await redis.lrange(keys.channel_todo("1001"), 0, -1)]
    assert queue[::-1] == model.queue
    live = {name for name, state in model.state.items() if state in ("pending", "executing")}
    assert {item.decode() for item in await redis.zrange(keys.commands_open(), 0, -1)} == live
    doing = await redis.get(keys.channel_doing("1001"))
    assert (doing.decode().split(" ")[0] if doing else None) == (model.doing[0] if model.doing else None)


async def play(url: str, steps: list[tuple[str, int]]) -> None:
    link = await open_link(RedisSettings(url=url))
    clock = FakeClock()
    store = CommandStore(PointPlane(link, Settings(key_prefix=f"t{secrets.token_hex(5)}:"), clock))
    model, taken = Model(), list[Command]()
    try:
        for verb, number in steps:
            if verb == "submit":
                model.submit(await put(store, expiry_ms=number), clock.ms + number)
            elif verb == "take":
                command = await store.take("1001", OWNERS[number])
                assert (command.id if command else None) == model.take(OWNERS[number], clock.ms)
                taken += [command] if command else []
            elif verb == "finish" and taken:
                command = taken[number % len(taken)]
                outcome = OUTCOMES[number % len(OUTCOMES)]
                if model.state[command.id] == "executing":
                    await store.finish(command, outcome)
                    model.end(command.id, outcome.status.value)
                else:
                    try:  # the same end again is a repetition, any other is refused
                        await store.finish(command, outcome)
                        assert model.state[command.id] == outcome.status.value
                    except CommandConflict:
                        pass
            elif verb == "cancel" and model.state:
                name = list(model.state)[number % len(model.state)]
                try:
                    await store.cancel(name)
                    assert model.state[name] in ("pending", "cancelled")
                    model.end(name, "cancelled")
                except CommandConflict:
                    assert model.state[name] not in ("pending", "cancelled")
            elif verb == "advance":
                clock.advance(number / 1000)
            elif verb == "sweep":
                assert set(await store.sweep()) == model.sweep(clock.ms)
            await stands_as(store, model)
    finally:
        await link.close()


@settings(max_examples=repeats(50), deadline=None)
@given(steps=STEPS)
def test_every_command_stands_in_one_place(redis_7: servers.Server, steps: list[tuple[str, int]]) -> None:
    asyncio.run(play(redis_7.url, steps))
