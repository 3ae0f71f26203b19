"""What is recorded: the document and its problems, first match wins, filters, deadband and minimum interval."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.errors import Invalid
from tradewind.history.batcher import Batcher
from tradewind.history.policy import BatchConfig, Chooser, Policy, read_policy
from tradewind.history.sample import Row
from tradewind.points.feed import FeedEntry


def entry(values: dict[str, float | str], ts_ms: int = 1000, key: str = "comsrv:1001:m", **more: Any) -> FeedEntry:
    data = ",".join(f"{point}:{value}" for point, value in values.items())
    return FeedEntry(f"{ts_ms}-0", key, ts_ms, data, **more)


def recorded(batcher: Batcher, *entries: FeedEntry, now_s: float = 0.0) -> list[Row]:
    batcher.add(entries, (), now_s)
    batch = batcher.take(now_s)
    return list(batch.rows) if batch is not None else []


def test_without_a_document_the_seeds_defaults_hold() -> None:
    assert read_policy(None) == read_policy({}) == Policy()
    assert Policy().batch_config == BatchConfig(1000, 5000, ("m", "s"))
    assert Policy().subscribe == ("comsrv:*", "modsrv:*")


def test_every_problem_of_a_document_is_named() -> None:
    document = {
        "batch_config": {"size": 0, "timeout_ms": -1, "type_filter": ["m", "x"]},
        "subscribe": [""],
        "policies": [{"match": "", "deadband": -1}, {"match": "a", "min_interval_ms": -5, "class": "no such!"}],
    }
    with pytest.raises(Invalid) as caught:
        read_policy(document)
    assert [problem.path for problem in caught.value.problems] == [
        "batch_config.size",
        "batch_config.timeout_ms",
        "batch_config.type_filter[1]",
        "subscribe[0]",
        "policies[0].match",
        "policies[0].deadband",
        "policies[1].min_interval_ms",
        "policies[1].class",
    ]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"polices": []}, "history"),
        ({"policies": [{"match": "x", "deadban": 1}]}, "policies[0]"),
        ({"batch_config": {"size": "many"}}, "batch_config.size"),
        ([], "history"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_place(document: Any, path: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_policy(document)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_every_problem_of_classes_is_named() -> None:
    document = {
        "classes": {
            "default": {"raw_days": 5},
            "no such!": {},
            "far": {"raw_days": -1, "hour_days": 99_999},
            "upside_down": {"raw_days": 30, "minute_days": 7, "hour_days": 40},
            "endless": {"raw_days": 0, "hour_days": 40},
            "fine": {"raw_days": 7, "minute_days": 7, "hour_days": 0},
        },
        "policies": [
            {"match": "a", "class": "gone"},
            {"match": "b", "class": "default"},
            {"match": "c", "class": "fine"},
        ],
    }
    with pytest.raises(Invalid) as caught:
        read_policy(document)
    assert [problem.path for problem in caught.value.problems] == [
        "classes.default",
        "classes.no such!",
        "classes.far.raw_days",
        "classes.far.hour_days",
        "classes.upside_down.minute_days",
        "classes.endless.hour_days",
        "policies[0].class",
    ]
    hint = caught.value.problems[-1].hint
    assert "'gone'" in hint and "default, endless, far, fine" in hint


def test_the_first_policy_that_matches_counts() -> None:
    policies = [
        {"match": "comsrv:1001:m:10001", "record": True, "class": "gold"},
        {"match": "comsrv:1001:m:*", "record": False},
        {"match": "*", "deadband": 2},
    ]
    chooser = Chooser(read_policy({"policies": policies, "classes": {"gold": {}}}))
    assert chooser.choose("comsrv:1001:m", "10001").address == "comsrv:1001:m:10001"
    assert chooser.choose("comsrv:1001:m", "10001").thinning is None
    assert chooser.choose("comsrv:1001:m", "10002").address is None
    thinning = chooser.choose("comsrv:1002:m", "10001").thinning
    assert thinning is not None and thinning.deadband == 2


def test_only_subscribed_hashes_and_types_are_recorded() -> None:
    policy = read_policy({"subscribe": ["comsrv:100?:*", "modsrv:power:measurement:total", "comsrv:7:m"]})
    batcher = Batcher(policy)
    rows = recorded(
        batcher,
        entry({"1": 1}),
        entry({"1": 1}, key="comsrv:1002:s"),
        entry({"1": 1}, key="comsrv:1002:c"),
        entry({"1": 1}, key="comsrv:2001:m"),
        entry({"1": 1}, key="comsrv:7:m"),
        entry({"total": 1, "other": 1}, key="modsrv:power:measurement"),
        entry({"total": 1}, key="modsrv:power:control"),
    )
    assert [row.series for row in rows] == [
        "comsrv:1001:m:1",
        "comsrv:1002:s:1",
        "comsrv:7:m:1",
        "modsrv:power:measurement:total",
    ]
    wide = Batcher(read_policy({"batch_config": {"type_filter": ["a", "c"]}}))
    rows = recorded(wide, entry({"1": 1}), entry({"1": 2}, key="comsrv:1:a"), entry({"x": 3}, key="modsrv:p:control"))
    assert [row.value for row in rows] == [2, 3]


def test_rows_carry_the_time_and_quality_of_each_point() -> None:
    found = recorded(
        Batcher(Policy()),
        entry({"1": "1.500000", "2": 2}, 9000, qualities="2:uncertain,3:bad", each_ts="8000,9000"),
        entry({}, 9500, qualities="1:bad"),
        entry({"1": 4}, 9600, qualities="1:bad"),
    )
    assert found == [
        Row("comsrv:1001:m:1", 8000, 1.5, 0),
        Row("comsrv:1001:m:2", 9000, 2.0, 1),
        Row("comsrv:1001:m:1", 9600, 4.0, 2),
    ]
    assert all(type(row) is Row for row in found)


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "1e999"])
def test_what_is_not_finite_is_left_out_counted_and_costs_no_neighbour(word: str) -> None:
    batcher = Batcher(Policy())
    assert [row.value for row in recorded(batcher, entry({"1": 1, "2": word, "3": 3}))] == [1, 3]
    assert batcher.tally.not_finite == 1
    huge = {"1": 1.7e308, "2": 1.7e308, "3": -1.7e308}  # their sum is no number, they are
    assert len(recorded(batcher, entry(huge))) == 3
    assert batcher.tally.not_finite == 1


@pytest.mark.parametrize("bad", [{"data": "1:x"}, {"data": "1"}, {"data": "1:2", "each_ts": "5,6"}])
def test_an_unreadable_entry_is_counted_and_costs_no_neighbour(bad: dict[str, str]) -> None:
    batcher = Batcher(Policy())
    broken = FeedEntry("1-0", "comsrv:1001:m", 1, **bad)
    assert [row.ts_ms for row in recorded(batcher, entry({"1": 1}, 1), broken, entry({"1": 1}, 3))] == [1, 3]
    assert batcher.tally.unreadable == 1


def test_a_batch_is_due_by_its_size_or_its_age() -> None:
    batcher = Batcher(read_policy({"batch_config": {"size": 3, "timeout_ms": 2000}}))
    assert batcher.wait_s(0.0) == 2.0
    batcher.add([entry({"1": 1, "2": 2})], ("history", "1-0"), 10.0)
    assert batcher.wait_s(10.5) == 1.5
    assert batcher.wait_s(12.0) == 0
    batcher.add([entry({"3": 1})], ("history", "2-0", "history#missed", "0"), 10.6)
    assert batcher.wait_s(10.6) == 0
    batch = batcher.take(10.6)
    assert batch is not None and len(batch.rows) == 3 and batch.entries == 2
    assert batch.cursor == {"history": "2-0", "history#missed": "0"}
    assert batcher.take(10.7) is None


def test_a_batch_without_rows_still_moves_the_cursor() -> None:
    batcher = Batcher(read_policy({"subscribe": []}))
    batcher.add([entry({"1": 1})], ("history", "1-0"), 0.0)
    batch = batcher.take(9.0)
    assert batch is not None and batch.rows == [] and batch.cursor == {"history": "1-0"}


def thinning(**options: Any) -> Batcher:
    return Batcher(read_policy({"policies": [{"match": "comsrv:1001:*", **options}]}))


def test_changes_within_the_deadband_of_what_was_recorded_are_left_out() -> None:
    batcher = thinning(deadband=1)
    values = [10, 10.4, 10.9, 11.0, 10.2, 9.9, 9.9]  # a slow drift is not lost
    rows = recorded(batcher, *(entry({"1": value}, at) for at, value in enumerate(values, 1)))
    assert [row.value for row in rows] == [10, 11.0, 9.9]
    assert batcher.thinner.left_out == 4


def test_a_change_of_quality_passes_the_deadband() -> None:
    batcher = thinning(deadband=5)
    rows = recorded(
        batcher, entry({"1": 1}, 1), entry({"1": 1}, 2, qualities="1:uncertain"), entry({"1": 1}, 3), entry({"1": 1}, 4)
    )
    assert [(row.ts_ms, row.quality) for row in rows] == [(1, 0), (2, 1), (3, 0)]


def test_late_values_and_rewritten_ones_pass_unthinned() -> None:
    batcher = thinning(deadband=5, min_interval_ms=1000)
    rows = recorded(
        batcher,
        entry({"1": 1}, 5000),
        entry({"1": 2}, 4000, is_late=True),
        entry({"1": 3}, 5000),
        entry({"1": 3}, 5100),
    )
    assert [(row.ts_ms, row.value) for row in rows] == [(5000, 1), (4000, 2), (5000, 3)]


def test_of_values_that_follow_too_fast_the_last_is_recorded_when_its_time_has_come() -> None:
    batcher = thinning(min_interval_ms=1000)
    batcher.add([entry({"1": at}, 10_000 + at * 100) for at in range(5)], ("history", "1-0"), 0.0)
    first = batcher.take(0.5)
    assert first is not None and [row.value for row in first.rows] == [0]
    assert batcher.wait_s(0.6) > 0
    assert batcher.take(0.9) is None
    late = batcher.take(1.0)
    assert late is not None and late.rows == [Row("comsrv:1001:m:1", 10_400, 4.0, 0)]
    assert recorded(batcher, entry({"1": 9}, 11_399), now_s=1.1) == []
    assert [row.value for row in recorded(batcher, entry({"1": 10}, 11_400), now_s=1.2)] == [10]
    assert batcher.thinner.left_out == 4


def test_at_the_end_nothing_stays_held_back() -> None:
    batcher = thinning(min_interval_ms=60_000)
    batcher.add([entry({"1": 1}, 1000), entry({"1": 2}, 2000)], ("history", "1-0"), 0.0)
    last = batcher.take(0.0, is_last=True)
    assert last is not None and [row.value for row in last.rows] == [1, 2]


def test_thinning_goes_on_from_what_the_sink_has() -> None:
    batcher = thinning(deadband=1)
    entries = [entry({"1": 10.5, "2": 5}, 2000), entry({"1": 1}, 2000, key="comsrv:7:m")]
    assert batcher.unseeded(entries) == ["comsrv:1001:m:1", "comsrv:1001:m:2"]
    batcher.thinner.seed("comsrv:1001:m:1", Row("comsrv:1001:m:1", 1000, 10.0, 0))
    batcher.thinner.seed("comsrv:1001:m:2", None)
    assert batcher.unseeded(entries) == []
    assert [row.value for row in recorded(batcher, *entries)] == [5, 1]


def test_after_a_rewind_nothing_counts_as_recorded() -> None:
    batcher = thinning(deadband=1)
    batcher.add([entry({"1": 10}, 1000)], ("history", "1-0"), 0.0)
    batcher.restart()  # the batch was never stored
    assert [row.value for row in recorded(batcher, entry({"1": 10}, 1000))] == [10]
    batcher.restart()  # and meanwhile somebody else recorded another value
    assert batcher.unseeded([entry({"1": 10.2}, 2000)]) == ["comsrv:1001:m:1"]
    batcher.thinner.seed("comsrv:1001:m:1", Row("comsrv:1001:m:1", 1500, 20.0, 0))
    assert [row.value for row in recorded(batcher, entry({"1": 10.2}, 2000))] == [10.2]


def test_another_policy_counts_from_the_next_entry_on() -> None:
    batcher = Batcher(Policy())
    assert len(recorded(batcher, entry({"1": 1, "2": 2}))) == 2
    batcher.use(read_policy({"policies": [{"match": "*:1", "record": False}]}))
    assert [row.series for row in recorded(batcher, entry({"1": 1, "2": 2}, 2000))] == ["comsrv:1001:m:2"]
