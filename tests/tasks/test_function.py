"""The `@task` decorator: options, names, signatures, conversions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest

from tradewind import task
from tradewind.errors import Conflict, Invalid
from tradewind.tasks.function import OPTIONS, Parameter, Registry, Signature, TaskFunction, read_signature, registry
from tradewind.tasks.function import task as make_task


class Colour(StrEnum):
    RED = "red"


@dataclass
class Order:
    name: str
    amount: int = 1


class Site(msgspec.Struct):
    host: str


def test_a_bare_decorator_keeps_the_function_and_takes_its_name() -> None:
    @task
    def plain_one(a: int) -> int:
        """Doubles.

        More."""
        return 2 * a

    assert isinstance(plain_one, TaskFunction)
    assert plain_one(4) == 8
    assert (plain_one.name, plain_one.is_async, plain_one.is_cpu) == ("plain_one", False, False)
    assert plain_one.signature.doc == "Doubles."
    assert registry.get("plain_one") is plain_one


def test_options_become_defaults_of_the_signature() -> None:
    @task(name="with-all", timeout=1.5, retries=4, backoff=0.25, backoff_max=60, exclusive="door", every="30s")
    async def anything() -> None: ...

    signature = anything.signature
    assert (anything.name, anything.is_async) == ("with-all", True)
    assert (signature.timeout_ms, signature.max_attempts) == (1500, 5)
    assert (signature.backoff_ms, signature.backoff_max_ms, signature.exclusive) == (250, 60_000, "door")
    assert anything.schedule == {"every": "30s", "cron": None}
    registry._functions.pop("with-all")  # another test's station shall not begin to submit it


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", -1),
        ("timeout", 0.0001),
        ("timeout", float("nan")),
        ("timeout", 8 * 86_400),
        ("retries", -1),
        ("retries", 1000),
        ("retries", 1.5),
        ("backoff", -0.1),
        ("backoff", float("inf")),
        ("backoff_max", float("nan")),
        ("exclusive", "two words"),
        ("exclusive", "status"),
    ],
)
def test_an_option_out_of_range_is_refused_where_it_is_written(option: str, value: Any) -> None:
    def function() -> None: ...

    with pytest.raises(Invalid, match="function") as caught:
        make_task(**{option: value})(function)
    assert [p.path for p in caught.value.problems] == [option]
    assert option in caught.value.hint


def test_exclusive_true_means_the_task_itself() -> None:
    @task(exclusive=True)
    def alone() -> None: ...

    assert alone.signature.exclusive == "="


@pytest.mark.parametrize("name", ["a b", "", "x" * 65, "ünder", "a.b", "status", "type", "high", "cache"])
def test_a_name_that_no_key_can_hold_is_refused(name: str) -> None:
    def function() -> None: ...

    function.__name__ = name or "not ok"
    with pytest.raises(Invalid, match="cannot be a task type") as caught:
        make_task(name=name)(function)
    assert "letters, digits" in caught.value.hint


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_a_parameter_named_like_an_option_of_submit_is_refused(option: str) -> None:
    there: dict[str, Any] = {}
    exec(f"def clashing({option}=None): ...", there)
    with pytest.raises(Invalid, match=option) as caught:
        make_task(there["clashing"])
    assert caught.value.hint == "rename the parameter"


def test_an_async_function_cannot_be_cpu_bound() -> None:
    async def both() -> None: ...

    with pytest.raises(Invalid, match="async and cpu=True"):
        make_task(cpu=True)(both)


def test_two_functions_cannot_have_one_name_but_a_module_may_be_loaded_again() -> None:
    known = Registry()
    first = TaskFunction(lambda: None, "same", Signature(), {}, False)
    again = TaskFunction(first.function, "same", Signature(), {}, False)
    known.add(first)
    known.add(again)
    assert known.get("same") is again
    with pytest.raises(Conflict, match="'same'") as caught:
        known.add(TaskFunction(_any, "same", Signature(), {}, False))
    assert caught.value.code == "type_taken"


def _all_kinds(
    i: int,
    f: float,
    s: str,
    b: bool,
    li: list[int],
    d: dict[str, int],
    n: None,
    anything: Any,
    bare,  # type: ignore[no-untyped-def]
    union: int | str,
    maybe: Optional[int],  # noqa: UP045
    noted: Annotated[int, "a note"],
    when: datetime,
    order: Order,
    colour: Colour,
    mixed: int | Order,
    word: Literal["a", "b"],
) -> None: ...


def test_annotations_become_json_types() -> None:
    signature, rich = read_signature(_all_kinds)
    assert {p.name: p.types for p in signature.params} == {
        "i": ["int"],
        "f": ["float"],
        "s": ["str"],
        "b": ["bool"],
        "li": ["list"],
        "d": ["dict"],
        "n": ["null"],
        "anything": [],
        "bare": [],
        "union": ["int", "str"],
        "maybe": ["int", "null"],
        "noted": ["int"],
        "when": [],
        "order": [],
        "colour": [],
        "mixed": [],
        "word": [],
    }
    assert {"when", "order", "colour", "mixed", "word", "li", "d"} <= rich.keys()
    assert not {"i", "f", "s", "b", "anything", "bare"} & rich.keys()
    assert all(p.required and not p.keyword_only for p in signature.params)


def test_defaults_keyword_only_and_rest_parameters_are_seen() -> None:
    def rest(a: int, b: int = 2, *args: int, key: str, other: str = "x", **kwargs: int) -> None: ...

    signature, _ = read_signature(rest)
    assert signature.params == [
        Parameter("a", ["int"]),
        Parameter("b", ["int"], required=False),
        Parameter("key", ["str"], keyword_only=True),
        Parameter("other", ["str"], required=False, keyword_only=True),
    ]
    assert signature.var_args and signature.var_kwargs


def test_an_annotation_that_cannot_be_resolved_accepts_anything() -> None:
    def forward(a: NoSuchType) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert read_signature(forward)[0].params == [Parameter("a")]


def test_a_signature_survives_the_wire() -> None:
    signature, _ = read_signature(_all_kinds)
    assert msgspec.json.decode(msgspec.json.encode(signature), type=Signature) == signature


def _keyword(a: int, *, b: int) -> None: ...


def _two(a: int, b: str = "x") -> None: ...


def _any(*args: Any, **kwargs: Any) -> None: ...


PROBLEMS: list[tuple[Callable[..., Any], list[Any], dict[str, Any], list[tuple[str, str]]]] = [
    (_two, [1], {}, []),
    (_two, [1, "y"], {}, []),
    (_two, [], {"a": 1, "b": "y"}, []),
    (_two, [], {}, [("missing_arg", "kwargs.a")]),
    (_two, ["1"], {}, [("wrong_type", "args[0]")]),
    (_two, [True], {}, [("wrong_type", "args[0]")]),
    (_two, [1.0], {}, [("wrong_type", "args[0]")]),
    (_two, [None], {}, [("wrong_type", "args[0]")]),
    (_two, [1, "y", 3], {}, [("too_many_args", "args[2]")]),
    (_two, [1], {"a": 2}, [("doubled_arg", "kwargs.a")]),
    (_two, [1], {"c": 2}, [("unknown_arg", "kwargs.c")]),
    (_two, [1], {"b": 2}, [("wrong_type", "kwargs.b")]),
    (
        _two,
        ["1", 2, 3],
        {"a": 1, "z": 1},
        [
            ("too_many_args", "args[2]"),
            ("wrong_type", "args[0]"),
            ("doubled_arg", "kwargs.a"),
            ("wrong_type", "args[1]"),
            ("unknown_arg", "kwargs.z"),
        ],
    ),
    (_keyword, [1], {"b": 2}, []),
    (_keyword, [1, 2], {}, [("too_many_args", "args[1]"), ("missing_arg", "kwargs.b")]),
    (_any, [1, [2], {"a": None}], {"whatever": 1}, []),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "expected"), PROBLEMS)
def test_arguments_are_checked_against_the_signature(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = read_signature(function)[0].problems(args, kwargs)
    assert [(p.code, p.path) for p in found] == expected
    assert all(p.hint for p in found)
    inside = read_signature(function)[0].problems(args, kwargs, "tasks[7].")
    assert [p.path for p in inside] == [f"tasks[7].{path}" for _, path in expected]


def test_a_whole_number_is_a_float_and_a_tuple_is_a_list() -> None:
    def function(ratio: float, items: list[int]) -> None: ...

    assert read_signature(function)[0].problems([1, (1, 2)], {}) == []


def test_the_worker_makes_what_the_annotations_want() -> None:
    @task
    def rich_one(when: datetime, order: Order, colour: Colour, *, site: Site, sizes: list[int] | None = None) -> None:
        pass

    args, kwargs = rich_one.convert(
        ["2026-11-16T08:00:00Z", {"name": "bolt"}, "red"], {"site": {"host": "a"}, "sizes": [1]}
    )
    assert args == [datetime(2026, 11, 16, 8, tzinfo=UTC), Order("bolt", 1), Colour.RED]
    assert kwargs == {"site": Site("a"), "sizes": [1]}
    with pytest.raises(msgspec.ValidationError):
        rich_one.convert(["tomorrow"], {})
    with pytest.raises(msgspec.ValidationError):
        rich_one.convert([], {"sizes": ["one"]})


def test_extra_positional_arguments_are_handed_on_unchanged() -> None:
    @task
    def rich_rest(when: datetime, *rest: int) -> None: ...

    assert rich_rest.convert(["2026-11-16T08:00:00Z", 5, 6], {})[0][1:] == [5, 6]


def test_submit_without_a_connection_says_what_to_do() -> None:
    @task
    def lonely() -> None: ...

    with pytest.raises(Invalid) as caught:
        lonely.submit()
    assert (caught.value.code, "tradewind.connect" in caught.value.hint) == ("not_connected", True)
