"""The door of the task room: every problem with its code, its path and a hint, all at once; two ways, one judgement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.soak import repeats
from tradewind import codec
from tradewind.errors import Invalid
from tradewind.tasks.check import FIELDS, MAX_BATCH, MAX_DELAY_S, check_plain, check_task, check_tasks, signatures
from tradewind.tasks.function import Parameter, Signature
from tradewind.tasks.record import Submission, decode_request

NOW_MS = 1_800_000_000_000
MOST = 2000
TYPES = {
    "echo": Signature(params=[Parameter("value", required=False)]),
    "send": Signature(
        params=[Parameter("to", ["str"]), Parameter("times", ["int"], required=False)],
        timeout_ms=30_000,
        max_attempts=4,
        backoff_ms=250,
        backoff_max_ms=9000,
    ),
    "alone": Signature(exclusive="="),
    "door": Signature(exclusive="the-door"),
    "rest": Signature(var_args=True, var_kwargs=True),
}


@dataclass
class Reading:
    value: float


def check(**raw: Any) -> Submission:
    return check_tasks([raw], TYPES, now_ms=NOW_MS, max_payload=MOST, single=True)[0]


def refused(raws: list[Any], *, single: bool = False) -> Invalid:
    with pytest.raises(Invalid) as caught:
        check_tasks(raws, TYPES, now_ms=NOW_MS, max_payload=MOST, single=single)
    assert all(p.code and p.path and p.hint for p in caught.value.problems)
    return caught.value


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


ONE_PROBLEM: list[tuple[Any, str, str]] = [
    ("echo", "not_an_object", "$"),
    (None, "not_an_object", "$"),
    ([], "not_an_object", "$"),
    ({}, "bad_type", "type"),
    ({"type": 5}, "bad_type", "type"),
    ({"type": "a b"}, "bad_type", "type"),
    ({"type": "x" * 65}, "bad_type", "type"),
    ({"type": "status"}, "bad_type", "type"),
    ({"type": "nobody"}, "unknown_type", "type"),
    ({"type": "echo", "what": 1}, "unknown_field", "what"),
    ({"type": "echo", 5: 1}, "unknown_field", "5"),
    ({"type": "echo", "args": "hi"}, "not_a_list", "args"),
    ({"type": "echo", "args": {"a": 1}}, "not_a_list", "args"),
    ({"type": "echo", "kwargs": [1]}, "not_an_object", "kwargs"),
    ({"type": "echo", "kwargs": {1: 2}}, "not_an_object", "kwargs"),
    ({"type": "echo", "args": [1, 2]}, "too_many_args", "args[1]"),
    ({"type": "send"}, "missing_arg", "kwargs.to"),
    ({"type": "send", "args": [1]}, "wrong_type", "args[0]"),
    ({"type": "send", "args": ["a"], "kwargs": {"to": "b"}}, "doubled_arg", "kwargs.to"),
    ({"type": "send", "args": ["a"], "kwargs": {"cc": "b"}}, "unknown_arg", "kwargs.cc"),
    ({"type": "echo", "args": [math.nan]}, "not_finite", "args"),
    ({"type": "echo", "args": [{"a": [1, {"b": -math.inf}]}]}, "not_finite", "args"),
    ({"type": "echo", "kwargs": {"value": math.inf}}, "not_finite", "args"),
    ({"type": "echo", "args": [{math.nan}]}, "not_finite", "args"),
    ({"type": "echo", "args": [Reading(math.nan)]}, "not_finite", "args"),
    ({"type": "echo", "args": [nested(700)]}, "too_deep", "args"),
    ({"type": "echo", "args": [nested(100_000)]}, "too_deep", "args"),
    ({"type": "echo", "args": circle()}, "too_deep", "args"),
    ({"type": "echo", "args": [object()]}, "not_json", "args"),
    ({"type": "echo", "args": ["\ud800"]}, "not_json", "args"),
    ({"type": "rest", "kwargs": {"\udcff": 1}}, "not_json", "args"),
    ({"type": "echo", "args": [10**5000]}, "not_json", "args"),
    ({"type": "echo", "args": ["x" * MOST]}, "too_large", "args"),
    ({"type": "echo", "priority": "urgent"}, "bad_priority", "priority"),
    ({"type": "echo", "priority": []}, "bad_priority", "priority"),
    ({"type": "echo", "priority": None}, "bad_priority", "priority"),
    ({"type": "echo", "priority": True}, "bad_priority", "priority"),
    ({"type": "echo", "id": "a/b"}, "bad_id", "id"),
    ({"type": "echo", "id": ""}, "bad_id", "id"),
    ({"type": "echo", "id": 7}, "bad_id", "id"),
    ({"type": "echo", "id": "x" * 161}, "bad_id", "id"),
    ({"type": "echo", "id": "outbox"}, "bad_id", "id"),
    ({"type": "echo", "max_attempts": 0}, "out_of_range", "max_attempts"),
    ({"type": "echo", "max_attempts": 1001}, "out_of_range", "max_attempts"),
    ({"type": "echo", "max_attempts": 10**400}, "out_of_range", "max_attempts"),
    ({"type": "echo", "max_attempts": 1.0}, "out_of_range", "max_attempts"),
    ({"type": "echo", "max_attempts": True}, "out_of_range", "max_attempts"),
    ({"type": "echo", "idempotency_key": ""}, "bad_idempotency_key", "idempotency_key"),
    ({"type": "echo", "idempotency_key": "a b"}, "bad_idempotency_key", "idempotency_key"),
    ({"type": "echo", "idempotency_key": "x" * 201}, "bad_idempotency_key", "idempotency_key"),
    ({"type": "echo", "idempotency_key": 5}, "bad_idempotency_key", "idempotency_key"),
    ({"type": "echo", "exclusive": "a b"}, "bad_lock", "exclusive"),
    ({"type": "echo", "exclusive": []}, "bad_lock", "exclusive"),
    ({"type": "echo", "exclusive": 1}, "bad_lock", "exclusive"),
    ({"type": "echo", "delay_s": -1}, "out_of_range", "delay_s"),
    ({"type": "echo", "delay_s": MAX_DELAY_S + 1}, "out_of_range", "delay_s"),
    ({"type": "echo", "delay_s": 10**400}, "out_of_range", "delay_s"),
    ({"type": "echo", "delay_s": "5"}, "not_a_number", "delay_s"),
    ({"type": "echo", "delay_s": True}, "not_a_number", "delay_s"),
    ({"type": "echo", "delay_s": math.nan}, "not_a_number", "delay_s"),
    ({"type": "echo", "delay_s": math.inf}, "not_a_number", "delay_s"),
    ({"type": "echo", "timeout_s": 0}, "out_of_range", "timeout_s"),
    ({"type": "echo", "timeout_s": 8 * 86_400}, "out_of_range", "timeout_s"),
    ({"type": "echo", "backoff_s": -0.1}, "out_of_range", "backoff_s"),
    ({"type": "echo", "backoff_max_s": 86_401}, "out_of_range", "backoff_max_s"),
    ({"type": "echo", "eta": "tomorrow"}, "bad_time", "eta"),
    ({"type": "echo", "eta": -5}, "bad_time", "eta"),
    ({"type": "echo", "eta": 1.5}, "bad_time", "eta"),
    ({"type": "echo", "eta": 10**14}, "bad_time", "eta"),
    ({"type": "echo", "eta": True}, "bad_time", "eta"),
    ({"type": "echo", "eta": NOW_MS + 1, "delay_s": 1}, "both_given", "eta"),
    ({"type": "echo", "deadline": "0001-01-01T00:00:00+23:00"}, "in_the_past", "deadline"),
    ({"type": "echo", "deadline": NOW_MS}, "in_the_past", "deadline"),
    ({"type": "echo", "deadline": "1970-01-01T00:00:00Z"}, "in_the_past", "deadline"),
    ({"type": "echo", "deadline": "1960-01-01"}, "in_the_past", "deadline"),
    ({"type": "echo", "tags": "one"}, "bad_words", "tags"),
    ({"type": "echo", "tags": ["a b"]}, "bad_words", "tags"),
    ({"type": "echo", "tags": [5]}, "bad_words", "tags"),
    ({"type": "echo", "labels": ["x" * 65]}, "bad_words", "labels"),
    ({"type": "echo", "labels": [f"l{n}" for n in range(21)]}, "too_many", "labels"),
]


@pytest.mark.parametrize(("raw", "code", "path"), ONE_PROBLEM, ids=lambda v: v if isinstance(v, str) else "")
def test_each_fault_has_a_code_a_path_and_a_hint(raw: Any, code: str, path: str) -> None:
    error = refused([raw], single=True)
    assert [(p.code, p.path) for p in error.problems] == [(code, path)]
    assert (error.code, error.hint) == (code, error.problems[0].hint)
    where = f"tasks[1].{path}" if path != "$" else "tasks[1]"
    assert [(p.code, p.path) for p in refused([{"type": "echo"}, raw]).problems] == [(code, where)]


def test_all_problems_come_at_once() -> None:
    raw = {"type": "send", "args": [5], "delay_s": -1, "priority": "x", "tags": 5, "id": "?", "extra": 1, "eta": "x"}
    error = refused([{"type": "nobody", "timeout_s": 0}, {"type": "echo"}, raw])
    assert error.code == "invalid_task"
    assert {(p.code, p.path) for p in error.problems} == {
        ("unknown_type", "tasks[0].type"),
        ("out_of_range", "tasks[0].timeout_s"),
        ("unknown_field", "tasks[2].extra"),
        ("wrong_type", "tasks[2].args[0]"),
        ("bad_priority", "tasks[2].priority"),
        ("bad_id", "tasks[2].id"),
        ("out_of_range", "tasks[2].delay_s"),
        ("bad_time", "tasks[2].eta"),
        ("bad_words", "tasks[2].tags"),
    }


def test_an_unknown_type_names_the_known_ones() -> None:
    (problem,) = refused([{"type": "ecko"}], single=True).problems
    assert "'ecko'" in problem.hint and "echo" in problem.hint
    with pytest.raises(Invalid) as caught:
        check_tasks([{"type": "echo"}], {}, now_ms=NOW_MS, max_payload=MOST, single=True)
    assert "--import" in caught.value.hint


def test_a_batch_has_bounds() -> None:
    assert len(check_tasks([{"type": "echo"}] * MAX_BATCH, TYPES, now_ms=NOW_MS, max_payload=MOST)) == MAX_BATCH
    error = refused([{"type": "echo"}] * (MAX_BATCH + 1))
    assert (error.code, str(MAX_BATCH) in error.hint) == ("batch_too_large", True)
    assert check_tasks([], TYPES, now_ms=NOW_MS, max_payload=MOST) == []
    assert len(refused([{"type": "nobody"}] * 500).problems) == 100


def test_an_id_may_stand_only_once_in_a_batch() -> None:
    error = refused([{"type": "echo", "id": "a"}, {"type": "echo", "id": "b"}, {"type": "echo", "id": "a"}])
    assert [(p.code, p.path) for p in error.problems] == [("doubled_id", "tasks[2].id")]


def test_what_the_caller_leaves_out_comes_from_the_function() -> None:
    request = check(type="send", args=["a"]).request
    assert (request.timeout_ms, request.max_attempts) == (30_000, 4)
    assert (request.backoff_ms, request.backoff_max_ms) == (250, 9000)
    given = check(type="send", args=["a"], timeout_s=0.5, max_attempts=1, backoff_s=0, backoff_max_s=2).request
    assert (given.timeout_ms, given.max_attempts, given.backoff_ms, given.backoff_max_ms) == (500, 1, 0, 2000)


def test_locks_are_named_after_the_task_or_as_asked() -> None:
    assert check(type="alone", id="t1").request.exclusive == "t1"
    made = check(type="alone")
    assert made.request.exclusive == made.id
    assert check(type="door").request.exclusive == "the-door"
    assert check(type="door", exclusive=False).request.exclusive == ""
    assert check(type="echo", id="t1", exclusive=True).request.exclusive == "t1"
    assert check(type="echo", exclusive="gate").request.exclusive == "gate"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"priority": "high"}, "high"),
        ({"priority": 9}, "high"),
        ({"priority": 0}, "normal"),
        ({"priority": -1}, "normal"),
        ({}, "normal"),
    ],
)
def test_priorities_may_be_words_or_the_numbers_of_the_seed(raw: dict[str, Any], expected: str) -> None:
    assert check(type="echo", **raw).priority == expected


def test_times_may_be_iso_or_milliseconds() -> None:
    assert check(type="echo", eta="2027-01-15T08:00:00Z").eta_ms == NOW_MS
    assert check(type="echo", eta="2027-01-15T08:00:00").eta_ms == NOW_MS
    assert check(type="echo", eta="2027-01-15T09:00:00+01:00").eta_ms == NOW_MS
    assert check(type="echo", eta=NOW_MS).eta_ms == NOW_MS
    assert check(type="echo", delay_s=0.0015).delay_ms == 2
    assert check(type="echo", deadline=NOW_MS + 1).request.deadline_ms == NOW_MS + 1


def test_tags_are_kept_once_each_in_order() -> None:
    assert check(type="echo", tags=["b", "a", "b"]).request.tags == ["a", "b"]


def test_absent_and_null_are_the_same() -> None:
    nulls = dict.fromkeys(FIELDS - {"type", "priority"})
    assert check(type="echo", **nulls).line == check(type="echo").line


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(10**30), 10**400])
def test_large_integers_arrive_whole(number: int) -> None:
    assert decode_request(check(type="echo", args=[number]).line).args == [number]


def test_deep_but_reasonable_nesting_is_accepted() -> None:
    assert decode_request(check(type="echo", args=[nested(60)]).line).args == [nested(60)]


def test_types_of_others_accept_anything() -> None:
    known = signatures({b"ours": codec.encode(TYPES["send"]), b"theirs": b"not json", b"odd": b"[1]"})
    assert known["ours"] == TYPES["send"]
    assert known["theirs"] == known["odd"] == TYPES["rest"]


_leaf = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from([10**400, "\ud800", "x" * 150, object(), b"ab", Reading(math.nan), Reading(1.0), {math.inf}])
)
_value = st.recursive(_leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
_types = st.sampled_from([[], ["int"], ["float"], ["str"], ["bool"], ["null"], ["list"], ["int", "str"]])


@st.composite
def _signature(draw: st.DrawFn) -> Signature:
    types = draw(st.lists(_types, max_size=3))
    required = draw(st.integers(0, len(types)))
    params = [Parameter(f"p{n}", kinds, required=n < required) for n, kinds in enumerate(types)]
    if params and draw(st.booleans()):
        params[-1].keyword_only = draw(st.booleans())
    extra = {"var_args": draw(st.booleans()), "exclusive": draw(st.sampled_from(["", "", "=", "gate"]))}
    return Signature(params=params, max_attempts=draw(st.integers(1, 3)), **extra)


@settings(max_examples=repeats(80), deadline=None)
@given(signature=_signature(), calls=st.lists(st.lists(_value, max_size=4), min_size=1, max_size=3))
def test_the_quick_way_accepts_only_what_the_full_way_accepts_and_writes_the_same(
    signature: Signature, calls: list[list[Any]]
) -> None:
    plain = check_plain(calls, signature, max_payload=200)
    found = [
        check_task({"type": "k", "args": args}, {"k": signature}, now_ms=NOW_MS, max_payload=200, new_id="n")
        for args in calls
    ]
    if plain is not None:
        assert [problems for _, problems in found] == [[]] * len(calls)
        assert plain[1] == [submission.line for submission, _ in found if submission is not None]
    elif signature.quick_check() is not None:
        assert any(problems for _, problems in found), "the quick way refuses what the full way accepts"


@settings(max_examples=repeats(50), deadline=None)
@given(raw=st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(min_size=1, max_size=3), _value) | _value)
def test_whatever_comes_in_is_accepted_or_explained(raw: Any) -> None:
    if isinstance(raw, dict):
        raw = {"type": "rest", **raw}
    try:
        (made,) = check_tasks([raw], TYPES, now_ms=NOW_MS, max_payload=MOST, single=True)
    except Invalid as error:
        assert error.problems
        assert all(p.code and p.path and p.hint for p in error.problems)
    else:
        assert decode_request(made.line) is not None
        assert not codec.lost_non_finite(made.request, made.line)
