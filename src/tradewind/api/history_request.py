"""What a request about history says."""

from __future__ import annotations

from starlette.requests import Request

from tradewind.api.body import check_query, query_number
from tradewind.errors import Problem
from tradewind.history.question import Words, refusal

RANGE = frozenset({"series", "from", "to"})
QUESTION = RANGE | {"bucket", "agg", "limit", "gap", "fill", "quality"}
EXPORT = RANGE | {"bucket", "agg", "gap", "format", "layout", "time", "framed"}
MAX_LIMIT = 100_000_000


def query_series(request: Request) -> list[str]:
    """May repeat, or be separated by commas."""
    return [name for text in request.query_params.getlist("series") for name in text.split(",") if name]


def query_words(request: Request, known: frozenset[str] = QUESTION) -> Words:
    """Raises Invalid for parameters that are not known."""
    check_query(request, known, repeated=frozenset({"series", "agg"}))
    given = request.query_params
    limit = query_number(request, "limit", 1, MAX_LIMIT)
    return Words(
        series=query_series(request),
        from_=given.get("from"),
        to=given.get("to"),
        bucket=given.get("bucket"),
        agg=given.getlist("agg"),
        limit=None if limit is None else int(limit),
        gap=given.get("gap"),
        fill=given.get("fill"),
    )


def query_choice(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """One of a few words, the first when nothing is said. Raises Invalid."""
    text = request.query_params.get(name, choices[0])
    if text not in choices:
        raise refusal([Problem(f"unknown_{name}", name, f"use one of {', '.join(choices)}")], "the query is not valid")
    return text
