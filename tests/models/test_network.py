"""Models together: what is computed when, in which order, with which quality; and that the way there is no matter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.examples import energy, seed, total
from tests.soak import repeats
from tradewind.models.check import read_models
from tradewind.models.network import Network
from tradewind.models.outputs import Sample
from tradewind.models.program import BAD, GOOD, SUBSTITUTED, UNCERTAIN
from tradewind.models.state import StateDump, restore
from tradewind.points.feed import FeedEntry

NOW = 1_700_000_000_000
WORDS = {"good": GOOD, "uncertain": UNCERTAIN, "bad": BAD}


def network(*documents: Any, templates: Any = None) -> Network:
    specs, problems = read_models({str(i): document for i, document in enumerate(documents)}, templates or {})
    assert problems == []
    return Network(specs)


def entry(
    ts_ms: int, key: str = "comsrv:1001:m", q: str = "", late: bool = False, p: str = "", **values: float
) -> FeedEntry:
    data = ",".join(f"{name.lstrip('_')}:{value:.6f}" for name, value in values.items())
    return FeedEntry("1-1", key, ts_ms, data, q, late, "", p)


def settled(net: Network, *entries: FeedEntry) -> dict[str, Sample]:
    """One round; the outputs written, as `model.field`."""
    for item in entries:
        net.apply(item)
    net.settle()
    return {f"{change.model}.{field}": sample for change in net.take() for field, sample in change.fields.items()}


def test_the_seed_example_is_computed() -> None:
    net = network(seed())
    found = settled(net, entry(NOW, _10001=230.0, _10002=5.0))
    assert found == {"power_meter.total_power": Sample(1092.5, NOW)}


def test_only_touched_models_are_computed() -> None:
    net = network(total("a", 1), total("b", 2))
    settled(net, entry(NOW, "comsrv:1:m", _1=1, _2=2), entry(NOW, "comsrv:2:m", _1=1, _2=2))
    before = net.computed
    found = settled(net, entry(NOW + 5, "comsrv:1:m", _1=4), entry(NOW + 5, "comsrv:3:m", _1=4))
    assert found == {"a.total": Sample(6.0, NOW + 5)} and net.computed == before + 1


def test_a_model_of_models_follows_in_the_same_round_in_order() -> None:
    top = {
        "name": "aa_top",
        "inputs": [
            {"name": "x", "source": {"model": "b", "field": "total"}},
            {"name": "y", "source": "modsrv:middle:measurement:twice"},
        ],
        "calculations": [{"id": "s", "function": "sum", "inputs": ["x", "y", 100]}],
        "outputs": [{"field": "s", "source": "s"}],
    }
    middle = {
        "name": "middle",
        "inputs": [{"name": "x", "source": {"model": "b", "field": "total"}}],
        "calculations": [{"id": "twice", "expression": "x * 2"}],
        "outputs": [{"field": "twice", "source": "twice"}],
    }
    net = network(top, middle, total("b"))
    assert settled(net, entry(NOW, _1=1, _2=2))["aa_top.s"] == Sample(109.0, NOW)
    assert net.computed == 3
    assert settled(net, entry(NOW + 1, _1=2))["aa_top.s"] == Sample(112.0, NOW + 1)


def test_the_time_of_an_output_is_that_of_the_newest_event() -> None:
    net = network(
        {
            **total(points=1),
            "inputs": [{"name": "p0", "source": "comsrv:1:m:1"}, {"name": "b", "source": "comsrv:2:m:1"}],
        }
    )
    found = settled(net, entry(NOW + 9, "comsrv:1:m", _1=1), entry(NOW + 3, "comsrv:2:m", _1=1))
    assert found["total.total"].ts_ms == NOW + 9


def test_quality_is_that_of_the_worst_input_and_a_bad_one_keeps_the_value() -> None:
    net = network(total())
    assert settled(net, entry(NOW, _1=1)) == {}, "an input is missing and there is no value to keep"
    assert settled(net, entry(NOW, _2=2)) == {"total.total": Sample(3.0, NOW)}
    assert settled(net, entry(NOW + 1, q="2:uncertain", _2=5)) == {"total.total": Sample(6.0, NOW + 1, UNCERTAIN)}
    assert settled(net, entry(NOW + 2, q="2:bad", _2=7)) == {"total.total": Sample(6.0, NOW + 2, BAD)}
    assert settled(net, entry(NOW + 3, _1=10)) == {"total.total": Sample(6.0, NOW + 3, BAD)}
    assert settled(net, entry(NOW + 4, q="2:good")) == {"total.total": Sample(17.0, NOW + 4)}


def test_a_default_stands_in_and_makes_the_result_uncertain() -> None:
    document = total()
    document["inputs"][1]["default"] = 100
    net = network(document)
    assert settled(net, entry(NOW, _1=1)) == {"total.total": Sample(101.0, NOW, UNCERTAIN)}
    assert settled(net, entry(NOW + 1, _2=2)) == {"total.total": Sample(3.0, NOW + 1)}
    assert settled(net, entry(NOW + 2, q="2:bad")) == {"total.total": Sample(101.0, NOW + 2, UNCERTAIN)}


def test_an_expression_may_get_along_without_an_input() -> None:
    document = {**total(), "calculations": [{"id": "all", "expression": "p0 + coalesce(p1, 50)"}]}
    net = network(document)
    assert settled(net, entry(NOW, _1=1)) == {"total.total": Sample(51.0, NOW, UNCERTAIN)}
    assert settled(net, entry(NOW + 1, _2=1)) == {"total.total": Sample(2.0, NOW + 1)}


def test_what_cannot_be_computed_is_bad_and_keeps_its_value_and_the_reason_is_told() -> None:
    document = {**total(), "calculations": [{"id": "all", "function": "divide", "inputs": ["p0", "p1"]}]}
    net = network(document)
    assert settled(net, entry(NOW, _1=6, _2=2)) == {"total.total": Sample(3.0, NOW)}
    assert settled(net, entry(NOW + 1, _2=0)) == {"total.total": Sample(3.0, NOW + 1, BAD)}
    assert "division by zero" in net.errors()["total"]
    assert settled(net, entry(NOW + 2, _2=3)) == {"total.total": Sample(2.0, NOW + 2)}
    assert net.errors() == {}


def test_infinity_is_no_value() -> None:
    document = {**total(), "calculations": [{"id": "all", "function": "multiply", "inputs": ["p0", "p0", "p0"]}]}
    net = network(document)
    net.show({"comsrv:1001:m:1": Sample(1e300, NOW), "comsrv:1001:m:2": Sample(1.0, NOW)})
    assert settled(net) == {} and "not finite" in net.errors()["total"]


def test_an_output_out_of_its_bounds_is_uncertain() -> None:
    document = total()
    document["outputs"][0] |= {"min": 0, "max": 10}
    net = network(document)
    assert settled(net, entry(NOW, _1=5, _2=5))["total.total"].quality == GOOD
    assert settled(net, entry(NOW + 1, _1=6)) == {"total.total": Sample(11.0, NOW + 1, UNCERTAIN)}


def test_a_deadband_holds_small_changes_back_but_not_for_ever() -> None:
    document = total()
    document["outputs"][0]["deadband"] = 1
    net = network(document)
    settled(net, entry(NOW, _1=5, _2=5))
    assert settled(net, entry(NOW + 1, _1=5.5)) == {}
    assert settled(net, entry(NOW + 2, _1=6)) == {"total.total": Sample(11.0, NOW + 2)}
    assert settled(net, entry(NOW + 3, q="1:uncertain", _1=6)) == {"total.total": Sample(11.0, NOW + 3, UNCERTAIN)}
    assert settled(net, entry(NOW + 4, _1=6.5)) == {"total.total": Sample(11.5, NOW + 4)}
    assert settled(net, entry(NOW + 10_004, _1=6.6)) == {"total.total": Sample(11.6, NOW + 10_004)}


def test_late_samples_and_older_times_change_nothing() -> None:
    net = network(total())
    settled(net, entry(NOW, _1=5, _2=5))
    assert settled(net, entry(NOW - 5, late=True, _1=9)) == {}
    assert settled(net, entry(NOW - 5, _1=9)) == {}


def test_each_value_may_have_a_time_of_its_own() -> None:
    net = network(total())
    found = settled(net, entry(NOW + 7, p=f"{NOW + 7},{NOW + 2}", _1=1, _2=2))
    assert found == {"total.total": Sample(3.0, NOW + 7)}
    assert net.times == [NOW + 7, NOW + 2]


def test_a_value_past_its_age_is_uncertain_until_its_channel_answers_again() -> None:
    document = total()
    document["inputs"][0]["max_age"] = 5
    net = network(document)
    settled(net, entry(NOW, _1=1, _2=2))
    assert net.overdue(NOW + 4000) == set()
    assert net.overdue(NOW + 6000) == {"1001"}
    net.age(NOW + 6000, {"1001": NOW + 5500})
    assert settled(net) == {}, "the channel was there, the value has not changed"
    net.age(NOW + 11_000, {"1001": NOW + 5500})
    assert settled(net) == {"total.total": Sample(3.0, NOW + 10_500, UNCERTAIN)}
    net.age(NOW + 12_000, {"1001": NOW + 11_900})
    assert settled(net) == {"total.total": Sample(3.0, NOW + 11_900)}
    net.age(NOW + 20_000, {})
    assert settled(net)["total.total"].quality == UNCERTAIN
    assert settled(net, entry(NOW + 21_000, _1=1)) == {"total.total": Sample(3.0, NOW + 21_000)}


def test_every_event_of_a_round_counts_for_an_integral_also_through_other_models() -> None:
    plain = {
        "name": "plain",
        "inputs": [{"name": "a", "source": "comsrv:1001:m:1"}],
        "calculations": [{"id": "double", "expression": "a * 2"}],
        "outputs": [{"field": "double", "source": "double"}],
    }
    meter = energy("meter", {"model": "plain", "field": "double"}, initial=1)
    net = network(meter, plain)
    hour = 3_600_000
    found = settled(net, entry(NOW, _1=1), entry(NOW + hour, _1=2), entry(NOW + 3 * hour, _1=0))
    assert found["meter.energy"] == Sample(1 + 2 + 8, NOW + 3 * hour)


def test_nothing_is_counted_while_the_input_is_bad() -> None:
    net = network(energy())
    hour = 3_600_000
    settled(net, entry(NOW, _1=1), entry(NOW + hour, _1=1))
    assert settled(net, entry(NOW + hour + 5, q="1:bad")) == {"meter.energy": Sample(1.0, NOW + hour + 5, BAD)}
    found = settled(net, entry(NOW + 5 * hour, _1=1), entry(NOW + 6 * hour, _1=1))
    assert found["meter.energy"] == Sample(2.0, NOW + 6 * hour)


@pytest.mark.parametrize("method", ["hold", "trapezoid"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_sample_and_a_bad_mark_of_one_time_count_in_the_order_of_the_feed(method: str, is_cut: bool) -> None:
    """Whether a round ends between them or not; and the counter never goes back."""
    hour = 3_600_000
    net = network(energy(method=method))
    entries = [entry(NOW, _1=2), entry(NOW + hour, _1=2), entry(NOW + hour, q="1:bad")]
    if is_cut:
        settled(net, *entries[:2])
    settled(net, *entries[2:] if is_cut else entries)
    found = settled(net, entry(NOW + 2 * hour, _1=2), entry(NOW + 3 * hour, _1=2))
    assert found["meter.energy"] == Sample(4.0, NOW + 3 * hour)


def test_a_disabled_model_is_not_there() -> None:
    assert network({**total(), "enabled": False}).names == []


def test_no_negative_zero() -> None:
    net = network(
        {**total(), "calculations": [{"id": "all", "function": "scale", "inputs": ["p0"], "params": {"factor": -1}}]}
    )
    found = settled(net, entry(NOW, _1=0, _2=0))["total.total"]
    assert str(found.value) == "0.0"


FUNCTIONS = ["sum", "avg", "min", "max", "multiply", "subtract"]
MEMORIES: list[tuple[str, dict[str, Any]]] = [
    ("integrate", {"per": "h"}),
    ("integrate", {"method": "trapezoid"}),
    ("energy", {"direction": "positive"}),
    ("moving_average", {"window": 3}),
    ("rate_of_change", {}),
    ("window_avg", {"window_s": 20}),
    ("window_max", {"window_s": 20}),
]


@st.composite
def stations(draw: st.DrawFn, *, with_memory: bool) -> list[dict[str, Any]]:
    """A few models of points and of each other."""
    models: list[dict[str, Any]] = []
    for at in range(draw(st.integers(1, 5))):
        sources: list[Any] = [f"comsrv:{c}:m:{p}" for c in (1, 2) for p in (1, 2, 3)]
        sources += [{"model": f"m{i}", "field": "out"} for i in range(at)]
        chosen = draw(st.lists(st.sampled_from(sources), min_size=1, max_size=4))
        names = [f"i{i}" for i in range(len(chosen))]
        steps: list[dict[str, Any]] = [{"id": "a", "function": draw(st.sampled_from(FUNCTIONS)), "inputs": names}]
        if with_memory and draw(st.booleans()):
            function, params = draw(st.sampled_from(MEMORIES))
            steps.append({"id": "b", "function": function, "inputs": ["a"], "params": params})
        steps.append({"id": "c", "function": "clamp", "inputs": [steps[-1]["id"]], "params": {"min": -1e6, "max": 1e6}})
        inputs = [{"name": n, "source": s} for n, s in zip(names, chosen, strict=True)]
        if draw(st.booleans()):
            inputs[0]["default"] = draw(st.integers(-5, 5))
        outputs = [{"field": "out", "source": "c", "deadband": draw(st.sampled_from([0, 0, 2]))}]
        models.append({"name": f"m{at}", "inputs": inputs, "calculations": steps, "outputs": outputs})
    return draw(st.permutations(models))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["comsrv:1:m", "comsrv:2:m"]),
        st.one_of(st.just(0), st.integers(0, 9000)),
        st.dictionaries(st.sampled_from(["_1", "_2", "_3"]), st.integers(-50, 50)),
        st.sampled_from(["", "", "", "1:bad", "2:uncertain", "1:good"]),
    ),
    min_size=1,
    max_size=25,
)


def entries_of(events: Any) -> list[FeedEntry]:
    """Some have values, some only take a quality away or give one; many are of one time."""
    now, made = NOW, []
    for key, gap, values, q in events:
        now += gap
        if q == "1:good" and "_1" in values:
            q = ""
        if values or q:
            made.append(entry(now, key, q, **values))
    return made


@settings(max_examples=repeats(50))
@given(models=stations(with_memory=False), events=EVENTS)
def test_recomputing_what_changed_gives_what_computing_everything_does(models: Any, events: Any) -> None:
    for model in models:
        model["outputs"][0]["deadband"] = 0
    stepwise, fresh = network(*models), network(*models)
    stepwise.touch_all(NOW)
    board = settled(stepwise)
    for item in entries_of(events):
        board |= settled(stepwise, item)
    fresh.values, fresh.times, fresh.qualities = list(stepwise.values), list(stepwise.times), list(stepwise.qualities)
    fresh.touch_all(NOW)
    recomputed = settled(fresh)
    for name, sample in recomputed.items():
        assert (board[name].value, board[name].quality) == (sample.value, sample.quality)


@settings(max_examples=repeats(50))
@given(models=stations(with_memory=True), events=EVENTS, cuts=st.sets(st.integers(1, 24)))
def test_a_restart_between_any_two_entries_changes_no_result(models: Any, events: Any, cuts: Any) -> None:
    """One engine runs through; the other dies at each cut and starts from what it stored, with the board as it was."""
    through, other = network(*models), network(*models)
    through.touch_all(NOW)
    other.touch_all(NOW)
    board_through, board = settled(through), settled(other)
    stored: dict[str, bytes] = {}
    points: dict[str, Sample] = {}
    for at, item in enumerate(entries_of(events)):
        board_through |= settled(through, item)
        if at in cuts:
            other = network(*models)
            found = restore(other, stored)
            shown = {**points, **{_address(name): sample for name, sample in board.items()}}
            for address, sample in {**shown, **found}.items():
                if sample is not None:
                    other.preset(address, sample)
            other.preset_outputs(shown)
            other.touch_all(NOW)
            board |= settled(other)
        board |= settled(other, item)
        stored |= StateDump(other).fields(other.dirty)
        other.dirty.clear()
        words = {field: WORDS[word] for field, word in item.quality().items()}
        for field, value in item.values().items():
            points[f"{item.key}:{field}"] = Sample(value, item.ts_ms, words.pop(field, GOOD))
        for field, quality in words.items():
            if old := points.get(f"{item.key}:{field}"):
                points[f"{item.key}:{field}"] = Sample(old.value, old.ts_ms, quality)
    assert board.keys() == board_through.keys()
    for name, sample in board.items():
        assert sample.value == pytest.approx(board_through[name].value, abs=1e-6), name
        assert sample.quality == board_through[name].quality


def _address(name: str) -> str:
    model, _, field = name.partition(".")
    return f"modsrv:{model}:measurement:{field}"


@settings(max_examples=repeats(50))
@given(models=stations(with_memory=True), events=EVENTS, sizes=st.lists(st.integers(1, 5), min_size=25, max_size=25))
def test_how_entries_fall_into_rounds_changes_no_memory(models: Any, events: Any, sizes: list[int]) -> None:
    one, many = network(*models), network(*models)
    entries = entries_of(events)
    settled(one, *entries)
    at = 0
    for size in sizes:
        settled(many, *entries[at : at + size])
        at += size
    dumped = [StateDump(net).fields(range(len(net.names))) for net in (one, many)]
    # What remembers nothing is computed once a round, and within its deadband shows what the round before left.
    exact = {name for at, name in enumerate(one.names) if at in one.exact}
    kept = [{name: data for name, data in fields.items() if name.partition(":")[0] in exact} for fields in dumped]
    assert kept[0] == kept[1]


def events(net: Network, *entries: FeedEntry) -> list[tuple[str, float, int]]:
    """One round of readings with their own times; what is written of outputs, in order."""
    for item in entries:
        net.apply(msgspec.structs.replace(item, is_event=True))
    net.settle()
    return [
        (f"{change.model}.{field}", sample.value, sample.ts_ms)
        for change in net.take()
        for field, sample in change.fields.items()
    ]


def test_each_reading_with_its_own_time_is_computed_and_written() -> None:
    """Of a model that remembers, one that does not, and one below it."""
    twice = {
        "name": "twice",
        "inputs": [{"name": "x", "source": {"model": "total", "field": "total"}}],
        "calculations": [{"id": "d", "expression": "x * 2"}],
        "outputs": [{"field": "d", "source": "d"}],
    }
    net = network(total(points=1), twice, energy())
    settled(net, entry(NOW, _1=0))
    found = events(net, *(entry(NOW + 10 * at, _1=at) for at in range(1, 21)))
    assert [row for row in found if row[0] == "total.total"] == [
        ("total.total", at, NOW + 10 * at) for at in range(1, 21)
    ]
    assert [row[1] for row in found if row[0] == "twice.d"] == [2 * at for at in range(1, 21)]


def test_polls_of_one_round_are_computed_once() -> None:
    net = network(total(points=1))
    for at in range(20):
        net.apply(entry(NOW + at, _1=at))
    net.settle()
    assert [change.fields for change in net.take()] == [{"total": Sample(19, NOW + 19)}]


def test_events_of_different_points_are_computed_together() -> None:
    net = network(total())
    settled(net, entry(NOW, _1=0, _2=0))
    before = net.computed
    found = events(net, entry(NOW + 1, _1=1), entry(NOW + 2, _2=2), entry(NOW + 3, _1=3))
    assert found == [("total.total", 3, NOW + 2), ("total.total", 5, NOW + 3)]
    assert net.computed == before + 2


def aging(*documents: Any, **more: Any) -> Network:
    specs, problems = read_models({str(i): document for i, document in enumerate(documents)}, {})
    assert problems == []
    return Network(specs, stale_ms=30_000, **more)


def aged(net: Network, now_ms: int, **seen: int) -> dict[str, Sample]:
    net.overdue(now_ms)
    net.age(now_ms, {name.lstrip("_"): ms for name, ms in seen.items()})
    return settled(net)


def test_an_input_that_nobody_refreshes_is_stale_without_an_age_of_its_own() -> None:
    net = aging(total(), total("other", 2))
    settled(net, entry(NOW, _1=1, _2=2), entry(NOW, "comsrv:2:m", _1=1, _2=2))
    assert aged(net, NOW + 30_000) == {}
    settled(net, entry(NOW + 20_000, "comsrv:2:m", _1=1, _2=2))
    assert aged(net, NOW + 30_001) == {"total.total": Sample(3, NOW + 30_000, UNCERTAIN)}
    assert aged(net, NOW + 31_000) == {}, "once"
    assert aged(net, NOW + 40_000, _1001=NOW + 39_000) == {"total.total": Sample(3, NOW + 39_000)}, (
        "the channel answers"
    )
    assert aged(net, NOW + 69_000, _1001=NOW + 39_000) == {"other.total": Sample(3, NOW + 50_000, UNCERTAIN)}
    assert aged(net, NOW + 69_001, _1001=NOW + 39_000) == {"total.total": Sample(3, NOW + 69_000, UNCERTAIN)}
    assert settled(net, entry(NOW + 70_000, _1=1, _2=2)) == {"total.total": Sample(3, NOW + 70_000)}, "a value"
    assert aged(net, NOW + 100_001) == {"total.total": Sample(3, NOW + 100_000, UNCERTAIN)}


@pytest.mark.parametrize("method", ["hold", "trapezoid"])
@pytest.mark.parametrize("values", [[3600, 1800, 1800, 1800, 900, 0], [7, 7, 7, 7, 7, 7], [5, 9, 1, 4, 4, 2]])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_looking_at_ages_changes_nothing_that_is_counted(method: str, values: list[float], is_restarted: bool) -> None:
    """A device sends what it kept: each sample is stale as it comes, and the next one lies before that moment."""
    models = [total(points=1), energy("meter", {"model": "total", "field": "total"}, method=method)]
    models.append(energy("direct", method=method))
    samples = [entry(NOW + 7_000 * at, _1=value) for at, value in enumerate(values)]
    untouched, looked_at = aging(*models), aging(*models)
    expected = {name: sample.value for name, sample in settled(untouched, *samples).items()}
    found: dict[str, float] = {}
    for at, sample in enumerate(samples):
        found |= {name: each.value for name, each in settled(looked_at, sample).items()}
        marked = aged(looked_at, NOW + 3_600_000 + at)
        assert {name: each.quality for name, each in marked.items()} == dict.fromkeys(expected, UNCERTAIN)
        if is_restarted:
            stored, looked_at = StateDump(looked_at).fields(range(3)), aging(*models)
            for address, each in restore(looked_at, stored).items():
                assert each is not None
                looked_at.preset(address, each)
            looked_at.preset_outputs({_address(name): each for name, each in marked.items()})
            looked_at.touch_all(NOW)
            settled(looked_at)
    assert found == pytest.approx(expected)
    assert found["meter.energy"] == pytest.approx(found["direct.energy"]), "through a model as without it"


@pytest.mark.parametrize("p", ["", f"{NOW + 1_000},{NOW + 1_000}"])
@pytest.mark.parametrize("is_first", [False, True])
def test_what_is_old_as_it_comes_is_stale_at_the_next_look(is_first: bool, p: str) -> None:
    net = aging(total(), total("other", 2))
    if not is_first:
        settled(net, entry(NOW, _1=1, _2=2))
    settled(net, entry(NOW + 100_000, "comsrv:2:m", _1=1, _2=2))
    aged(net, NOW + 100_001)
    settled(net, entry(NOW + (100_000 if p else 1_000), p=p, _1=1, _2=3))
    assert aged(net, NOW + 100_002) == {"total.total": Sample(4, NOW + 31_000, UNCERTAIN)}


def test_what_is_fresh_to_the_millisecond_is_looked_at_again_before_all_others() -> None:
    net = aging(total(), total("other", 2))
    settled(net, entry(NOW, _1=1, _2=2), entry(NOW + 10_000, "comsrv:2:m", _1=1, _2=2))
    assert aged(net, NOW + 30_000) == {}
    assert aged(net, NOW + 30_001) == {"total.total": Sample(3, NOW + 30_000, UNCERTAIN)}


def test_a_clock_that_was_set_back_moves_only_outputs_that_are_ahead_of_it() -> None:
    net = network(total(), total("early", 2), total("never", 3))
    settled(net, entry(NOW + 3_600_000, _1=1, _2=2), entry(NOW - 10_000, "comsrv:2:m", _1=1, _2=2))
    net.set_back(NOW)
    found = settled(net, entry(NOW + 1, _1=5), entry(NOW - 9_000, "comsrv:2:m", _1=5))
    assert found == {"total.total": Sample(7, NOW + 1), "early.total": Sample(7, NOW - 9_000)}


def test_a_stale_input_holds_up_no_other_channel() -> None:
    """Entries of other channels still go the fast way, and a good one makes its points good again."""
    net = aging(total(), total("other", 2))
    settled(net, entry(NOW, _1=1, _2=2), entry(NOW + 29_000, "comsrv:2:m", _1=1, _2=2))
    assert set(aged(net, NOW + 30_001)) == {"total.total"}
    assert [state.stale for state in net._keys.values()] == [2, 0]
    settled(net, entry(NOW + 31_000, _1=5, _2=6))
    assert [state.stale for state in net._keys.values()] == [0, 0]


def test_a_points_own_age_counts_and_that_of_an_input_goes_before() -> None:
    document = total(points=3)
    document["inputs"][2]["max_age"] = 5
    net = aging(document, ages={"comsrv:1001:m:1": 60_000, "comsrv:1001:m:3": 60_000})
    settled(net, entry(NOW, _1=1, _2=2, _3=3))
    ages = sorted((address_of(net, slot), age_ms) for slot, age_ms in net._ages.items())
    assert ages == [("comsrv:1001:m:1", 60_000), ("comsrv:1001:m:2", 30_000), ("comsrv:1001:m:3", 5000)]
    net.set_ages({"comsrv:1001:m:2": 1000})
    assert net.overdue(NOW + 1001) == {"1001"}


def test_the_output_of_a_model_that_nobody_computes_grows_old_and_setpoints_do_not() -> None:
    sources = ["modsrv:gone:measurement:total", "comsrv:1001:a:1", "comsrv:1001:c:2"]
    document = {
        "name": "sums",
        "inputs": [{"name": f"p{at}", "source": source} for at, source in enumerate(sources)],
        "calculations": [{"id": "s", "function": "sum", "inputs": ["p0", "p1", "p2"]}],
        "outputs": [{"field": "s", "source": "s"}],
    }
    net = aging(document, total("gone", enabled=False))
    assert [address_of(net, slot) for slot in net._ages] == ["modsrv:gone:measurement:total"]


def address_of(net: Network, slot: int) -> str:
    return next(address for address, slots in net._slots.items() if slot in slots)


def test_a_substituted_input_is_worse_than_a_good_one_and_better_than_an_uncertain_one() -> None:
    net = network(total())
    assert settled(net, entry(NOW, q="2:substituted", _1=1, _2=2)) == {"total.total": Sample(3.0, NOW, SUBSTITUTED)}
    net.age(NOW + 10**9, {})
    net.settle()
    assert net.qualities[1] == SUBSTITUTED, "people keep it: it does not age"
    later = NOW + 10**9
    assert settled(net, entry(later, q="1:uncertain", _1=1)) == {"total.total": Sample(3.0, later, UNCERTAIN)}
    assert settled(net, entry(later + 1, _1=1)) == {"total.total": Sample(3.0, later + 1, SUBSTITUTED)}
    dumped = StateDump(net).fields([0])
    assert settled(net, entry(later + 2, q="2:good", _2=5)) == {"total.total": Sample(6.0, later + 2)}
    assert dumped
