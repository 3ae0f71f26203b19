"""A rule over recorded samples, over HTTP: from CSV, from samples in the request, or from the history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_object, check_query, read_bytes, read_json
from tradewind.api.flow_request import path_id
from tradewind.api.point_request import BAD
from tradewind.api.routing import Endpoint, json_response
from tradewind.api.rule_request import time_of, ungrouped
from tradewind.api.rule_room import RuleServices
from tradewind.api.rules import TAG, UNKNOWN
from tradewind.errors import Invalid, Problem
from tradewind.rules.backtest import MAX_EVENTS, BacktestReport, Series, backtest, backtest_history
from tradewind.rules.backtest_csv import read_csv
from tradewind.rules.spec import Rule

#: A million rows of CSV, or two.
MAX_BODY_BYTES = 100_000_000
#: Reading and judging so much takes a while.
LIMIT_S = 300.0
CSV = "text/csv"
_FIELDS = frozenset({"rule", "csv", "samples", "from", "to", "stale_s", "max_events"})
_WAYS = "give csv, or samples, or from"
_YEAR_S = 366 * 86_400


class BacktestRoutes:
    def __init__(self, room: RuleServices) -> None:
        self._room = room

    async def run(self, request: Request) -> Response:
        check_query(request, frozenset())
        rule_id = path_id(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() == CSV:
            rule = await self._room.rules.get_spec(rule_id)
            data = await read_bytes(request, MAX_BODY_BYTES)
            return _told(await asyncio.to_thread(_of_csv, rule, data, {"max_events": MAX_EVENTS}))
        body = check_object(await read_json(request, MAX_BODY_BYTES), _FIELDS)
        given = {name: value for name, value in body.items() if value is not None}
        if "rule" in given:
            rule = await self._room.rules.validate(ungrouped(given["rule"], rule_id))
        else:
            rule = await self._room.rules.get_spec(rule_id)
        how: dict[str, Any] = {"max_events": _most(given), "ages": _ages(rule, given)}
        ways = [name for name in ("csv", "samples", "from") if name in given]
        if len(ways) != 1:
            raise _refused(Problem("no_samples" if not ways else "not_alone", ways[1] if ways else "csv", _WAYS))
        if ways == ["csv"]:
            if not isinstance(given["csv"], str):
                raise _refused(Problem("not_a_text", "csv", "give the text of a CSV file"))
            return _told(await asyncio.to_thread(_of_csv, rule, given["csv"], how | _end(given)))
        if ways == ["samples"]:
            return _told(await asyncio.to_thread(_of_samples, rule, given["samples"], how | _end(given)))
        first, last = time_of(given["from"], "from"), time_of(given.get("to", "now"), "to")
        return _told(await backtest_history(rule, self._room.recorded, first, last, **how))

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST", "/api/v1/rules/{id}/backtest", self.run, "When a rule would have fired over recorded samples",
                {200: ("Its edges, and what they come to", "Backtest"), 404: UNKNOWN, 422: BAD,
                 409: ("This station has no history", "Error")}, TAG,
                "Of the stored rule, or of `rule`, which is not stored. Nothing is done. The samples are `csv` "
                "(columns `ts,address,value[,quality]`, or `ts,value` for a rule with one source), `samples`, or those "
                "that the history has `from` … `to`. With samples, `to` says how far the time goes on after them. "
                "A source that is silent for `stale_s` is stale; without it none is, since changes alone are recorded. "
                "A body of `text/csv` is the CSV itself.",
                body="BacktestRequest", body_types=("application/json", CSV), limit_s=LIMIT_S,
            )
        ]  # fmt: skip


def _of_csv(rule: Rule, text: str | bytes, how: Mapping[str, Any]) -> BacktestReport:
    return backtest(rule, read_csv(text, rule.addresses).series, **how)


def _of_samples(rule: Rule, given: Any, how: Mapping[str, Any]) -> BacktestReport:
    """Raises Invalid naming every source whose samples are wrong."""
    if not isinstance(given, Mapping):
        raise _refused(Problem("not_an_object", "samples", 'give {"comsrv:1001:m:1": [[ts, value], …]}'))
    found, problems = {}, []
    for address, rows in given.items():
        path = f"samples.{address[:80]}"
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) in (2, 3) for row in rows):
            problems.append(Problem("not_samples", path, "give a list of [ts, value] or [ts, value, quality]"))
            continue
        if any(type(row[0]) is not int or type(row[1]) not in (int, float, type(None)) for row in rows):
            problems.append(Problem("not_a_number", path, "ts in milliseconds, value a number or null"))
            continue
        values = [float("nan") if row[1] is None else row[1] for row in rows]
        try:
            found[address] = Series.of([row[0] for row in rows], values, [row[2] if row[2:] else 0 for row in rows])
        except Invalid as error:
            problems.append(Problem(error.code, path, error.hint or error.message))
    if problems:
        raise _refused(*problems)
    return backtest(rule, found, **how)


def _end(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"until_ms": time_of(given["to"], "to")} if "to" in given else {}


def _ages(rule: Rule, given: Mapping[str, Any]) -> dict[str, int] | None:
    if "stale_s" not in given:
        return None
    stale_s = given["stale_s"]
    if type(stale_s) not in (int, float) or not 0 < stale_s <= _YEAR_S:
        raise _refused(Problem("out_of_range", "stale_s", "give seconds, more than 0 and at most a year"))
    return dict.fromkeys(rule.addresses, max(1, round(stale_s * 1000)))


def _most(given: Mapping[str, Any]) -> int:
    most = given.get("max_events", MAX_EVENTS)
    if type(most) is not int or not 0 <= most <= MAX_EVENTS:
        raise _refused(Problem("out_of_range", "max_events", f"give a whole number from 0 to {MAX_EVENTS}"))
    return int(most)


def _refused(*problems: Problem) -> Invalid:
    few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
    return Invalid(f"the back-test is refused: {few}", code="bad_backtest", hint="see problems", problems=problems)


def _told(report: BacktestReport) -> Response:
    return json_response(report.to_json())
