"""What a model remembers, there and back: all shapes of inputs, and more models than one command takes."""

from __future__ import annotations

import msgspec
import pytest

from tests.models.examples import energy
from tests.models.model_room import ModelRoom, until
from tradewind.models.check import read_models
from tradewind.models.network import Network
from tradewind.models.outputs import Sample
from tradewind.models.program import BAD, GOOD, UNCERTAIN
from tradewind.models.state import StateDump, restore

ADDRESSES = [f"comsrv:1001:m:{n}" for n in (1, 2, 3)]


def network(count: int) -> Network:
    names = [f"p{n}" for n in range(count)]
    document = {
        "name": "meter",
        "inputs": [{"name": n, "source": address} for n, address in zip(names, ADDRESSES, strict=False)],
        "calculations": [
            {"id": "all", "function": "sum", "inputs": names},
            {"id": "counter", "function": "energy", "inputs": ["all"]},
        ],
        "outputs": [{"field": "energy", "source": "counter"}],
    }
    specs, problems = read_models({"meter": document}, {})
    assert not problems
    return Network(specs)


@pytest.mark.parametrize(
    "samples",
    [
        [Sample(1.5, 1000)],
        [Sample(1.5, 1000), Sample(2.5, 1000), Sample(3.5, 1000)],
        [Sample(1.5, 1000), Sample(2.5, 2000), Sample(3.5, 1000)],
        [Sample(1.5, 1000), Sample(2.5, 1000, UNCERTAIN), Sample(3.5, 1000, BAD)],
        [Sample(1.5, 1000, BAD), Sample(2.5, 1000, BAD), Sample(3.5, 3000, BAD)],
        [Sample(1.5, 1000), None, Sample(3.5, 2000, GOOD)],
        [None, None],
    ],
)
def test_inputs_come_back_as_they_stood(samples: list[Sample | None]) -> None:
    before = network(len(samples))
    expected = dict(zip(ADDRESSES, samples, strict=False))
    for address, sample in expected.items():
        if sample is not None:
            before.preset(address, sample)
    stored = StateDump(before).fields([0])
    assert restore(network(len(samples)), stored) == expected


def test_a_dump_shows_what_calculations_remember_now() -> None:
    """Not what they did when it was first asked for: only definitions are remembered from call to call."""
    net = network(1)
    dump = StateDump(net)
    totals = []
    for at in range(3):
        net.preset(ADDRESSES[0], Sample(3600.0, at * 1000))
        net.touch_all(0)
        net.settle()
        totals.append(msgspec.msgpack.decode(dump.fields([0])["meter"])["counter"][1][0])
    assert totals == [0.0, 0.0, 1.0]


async def test_a_round_stores_the_memory_of_thousands_of_models(room: ModelRoom) -> None:
    """More than fits on the stack of a script at once (8,000 arguments are 4,000 fields, two a model)."""
    count = 2200
    await room.store.apply([energy(f"meter_{n}") for n in range(count)])
    async with room.engine():
        await room.write(room.clock.now_ms(), {"1": 7.0})

        async def is_stored() -> bool:
            states = await room.states()
            values = [msgspec.msgpack.decode(states.get(f"meter_{n}:in", b"\xc0")) for n in range(count)]
            return all(value is not None and value[1] == [7.0] for value in values)

        await until(is_stored, 30)
        kept = await room.states()
    assert {name for name in kept if not name.endswith(":in")} == {f"meter_{n}" for n in range(count)}
