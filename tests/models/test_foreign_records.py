"""What other programs leave in the keys of models and their inputs harms no other model."""

from __future__ import annotations

from tests.models.examples import total
from tests.models.model_room import ModelRoom
from tradewind.points.board import Batch


def doubled(name: str, channel: str) -> dict[str, object]:
    return {
        "name": name,
        "inputs": [{"name": "x", "source": f"comsrv:{channel}:m:1"}],
        "calculations": [{"id": "y", "expression": "2 * x"}],
        "outputs": [{"field": "y", "source": "y"}],
    }


async def test_what_is_spoilt_at_one_model_or_input_holds_up_no_other(room: ModelRoom) -> None:
    plane, keys = room.plane, room.keys
    now = room.clock.now_ms()
    await room.write(now, {"1": 1.0, "2": 2.0})
    await room.store.apply([total(), doubled("blind", "7"), doubled("dumb", "8"), doubled("odd", "9")])
    await plane.at("7").redis.set(keys.points("7", "m"), "text")
    await plane.at("9").redis.set(keys.channel_status("9"), "text")
    await room.board.write([Batch.of_channel("8", "m", {"1": 1.0}, now), Batch.of_channel("9", "m", {"1": 3.0}, now)])
    await plane.redis.set(keys.model_values("dumb", "measurement"), "text")
    await plane.redis.hset(
        keys.model_values("odd", "measurement"), mapping={b"\xff": "1", "no field!": "1", "old": "1"}
    )
    await plane.redis.hset(keys.model_states(), b"\xff", "1")
    async with room.engine():
        await room.becomes("total", {"total": "3.000000"})
        await room.write(now + 1, {"1": 5.0})
        await room.becomes("total", {"total": "7.000000"})
        quality = await plane.redis.hgetall(keys.model_quality("odd", "measurement"))
        assert quality == {b"old": b"uncertain"}
        assert await room.values("blind") == {}, "nothing is known of its input"
        assert await plane.redis.get(keys.model_values("dumb", "measurement")) == b"text"
        await plane.redis.delete(keys.model_values("dumb", "measurement"))
        await room.board.write([Batch.of_channel("8", "m", {"1": 2.0}, now + 1)])
        await room.becomes("dumb", {"y": "4.000000"})
