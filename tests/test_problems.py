"""Problems are collected up to a bound and counted beyond it; suggestions are few."""

from __future__ import annotations

import asyncio

from tradewind.errors import MOST_PROBLEMS, Invalid, Problem
from tradewind.offload import offload
from tradewind.problems import MOST_SUGGESTIONS, Problems, below, closest, few_suggestions, unknown_words


def _problems(count: int) -> list[Problem]:
    return [Problem("bad", f"[{i}]", "x") for i in range(count)]


def test_the_first_are_kept_and_the_rest_is_counted() -> None:
    found = Problems(_problems(130))
    found += below("a.", Problems(_problems(120)))
    found.append(Problem("bad", "last", "x"))
    assert (len(found), found.left_out, found.total) == (100, 151, 251)
    assert found[0].path == "[0]" and found[-1].path == "[99]"
    error = Invalid("no", problems=found)
    assert (len(error.problems), error.more) == (MOST_PROBLEMS, 151)
    plain = Invalid("no", problems=_problems(103))
    assert (len(plain.problems), plain.more) == (100, 3)
    assert Invalid("no", problems=_problems(3)).more == 0


def test_long_names_and_values_do_not_make_a_long_error() -> None:
    (problem,) = Invalid("no", problems=[Problem("bad", "p" * 10_000, "h" * 10_000)]).problems
    assert (len(problem.path), len(problem.hint)) == (300, 600) and problem.path.endswith("…")


def test_unknown_words_beyond_the_bound_are_counted_without_a_look() -> None:
    found = Problems()
    words = [f"w{i}" for i in range(1_000)]
    seen = []
    for word in unknown_words(words, {"w3"}, found):
        seen.append(word)
        found.append(Problem("unknown", word, ""))
    assert len(seen) == 100 and "w3" not in seen and found.total == 999


async def test_only_the_first_words_of_an_input_get_a_suggestion_also_in_threads() -> None:
    known = ("interval", "nodes")
    assert [closest("nodez", known) for _ in range(9)] == ["nodes"] * 9
    with few_suggestions():
        found = [closest("nodez", known) for _ in range(3)]
        with few_suggestions():  # a part of the same input
            found += await offload(lambda: [closest("nodez", known) for _ in range(6)])
        assert found == ["nodes"] * MOST_SUGGESTIONS + [""] * (9 - MOST_SUGGESTIONS)
    both = await asyncio.gather(*(_fresh(known) for _ in range(2)))
    assert both == ["nodes", "nodes"]


async def _fresh(known: tuple[str, ...]) -> str:
    with few_suggestions(1):
        await asyncio.sleep(0)
        return closest("nodez", known)
