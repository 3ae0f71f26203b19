"""Alarms over HTTP: list, show with their journal, raise, follow, figures, CSV. What operators do: alarm_actions.py."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tradewind import codec
from tradewind.alarms.journal_entry import JournalEntry
from tradewind.alarms.listing import AlarmQuery, export_rows
from tradewind.alarms.record import LEVELS, STATION
from tradewind.alarms.transitions import Status, allowed
from tradewind.api.alarm_feed import AlarmFeed
from tradewind.api.alarm_request import (
    MAX_TALKERS,
    path_alarm,
    query_alarms,
    query_period,
    query_talkers,
    read_new,
)
from tradewind.api.body import check_query, read_json
from tradewind.api.events import EventStream, NextText
from tradewind.api.point_request import BAD
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.api.rule_room import RuleServices
from tradewind.api.rules import PERIOD, paging
from tradewind.clock import iso
from tradewind.errors import Conflict

TAG = "alarms"
UNKNOWN = ("There is no such alarm", "Error")
#: Characters of CSV that are sent at once.
PIECE = 64_000


def entry_view(entry: JournalEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "event": entry.event,
        "from": entry.from_status or None,
        "to": entry.to_status,
        "at": iso(entry.at_ms),
        "who": entry.who,
        "note": entry.note,
        "level": entry.level,
        "count": entry.raised,
        "actual_value": entry.actual_value,
    }


class AlarmRoutes:
    def __init__(self, room: RuleServices, feed: AlarmFeed, max_body_bytes: int) -> None:
        self._room = room
        self._alarms = room.alarms
        self._feed = feed
        self._max_body_bytes = max_body_bytes

    async def index(self, request: Request) -> Response:
        page = await self._alarms.list(query_alarms(request))
        return json_response({"items": [each.to_json() for each in page.alarms], "next_cursor": page.next or None})

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        alarm = await self._alarms.get(path_alarm(request))
        journal = [entry_view(entry) for entry in await self._alarms.history(alarm.id)]
        return json_response({**alarm.to_json(), "allowed": list(allowed(alarm.status)), "journal": journal})

    async def create(self, request: Request) -> Response:
        check_query(request, frozenset())
        new = read_new(await read_json(request, self._max_body_bytes))
        if new.rule_id == STATION or new.rule_id in (await self._room.rules.load()).rules:
            message = f"the alarms of {new.rule_id!r} are raised and cleared by the station itself"
            raise Conflict(message, code="rule_owned", hint="name another rule_id, or none")
        raised = await self._alarms.raise_(new)
        return json_response((await self._alarms.get(raised.id)).to_json(), 201 if raised.is_new else 200)

    async def statistics(self, request: Request) -> Response:
        check_query(request, frozenset({"talkers", "from", "to"}))
        talkers, period = query_talkers(request), query_period(request)
        if period is None:
            return json_response(msgspec.to_builtins(await self._room.statistics(talkers)))
        return json_response(msgspec.to_builtins(await self._room.period(*period, talkers)))

    async def export(self, request: Request) -> Response:
        query = query_alarms(request, with_page=False)
        await self._alarms.list(msgspec.structs.replace(query, limit=1))  # what is wrong is told before the file begins
        headers = {"Content-Disposition": 'attachment; filename="alarms.csv"'}
        return StreamingResponse(self._csv(query), media_type="text/csv; charset=utf-8", headers=headers)

    async def _csv(self, query: AlarmQuery) -> AsyncIterator[str]:
        text = io.StringIO()
        writer = csv.writer(text)
        async for row in export_rows(self._alarms, query):
            writer.writerow(row)
            if text.tell() >= PIECE:
                yield text.getvalue()
                text.seek(0)
                text.truncate()
        yield text.getvalue()

    async def live(self, request: Request) -> Response:
        return EventStream(_watch(self._feed, query_alarms(request, with_page=False, with_archive=False)))

    def endpoints(self) -> list[Endpoint]:
        every, one = "/api/v1/alarms", "/api/v1/alarms/{id}"
        owned = ("The rule is one of the station's", "Error")
        no_sql = ("What is asked for is in SQL, and there is none", "Error")
        talkers = {"type": "integer", "minimum": 1, "maximum": MAX_TALKERS, "default": 10}
        return [
            Endpoint(
                "GET", every, self.index, "List alarms, newest first",
                {200: ("A page", "AlarmPage"), 422: BAD, 409: no_sql}, TAG,
                "Filters combine. A page may be short and still have a next one.",
                query=(*_FILTERS, _ARCHIVED, *paging(100)),
            ),
            Endpoint(
                "POST", every, self.create, "Raise an alarm from outside",
                {201: ("It is new", "Alarm"), 200: ("It was open already and is counted up", "Alarm"), 409: owned,
                 422: BAD}, TAG, "One is open per `rule_id` (`external` by default) and `source`.", body="NewAlarm",
            ),
            Endpoint(
                "GET", f"{every}/statistics", self.statistics, "Figures of the alarms",
                {200: ("Since ever and of now, or of the period", "AlarmFigures"), 422: BAD, 409: no_sql}, TAG,
                "With `from` or `to`, which are included, of what happened then: from the journal in SQL.",
                query=(*PERIOD, Parameter("talkers", "How many of those that raise most", talkers)),
            ),
            Endpoint(
                "GET", f"{every}/export", self.export, "Alarms as CSV, newest first",
                {200: ("A header, then a line for each", "Text"), 422: BAD, 409: no_sql}, TAG,
                query=(*_FILTERS, _ARCHIVED), media_type="text/csv",
            ),
            Endpoint(
                "GET", f"{every}/live", self.live, "Follow alarms",
                {200: ("Events named `alarm`, one for each transition", "AlarmEvent"), 422: BAD}, TAG,
                "What happens from now on; the comment `: listening` says that it has begun. Who reads too slowly "
                "gets `lost` with a `count`.", query=_FILTERS, media_type="text/event-stream",
            ),
            Endpoint(
                "GET", one, self.show, "Show an alarm with its journal",
                {200: ("The alarm, what can be done with it, and every transition", "AlarmWithJournal"), 404: UNKNOWN},
                TAG, "Also one that was closed long ago, as long as SQL has it.",
            ),
        ]  # fmt: skip


def _words(choices: tuple[str, ...] = ()) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "string"}
    return {"type": "array", "items": {**item, **({"enum": list(choices)} if choices else {})}}


_FILTERS = (
    Parameter("status", "May repeat, or be separated by commas", _words((*Status, "open", "active", "archived"))),
    Parameter("level", "May repeat, or be separated by commas", _words(LEVELS)),
    Parameter("category", "May repeat, or be separated by commas", _words()),
    Parameter("source", "Of this source; one that ends in `*` is a beginning", {"type": "string"}),
    Parameter("rule_id", "Of this rule", {"type": "string"}),
    *PERIOD,
)
_ARCHIVED = Parameter(
    "archived",
    "Also those that have left Redis, from SQL; `status=archived` asks for them, too",
    {"type": "boolean", "default": False},
)


@contextmanager
def _watch(feed: AlarmFeed, wanted: AlarmQuery) -> Iterator[NextText]:
    with feed.watch(wanted) as watcher:
        number = 0

        async def next_text() -> bytes | None:
            nonlocal number
            if not number:
                await feed.ready()
                number = 1
                return b": listening\n\n"
            event = await watcher.next()
            if event is None:
                return None
            name, body = event
            number += 1
            return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, codec.encode(body))

        yield next_text
