"""What a request about alarms says: which of them, what is to be done with them, a new one."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from tradewind.alarms.listing import MAX_LIMIT, AlarmQuery
from tradewind.alarms.record import ALARM_ID, AlarmNotFound, NewAlarm
from tradewind.alarms.transitions import Action
from tradewind.api.body import check_object, check_query, query_limit, query_number, read_json_or_none
from tradewind.api.rule_request import query_flag, query_time, time_of
from tradewind.clock import now_ms
from tradewind.errors import Invalid, Problem

FILTERS = frozenset({"status", "level", "category", "source", "rule_id", "from", "to"})
REPEATED = frozenset({"status", "level", "category"})
_WORDS = ("status", "level", "category", "source", "rule_id")
MAX_TALKERS = 100
MAX_IDS = 5000
#: Who acted, if nobody says: there is no authentication.
OPERATOR = "operator"
#: The rule of alarms that nobody names one for.
EXTERNAL = "external"
#: The seed's names for what an alarm is raised with.
_ALIASES = {"source_point": "source", "threshold_value": "threshold", "actual_value": "actual"}
_NEW = frozenset(NewAlarm.__struct_fields__) | _ALIASES.keys()
_ACTION_FIELDS = frozenset({"note", "who", "version"})


def query_alarms(request: Request, *, with_page: bool = True, with_archive: bool = True) -> AlarmQuery:
    """Raises Invalid with every problem. A filter that is there and empty is refused: it would let everything pass."""
    more = ({"limit", "cursor"} if with_page else set()) | ({"archived"} if with_archive else set())
    check_query(request, FILTERS | more, repeated=REPEATED)
    words = request.query_params
    empty = [name for name in _WORDS if name in words and not _each(request, name)]
    if empty:
        problems = [Problem("empty_filter", name, "give a value, or leave it out") for name in empty]
        raise Invalid("the query is not valid", hint=problems[0].hint, problems=problems)
    first, last = query_time(request, "from"), query_time(request, "to")
    _check_order(first, last)
    return AlarmQuery.of_words(
        status=_each(request, "status"),
        level=_each(request, "level"),
        category=_each(request, "category"),
        source=words.get("source", ""),
        rule_id=words.get("rule_id", ""),
        from_ms=first,
        to_ms=last,
        limit=query_limit(request, MAX_LIMIT, default=100) if with_page else MAX_LIMIT,
        after=words.get("cursor", "") if with_page else "",
        archived=bool(query_flag(request, "archived")),
    )


def query_period(request: Request) -> tuple[int, int] | None:
    """From the beginning of time, or until now, when only the other end is given; None without both. Raises Invalid."""
    first, last = query_time(request, "from"), query_time(request, "to")
    if first is None and last is None:
        return None
    first, last = first or 0, now_ms() if last is None else last
    _check_order(first, last)
    return first, last


def query_talkers(request: Request) -> int:
    """Raises Invalid."""
    number = query_number(request, "talkers", 1, MAX_TALKERS)
    if number is not None and not number.is_integer():
        problem = Problem("out_of_range", "talkers", "give a whole number")
        raise Invalid("the query is not valid", hint=problem.hint, problems=[problem])
    return 10 if number is None else int(number)


def _check_order(first: int | None, last: int | None) -> None:
    if first is not None and last is not None and first > last:
        problem = Problem("bad_period", "to", "give a time that is not before `from`")
        raise Invalid("the period ends before it begins", code=problem.code, hint=problem.hint, problems=[problem])


def path_alarm(request: Request) -> str:
    """Raises AlarmNotFound: nothing else than an id of an alarm may get into a key."""
    alarm_id: str = request.path_params["id"]
    if not ALARM_ID.fullmatch(alarm_id):
        raise AlarmNotFound(alarm_id[:64])
    return alarm_id


class Wish(NamedTuple):
    """What an operator asks for. `until_ms` if that is how the end of a shelving was told; `ids` only of many."""

    who: str
    note: str
    version: int | None
    duration_s: float
    until_ms: int | None
    ids: list[str]


async def read_wish(request: Request, action: Action, max_bytes: int, *, is_bulk: bool) -> Wish:
    """Raises Refused, Invalid with every problem."""
    known = (_ACTION_FIELDS - ({"version"} if is_bulk else set())) | ({"ids"} if is_bulk else set())
    if action is Action.SHELVE:
        known |= {"duration_s", "until"}
    given = await read_json_or_none(request, max_bytes)
    body = {} if given is None else {k: v for k, v in check_object(given, known).items() if v is not None}
    problems: list[Problem] = []
    for name in ("note", "who"):
        if not isinstance(body.get(name, ""), str):
            problems.append(Problem("not_a_text", name, "give text"))
    version = body.get("version")
    if version is not None and (type(version) is not int or version < 0):
        problems.append(Problem("bad_version", "version", "give the version that the alarm must have"))
    ids = body.get("ids", [])
    if is_bulk and isinstance(ids, list) and len(ids) > MAX_IDS:
        problems.append(Problem("too_many", "ids", f"at most {MAX_IDS} at once"))
    elif is_bulk and (not isinstance(ids, list) or not ids or not all(isinstance(each, str) for each in ids)):
        problems.append(Problem("missing_field" if "ids" not in body else "bad_ids", "ids", "give a list of ids"))
    duration_s, until_ms = _duration(body, problems) if action is Action.SHELVE else (0.0, None)
    if problems:
        few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
        raise Invalid(f"the action is refused: {few}", code="bad_action", hint="see problems", problems=problems)
    return Wish(body.get("who") or OPERATOR, body.get("note", ""), version, duration_s, until_ms, ids)


def read_new(value: Any) -> NewAlarm:
    """Also with the seed's names (`source_point`, …). Raises Invalid; the room says whether what is given is good."""
    given = {_ALIASES.get(name, name): each for name, each in check_object(value, _NEW).items() if each is not None}
    given.setdefault("rule_id", EXTERNAL)
    for name in ("threshold", "actual"):
        if type(given.get(name)) in (int, float):
            given[name] = str(given[name])
    problems = [Problem("missing_field", name, f"give {name}") for name in ("source", "title") if name not in given]
    if not problems:
        try:
            return msgspec.convert(given, NewAlarm)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at ")
            problems.append(Problem("wrong_type", where.strip("`").removeprefix("$."), what))
    few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
    raise Invalid(f"the alarm is refused: {few}", code="bad_alarm", hint="see problems", problems=problems)


def _duration(body: dict[str, Any], problems: list[Problem]) -> tuple[float, int | None]:
    """Seconds, and the end if that is what was given."""
    if ("duration_s" in body) == ("until" in body):
        problems.append(Problem("missing_field", "duration_s", "give duration_s, or until, and not both"))
    elif "until" in body:
        try:
            until_ms = time_of(body["until"], "until")
        except Invalid as error:
            problems += error.problems
        else:
            return (until_ms - now_ms()) / 1000, until_ms
    elif type(body["duration_s"]) not in (int, float):
        problems.append(Problem("not_a_number", "duration_s", "give seconds"))
    else:
        return float(body["duration_s"]), None
    return 0.0, None


def _each(request: Request, name: str) -> list[str]:
    return [word for text in request.query_params.getlist(name) for word in text.split(",") if word.strip()]
