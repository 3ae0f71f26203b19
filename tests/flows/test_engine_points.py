"""Points start cycles: through the change feed, once per change, with what they saw."""

from __future__ import annotations

from typing import Any

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage
from tradewind.clock import now_ms
from tradewind.points.board import Batch

KEY = "comsrv:1001:m"


async def _write(station: Engine, value: float, ts_ms: int, quality: str = "") -> None:
    marks = {"10001": quality} if quality else {}
    await station.station.points.board.write([Batch(KEY, {"10001": value}, ts_ms, marks)])


async def _values(station: Engine, flow_id: str) -> list[Any]:
    """In their order; cycles of changes that came together may end in any."""
    return sorted(given["value"] for given in stage.got(flow_id, "n"))


async def _triggered(station: Engine, **trigger: object) -> str:
    flow_id = await station.register(
        {"n": ("e_note", {}, {"external": ["x"]})},
        triggers=[{"type": "point", "address": f"{KEY}:10001", **trigger}],
        interval=None,
        schedule={"manual": True},
    )
    await station.flows.start(flow_id)
    await _watched(station)
    return flow_id


async def _watched(station: Engine) -> None:
    async def look() -> bool:
        return bool(await station.redis.hexists(station.station.points.plane.keys.feed_cursors(), "flow-triggers"))

    await until(look, "the triggers being watched")


async def _seen(station: Engine, flow_id: str, expected: list[float]) -> None:
    async def look() -> bool:
        return await _values(station, flow_id) == expected

    await until(look, f"{expected} being seen, not {await _values(station, flow_id)}")


async def test_a_change_beyond_the_deadband_starts_a_cycle_with_what_it_saw(station: Engine) -> None:
    flow_id = await _triggered(station, deadband=1)
    at = now_ms() - 10_000
    for step, value in enumerate([10.0, 10.5, 11.0, 11.5, 20.0]):
        await _write(station, value, at + step)
    await _seen(station, flow_id, [11.0, 20.0])
    (first,) = [given for given in stage.got(flow_id, "n") if given["value"] == 11.0]
    assert first == {"address": f"{KEY}:10001", "value": 11.0, "previous": 10.5, "ts": at + 2}
    assert (await station.flows.status.cycle(flow_id, 0))["trigger"] == "point"


async def test_late_and_bad_values_start_nothing(station: Engine) -> None:
    flow_id = await _triggered(station, condition="value > 50")
    at = now_ms() - 10_000
    await _write(station, 1.0, at)
    await _write(station, 99.0, at - 5000)  # late
    await _write(station, 98.0, at + 1, "bad")
    await _write(station, 97.0, at + 2)
    await _seen(station, flow_id, [97.0])


async def test_a_flow_that_was_not_started_is_left_alone(station: Engine) -> None:
    idle = await station.register(
        {"n": ("e_note", {}, {"external": ["x"]})},
        triggers=[{"type": "point", "address": f"{KEY}:10001"}],
        interval=None,
        schedule={"manual": True},
    )
    busy = await _triggered(station)
    at = now_ms() - 10_000
    await _write(station, 1.0, at)
    await _write(station, 2.0, at + 1)
    await _seen(station, busy, [2.0])
    assert await _values(station, idle) == []


async def test_nothing_of_a_trigger_is_left_when_its_flow_is_deleted(station: Engine) -> None:
    flow_id = await _triggered(station)
    at = now_ms() - 10_000
    await _write(station, 1.0, at)
    await _write(station, 2.0, at + 1)
    await _seen(station, flow_id, [2.0])
    await station.flows.delete(flow_id)
    assert await station.text(station.keys.flow_triggers(), flow_id) is None
    states = await station.hash(station.keys.trigger_states())
    assert not [name for name in states if name.startswith(flow_id)]


async def test_each_handle_gets_what_its_own_trigger_saw_last(station: Engine) -> None:
    """Also of a point that has not changed since, of one in the same write, and of a model's field."""
    board = station.station.points.board
    at = now_ms() - 10_000
    await board.write([Batch("comsrv:1002:m", {"1": 7.0}, at)])
    triggers: list[dict[str, Any]] = [
        {"type": "point", "address": f"{KEY}:10001", "to": "n.a"},
        {"type": "point", "address": f"{KEY}:10002", "to": "n.b"},
        {"type": "point", "address": "comsrv:1002:m:1", "to": "n.c"},
        {"type": "point", "address": "modsrv:site:measurement:total", "to": "n.d"},
    ]
    flow_id = await station.register(
        {"n": ("e_note_all", {}, {"external": ["a", "b", "c", "d"]})},
        triggers=triggers,
        interval=None,
        schedule={"manual": True},
    )
    await station.flows.start(flow_id)
    await _watched(station)

    async def seen(values: list[list[float | None]]) -> None:
        def of(given: dict[str, Any]) -> list[float | None]:
            return [given[handle]["value"] for handle in "abcd"]

        async def look() -> bool:
            return sorted(map(str, map(of, stage.got(flow_id, "n")))) == sorted(map(str, values))

        await until(look, f"{values}")

    await board.write([Batch(KEY, {"10001": 1.0, "10002": 100.0}, at)])
    await board.write([Batch(KEY, {"10001": 2.0}, at + 1)])
    await seen([[2.0, 100.0, 7.0, None]])
    await board.write([Batch(KEY, {"10001": 3.0, "10002": 101.0}, at + 2)])
    both = [3.0, 101.0, 7.0, None]
    await seen([[2.0, 100.0, 7.0, None], both, both])
    (first,) = [given for given in stage.got(flow_id, "n") if given["a"]["value"] == 2.0]
    assert first["a"] == {"address": f"{KEY}:10001", "value": 2.0, "previous": 1.0, "ts": at + 1}
    assert first["b"] == {"address": f"{KEY}:10002", "value": 100.0, "previous": None, "ts": at}
    assert first["c"] == {"address": "comsrv:1002:m:1", "value": 7.0, "previous": None, "ts": at}
    assert first["d"] == {"address": "modsrv:site:measurement:total", "value": None, "previous": None, "ts": None}
    for step, value in enumerate((50.0, 51.0)):
        await board.write([Batch("modsrv:site:measurement", {"total": value}, at + 3 + step)])
    await seen([[2.0, 100.0, 7.0, None], both, both, [3.0, 101.0, 7.0, 51.0]])
