"""Copies in SQL follow Redis, survive its loss, and come back through the ordinary doors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.recovery.house import MODEL, POLICY, RULE, House, open_house
from tests.sql.databases import DIALECTS, fresh_database
from tradewind.errors import Conflict
from tradewind.recovery.copier import REMOVED_S
from tradewind.recovery.kinds import cycles_used
from tradewind.recovery.standing import Standing, judge


@pytest.fixture(params=DIALECTS)
async def house(
    request: pytest.FixtureRequest, redis_7: servers.Server, key_prefix: str, tmp_path: Path
) -> AsyncIterator[House]:
    async with (
        fresh_database(request, request.param, tmp_path) as sql_url,
        open_house(redis_7.url, key_prefix, tmp_path, sql_url) as house,
    ):
        yield house


@pytest.fixture
async def home(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(redis_7.url, key_prefix, tmp_path) as house:
        yield house


def test_what_the_two_ids_say() -> None:
    assert judge("", "") is Standing.NEW
    assert judge("a", "") is Standing.ADOPT
    assert judge("a", "a") is Standing.OK
    assert judge("", "a") is Standing.LOST
    assert judge("b", "a") is Standing.FOREIGN


@pytest.mark.parametrize("last", [0, 1, 49, 50, 51, 99, 100, 12_345])
def test_the_copied_number_is_beyond_every_cycle_that_may_have_run(last: int) -> None:
    assert last + 50 < cycles_used(last) <= last + 100
    assert cycles_used(-1) == -1


def _steady(kind: str, body: Any) -> Any:
    """Without what a restore cannot keep."""
    drop = {
        "rules": {"updated_at", "version"},
        "groups": {"created_at", "updated_at", "version"},
        "alarms": {"version"},
    }
    drop |= {"flows": {"cycles"}, "alarms": {"version"}, "notifications": {"version"}}
    if not isinstance(body, dict):
        return body
    return {name: value for name, value in body.items() if name not in drop.get(kind, set())}


async def test_what_was_copied_comes_back_as_it_was(house: House) -> None:
    alarm = await house.fill()
    await house.copier().step()
    before = await house.bodies()
    assert all(before.values()), "something of every kind"

    await house.wipe()
    assert await house.station.recovery.watch.look() is Standing.LOST
    view = await house.station.recovery.view()
    assert view["state"] == "lost" and view["kinds"]["channels"] == {
        "copied": 2,
        "missing": 2,
        "examples": ["1001", "1002"],
    }
    assert view["kinds"]["notifications"]["missing"] == 0, "the policy came back at once: people must be told"
    state = await house.restored()

    assert state["state"] == "done", state
    after = await house.bodies()
    for kind in before:
        wanted = {name: _steady(kind, body) for name, body in before[kind].items()}
        assert {name: _steady(kind, body) for name, body in after[kind].items()} == wanted, kind
    assert await house.station.recovery.watch.look() is Standing.OK
    record = (await house.station.rules.alarms.get(alarm)).to_json()
    assert (record["status"], record["count"], record["acknowledged_by"]) == ("Acknowledged", 2, "ann")
    again = await house.station.rules.alarms.clear("hot", "comsrv:1001:m:1")
    assert again == alarm, "it is the open alarm of its rule and source"
    policy = await house.station.rules.notify.policy()
    assert policy.targets["office"].url == POLICY["targets"]["office"]["url"], "with its secret"


async def test_flows_go_on_in_their_state_with_new_numbers(home: House) -> None:
    await home.fill()
    for _ in range(3):
        await home.station.flows.run("running")
    await home.copier().step()
    await home.wipe()
    await home.station.recovery.watch.look()
    await home.restored()
    states = {name: (await home.station.flows.get(name))["status"] for name in ("running", "waiting", "halted", "idle")}
    assert states == {"running": "running", "waiting": "paused", "halted": "stopped", "idle": "registered"}
    number = await home.station.flows.run("running")
    assert 2 < number <= 103


async def test_an_emptied_redis_is_never_copied_over_a_good_copy(home: House) -> None:
    await home.fill()
    copier = home.copier()
    await copier.step()
    good = await home.copies.digests(home.id)
    plane = home.station.plane
    # Keys that are deleted one by one: the station id goes last.
    station_id = await plane.redis.get(plane.keys.station_id())
    await home.wipe()
    await plane.redis.set(plane.keys.station_id(), station_id)
    home.now_s += 2
    await copier.step()
    await plane.redis.delete(plane.keys.station_id())
    for _ in range(5):
        home.now_s += 100
        assert await copier.step() == 0
    assert await home.copies.digests(home.id) == good


async def test_what_is_removed_leaves_the_copy_after_a_while(home: House) -> None:
    await home.fill()
    copier = home.copier()
    await copier.step()
    await home.station.rules.rules.remove("hot")
    await home.station.points.channels.remove(["1002"])
    home.now_s += 1
    await copier.step()
    assert "hot" in (await home.copies.digests(home.id))["rules"]
    home.now_s += REMOVED_S
    await copier.step()
    left = await home.copies.digests(home.id)
    assert "rules" not in left and set(left["channels"]) == {"1001"}


async def test_a_change_is_copied_at_the_next_look(home: House) -> None:
    await home.fill()
    copier = home.copier()
    await copier.step()
    assert await copier.step() == 0
    await home.station.rules.rules.put({**RULE, "name": "very hot"})
    await home.station.flows.pause("running")
    home.now_s += 2
    assert await copier.step() == 2
    assert '"very hot"' in (await home.copies.bodies(home.id, "rules", ["hot"]))["hot"]
    assert '"paused"' in (await home.copies.bodies(home.id, "flows", ["running"]))["running"]


async def test_a_write_of_a_stranger_is_copied_by_the_comparison(home: House) -> None:
    await home.fill()
    copier = home.copier()
    await copier.step()
    keys = home.station.plane.keys
    await home.station.plane.redis.set(keys.rule("foreign"), '{"id":"foreign"}')
    await home.station.plane.redis.sadd(keys.rules(), "foreign")
    home.now_s += 31
    assert await copier.step() >= 1
    assert "foreign" in (await home.copies.digests(home.id))["rules"]


async def test_what_is_there_stays_unless_it_shall_be_replaced(home: House) -> None:
    await home.fill()
    await home.copier().step()
    await home.wipe()
    await home.station.recovery.watch.look()
    newer = {**MODEL, "calculations": [{"id": "p", "expression": "a * 3"}]}
    await home.station.points.models.apply([newer])
    state = await home.restored()
    assert state["result"]["models"] == {"restored": 1, "kept": 1, "ended": 0, "failed": []}
    assert (await home.station.points.models.get("total")) == newer
    state = await home.restored("models", replace=True)
    assert state["result"]["models"]["restored"] == 2
    assert (await home.station.points.models.get("total")) == MODEL


async def test_an_alarm_that_ended_after_its_copy_stays_ended(home: House) -> None:
    from tradewind.alarms.journal import AlarmJournal
    from tradewind.alarms.recorder import AlarmRecorder

    alarm = await home.fill()
    await home.copier().step()
    await home.station.rules.alarms.resolve(alarm, "ann")
    assert home.station.sql is not None
    recorder = AlarmRecorder(home.station.points.plane, AlarmJournal(home.station.sql))
    while await recorder.step():
        pass
    await home.wipe()
    await home.station.recovery.watch.look()
    state = await home.restored()
    assert state["result"]["alarms"] == {"restored": 0, "kept": 0, "ended": 1, "failed": []}
    assert state["state"] == "done"


async def test_one_restore_at_a_time(home: House) -> None:
    await home.fill()
    await home.copier().step()
    await home.wipe()
    await home.station.recovery.watch.look()
    begun = await home.station.recovery.start_restore(["flows"])
    with pytest.raises(Conflict) as caught:
        await home.station.recovery.start_restore(["rules"])
    assert caught.value.code == "restore_runs"
    while (view := await home.station.recovery.view())["restore"]["state"] == "running":
        pass
    assert view["restore"]["id"] == begun["id"] and view["restore"]["state"] == "incomplete"
    assert view["state"] == "lost", "rules and more are still missing"


async def test_what_cannot_be_restored_is_named_and_the_loss_stays_until_it_is_accepted(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.recovery.restorer.TYPES_S", 0.0)
    await home.fill()
    await home.copier().step()
    body = (await home.copies.bodies(home.id, "flows", ["idle"]))["idle"]
    from tradewind.recovery.copy_table import Copy

    broken = body.replace('\\"type\\":\\"constant\\"', '\\"type\\":\\"of_a_package_that_is_gone\\"')
    assert broken != body
    await home.copies.put(home.id, [Copy("flows", "idle", "x", broken)], 1)
    await home.wipe()
    await home.station.recovery.watch.look()
    state = await home.restored()
    assert state["state"] == "incomplete"
    [failed] = state["result"]["flows"]["failed"]
    assert failed["id"] == "idle" and "type" in failed["error"]
    assert (await home.station.recovery.look())["store"].status == "down"
    await home.station.recovery.accept()
    assert await home.station.recovery.watch.look() is Standing.OK
    with pytest.raises(Conflict):
        await home.station.recovery.accept()


async def test_a_database_without_a_copy_says_so(home: House) -> None:
    await home.wipe()
    await home.station.recovery.watch.look()
    with pytest.raises(Conflict) as caught:
        await home.station.recovery.start_restore(["rules"])
    assert caught.value.code == "no_copy"
