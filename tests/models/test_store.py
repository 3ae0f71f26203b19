"""Definitions in Redis: checked with all the others, all or nothing, versions, templates, control values."""

from __future__ import annotations

import asyncio

import pytest

from tests.models.examples import energy, seed, total
from tests.models.model_room import ModelRoom
from tests.models.test_template import PV_STRING
from tradewind.errors import Conflict, Invalid, NotFound
from tradewind.models.store import ModelStore


def changes(version: str) -> int:
    """How often something was changed since the first change: numbers do not begin at 1, see model_change.lua."""
    return int(version) % 1000


CONTROLLED = {
    **total("power_calc"),
    "controls": {
        "enable": {},
        "mode": None,
        "max_power": {"address": "comsrv:1001:a:40001", "min": 0, "max": 2000, "step": 0.5, "unit": "kW"},
    },
}


async def test_what_is_put_is_found_again(room: ModelRoom) -> None:
    store = room.store
    spec = await store.put(seed())
    assert spec.name == "power_meter"
    assert await store.get("power_meter") == seed()
    assert (await store.get_spec("power_meter")) == spec
    assert [s.name for s in await store.list()] == ["power_meter"]
    assert changes(await store.version()) == 1
    await store.put(seed())
    assert changes(await store.version()) == 1, "the same again is no change"
    with pytest.raises(Conflict):
        await store.put(seed(), is_new=True)
    with pytest.raises(NotFound):
        await store.get("nothing")


async def test_a_bad_model_is_refused_with_all_problems_and_nothing_is_stored(room: ModelRoom) -> None:
    bad = total()
    bad["inputs"][0]["source"] = "nowhere"
    bad["calculations"][0]["function"] = "sun"
    with pytest.raises(Invalid) as caught:
        await room.store.put(bad)
    assert [(p.code, p.path) for p in caught.value.problems] == [
        ("bad_address", "inputs[0].source"),
        ("unknown_function", "calculations[0].function"),
    ]
    assert await room.store.list() == [] and changes(await room.store.version()) == 0
    with pytest.raises(Invalid):
        await room.store.validate(bad)
    assert (await room.store.validate(total())).name == "total"
    assert await room.store.list() == []


async def test_many_are_stored_at_once_or_not_at_all(room: ModelRoom) -> None:
    user = energy("user", {"model": "total", "field": "total"})
    await room.store.apply([user, total()])
    with pytest.raises(Invalid) as caught:
        await room.store.apply([total("x"), total("x"), {"name": "a b"}])
    assert {p.path for p in caught.value.problems} >= {"models[1].name", "models[2].name"}
    assert [s.name for s in await room.store.list()] == ["total", "user"]


async def test_what_another_model_needs_is_not_taken_away(room: ModelRoom) -> None:
    await room.store.apply([total(), energy("user", {"model": "total", "field": "total"})])
    with pytest.raises(Invalid) as caught:
        await room.store.remove("total")
    assert [(p.code, p.path) for p in caught.value.problems] == [("unknown_model", "user.inputs[0].source")]
    renamed = total()
    renamed["outputs"][0]["field"] = "sum"
    with pytest.raises(Invalid):
        await room.store.put(renamed)
    await room.store.apply([], remove=["total", "user"])
    assert await room.store.list() == []


async def test_a_circle_cannot_be_made_by_two_who_change_at_the_same_time(room: ModelRoom) -> None:
    await room.store.apply([energy("a"), energy("b")])
    others = [ModelStore(room.link, room.keys) for _ in range(2)]
    results = await asyncio.gather(
        others[0].put(energy("a", {"model": "b", "field": "energy"})),
        others[1].put(energy("b", {"model": "a", "field": "energy"})),
        return_exceptions=True,
    )
    assert sum(isinstance(result, Invalid) for result in results) == 1


async def test_instances_change_with_their_template(room: ModelRoom) -> None:
    store = room.store
    instance = {"name": "pv1", "template": "pv_string", "properties": {"channel": 7, "point": 1}}
    await store.apply([instance], templates=[PV_STRING])
    assert (await store.get("pv1")) == instance
    assert (await store.get_spec("pv1")).inputs[0].address == "comsrv:7:m:1"
    await store.put_template({**PV_STRING, "properties": {**PV_STRING["properties"], "window": 9}})
    assert (await store.get_spec("pv1")).calculations[0].params == {"window": 9}
    with pytest.raises(Invalid):
        await store.put_template({**PV_STRING, "properties": {**PV_STRING["properties"], "new": {"type": "text"}}})
    with pytest.raises(Invalid):
        await store.remove_template("pv_string")
    await store.remove("pv1")
    await store.remove_template("pv_string")
    assert await store.list_templates() == {}


async def test_a_control_value_has_the_form_of_the_seed_and_is_published(room: ModelRoom) -> None:
    await room.store.put(CONTROLLED)
    key = room.keys.model_values("power_calc", "control")
    channel = f"{room.keys.channel_prefix}modsrv:power_calc:control"
    client = room.link.new_client()
    pubsub = client.pubsub()
    await pubsub.subscribe(channel)
    heard = []
    try:
        for field, value, source in [
            ("enable", 1, "operator"),
            ("max_power", 1500.0, "operator"),
            ("mode", "auto", "system"),
        ]:
            await room.store.set_control("power_calc", field, value, source)
        async with asyncio.timeout(5):
            while len(heard) < 3:
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
                if message:
                    heard.append(message["data"].decode())
    finally:
        await pubsub.aclose()
        await client.aclose()
    assert heard == ["enable:1", "max_power:1500.0", "mode:auto"]
    found = {field.decode(): text.decode() for field, text in (await room.plane.redis.hgetall(key)).items()}
    stamps = {field: text.split(":")[1] for field, text in found.items()}
    assert all(len(ts) == 13 and ts.isdigit() for ts in stamps.values())
    assert found == {
        "enable": f"1:{stamps['enable']}:operator",
        "max_power": f"1500.0:{stamps['max_power']}:operator",
        "mode": f"auto:{stamps['mode']}:system",
    }
    assert (await room.store.controls("power_calc"))["mode"].source == "system"


@pytest.mark.parametrize(
    ("field", "value", "source"),
    [("max_power", 2001.0, "me"), ("max_power", float("nan"), "me"), ("mode", "", "me"), ("mode", "auto", "a:b")],
)
async def test_a_bad_control_value_is_refused(room: ModelRoom, field: str, value: float | str, source: str) -> None:
    await room.store.put(CONTROLLED)
    with pytest.raises(Invalid):
        await room.store.set_control("power_calc", field, value, source)
    assert await room.store.controls("power_calc") == {}


async def test_commands_find_the_point_behind_a_control(room: ModelRoom) -> None:
    await room.store.put(CONTROLLED)
    found = await room.store.find_control("power_calc", "max_power")
    assert found is not None and (found.address, found.max, found.step) == ("comsrv:1001:a:40001", 2000.0, 0.5)
    assert await room.store.find_control("power_calc", "mode") is None
    assert await room.store.find_control("power_calc", "nothing") is None
    assert await room.store.find_control("nothing", "mode") is None
    with pytest.raises(NotFound):
        await room.store.set_control("power_calc", "nothing", 1, "me")
    with pytest.raises(NotFound):
        await room.store.set_control("nothing", "mode", 1, "me")


async def test_a_removed_model_leaves_nothing(room: ModelRoom) -> None:
    await room.store.put(CONTROLLED)
    await room.store.set_control("power_calc", "enable", 1, "me")
    await room.store.remove("power_calc")
    left = [key async for key in room.plane.redis.scan_iter(f"{room.keys.channel_prefix}*", count=1000)]
    assert [key for key in left if b"power_calc" in key] == []


async def test_a_redis_that_has_lost_its_models_is_not_taken_for_the_one_before(room: ModelRoom) -> None:
    """The counter of changes begins anew with an empty Redis: what a process remembers must not count."""
    await room.store.put(seed())
    assert set((await room.store.load()).models) == {"power_meter"}
    keys = room.plane.keys
    await room.plane.redis.delete(keys.models(), keys.models_version())
    other = ModelStore(room.plane.link, keys)
    await other.put(total("power_calc"))
    assert set((await room.store.load()).models) == {"power_calc"}
