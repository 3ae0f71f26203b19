"""A random life of the alarm room, one step at a time; after each, indexes, journal and our own count are compared."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar, TypeVar

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.alarms.alarm_room import AlarmRoom, hot
from tradewind.alarms.record import LEVELS, NewAlarm
from tradewind.alarms.transitions import NEXT, Action, Status
from tradewind.clock import FakeClock
from tradewind.redis.connection import Link
from tradewind.redis.faults import report
from tradewind.redis.packing import pack
from tradewind.redis.scripts import Call, Scripts

T = TypeVar("T")
SOURCES = ("comsrv:1:m:1", "comsrv:1:m:2", "comsrv:2:m:1", "modsrv:m:measurement:f")
RULES = ("r1", "r2")


class CutScripts(Scripts):
    """The next call is sent, and the connection cut before its reply; then it is repeated, as it always is.

    `is_steady`: the call is carried out first. Otherwise chance says whether it or its repeat comes first."""

    is_steady: ClassVar[bool] = False

    is_cut = False

    async def _once(self, calls: Sequence[Call], first: Any, client: Any) -> list[Any]:
        if not self.is_cut:
            return await super()._once(calls, first, client)
        self.is_cut = False
        if self.is_steady:
            await super()._once(calls, first, client)
            raise redis.ConnectionError("cut by the test")
        pool = client.connection_pool
        connection = await pool.borrow()
        await connection.send_packed_command([b"".join(pack(self.command(call)) for call in calls)])
        await connection.disconnect(nowait=True)
        await pool.release(connection)
        raise redis.ConnectionError("cut by the test")


class AlarmMachine(RuleBasedStateMachine):
    runner: ClassVar[asyncio.Runner]
    link: ClassVar[Link]
    scripts: ClassVar[type[CutScripts]] = CutScripts
    #: Which of several alarms inhibits another one is left to chance by the server.
    with_chance: ClassVar[bool] = True

    def run(self, job: Awaitable[T]) -> T:
        async def do() -> T:
            return await job

        return self.runner.run(do())

    @initialize()
    def begin(self) -> None:
        self.prefix = f"t{secrets.token_hex(5)}:"
        self.clock = FakeClock()
        self.counts: dict[str, int] = {}
        self.removed: set[str] = set()
        self.slots: list[tuple[str, str]] = []
        self.open()

    def open(self) -> None:
        self.room = AlarmRoom(self.link, self.prefix, self.clock, escalate_s=30, retention_days=1)
        self.cutting = self.scripts(self.link, "tradewind.alarms")
        self.room.store._scripts = self.cutting
        self.room.faults._scripts = self.cutting

    @rule()
    def restart(self) -> None:
        self.open()

    @rule()
    def forget_the_scripts(self) -> None:
        self.run(self.link.client.script_flush())

    @rule()
    def cut_the_next_call(self) -> None:
        self.cutting.is_cut = True

    @rule(
        name=st.sampled_from(RULES),
        source=st.sampled_from(SOURCES),
        level=st.sampled_from(LEVELS),
        inhibited=st.booleans(),
        latched=st.booleans(),
        times=st.integers(1, 3),
        cut=st.booleans(),
    )
    def raise_one(
        self, name: str, source: str, level: str, inhibited: bool, latched: bool, times: int, cut: bool
    ) -> None:
        self.cutting.is_cut |= cut
        self.slots.append((name, source))
        more = {"level": level, "latched": latched, "category": f"c{len(source) % 2}"}
        other = [rule for rule in RULES if rule != name] if inhibited and self.with_chance else []
        self.count([hot(source, name, inhibited_by=other, **more)] * times)

    @rule(channel=st.sampled_from(("1", "2")), is_over=st.booleans())
    def channel_fault(self, channel: str, is_over: bool) -> None:
        state: Any = "clear" if is_over else "raise"
        self.run(report(self.link, self.room.keys, "channel_offline", f"comsrv:{channel}", "x", state=state))
        before = self.run(self.room.store.open_id("station", f"comsrv:{channel}"))
        assert self.run(self.room.faults.step()) == 1
        if not is_over:
            found = self.run(self.room.store.open_id("station", f"comsrv:{channel}"))
            assert found and before in ("", found)
            self.counts[found] = self.counts.get(found, 0) + 1

    def count(self, alarms: list[NewAlarm]) -> None:
        for raised in self.run(self.room.store.raise_many(alarms)):
            assert raised.is_new == (raised.id not in self.counts), "said to be new, and is not, or the reverse"
            self.counts[raised.id] = self.counts.get(raised.id, 0) + 1

    @rule(pick=st.integers(0, 50))
    def clear(self, pick: int) -> None:
        """One that was raised, the last ones rather than others; it may have ended."""
        name, source = self.slots[-1 - pick % len(self.slots)] if self.slots else (RULES[0], SOURCES[0])
        self.run(self.room.store.clear(name, source, "1"))

    @rule(name=st.sampled_from(RULES), word=st.sampled_from(("disabled", "deleted")))
    def end_rule(self, name: str, word: str) -> None:
        self.run(self.room.store.end_rule(name, word))

    @rule(
        action=st.sampled_from(list(Action)),
        pick=st.lists(st.integers(0, 50), min_size=1, max_size=3),
        twice=st.booleans(),
    )
    def operate(self, action: Action, pick: list[int], twice: bool) -> None:
        known = ["alarm_unknown", *self.counts][::-1]
        chosen = [known[n % len(known)] for n in pick]
        acted = self.run(self.room.store.act(action, chosen, "li", "note", duration_s=60))
        if twice:
            again = self.run(self.room.store.act(action, chosen, "li", duration_s=60))
            assert not any(a.is_changed for a in again)
            assert [(a.status, a.version) for a in again] == [(a.status, a.version) for a in acted]

    @rule(seconds=st.sampled_from((0.001, 1, 29, 30, 60, 3600, 86_400, 100_000, -5, -4000)))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def timers(self) -> None:
        self.run(self.room.tick())

    @invariant()
    def all_fits(self) -> None:
        if not hasattr(self, "room"):
            return
        picture = self.run(self.room.picture())
        records = self.run(self.room.audit(picture))
        steps: dict[str, list[dict[str, str]]] = {}
        for _, entry in picture.get("alarm:journal", ()):
            steps.setdefault(entry["id"], []).append(entry)
        for alarm_id, entries in steps.items():
            assert [int(e["version"]) for e in entries] == list(range(1, len(entries) + 1))
            assert entries[0]["from"] == "" and entries[0]["to"] in ("New", "Suppressed")
            for before, entry in itertools.pairwise(entries):
                assert entry["from"] == before["to"]
                if entry["from"] != entry["to"]:
                    assert Status(entry["to"]) in NEXT[Status(entry["from"])]
            if entries[-1]["event"] == "removed":
                assert alarm_id not in records
                self.removed.add(alarm_id)
                last = {e["event"] for e in entries}
                assert last & {"acknowledged", "closed"} and entries[-1]["to"] == "Closed"
            else:
                assert records[alarm_id]["version"] == entries[-1]["version"]
                assert records[alarm_id]["status"] == entries[-1]["to"]
        causes = {h["cause"] for h in records.values() if "cause" in h}
        assert all(Status(records[cause]["status"]).is_open for cause in causes), "suppressed by one that has ended"
        for alarm_id in records:
            seen = [alarm_id]
            while cause := records[seen[-1]].get("cause"):
                assert cause not in seen, f"suppressed by itself, through {seen}"
                seen.append(cause)
        assert set(records) | self.removed == set(self.counts) == set(steps), "lost or doubled"
        counts = {i: int(h["count"]) for i, h in records.items()}
        assert counts == {i: self.counts[i] for i in records}, "counted twice, or not"
        told = [entry["key"] for _, entry in picture.get("notify:outbox", ())]
        assert len(set(told)) == len(told), "told twice"

    def teardown(self) -> None:
        if hasattr(self, "room"):
            self.run(self.room.wipe())
            self.run(self.room.plane.close())
