"""A quality without a value makes no stale point known again; a substituted value does not grow stale."""

from __future__ import annotations

import pytest

from tests.rules.test_network import START, A, edges, entry, hot, started
from tradewind.points.feed import FeedEntry
from tradewind.rules.network import RuleNetwork
from tradewind.rules.verdict import SUBSTITUTED, Sample


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


def test_a_substituted_value_is_known_does_not_age_and_is_named() -> None:
    network = started(hot("a", on_bad="false"), samples={A: Sample(70.0, START)}, stale_ms=4000)
    network.take()
    network.age(START + 4600, {})  # the device is gone
    network.apply(entry(5, q="1:substituted", _1=80))
    [fired] = network.take()
    assert (fired.verdict.edge, fired.verdict.substituted) == ("rise", (A,))
    network.age(START + 60_000, {})
    assert edges(network) == [], "it does not age"
    network.apply(entry(61, q="1:good", _1=80))  # released: the device said so long ago
    network.age(START + 64_000, {})
    assert edges(network) == []
    network.age(START + 66_000, {})
    assert [name for _, name, _ in edges(network)] == ["fall"], "and from then on it does again"


def test_a_substitution_is_known_again_after_a_restart() -> None:
    rule = hot("a", on_bad="false")
    network = started(rule, stale_ms=4000)
    network.apply(entry(1, q="1:substituted", _1=80))
    stored = network.take_states()
    again = RuleNetwork([rule], 4000)
    assert again.restore(stored) == []
    again.start({A: Sample(80.0, START + 1000, SUBSTITUTED)}, START + 60_000)
    again.age(START + 60_000, {})
    assert edges(again) == []
    fresh = RuleNetwork([rule], 4000)
    fresh.start({A: Sample(80.0, START + 1000, SUBSTITUTED)}, START + 60_000)
    fresh.age(START + 60_000, {})
    assert [name for _, name, _ in edges(fresh)] == ["rise"]


def test_the_output_of_a_model_ages_also_when_it_is_substituted() -> None:
    """Nobody gives it: its model has a substituted input, and may have stopped."""
    source = "modsrv:power:measurement:p"
    samples = {source: Sample(80.0, START, SUBSTITUTED)}
    network = started(hot("a", source, on_bad="false"), samples=samples, stale_ms=4000)
    network.take()
    network.age(START + 4600, {})
    assert [name for _, name, _ in edges(network)] == ["fall"]
