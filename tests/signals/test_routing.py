from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid
from tradewind.signals.routing import (
    SignalKey,
    StopKey,
    matches,
    node_binding,
    parse_key,
    queue_name,
    read_key,
    shorten,
    signal_key,
    stop_key,
)
from tradewind.signals.topic_tree import TopicTree

IDS = st.text("abcXYZ019_-", min_size=1, max_size=64) | st.sampled_from(["x" * 64, "y" * 63])
HANDLES = IDS | st.just("*")
NUMBERS = st.integers(0, 10**18 - 2)
KEYS = st.builds(SignalKey, IDS, NUMBERS, NUMBERS, IDS, IDS, IDS, HANDLES)
WORDS = st.sampled_from(["a", "b", "*", "#", ""])
TEXTS = st.lists(WORDS, max_size=6).map(".".join)


def reference(pattern: str, key: str) -> bool:
    """Topic matching as the broker's manual defines it, in so many words."""

    def fits(wanted: list[str], words: list[str]) -> bool:
        if not wanted:
            return not words
        if wanted[0] == "#":
            return any(fits(wanted[1:], words[taken:]) for taken in range(len(words) + 1))
        return bool(words) and wanted[0] in ("*", words[0]) and fits(wanted[1:], words[1:])

    return fits(pattern.split(".") if pattern else [], key.split(".") if key else [])


def make(key: SignalKey) -> str:
    return signal_key(key.flow, key.component, key.cycle, key.source, key.source_handle, key.target, key.target_handle)


def test_keys_and_names_are_those_of_the_seed() -> None:
    assert (
        signal_key("my_flow", 0, 0, "node_A", "data", "node_B", "input")
        == "flow.my_flow.component.0.cycle.0.from.node_A.handle.data.to.node_B.handle.input"
    )
    assert (
        signal_key("my_flow", 0, 0, "node_A", "data", "node_B", "*")
        == "flow.my_flow.component.0.cycle.0.from.node_A.handle.data.to.node_B.handle.*"
    )
    assert (
        node_binding("my_flow", 0, 0, "node_B") == "flow.my_flow.component.0.cycle.0.from.*.handle.*.to.node_B.handle.*"
    )
    assert stop_key("my_flow", 0) == "flow.my_flow.signal.STOP_EXECUTION.cycle.0"
    assert queue_name("my_flow", 0, "node_A") == "queue.flow.my_flow.cycle.0.node.node_A"
    assert queue_name("my_flow", 1, "node_B") == "queue.flow.my_flow.cycle.1.node.node_B"


@given(KEYS)
def test_every_key_fits_reaches_its_node_only_and_is_read_back(key: SignalKey) -> None:
    route = make(key)
    assert len(route.encode()) <= 255
    assert matches(node_binding(key.flow, key.component, key.cycle, key.target), route)
    for other in (
        node_binding(key.flow + "x", key.component, key.cycle, key.target),
        node_binding(key.flow, key.component + 1, key.cycle, key.target),
        node_binding(key.flow, key.component, key.cycle + 1, key.target),
        node_binding(key.flow, key.component, key.cycle, key.target + "x"),
    ):
        assert not matches(other, route)
    assert read_key(route, key.headers()) == key
    full = (
        f"flow.{key.flow}.component.{key.component}.cycle.{key.cycle}.from.{key.source}.handle.{key.source_handle}"
        f".to.{key.target}.handle.{key.target_handle}"
    )
    if len(full) <= 255:
        assert route == full and parse_key(route) == key == read_key(route, {})
    else:
        assert read_key(route, {}) is None
        assert read_key(route, {**key.headers(), "source_node": "other" * 20}) is None


@given(KEYS, KEYS)
def test_two_signals_have_two_keys(one: SignalKey, other: SignalKey) -> None:
    assert (make(one) == make(other)) == (one == other)


@given(st.text("ab_-", min_size=1, max_size=300), NUMBERS, st.text("ab_-", min_size=1, max_size=300))
def test_ids_that_are_longer_than_ours_fit_too(flow: str, cycle: int, node: str) -> None:
    assert len(queue_name(flow, cycle, node)) <= 255
    assert len(node_binding(flow, cycle, cycle, node)) <= 255
    key = SignalKey(flow, cycle, cycle, node, node, node, node)
    assert len(make(key)) <= 255
    assert matches(node_binding(flow, cycle, cycle, node), make(key))
    assert read_key(make(key), key.headers()) == key
    stop = StopKey(flow, cycle)
    assert read_key(stop_key(flow, cycle), stop.headers()) == stop
    if len(flow) > 64:
        assert read_key(stop_key(flow, cycle)) is None


def test_only_the_longest_words_are_shortened() -> None:
    key = SignalKey("f" * 64, 0, 7, "s" * 64, "data", "t" * 64, "h" * 40)
    parsed = parse_key(make(key))
    assert isinstance(parsed, SignalKey) and parsed.is_shortened
    assert (parsed.flow, parsed.target, parsed.source_handle, parsed.target_handle) == (
        key.flow,
        key.target,
        "data",
        key.target_handle,
    )
    assert parsed.source == shorten(key.source, 20) == "sssssss~" + parsed.source[-12:]


@pytest.mark.parametrize("word", ["", "a.b", "*", "#", "a b", "ü", "a~b", "a*"])
def test_what_cannot_stand_in_a_key_is_refused(word: str) -> None:
    calls: list[Any] = [
        lambda: signal_key(word, 0, 0, "a", "b", "c", "d"),
        lambda: signal_key("f", 0, 0, word, "b", "c", "d"),
        lambda: signal_key("f", 0, 0, "a", "b", word, "d"),
        lambda: node_binding("f", 0, 0, word),
        lambda: queue_name(word, 0, "n"),
        lambda: stop_key(word, 0),
    ]
    for call in calls:
        with pytest.raises(Invalid):
            call()


@pytest.mark.parametrize("number", [-1, 10**18])
def test_numbers_have_bounds(number: int) -> None:
    with pytest.raises(Invalid):
        stop_key("f", number)


def test_a_stop_is_read() -> None:
    assert parse_key("flow.trading_flow.signal.STOP_EXECUTION.cycle.12") == StopKey("trading_flow", 12)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "flow",
        "flow.f.signal.SignalType.STOP_EXECUTION.cycle.0",
        "flow.f.signal.STOP_EXECUTION.cycle.x",
        "flow..signal.STOP_EXECUTION.cycle.1",
        "flow.f.component.0.cycle.-1.from.a.handle.b.to.c.handle.d",
        "flow.f.component.٣.cycle.1.from.a.handle.b.to.c.handle.d",
        "flow.f.component.0.cycle.1.from.a.handle.b.to.c.handle.",
        "flow.a.b.component.0.cycle.1.from.a.handle.b.to.c.handle.d",
        "flow.f.component.0.cycle.1.from.a.handle.b.to.c.handle.d.e",
    ],
)
def test_other_keys_are_none_of_ours(key: str) -> None:
    assert parse_key(key) is None
    assert read_key(key, {"flow_id": "f", "cycle": 1}) is None


@given(TEXTS, TEXTS)
def test_matching_is_that_of_the_reference(pattern: str, key: str) -> None:
    assert matches(pattern, key) == reference(pattern, key)


@given(st.lists(TEXTS, max_size=20), st.lists(TEXTS, min_size=1, max_size=5), st.data())
def test_the_tree_finds_what_matches(patterns: list[str], keys: list[str], data: st.DataObject) -> None:
    tree: TopicTree[int] = TopicTree()
    bound = dict(enumerate(patterns))
    for number, pattern in bound.items():
        tree.add(pattern, number)
    for number in data.draw(st.lists(st.sampled_from(range(len(patterns))), unique=True) if patterns else st.just([])):
        tree.discard(bound.pop(number), number)
    tree.discard("never.bound", 1)
    for key in keys:
        assert tree.find(key) == {number for number, pattern in bound.items() if reference(pattern, key)}
    for number, pattern in bound.items():
        tree.discard(pattern, number)
    assert not tree


def test_many_hashes_do_not_take_for_ever() -> None:
    pattern, key = ".".join(["#", "a"] * 40 + ["#", "b"]), ".".join(["a"] * 200)
    tree: TopicTree[int] = TopicTree()
    tree.add(pattern, 1)
    assert not matches(pattern, key) and not tree.find(key)
    assert matches(pattern, f"{key}.b") and tree.find(f"{key}.b") == {1}
