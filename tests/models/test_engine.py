"""The engine on real servers: seed formats byte for byte, restarts that count nothing twice, hot reload, takeover."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models.examples import energy, seed, total
from tests.models.model_room import ModelRoom, until
from tradewind.clock import FakeClock
from tradewind.redis.connection import Link

HOUR = 3_600_000
SEED_MODEL = {
    "name": "power_calc",
    "inputs": [{"name": n, "source": f"comsrv:1001:m:{i}"} for i, n in enumerate("abcd", 1)],
    "outputs": [
        {"field": "total_power", "source": "a"},
        {"field": "efficiency", "source": "b"},
        {"field": "load_factor", "source": "c"},
        {"field": "reactive_power", "source": "d"},
    ],
}


async def test_the_seed_example_stands_in_redis_and_is_published_byte_for_byte(room: ModelRoom) -> None:
    await room.store.put(SEED_MODEL)
    now = room.clock.now_ms()
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        client = room.link.new_client()
        pubsub = client.pubsub()
        await pubsub.subscribe(f"{room.keys.channel_prefix}modsrv:power_calc:measurement")
        await pubsub.get_message(timeout=5)
        try:
            await room.write(now, {"1": 1200.5, "2": 0.856, "3": 0.78, "4": 350.2})
            await room.becomes(
                "power_calc",
                {
                    "total_power": "1200.500000",
                    "efficiency": "0.856000",
                    "load_factor": "0.780000",
                    "reactive_power": "350.200000",
                },
            )
            heard = [(await pubsub.get_message(timeout=5))["data"].decode() for _ in range(4)]
        finally:
            await pubsub.aclose()
            await client.aclose()
    assert sorted(heard) == [
        "efficiency:0.856000",
        "load_factor:0.780000",
        "reactive_power:350.200000",
        "total_power:1200.500000",
    ]
    assert set((await room.values("power_calc", 1)).values()) == {str(now)}


async def test_the_form_of_the_companion_document_works(room: ModelRoom) -> None:
    await room.store.put(seed())
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        await room.write(room.clock.now_ms(), {"10001": 230.0, "10002": 5.0})
        await room.becomes("power_meter", {"total_power": "1092.500000"})


async def test_values_that_stand_on_the_board_already_are_computed_at_once(room: ModelRoom) -> None:
    await room.write(room.clock.now_ms(), {"1": 1.0, "2": 2.0})
    await room.store.put(total())
    async with room.engine():
        await room.becomes("total", {"total": "3.000000"})


async def test_quality_reaches_the_board_and_the_models_behind(room: ModelRoom) -> None:
    now = room.clock.now_ms()
    behind = {
        "name": "behind",
        "inputs": [{"name": "x", "source": {"model": "total", "field": "total"}}],
        "calculations": [{"id": "y", "expression": "x * 10"}],
        "outputs": [{"field": "y", "source": "y"}],
    }
    await room.store.apply([total(), behind])
    async with room.engine():
        await room.write(now, {"1": 1.0, "2": 2.0})
        await room.becomes("behind", {"y": "30.000000"})
        await room.write(now + 1, {"1": 5.0}, _1="uncertain")
        await room.becomes("behind", {"y": "70.000000"})
        await room.becomes("behind", {"y": "uncertain"}, 2)
        await room.write(now + 2, {"1": 8.0}, _1="bad")
        await room.becomes("behind", {"y": "bad"}, 2)
        assert await room.values("behind") == {"y": "70.000000"}
        await room.write(now + 3, {"1": 8.0})
        await room.becomes("behind", {"y": "100.000000"})
        await room.becomes("behind", {}, 2)


async def test_a_stale_input_makes_the_output_uncertain(room: ModelRoom) -> None:
    document = total(points=1)
    document["inputs"][0]["max_age"] = "10s"
    await room.store.put(document)
    now = room.clock.now_ms()
    async with room.engine():
        await room.write(now, {"1": 1.0})
        await room.becomes("total", {"total": "1.000000"})
        assert isinstance(room.clock, FakeClock)
        room.clock.advance(11)
        await room.becomes("total", {"total": "uncertain"}, 2)
        assert await room.values("total", 1) == {"total": str(now + 10_000)}
        await room.write(now + 11_000, {"1": 1.0})
        await room.becomes("total", {}, 2)


async def test_a_restart_in_the_middle_of_an_integration_counts_nothing_twice_and_misses_nothing(
    room: ModelRoom,
) -> None:
    """Also what came while no engine ran, and for a model in front of it that remembers nothing."""
    front = {
        "name": "front",
        "inputs": [{"name": "a", "source": "comsrv:1001:m:1"}, {"name": "b", "source": "comsrv:1002:m:1"}],
        "calculations": [{"id": "s", "function": "sum", "inputs": ["a", "b"]}],
        "outputs": [{"field": "s", "source": "s"}],
    }
    meter = energy("meter", {"model": "front", "field": "s"})
    await room.store.apply([front, meter, energy("direct")])
    assert isinstance(room.clock, FakeClock)
    now = room.clock.now_ms()
    room.clock.advance(20 * 3600)
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        await room.write(now, {"1": 100.0}, "1002")
        await room.write(now, {"1": 1.0})
        await room.write(now + HOUR, {"1": 2.0})
        await room.becomes("direct", {"energy": "1.000000"})
        await room.becomes("meter", {"energy": "101.000000"})
    for hour in (2, 3, 4):
        await room.write(now + hour * HOUR, {"1": float(hour + 1)})
    async with room.engine():
        await room.becomes("direct", {"energy": "10.000000"})
        await room.becomes("meter", {"energy": "410.000000"})
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        await room.write(now + 5 * HOUR, {"1": 0.0})
        await room.becomes("direct", {"energy": "15.000000"})
        await room.becomes("meter", {"energy": "515.000000"})


async def test_hot_reload_takes_new_definitions_and_keeps_the_memory_of_unchanged_calculations(room: ModelRoom) -> None:
    assert isinstance(room.clock, FakeClock)
    now = room.clock.now_ms()
    room.clock.advance(20 * 3600)
    await room.store.put(energy())
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        await room.write(now, {"1": 3.0})
        await room.write(now + HOUR, {"1": 3.0})
        await room.becomes("meter", {"energy": "3.000000"})
        wider = energy()
        wider["calculations"].append({"id": "double", "expression": "counter * 2"})
        wider["outputs"].append({"field": "double", "source": "double"})
        await room.store.put(wider)
        await room.becomes("meter", {"energy": "3.000000", "double": "6.000000"})
        await room.write(now + 2 * HOUR, {"1": 3.0})
        await room.becomes("meter", {"energy": "6.000000", "double": "12.000000"})
        await room.store.put(energy(initial=100))
        await room.write(now + 3 * HOUR, {"1": 3.0})
        await until(lambda: _starts_with(room, "meter", "10"))
        await room.store.remove("meter")
        await room.becomes("meter", {})
        await room.write(now + 4 * HOUR, {"1": 3.0})
        await room.store.put(total("other", points=1))
        await room.becomes("other", {"total": "3.000000"})
    assert await room.values("meter") == {}
    assert await room.states() == {}


async def test_only_one_engine_computes_and_another_takes_over(room: ModelRoom) -> None:
    await room.store.put(total())
    now = room.clock.now_ms()
    async with room.engine("second") as second:
        async with room.engine("first") as first:
            await until(lambda: _one_leads(first, second))
            leader = first if first.is_leading else second
            await room.write(now, {"1": 1.0, "2": 2.0})
            await room.becomes("total", {"total": "3.000000"})
            assert leader.stats.outputs == 1 and (second if leader is first else first).stats.rounds == 0
        await until(lambda: _leads(second))
        await room.write(now + 1, {"1": 2.0})
        await room.becomes("total", {"total": "4.000000"})


async def test_a_deposed_engine_writes_nothing(room: ModelRoom) -> None:
    await room.store.put(total())
    now = room.clock.now_ms()
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        # Somebody else has won meanwhile, and this one does not know yet.
        await room.plane.redis.set(room.keys.models_leader(), "other", px=1000)
        await room.write(now, {"1": 1.0, "2": 2.0})
        await until(lambda: _not(_leads(engine)))
        assert await room.values("total") == {}
        await room.becomes("total", {"total": "3.000000"})


async def test_control_values_of_a_model_are_inputs_too(room: ModelRoom) -> None:
    document: dict[str, Any] = total(points=1, controls={"limit": {"min": 0, "max": 100}})
    document["inputs"].append({"name": "limit", "source": "modsrv:total:control:limit", "default": 50})
    document["calculations"] = [{"id": "all", "function": "min", "inputs": ["p0", "limit"]}]
    await room.store.put(document)
    async with room.engine():
        await room.write(room.clock.now_ms(), {"1": 80.0})
        await room.becomes("total", {"total": "50.000000"})
        await room.store.set_control("total", "limit", 70.0, "operator")
        await room.becomes("total", {"total": "70.000000"})


async def test_the_engine_waits_while_definitions_cannot_be_computed_and_tells_why(room: ModelRoom) -> None:
    document = {**total(), "calculations": [{"id": "all", "function": "divide", "inputs": ["p0", "p1"]}]}
    await room.store.put(document)
    now = room.clock.now_ms()
    async with room.engine() as engine:
        await room.write(now, {"1": 1.0, "2": 0.0})
        await until(lambda: _has_error(engine, "total"))
        assert "division by zero" in engine.stats.errors["total"]
        await room.write(now + 1, {"2": 2.0})
        await room.becomes("total", {"total": "0.500000"})
        assert engine.stats.errors == {}


async def test_missed_entries_are_made_good_from_the_board(room: ModelRoom) -> None:
    if room.link.cluster:
        pytest.skip("the feeds of a cluster are trimmed in the same way")
    await room.store.put(total())
    now = room.clock.now_ms()
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        await room.write(now, {"1": 1.0, "2": 2.0})
        await room.becomes("total", {"total": "3.000000"})
        await until(room.is_caught_up)
    await room.write(now + 1, {"1": 10.0})
    await room.plane.redis.xtrim(room.keys.feed(), maxlen=0)
    await room.plane.redis.hincrby(room.keys.feed_missed(), "modsrv", 1)
    async with room.engine() as engine:
        await room.becomes("total", {"total": "12.000000"})
        await until(lambda: _missed(engine, 1))
        # And while it runs: an entry that it never sees.
        keys, client = room.keys, room.plane.redis
        await client.hset(keys.points("1001", "m"), "1", "20.000000")
        await client.hset(keys.points_ts("1001", "m"), "1", str(now + 2))
        await client.hincrby(keys.feed_missed(), "modsrv", 1)
        await room.write(now + 3, {"2": 3.0})
        await room.becomes("total", {"total": "23.000000"})
        await until(lambda: _missed(engine, 2))


@pytest.mark.parametrize("days", [0, 7])
async def test_outputs_stay_unless_they_are_given_a_time_to_live(link: Link, key_prefix: str, days: int) -> None:
    room = ModelRoom(link, key_prefix, ttl_days=days)
    document = total()
    document["controls"] = {"limit": {"min": 0}}
    await room.store.put(document)
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        await room.write(room.clock.now_ms(), {"1": 1.0, "2": 2.0}, _1="uncertain")
        await room.becomes("total", {"total": "3.000000"})
    await room.store.set_control("total", "limit", 5, "test")
    keys, redis = room.keys, room.plane.redis
    for make in (keys.model_values, keys.model_ts, keys.model_quality, keys.model_mark):
        left_ms = await redis.pttl(make("total", "measurement"))
        assert (left_ms == -1) if not days else (days * 86_400_000 - 60_000 < left_ms <= days * 86_400_000)
    assert await redis.pttl(keys.model_values("total", "control")) == -1
    await room.plane.close()


async def test_a_hundred_models_of_one_round_are_written_with_one_call(room: ModelRoom) -> None:
    await room.store.apply([total(f"m{i}") for i in range(100)])
    async with room.engine() as engine:
        await until(lambda: _leads(engine))
        before = engine.stats.rounds
        await room.write(room.clock.now_ms(), {"1": 1.0, "2": 2.0})
        await room.becomes("m99", {"total": "3.000000"})
        assert engine.stats.outputs == 100
        assert engine.stats.rounds - before <= 3


async def _leads(engine: Any) -> bool:
    return bool(engine.is_leading and engine.stats.rounds)


async def _one_leads(*engines: Any) -> bool:
    return any(engine.is_leading and engine.stats.rounds for engine in engines)


async def _not(condition: Any) -> bool:
    return not await condition


async def _missed(engine: Any, count: int) -> bool:
    return bool(engine.stats.missed == count)


async def _has_error(engine: Any, model: str) -> bool:
    return model in engine.stats.errors


async def _starts_with(room: ModelRoom, model: str, text: str) -> bool:
    return (await room.values(model)).get("energy", "").startswith(text)
