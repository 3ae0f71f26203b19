"""How long a series is kept: by its class, what a class leaves out by the settings, and from which day on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.history.sink_contract import DAY, DAY0, HOUR
from tradewind.errors import Unavailable
from tradewind.history.keeping import Days, Keeping
from tradewind.history.policy import read_policy
from tradewind.history.sink import SinkAway
from tradewind.history.store import PolicyKeeping

CLASSES = {"brief": {"raw_days": 2, "minute_days": 20}, "long": {"raw_days": 400}, "archive": {"raw_days": 0}}


def keeping(*policies: dict[str, Any], days: tuple[int, int, int] = (30, 365, 0)) -> Keeping:
    return Keeping(days, read_policy({"classes": CLASSES, "policies": list(policies)}))


def test_what_a_class_leaves_out_is_as_in_the_settings() -> None:
    classes = keeping(days=(30, 365, 1000)).classes
    assert classes["default"] == (30, 365, 1000)
    assert classes["brief"] == (2, 20, 1000)


def test_rollups_are_kept_at_least_as_long_as_samples() -> None:
    classes = keeping(days=(30, 365, 1000)).classes
    assert classes["long"] == (400, 400, 1000)
    assert classes["archive"] == (0, 0, 0)
    assert Keeping((30, 7, 20)).default == (30, 30, 30)


def test_the_first_policy_that_matches_says_the_class() -> None:
    found = keeping(
        {"match": "comsrv:1:m:1", "class": "brief"},
        {"match": "comsrv:1:m:2"},
        {"match": "comsrv:1:m:*", "class": "long"},
    )
    names = ("comsrv:1:m:1", "comsrv:1:m:2", "comsrv:1:m:3", "comsrv:2:m:1")
    assert [found.class_of(name) for name in names] == ["brief", "default", "long", "default"]
    assert found.days_of("comsrv:1:m:3").raw == 400


@pytest.mark.parametrize(
    ("named", "longest", "shorter"),
    [
        ((), 30, []),
        (("brief",), 30, ["brief"]),
        (("brief", "long"), 400, ["brief", "default"]),
        (("brief", "archive"), 0, ["brief", "default"]),
    ],
)
def test_only_classes_that_a_policy_names_count(named: tuple[str, ...], longest: int, shorter: list[str]) -> None:
    found = keeping(*({"match": f"comsrv:{at}:*", "class": name} for at, name in enumerate(named)))
    assert found.longest("raw") == longest
    ends = found.shorter("raw", DAY0 + 10 * DAY + HOUR)
    assert list(ends) == shorter
    assert all(end == DAY0 + (10 - found.classes[name].raw) * DAY for name, end in ends.items())
    assert found.is_plain is (not named)


def test_a_day_is_kept_until_all_of_it_is_old_enough() -> None:
    days = Days(2, 0, 0)
    assert days.cutoff_ms("raw", DAY0 + 3 * DAY - 1) == DAY0
    assert days.cutoff_ms("raw", DAY0 + 3 * DAY) == DAY0 + DAY
    assert days.cutoff_ms("minute", DAY0) == 0
    assert Days(10**6).cutoff_ms("raw", DAY0) == 0


def test_two_that_say_the_same_are_equal() -> None:
    item = {"match": "a:*", "class": "brief"}
    assert keeping(item) == keeping(item | {"deadband": 5})
    assert keeping(item) != keeping(item | {"match": "b:*"})
    assert keeping(item) != keeping(item, days=(31, 365, 0))


class Texts:
    """A store of which only the text of the policy counts."""

    def __init__(self) -> None:
        self.text: bytes | Exception = b""

    async def policy_text(self) -> bytes:
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


async def test_nothing_is_removed_by_a_policy_that_nobody_can_read() -> None:
    store = Texts()
    source = PolicyKeeping(store, (30, 0, 0))  # type: ignore[arg-type]
    for bad in (b'{"polices": []}', b"{", Unavailable("Redis is away")):
        store.text = bad
        with pytest.raises(SinkAway):
            await source()
    store.text = b'{"classes": {"brief": {"raw_days": 1}}, "policies": [{"match": "*", "class": "brief"}]}'
    good = await source()
    assert good.class_of("comsrv:1:m:1") == "brief" and await source() is good
    store.text = b'{"policies": [{"match": "*", "class": "gone"}]}'  # what somebody else stored
    assert await source() is good
    store.text = b""  # Redis has lost it
    assert await source() is good
    store.text = b"{}"
    assert (await source()).is_plain
