"""What a request about points says: which channel, which points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.requests import Request

from tradewind.api.body import check_query, query_limit
from tradewind.errors import Invalid, Problem
from tradewind.ids import is_id
from tradewind.points.address import Address, is_number
from tradewind.points.spec import Kind

BAD = ("Not valid; every problem is listed", "Error")
MAX_ADDRESSES = 1000
MAX_HASHES = 100
KINDS = tuple(kind.value for kind in Kind)
MAX_SEARCH = 200
_NAMES = frozenset({"address", "channel", "kind", "model"})
_SEARCH = frozenset({"search", "limit"})


class Wanted(NamedTuple):
    addresses: tuple[Address, ...]
    channels: tuple[str, ...]
    kinds: tuple[str, ...]
    models: tuple[str, ...]


def path_channel(request: Request) -> str:
    """A channel out of the path. Raises Invalid."""
    text: str = request.path_params["id"]
    if not is_number(text):
        problem = Problem("bad_id", "id", "channels have 1 to 20 decimal digits")
        raise Invalid(f"{text[:64]!r} is not a channel", code=problem.code, hint=problem.hint, problems=[problem])
    return text


def query_kinds(request: Request) -> tuple[tuple[str, ...], list[Problem]]:
    """The kinds asked for, all when none is; may repeat, or be separated by commas."""
    given = _once(_each(request, "kind"))
    problems = [
        Problem("unknown_kind", f"kind[{at}]", f"{word[:32]!r} is none of {', '.join(KINDS)}")
        for at, word in enumerate(given)
        if word not in KINDS
    ]
    return given or KINDS, problems


def refuse_query(problems: Sequence[Problem]) -> None:
    if problems:
        raise Invalid(
            "the query is not valid",
            code=problems[0].code,
            hint=problems[0].hint,
            problems=problems[:100],
        )


def query_search(request: Request) -> tuple[str, int] | None:
    """What is searched for, and how many of it are wanted; None if nothing is. Raises Invalid."""
    if request.query_params.keys().isdisjoint(_SEARCH):
        return None
    check_query(request, _NAMES | _SEARCH, repeated=_NAMES)
    text, limit = request.query_params.get("search", "").strip(), query_limit(request, MAX_ADDRESSES, default=100)
    problems = [
        Problem("not_alone", name, "a search goes through all points: leave it out")
        for name in sorted(_NAMES)
        if name in request.query_params
    ]
    if not 0 < len(text) <= MAX_SEARCH:
        hint = f"give a part of an address or a name, at most {MAX_SEARCH} characters"
        problems.append(Problem("bad_search", "search", hint))
    refuse_query(problems)
    return text, limit


def query_wanted(request: Request) -> Wanted:
    """Raises Invalid with every problem."""
    check_query(request, _NAMES, repeated=_NAMES)
    texts = request.query_params.getlist("address")
    channels, models = _each(request, "channel"), _each(request, "model")
    kinds, problems = query_kinds(request)
    addresses: list[Address] = []
    try:
        addresses = Address.parse_all(texts[:MAX_ADDRESSES])
    except Invalid as error:
        problems += error.problems
    for name, words, is_good in (("channel", channels, is_number), ("model", models, is_id)):
        problems += [
            Problem("bad_id", f"{name}[{at}]", f"{word[:64]!r} is no {name}")
            for at, word in enumerate(words)
            if not is_good(word)
        ]
    if not (texts or channels or models):
        problems.append(Problem("nothing_asked", "address", "name addresses, channels or models"))
    if len(texts) > MAX_ADDRESSES:
        problems.append(Problem("too_many", "address", f"at most {MAX_ADDRESSES} at once; or ask for whole channels"))
    if len(channels) + len(models) > MAX_HASHES:
        problems.append(Problem("too_many", "channel", f"at most {MAX_HASHES} channels and models at once"))
    if "kind" in request.query_params and not channels:
        problems.append(Problem("missing_channel", "kind", "it goes with channel"))
    refuse_query(problems)
    return Wanted(tuple(addresses), _once(channels), kinds, _once(models))


def _each(request: Request, name: str) -> list[str]:
    return [word for text in request.query_params.getlist(name) for word in text.split(",")]


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
