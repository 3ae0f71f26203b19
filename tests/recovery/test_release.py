"""The journal of a release: nothing that could not be read counts as added, and a rollback is alone."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.api.conftest import SmallStation, small_station
from tests.api.loop_watch import Watch
from tests.api.test_loop import LIMIT_S, TRIES
from tests.recovery.house import CHANNEL, FLOW, GROUP, MODEL, POLICY, RULE
from tradewind import codec
from tradewind.errors import Conflict, Invalid, NotFound, TradewindError, Unavailable
from tradewind.points.channel_store import validate_channel
from tradewind.recovery.kinds import Definitions
from tradewind.recovery.release import MAX_ADDED, MAX_NAMES, ReleaseJournal
from tradewind.recovery.restorer import Restorer, Rooms
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings
from tradewind.tasks.plane import Plane

STEP = {"method": "PUT", "path": "/rules", "body": {}}


@pytest.fixture
async def station(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[SmallStation]:
    async with small_station(redis_7.url, key_prefix, tmp_path) as station:
        await station.points.channels.put([validate_channel(CHANNEL)])
        await station.points.models.apply([MODEL])
        await station.rules.rules.apply([RULE], groups=[GROUP])
        await station.rules.notify.put(POLICY)
        await station.flows.register({**FLOW, "id": "idle"}, "idle")
        yield station


def _journal(station: SmallStation, plane: Plane | None = None, rooms: Rooms | None = None) -> ReleaseJournal:
    plane, rooms = plane or station.plane, rooms or station._stores()
    definitions = Definitions(plane)
    return ReleaseJournal(plane, definitions, Restorer(definitions, None, rooms), rooms)


async def _begun(journal: ReleaseJournal, changes: dict[str, list[str]]) -> str:
    """The id of a release that has noted its one step."""
    release_id = (await journal.begin(changes, "")).id
    await journal.add_steps(release_id, 0, [STEP], is_last=True)
    return release_id


@pytest.mark.parametrize(("kind", "name"), [("rules", "hot"), ("groups", "plant"), ("flows", "idle")])
async def test_what_cannot_be_read_is_never_noted_as_added(station: SmallStation, kind: str, name: str) -> None:
    """A rollback would remove it."""
    plane, keys = station.plane, station.plane.keys
    key = {"rules": keys.rule, "groups": keys.rule_group, "flows": keys.flow}[kind](name)
    stored = [found.decode() async for found in plane.redis.scan_iter(match=f"{keys.p}*", count=1000)]
    user = f"u{keys.p.strip(':').replace(':', '-')}"
    allowed = [f"~{each}" for each in (*stored, keys.release()) if each != key]
    await plane.redis.execute_command("ACL", "SETUSER", user, "on", ">word", "+@all", *allowed)
    url = plane.all_settings.redis.url.replace("://", f"://{user}:word@")
    link = await open_link(RedisSettings(url=url, dial_timeout_s=1))
    try:
        with pytest.raises(Unavailable):
            await _journal(station, Plane(link, plane.all_settings)).begin({kind: [name]}, "")
        with pytest.raises(Unavailable):
            await {found.name: found for found in Definitions(Plane(link, plane.all_settings)).kinds}[kind].digests()
    finally:
        await link.close()
        await plane.redis.execute_command("ACL", "DELUSER", user)
    assert not await plane.redis.hexists(keys.release(), f"was:{kind}:{name}")
    await plane.redis.delete(key)
    await plane.redis.rpush(key, "by hand")
    with pytest.raises(Conflict, match=name):
        await _journal(station).begin({kind: [name]}, "")
    assert not await plane.redis.hexists(keys.release(), f"was:{kind}:{name}")


async def test_what_stands_there_is_noted_however_many_names_are_given(station: SmallStation) -> None:
    names = {
        "channels": "1001", "models": "total", "groups": "plant", "rules": "hot", "notifications": "policy",
        "flows": "idle",
    }  # fmt: skip
    many = [f"n{at}" for at in range(450)]
    journal = _journal(station)
    await journal.begin({kind: [*many, name] for kind, name in names.items()} | {"history": ["policy"]}, "")
    noted = await journal._noted()
    assert {kind: [name for name, body in found.items() if body] for kind, found in noted.items() if found} == {
        **{kind: [name] for kind, name in names.items()},
        "history": [],
    }
    assert {len(found) for found in noted.values()} == {0, 1, 451}
    for kind in Definitions(station.plane).kinds:
        if kind.name in names:
            await kind.digests()
            assert noted[kind.name][names[kind.name]] == (await kind.bodies([names[kind.name]]))[names[kind.name]]


async def test_a_release_of_too_many_names_or_steps_is_refused_before_they_are_looked_at(station: SmallStation) -> None:
    journal = _journal(station)
    for changes in ({"rules": ["a"] * (MAX_NAMES + 1)}, {"rules": ["a" * 201]}, {"rules": [5]}, {"tasks": ["a"]}):
        with pytest.raises(Invalid):
            await journal.begin(changes, "")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await journal.current()
    with pytest.raises(Invalid) as refused:
        await journal.add_steps("x", 0, [1] * (MAX_ADDED + 1), is_last=True)
    assert [problem.code for problem in refused.value.problems] == ["too_many"]
    with pytest.raises(Invalid) as refused:
        await journal.add_steps("x", 0, [1] * MAX_ADDED, is_last=True)
    assert (len(refused.value.problems), refused.value.more) == (100, MAX_ADDED - 100)


class _Gate:
    """The store of models; whoever applies waits until he is let through."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def apply(self, *args: Any, **kwargs: Any) -> Any:
        self.reached.set()
        await self.opened.wait()
        return await self._store.apply(*args, **kwargs)


async def _code(doing: Any) -> str:
    with pytest.raises(TradewindError) as error:
        await doing
    return error.value.code


async def test_a_rollback_excludes_whoever_carries_the_release_out_and_whoever_begins_another(
    station: SmallStation,
) -> None:
    gate = _Gate(station.points.models)
    journal = _journal(station, rooms=dataclasses.replace(station._stores(), models=gate))  # type: ignore[arg-type]
    first = await _begun(journal, {"models": ["total"], "flows": ["idle"]})
    await station.points.models.apply([], remove=["total"])
    await station.flows.delete("idle")
    rolling = asyncio.create_task(journal.roll_back(first))
    await asyncio.wait_for(gate.reached.wait(), 10)
    second = (await journal.current()).id
    assert second != first
    for doing in (journal.set_done(first, 1), journal.finish(first), journal.roll_back(first)):
        assert await _code(doing) == "release_moved"
    for doing in (journal.begin({}, ""), journal.roll_back(second)):
        assert await _code(doing) == "release_rolls_back"
    gate.opened.set()
    result = await asyncio.wait_for(rolling, 10)
    assert (result.restored, result.removed, result.failed) == (["models", "flows idle"], [], [])
    with pytest.raises(NotFound):
        await journal.current()


async def test_a_rollback_that_hung_and_was_taken_over_changes_nothing_more(station: SmallStation) -> None:
    gate = _Gate(station.points.models)
    journal = _journal(station, rooms=dataclasses.replace(station._stores(), models=gate))  # type: ignore[arg-type]
    first = await _begun(journal, {"models": ["total"], "flows": ["idle"], "channels": ["7"]})
    await station.flows.delete("idle")
    await station.points.channels.put([validate_channel({**CHANNEL, "id": "7"})])
    rolling = asyncio.create_task(journal.roll_back(first))
    await asyncio.wait_for(gate.reached.wait(), 10)
    await station.plane.redis.hset(station.plane.keys.release(), "beat_ms", 1)
    other = await journal.begin({}, "another")
    assert other.state == "open", "kinds may be at different versions"
    gate.opened.set()
    assert await _code(asyncio.wait_for(rolling, 10)) == "release_moved"
    assert (await journal.current()).id == other.id
    with pytest.raises(NotFound):
        await station.flows.get("idle")
    assert "7" in await station.points.channels.versions()


async def test_a_rollback_that_met_an_error_may_be_repeated_at_once(station: SmallStation) -> None:
    gate = _Gate(station.points.models)
    journal = _journal(station, rooms=dataclasses.replace(station._stores(), models=gate))  # type: ignore[arg-type]
    rolling = asyncio.create_task(journal.roll_back(await _begun(journal, {"models": ["total"]})))
    await asyncio.wait_for(gate.reached.wait(), 10)
    rolling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rolling
    gate.opened.set()
    assert (await journal.roll_back((await journal.current()).id)).failed == []


@pytest.mark.parametrize(
    ("kind", "name", "body"),
    [
        ("flows", "idle", {"config": "{}", "status": "registered", "cycles": -1, "created_at": "", "once": False}),
        ("flows", "idle", {}),
        ("flows", "idle", "{"),
        ("channels", "1001", "[]"),
        ("models", "total", "{"),
        ("groups", "plant", "{"),
        ("rules", "hot", "5"),
        ("notifications", "policy", "5"),
        ("history", "policy", "{"),
    ],
)
async def test_what_cannot_be_brought_back_is_named_and_the_rest_is_done(
    station: SmallStation, kind: str, name: str, body: Any
) -> None:
    journal = _journal(station)
    release_id = await _begun(journal, {kind: [name], "channels": ["7", "1001"]})
    await journal.set_done(release_id, 1)
    await station.points.channels.put([validate_channel({**CHANNEL, "id": "7"})])
    if kind == "flows":
        await station.flows.delete(name)
    text = body if isinstance(body, str) else codec.encode(body)
    await station.plane.redis.hset(station.plane.keys.release(), f"was:{kind}:{name}", text)
    result = await journal.roll_back(release_id)
    assert len(result.failed) == 1 and result.removed == ["channel 7"], result
    assert "7" not in await station.points.channels.versions()
    release = await journal.current()
    assert (release.state, release.done) == ("open", 0), "whoever goes on with it begins with its first step"


async def test_a_rollback_of_a_large_channel_does_not_hold_the_loop(station: SmallStation, tuned: None) -> None:
    mapping = {"expression": "5"}
    points = [{"kind": "m", "id": str(at), "name": f"p{at}", "mapping": mapping} for at in range(1, 20_001)]
    await station.points.channels.put([await asyncio.to_thread(validate_channel, {**CHANNEL, "points": points})])
    journal, watch = _journal(station), Watch()
    held = []
    for _ in range(TRIES):
        release_id = await _begun(journal, {"channels": ["1001"]})
        async with watch.watching():
            assert (await journal.roll_back(release_id)).failed == []
        held.append(watch.held_s)
        if held[-1] <= LIMIT_S:
            break
    assert min(held) <= LIMIT_S, held
