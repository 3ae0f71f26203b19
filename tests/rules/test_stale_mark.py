"""A quality without a value: it makes no stale point known again."""

from __future__ import annotations

import pytest

from tests.rules.test_network import START, A, edges, entry, hot, started
from tradewind.points.feed import FeedEntry
from tradewind.rules.verdict import Sample


@pytest.mark.parametrize("word", ["uncertain", "good"])
@pytest.mark.parametrize(("on_bad", "value", "edge"), [("false", 80.0, "fall"), ("true", 70.0, "rise")])
def test_a_stale_point_stays_so_until_a_value_comes(on_bad: str, value: float, edge: str, word: str) -> None:
    network = started(hot("a", on_bad=on_bad), samples={A: Sample(value, START)}, stale_ms=4000)
    network.take()
    network.age(START + 4600, {})
    assert [name for _, name, _ in edges(network)] == [edge]
    network.apply(FeedEntry("9-0", "comsrv:1:m", START + 4700, "", f"1:{word}"))
    network.age(START + 5600, {})
    assert edges(network) == [], "nothing new is known of it"
    network.apply(entry(6, _1=value))
    assert [name for _, name, _ in edges(network)] == ["rise" if edge == "fall" else "fall"]


def test_a_point_that_is_marked_before_its_age_is_over_grows_stale_all_the_same() -> None:
    network = started(hot("a", on_bad="false"), samples={A: Sample(80.0, START)}, stale_ms=4000)
    network.take()
    network.apply(FeedEntry("9-0", "comsrv:1:m", START + 3900, "", "1:uncertain"))
    assert edges(network) == []
    network.age(START + 4600, {})
    assert [name for _, name, _ in edges(network)] == ["fall"]
