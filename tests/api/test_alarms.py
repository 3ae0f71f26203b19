"""Alarms over HTTP: raised, listed, acted on one by one and in bulk, followed, exported; their journal and figures."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.conftest import Eventually, SmallStation, ask
from tests.api.flow_station import Flows
from tradewind import codec
from tradewind.alarms.keeper import AlarmKeeper
from tradewind.alarms.recorder import AlarmRecorder
from tradewind.api import create_app
from tradewind.clock import FakeClock, iso, now_ms
from tradewind.points.plane import PointPlane

ACTIONS = ("acknowledge", "resolve", "suppress", "shelve", "unshelve", "escalate", "close")


async def raised(api: Flows, source: str = "pump", status: int = 201, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = await api.post("/alarms", {"source": source, "title": f"{source} leaks", **more}, status)
    return found


async def test_an_alarm_is_raised_counted_and_shown_with_its_journal(api: Flows) -> None:
    first = await raised(api, level="major", category="mechanics", tags=["hall2"], actual=2.5, data={"a": [1]})
    assert (first["level"], first["priority"], first["colour"]) == ("High", 4, "orange")
    assert (first["rule_id"], first["source_point"], first["actual_value"]) == ("external", "pump", "2.5")
    assert (first["tags"], first["data"], first["acknowledged_by"]) == (["hall2"], {"a": [1]}, None)
    again = await raised(api, status=200, level="Critical", source_point="pump", actual_value=12345678.5)
    assert again["actual_value"] == "12345678.5", "every digit"
    assert (again["id"], again["count"], again["level"]) == (first["id"], 2, "Critical")
    shown = await api.get(f"/alarms/{first['id']}")
    assert {"acknowledge", "resolve", "suppress", "shelve", "escalate"} <= set(shown["allowed"])
    assert [(entry["event"], entry["from"], entry["to"]) for entry in shown["journal"]][:1] == [("raised", None, "New")]
    assert {name: shown[name] for name in again} == again
    for unknown in ("alarm_none", "statisticz", "alarm_a b", "journal"):
        assert await api.error("GET", f"/alarms/{unknown}", 404) == "alarm_not_found"


async def test_what_cannot_be_raised_is_told_with_every_problem(api: Flows) -> None:
    error = (await api.ask("POST", "/alarms", 422, json={"level": "Loud"}))["error"]
    assert [problem["path"] for problem in error["problems"]] == ["source", "title"]
    wrong = {"source": "a b", "title": "x", "level": "Loud", "category": "no good"}
    error = (await api.ask("POST", "/alarms", 422, json=wrong))["error"]
    assert {problem["path"] for problem in error["problems"]} == {"level", "category", "source"}
    error = (await api.ask("POST", "/alarms", 422, json={"source": "a", "title": 7}))["error"]
    assert [problem["path"] for problem in error["problems"]] == ["title"]
    assert await api.error("POST", "/alarms", 422, json={"source": "a", "title": "x", "colour": 1}) == "unknown_field"
    owned = {"source": "a", "title": "x", "rule_id": "station"}
    assert await api.error("POST", "/alarms", 409, json=owned) == "rule_owned"
    assert (await api.get("/alarms"))["items"] == []


async def test_an_operator_acts_and_what_is_forbidden_is_409_with_what_is_allowed(api: Flows) -> None:
    alarm = (await raised(api))["id"]
    acked = await api.post(f"/alarms/{alarm}/acknowledge", {"note": "on my way", "who": "ada"})
    assert (acked["status"], acked["acknowledged_by"], acked["note"]) == ("Acknowledged", "ada", "on my way")
    assert (await api.post(f"/alarms/{alarm}/acknowledge", {"who": "bob"})) == acked  # it was so already
    error = (await api.ask("POST", f"/alarms/{alarm}/close", 409))["error"]
    assert error["code"] == "alarm_state" and error["problems"] == []
    assert (
        set(error["allowed"]) == set((await api.get(f"/alarms/{alarm}"))["allowed"]) and "close" not in error["allowed"]
    )
    assert all(word in error["hint"] for word in error["allowed"])
    stale = {"note": "x", "version": acked["version"] - 1}
    assert await api.error("POST", f"/alarms/{alarm}/resolve", 409, json=stale) == "version_moved"
    until_ms = now_ms() + 600_000
    wish = {"until": iso(until_ms), "note": "is being mended"}
    shelved = await api.post(f"/alarms/{alarm}/shelve", wish)
    assert shelved["status"] == "Suppressed" and shelved["shelved_until"] == until_ms
    assert await api.post(f"/alarms/{alarm}/shelve", wish) == shelved, "asked again, nothing changes"
    assert await api.post(f"/alarms/{alarm}/shelve", {"duration_s": 600}) == shelved
    assert (await api.post(f"/alarms/{alarm}/unshelve"))["status"] == "New"
    assert (await api.post(f"/alarms/{alarm}/escalate"))["status"] == "Escalated"
    assert (await api.post(f"/alarms/{alarm}/suppress", {"who": "eve"}))["held_by"] == "eve"
    assert (await api.post(f"/alarms/{alarm}/resolve", {"note": "mended"}))["status"] == "Resolved"
    assert (await api.post(f"/alarms/{alarm}/close"))["status"] == "Closed"
    journal = (await api.get(f"/alarms/{alarm}"))["journal"]
    assert [entry["to"] for entry in journal] == [
        "New", "Acknowledged", "Suppressed", "New", "Escalated", "Suppressed", "Resolved", "Closed",
    ]  # fmt: skip
    assert (journal[1]["who"], journal[1]["note"], journal[2]["who"]) == ("ada", "on my way", "operator")
    for action in ACTIONS:
        body = {"duration_s": 5} if action == "shelve" else {}
        assert await api.error("POST", f"/alarms/alarm_none/{action}", 404, json=body) == "alarm_not_found"


async def test_a_bad_action_is_422_with_every_problem(api: Flows) -> None:
    alarm = (await raised(api))["id"]
    error = (await api.ask("POST", f"/alarms/{alarm}/shelve", 422, json={"note": 1, "version": -1}))["error"]
    assert {problem["path"] for problem in error["problems"]} == {"note", "version", "duration_s"}
    for body in ({"duration_s": 0}, {"duration_s": 10**9}, {"until": "2001-01-01T00:00:00Z"}):
        assert await api.error("POST", f"/alarms/{alarm}/shelve", 422, json=body) == "bad_duration"
    assert await api.error("POST", f"/alarms/{alarm}/resolve", 422, json={"duration_s": 5}) == "unknown_field"
    assert await api.error("POST", "/alarms/resolve", 422, json={"note": "x"}) == "bad_action"
    assert await api.error("POST", "/alarms/resolve", 422, json={"ids": ["a"] * 5001}) == "bad_action"
    assert await api.error("POST", f"/alarms/{alarm}/explode", 404) == "no_such_route"
    assert (await api.get(f"/alarms/{alarm}"))["version"] == 1


async def test_many_are_acted_on_and_one_that_is_refused_does_not_stop_the_others(api: Flows) -> None:
    ids = [(await raised(api, f"pump{n}"))["id"] for n in range(3)]
    await api.post(f"/alarms/{ids[0]}/resolve")
    await api.post(f"/alarms/{ids[0]}/close")
    await api.post(f"/alarms/{ids[1]}/acknowledge")
    answer = await api.post("/alarms/acknowledge", {"ids": [*ids, "alarm_none"], "note": "seen"})
    done = [(each["id"], each["status"], each["changed"]) for each in answer["items"]]
    assert done == [(ids[1], "Acknowledged", False), (ids[2], "Acknowledged", True)]
    refused = {each["id"]: each["error"] for each in answer["errors"]}
    assert (refused[ids[0]]["code"], refused["alarm_none"]["code"]) == ("alarm_state", "alarm_not_found")
    assert "close" in refused[ids[0]]["allowed"]
    answer = await api.post("/alarms/shelve", {"ids": ids[1:], "duration_s": 60})
    assert {each["status"] for each in answer["items"]} == {"Suppressed"}


async def test_filters_combine_and_pages_follow_each_other(api: Flows) -> None:
    began = now_ms()
    for n in range(5):
        await raised(api, f"comsrv:1:m:{n}", level="High" if n % 2 else "Low", category="heat")
    other = await raised(api, "door", level="High", rule_id="doors")
    await api.post(f"/alarms/{other['id']}/resolve")

    async def sources(**query: Any) -> list[str]:
        return [item["source_point"] for item in (await api.get("/alarms", **query))["items"]]

    assert sorted(await sources(level="High")) == ["comsrv:1:m:1", "comsrv:1:m:3", "door"]
    assert sorted(await sources(level="High", status="open")) == ["comsrv:1:m:1", "comsrv:1:m:3"]
    assert len(await sources(level="High,low")) == 6
    assert len(await sources(level=["High", "Low"], status=["New"])) == 5
    assert await sources(rule_id="doors") == ["door"]
    assert await sources(status="resolved") == ["door"]
    assert len(await sources(source="comsrv:1:*")) == 5 and await sources(source="comsrv:1:m:4") == ["comsrv:1:m:4"]
    assert len(await sources(category="heat", **{"from": began, "to": iso(now_ms() + 1000)})) == 5
    assert await sources(to=began - 1) == []
    found, cursor = [], None
    while True:
        page = await api.get("/alarms", status="open", limit=2, **({"cursor": cursor} if cursor else {}))
        found += [item["source_point"] for item in page["items"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert sorted(found) == [f"comsrv:1:m:{n}" for n in range(5)]
    for query in ({"level": "Loud"}, {"status": "Gone"}, {"from": "x"}, {"colour": "red"}, {"cursor": "x"}):
        await api.ask("GET", "/alarms", 422, params=query)


@pytest.mark.parametrize("path", ["/alarms", "/alarms/export", "/alarms/live"])
async def test_an_empty_filter_or_period_is_refused_and_does_not_show_everything(api: Flows, path: str) -> None:
    for name in ("status", "level", "category", "source", "rule_id"):
        error = (await api.ask("GET", path, 422, params={name: ","[: name == "level"]}))["error"]
        assert [problem["path"] for problem in error["problems"]] == [name]
    assert await api.error("GET", path, 422, params={"from": "1h", "to": "2h"}) == "bad_period"


async def test_alarms_that_left_redis_are_listed_and_exported(api: Flows, station: SmallStation) -> None:
    gone = [(await raised(api, f"pump{n}", level="High"))["id"] for n in range(2)]
    kept = (await raised(api, "door"))["id"]
    await api.post("/alarms/acknowledge", {"ids": gone})
    await api.post("/alarms/resolve", {"ids": gone})
    await leave(station)
    assert [each["id"] for each in (await api.get("/alarms"))["items"]] == [kept]
    page = await api.get("/alarms", archived="true", limit=2)
    rest = await api.get("/alarms", archived="true", limit=2, cursor=page["next_cursor"])
    items = page["items"] + rest["items"]
    assert [each["id"] for each in items] == [kept, *reversed(gone)] and rest["next_cursor"] is None
    assert items[1] == {name: each for name, each in (await api.get(f"/alarms/{gone[1]}")).items() if name in items[0]}
    assert [each["id"] for each in (await api.get("/alarms", status="archived"))["items"]] == [*reversed(gone)]
    answer = await api.client.get("/api/v1/alarms/export", params={"archived": "true", "source": "pump*"})
    assert [row["status"] for row in csv.DictReader(io.StringIO(answer.text))] == ["Closed"] * 2
    assert await api.error("GET", "/alarms", 422, params={"archived": "maybe"}) == "unknown_archived"
    await api.ask("GET", "/alarms/live", 422, params={"archived": "true"})


async def leave(station: SmallStation) -> None:
    """Time passes, and what is old goes to SQL."""
    plane, journal = station.rules.plane, station.rules.alarms._journal
    assert journal is not None
    later = PointPlane(plane.link, plane.all_settings, FakeClock(now_ms() + 40 * 86_400_000))
    await AlarmKeeper(later, journal.sql).tick()
    await AlarmRecorder(plane, journal).step()


async def test_the_export_is_csv_of_what_the_filters_leave(api: Flows) -> None:
    await raised(api, "a", title='=cmd("x"), "quoted"\nline')
    await raised(api, "b", level="Low")
    answer = await api.client.get("/api/v1/alarms/export", params={"level": "Medium"})
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/csv")
    assert "alarms.csv" in answer.headers["content-disposition"]
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["source_point"], row["status"], row["count"]) == ("a", "New", "1")
    assert row["title"].startswith("'=cmd")
    assert await api.error("GET", "/alarms/export", 422, params={"level": "Loud"}) == "bad_query"


async def test_figures_count_what_happened(api: Flows) -> None:
    ids = [(await raised(api, f"p{n}", level="High"))["id"] for n in range(3)]
    await raised(api, "p0", 200)
    await api.post(f"/alarms/{ids[0]}/acknowledge")
    await api.post(f"/alarms/{ids[0]}/resolve")
    found = await api.get("/alarms/statistics")
    assert (found["open"]["High"], found["statuses"]["Resolved"], found["raised"]) == (2, 1, 3)
    assert (found["acknowledged"], found["resolved"], found["is_flood"]) == (1, 1, False)
    assert found["resolve_rate"] == pytest.approx(1 / 3) and found["acknowledge_s"] >= 0
    assert found["talkers"][0] == {"rule_id": "external", "source": "p0", "raised": 2}
    assert len((await api.get("/alarms/statistics", talkers=1))["talkers"]) == 1
    for wrong in ("0", "2.7", "x"):
        await api.ask("GET", "/alarms/statistics", 422, params={"talkers": wrong})
    text = (await api.client.get("/metrics")).text
    assert 'tradewind_alarms_open{level="High"} 2.0' in text and "tradewind_alarms_resolved_total 1.0" in text


async def test_figures_of_a_period_come_from_the_journal(api: Flows, station: SmallStation) -> None:
    ids = [(await raised(api, f"p{n}", level="High"))["id"] for n in range(2)]
    await api.post(f"/alarms/{ids[0]}/acknowledge")
    await api.post(f"/alarms/{ids[0]}/resolve")
    early = await api.get("/alarms/statistics", **{"from": "24h"})
    assert (early["raised"], early["resolve_rate"]) == (0, None) and early["recorded_until_ms"] <= early["to_ms"]
    journal = station.rules.alarms._journal
    assert journal is not None
    assert await AlarmRecorder(station.rules.plane, journal).step() == 4
    found = await api.get("/alarms/statistics", talkers=1, **{"from": "-24h", "to": "now"})
    assert found["to_ms"] - found["from_ms"] == pytest.approx(86_400_000, abs=1000)
    assert (found["raised"], found["raised_by_level"]["High"], found["acknowledged"], found["resolved"]) == (2, 2, 1, 1)
    assert found["resolve_rate"] == 0.5 and found["acknowledge_s"] >= 0 and found["recorded_until_ms"] is None
    assert found["talkers"] == [{"rule_id": "external", "source": "p0", "raised": 1}]
    assert "open" not in found
    assert (await api.get("/alarms/statistics", to="2024-01-01T00:00:00Z"))["raised"] == 0
    for words in ({"from": "soon"}, {"from": "1h", "to": "2h"}):
        await api.ask("GET", "/alarms/statistics", 422, params=words)
    assert [a["source_point"] for a in (await api.get("/alarms", **{"from": "1h"}))["items"]] == ["p1", "p0"]
    assert (await api.get("/alarms", **{"to": "1h"}))["items"] == []


async def test_what_was_dropped_is_shown_everywhere(api: Flows, station: SmallStation) -> None:
    plane = station.rules.plane
    await plane.redis.hset(
        plane.keys.alarm_figures(), mapping={"journal_dropped:sql": 7, "journal_dropped:sql:told": 7}
    )
    await plane.redis.hset(plane.keys.notify_figures(), "dropped", 3)
    found = await api.get("/alarms/statistics")
    assert (found["journal_dropped"], found["outbox_dropped"]) == ({"sql": 7}, 3)
    text = (await api.client.get("/metrics")).text
    assert 'tradewind_alarm_journal_dropped_total{reader="sql"} 7.0' in text
    assert "tradewind_notify_outbox_dropped_total 3.0" in text and "tradewind_notify_outbox_waiting 0.0" in text
    assert "dropped: 7 transitions, 3 messages" in (await station.rules.look())["alarmsrv"].detail


async def test_the_journal_is_shown_after_it_has_left_redis(api: Flows, station: SmallStation) -> None:
    alarm = (await raised(api))["id"]
    await api.post(f"/alarms/{alarm}/resolve", {"note": "mended"})
    before = (await api.get(f"/alarms/{alarm}"))["journal"]
    journal = station.rules.alarms._journal
    assert journal is not None
    assert await AlarmRecorder(station.rules.plane, journal).step() == 2
    assert await station.rules.plane.redis.xlen(station.rules.plane.keys.alarm_journal()) == 0
    assert (await api.get(f"/alarms/{alarm}"))["journal"] == before


@pytest.fixture
async def stream(station: SmallStation) -> AsyncIterator[Any]:
    app = create_app(station)
    yield app
    app.state.end_streams()


async def test_who_follows_sees_each_transition_of_what_he_asked_for(
    stream: Any, station: SmallStation, eventually: Eventually
) -> None:
    got: list[bytes] = []
    begun = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        if message.get("body"):
            got.append(message["body"])
            begun.set()

    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/api/v1/alarms/live", "raw_path": b"/api/v1/alarms/live", "query_string": b"level=High",
        "headers": [(b"host", b"127.0.0.1:8400")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8400),
    }  # fmt: skip
    following = asyncio.create_task(stream(scope, receive, send))
    await asyncio.wait_for(begun.wait(), 10)
    assert got == [b": listening\n\n"]
    async with ask(stream) as client:
        api = Flows(client)
        alarm = (await raised(api, level="High"))["id"]
        await raised(api, "quiet", level="Low")
        await api.post(f"/alarms/{alarm}/acknowledge", {"who": "ada"})
    await eventually(lambda: len(got) == 3)
    events = [codec.decode(text.partition(b"data: ")[2]) for text in got[1:]]
    assert [(each["event"], each["alarm"]["id"]) for each in events] == [("raised", alarm), ("acknowledged", alarm)]
    assert events[1]["alarm"]["acknowledged_by"] == "ada"
    gone.set()
    await asyncio.wait_for(following, 10)
    assert not stream.state.alarm_feed.is_open


async def test_the_live_picture_has_the_open_alarms(station: SmallStation, stream: Any) -> None:
    async with ask(stream) as client:
        api = Flows(client)
        await raised(api, "p1")
        await api.post(f"/alarms/{(await raised(api, 'p2'))['id']}/resolve")
    with stream.state.snapshots.watch():
        found = await asyncio.wait_for(stream.state.snapshots.newer_than(0), 10)
    picture = codec.decode(found[1].partition(b"data: ")[2])
    part = picture["alarms"]
    assert [alarm["source_point"] for alarm in part["data"]] == ["p1"] and part["total"] == 1
