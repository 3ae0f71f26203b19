"""Every key has the type that keys.py says; what holds another one is named."""

from __future__ import annotations

import pytest

from tradewind.errors import Conflict
from tradewind.points.board import Batch, Board
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link
from tradewind.redis.faults import WrongType
from tradewind.redis.key_types import expected_type
from tradewind.redis.keys import Keys
from tradewind.settings import Settings


@pytest.mark.parametrize("keys", [Keys(), Keys("plant:"), Keys("p-", cluster=True)])
def test_the_type_of_a_key_is_known(keys: Keys) -> None:
    for key, kind in (
        (keys.points("1001", "m"), "hash"),
        (keys.points_mark("1001", "m"), "string"),
        (keys.channel_todo("1001"), "list"),
        (keys.command("cmd_1"), "hash"),
        (keys.commands_open(), "zset"),
        (keys.command_journal(), "stream"),
        (keys.rules(), "set"),
        (keys.command_key("a:b/c"), "string"),
        (keys.task("t1"), "hash"),
        (keys.body("t1"), "string"),
    ):
        assert expected_type(key) == kind, key
        assert expected_type(key, keys.p) in (kind, None), key
    assert expected_type("somebody:else:s", "plant:") is None


async def test_a_wrong_type_is_a_conflict_that_names_the_key(link: Link, key_prefix: str) -> None:
    plane = PointPlane(link, Settings(key_prefix=key_prefix))
    board, key = Board(plane), plane.keys.points("1001", "m")
    await plane.at("1001").redis.set(key, "a string")
    for ask in (
        board.read(["comsrv:1001:m:1"]),
        board.read_channel("1001"),
        board.lengths("1001"),
        board.write([Batch.of_channel("1001", "m", {"1": 1.0})]),
        board.compare_and_set("comsrv:1001:m:1", None, 1.0),
    ):
        with pytest.raises(WrongType) as caught:
            await ask
        assert isinstance(caught.value, Conflict) and key in caught.value.message
        assert caught.value.hint and caught.value.code == "wrong_type"
    await plane.close()
