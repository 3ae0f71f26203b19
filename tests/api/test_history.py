"""History over HTTP, on a station that records to the embedded sink, and on one with InfluxDB."""

from __future__ import annotations

import asyncio
import io
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tests import servers
from tests.api.conftest import Eventually, SmallStation, ask, small_station
from tests.api.flow_station import Flows
from tests.history.history_room import QUICK
from tradewind.api import create_app, history
from tradewind.api import history_files as files
from tradewind.cli.history_view import is_recording
from tradewind.clock import iso, now_ms
from tradewind.history.export_file import unframed
from tradewind.history.influx_http import QUERY_S
from tradewind.history.sample import Row
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.settings import HistorySettings, InfluxSettings

A, B = "comsrv:1001:m:10001", "comsrv:1001:s:20001"
#: A whole minute, some hours ago.
T0 = (now_ms() - 6 * 3_600_000) // 60_000 * 60_000


@pytest.fixture(scope="module")
def influx() -> Iterator[servers.Server]:
    with servers.influx_server() as server:
        yield server


@pytest.fixture(params=["embedded", "influxdb"])
async def station(
    request: pytest.FixtureRequest, redis_7: servers.Server, key_prefix: str, tmp_path: Path
) -> AsyncIterator[SmallStation]:
    settings = None
    if request.param == "influxdb":
        server: servers.Server = request.getfixturevalue("influx")
        settings = InfluxSettings(url=server.url, database=f"api{secrets.token_hex(4)}")
    history = HistorySettings(max_points=5000, max_series=3)
    async with small_station(redis_7.url, key_prefix, tmp_path, influx=settings, history=history) as station:
        yield station


async def fill(station: SmallStation) -> None:
    sink = (await station.history.questions()).sink
    await sink.write([Row(A, T0 + at * 1000, at % 10 / 2) for at in range(300)])
    await sink.write([Row(B, T0 + at * 10_000, float(at % 2), 1) for at in range(30)])


def csv(*rows: str) -> dict[str, Any]:
    return {"content": "\n".join(rows).encode(), "headers": {"Content-Type": "text/csv"}}


async def test_what_the_board_takes_can_be_asked_for(station: SmallStation, api: Flows, eventually: Eventually) -> None:
    """From the feed through the recorder to the answer, with the unit that the channel declares."""
    point = PointSpec(Kind.MEASUREMENT, "10001", name="power", unit="kW")
    await station.points.channels.put([ChannelSpec(id="1001", name="meter", protocol="http", points=(point,))])
    assert await api.ask("PUT", "/history/policy", json=QUICK)
    stop = asyncio.Event()
    recording = asyncio.create_task(station.history.record(stop))
    ts = now_ms()
    try:
        for at in range(3):
            await api.post("/points", {"channels": {"1001": {"m": {"10001": at + 0.5}}}, "ts": ts + at})

        async def is_there() -> bool:
            (latest,) = (await api.get("/history/latest", series=A))["items"]
            return bool(latest["ts"] == ts + 2)

        await eventually(is_there)
        assert (await api.get("/history/latest", series=A))["items"] == [
            {"address": A, "unit": "kW", "ts": ts + 2, "value": 2.5, "quality": "good"}
        ]
        (found,) = (await api.get("/history", series=A, bucket="raw", **{"from": ts, "to": ts + 3}))["series"]
        assert found["samples"] == [[ts, 0.5], [ts + 1, 1.5], [ts + 2, 2.5]]

        async def is_counted() -> bool:
            recorder = (await api.get("/history/status"))["recorder"]
            return bool(recorder and recorder["written"] >= 3)

        await eventually(is_counted)
        status = await api.get("/history/status")
        assert status["enabled"] and status["recorder"]["sink"] == "ok" and status["sink"]["stats"]["rows"] == 3
        assert status["recording"]
        text = (await api.client.get("/metrics")).text
        assert f"tradewind_history_written_total {float(status['recorder']['written'])}" in text
        for name in ("lag_seconds", "spool_bytes", "sink_up 1.0", 'dropped_total{reason="bytes"} 0.0'):
            assert f"tradewind_history_{name}" in text
    finally:
        stop.set()
        await asyncio.wait_for(recording, 20)
    status = await api.get("/history/status")  # its last words still stand there, but nobody records
    assert status["recorder"]["sink"] == "ok" and not status["recording"]
    assert not is_recording(status) and is_recording({**status, "recording": True})


async def test_a_range_has_the_shape_that_is_described(station: SmallStation, api: Flows) -> None:
    await fill(station)
    found = await api.get(
        "/history", series=f"{A},{B}", bucket="1m", agg=["mean,min", "max"], **{"from": T0, "to": T0 + 120_000}
    )
    assert found == {
        "from": T0, "to": T0 + 120_000, "columns": ["ts", "mean", "min", "max"],
        "series": [
            {"address": A, "unit": "", "bucket_ms": 60_000, "gaps": [], "truncated": False, "next_from": None,
             "complete": True, "available_from": None,
             "samples": [[T0, 2.25, 0.0, 4.5], [T0 + 60_000, 2.25, 0.0, 4.5]]},
            {"address": B, "unit": "", "bucket_ms": 60_000, "gaps": [], "truncated": False, "next_from": None,
             "complete": True, "available_from": None,
             "samples": [[T0, 0.5, 0.0, 1.0], [T0 + 60_000, 0.5, 0.0, 1.0]]},
        ],
    }  # fmt: skip
    raw = await api.get(
        "/history", series=B, bucket="raw", limit=2, quality="true", **{"from": iso(T0), "to": iso(T0 + 60_000)}
    )
    (b,) = raw["series"]
    assert raw["columns"] == ["ts", "value", "quality"]
    assert b["samples"] == [[T0, 0.0, 1], [T0 + 10_000, 1.0, 1]]
    assert (b["truncated"], b["next_from"], b["bucket_ms"]) == (True, T0 + 20_000, None)


async def test_statistics_and_series(station: SmallStation, api: Flows) -> None:
    await fill(station)
    found = await api.get("/history/statistics", series="comsrv:1001:*", **{"from": "-1d"})
    a, b = found["items"]
    assert (a["address"], a["count"], a["mean"], a["min"], a["max"], a["good_share"]) == (A, 300, 2.25, 0.0, 4.5, 1.0)
    assert (b["count"], b["good_share"], b["complete"]) == (30, 0.0, True)
    page = await api.get("/history/series", limit=1)
    assert page["items"] == [{"address": A, "unit": "", "first_ts": T0, "last_ts": T0 + 299_000, "count": 300}]
    page = await api.get("/history/series", limit=1, cursor=page["next_cursor"])
    assert [each["address"] for each in page["items"]] == [B] and page["next_cursor"] is None
    assert (await api.get("/history/series", pattern="comsrv:*:s:*"))["items"][0]["address"] == B


async def test_questions_that_are_wrong_or_too_big_are_422_with_every_problem(
    station: SmallStation, api: Flows
) -> None:
    error = (await api.ask("GET", "/history", 422, params={"series": "x", "from": "soon", "agg": "median"}))["error"]
    assert {problem["path"] for problem in error["problems"]} == {"series[0]", "from", "agg"}
    for query in (
        {},
        {"series": A, "colour": "red"},
        {"series": A, "bucket": "1s", "from": "-1d"},
        {"series": A, "limit": "5001"},
        {"series": A, "limit": "many"},
        {"series": [A, B, "comsrv:1:m:1", "comsrv:1:m:2"]},
        {"series": "comsrv:9:*"},
        {"series": A, "quality": "perhaps"},
    ):
        error = (await api.ask("GET", "/history", 422, params=query))["error"]
        assert error["hint"], query
    await api.error("GET", "/history/latest", 422)
    await api.error("GET", "/history/statistics", 422, params={"series": A, "from": "now", "to": "-1h"})
    await api.error("GET", "/history/series", 422, params={"limit": "0"})
    await api.error("GET", "/history/export", 422, params={"series": A, "format": "xlsx"})
    await api.error("GET", "/history/export", 422, params={"series": A, "bucket": "raw", "agg": "mean"})


async def test_an_export_comes_back_by_an_import(station: SmallStation, api: Flows) -> None:
    await fill(station)
    answer = await api.client.get("/api/v1/history/export", params={"series": "comsrv:*", "from": "-1d"})
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/csv")
    lines = answer.text.splitlines()
    assert lines[0] == "ts,address,value,quality" and len(lines) == 331
    moved = answer.text.replace("comsrv:1001:", "comsrv:3003:")
    for _ in range(2):  # the second time changes nothing
        done = await api.ask("POST", "/history/import", 200, **csv(moved))
        assert (done["stored"], done["refused_count"], done["left_out_count"]) == (330, 0, 0)
        again = await api.client.get("/api/v1/history/export", params={"series": "comsrv:3003:*", "from": "-1d"})
        assert again.text == moved
    framed = await api.client.get(
        "/api/v1/history/export", params={"series": "comsrv:1001:*", "from": "-1d", "framed": "true"}
    )
    assert b"".join(unframed([framed.content], lambda share, rows: None)) == answer.content
    told = await api.client.get(
        "/api/v1/history/export", params={"series": "comsrv:1001:*", "from": "-1d", "format": "parquet"}
    )
    assert told.headers["content-type"] == "application/vnd.apache.parquet"
    assert parquet.read_table(io.BytesIO(told.content)).num_rows == 330
    wide = await api.client.get(
        "/api/v1/history/export",
        params={"series": [A, B], "from": T0, "bucket": "1m", "agg": "max", "layout": "wide", "time": "iso"},
    )
    assert wide.text.splitlines()[:2] == [f"ts,{A},{B}", f"{iso(T0)},4.5,1.0"]


async def test_rows_of_json_are_stored(station: SmallStation, api: Flows) -> None:
    body = {"rows": [[A, T0, 1.5], [A, T0 + 1, 2], [B, T0, 1, 2]]}
    assert (await api.post("/history/import", body))["stored"] == 3
    (a,) = (await api.get("/history", series=A, bucket="raw", **{"from": T0, "to": T0 + 2}))["series"]
    assert a["samples"] == [[T0, 1.5], [T0 + 1, 2.0]]
    for bad in ({"rows": [[A, T0]]}, {"rows": [[A, "noon", 1]]}, {"lines": []}, [], {"rows": [["x", T0, 1]]}):
        assert await api.error("POST", "/history/import", 422, json=bad) == "bad_rows"
    mixed = {"rows": [[A, T0 + 5, 5], ["x", T0 + 5, 5], [A, -1, 5]]}
    done = await api.ask("POST", "/history/import?skip_bad=true", 200, json=mixed)
    assert (done["stored"], [problem["path"] for problem in done["left_out"]]) == (1, ["rows[1]", "rows[2]"])


async def test_a_bad_row_stops_the_import_and_is_named(station: SmallStation, api: Flows) -> None:
    rows = ("ts,address,value", f"{T0},{A},1", f"{T0},{A},warm", f"later,{A},2", f"{T0 + 1},{A},3")
    error = (await api.ask("POST", "/history/import", 422, **csv(*rows)))["error"]
    assert [problem["path"] for problem in error["problems"]] == ["line 3", "line 4"]
    assert (await api.get("/history/latest", series=A))["items"][0]["ts"] is None  # nothing was stored
    done = await api.ask("POST", "/history/import?skip_bad=true", 200, **csv(*rows))
    assert (done["stored"], done["left_out_count"]) == (2, 2)
    assert [problem["path"] for problem in done["left_out"]] == ["line 3", "line 4"]
    assert await api.error("POST", "/history/import", 422, **csv("a,b", "1,2")) == "bad_header"


async def test_the_policy_is_shown_and_replaced(station: SmallStation, api: Flows) -> None:
    assert (await api.get("/history/policy"))["subscribe"] == ["comsrv:*", "modsrv:*"]
    policy = {"policies": [{"match": "comsrv:1001:*", "record": False}]}
    stored = await api.ask("PUT", "/history/policy", json=policy)
    assert stored["policies"][0]["record"] is False and stored["batch_config"]["size"] == 1000
    assert await api.get("/history/policy") == stored
    bad = {"batch_config": {"size": 0, "type_filter": ["x"]}, "policies": [{"match": "", "deadband": -1}]}
    error = (await api.ask("PUT", "/history/policy", 422, json=bad))["error"]
    assert {problem["path"] for problem in error["problems"]} == {
        "batch_config.size", "batch_config.type_filter[0]", "policies[0].match", "policies[0].deadband",
    }  # fmt: skip
    assert await api.get("/history/policy") == stored


async def test_each_class_is_kept_as_long_as_the_policy_says(station: SmallStation, api: Flows) -> None:
    day = 86_400_000
    policy = {
        "classes": {"brief": {"raw_days": 1}, "archive": {"raw_days": 0}},
        "policies": [{"match": A, "class": "brief"}, {"match": "modsrv:*", "class": "archive"}],
    }
    stored = await api.ask("PUT", "/history/policy", json=policy)
    assert stored["classes"]["brief"] == {"raw_days": 1, "minute_days": None, "hour_days": None}
    error = (await api.ask("PUT", "/history/policy", 422, json={**policy, "classes": {"brief": {}}}))["error"]
    assert error["problems"][0]["path"] == "policies[1].class" and "default, brief" in error["problems"][0]["hint"]
    sink = (await station.history.questions()).sink
    await sink.write([Row(name, T0 - n * day, 1.0) for name in (A, B) for n in range(20)])
    while (await sink.retain(now_ms())).rows:
        pass
    found = await api.get("/history", series=[A, B], bucket="raw", **{"from": T0 - 25 * day, "to": T0 + 1})
    a, b = found["series"]
    begin = (now_ms() // day - 1) * day
    assert (a["complete"], a["available_from"]) == (False, begin) and all(ts >= begin for ts, _ in a["samples"])
    assert (b["complete"], b["available_from"], len(b["samples"])) == (True, None, 20)
    items = (await api.get("/history/statistics", series=[A, B], **{"from": T0 - 25 * day}))["items"]
    embedded = not station.settings.influx.url
    assert [(item["complete"], item["count"]) for item in items] == [
        (embedded, 20 if embedded else len(a["samples"])),
        (True, 20),
    ]
    classes = (await api.get("/history/status"))["sink"]["stats"]["classes"]
    assert [(each["name"], each["raw_days"], each["series"]) for each in classes] == [
        ("default", 30, 1), ("archive", 0, 0), ("brief", 1, 1),
    ]  # fmt: skip
    rows = [[name, ts, 2.0] for name in (A, B) for ts in (T0 - 5 * day, now_ms())]
    done = await api.post("/history/import", {"rows": rows})
    assert (done["stored"], done["refused_count"]) == (3, 1)
    (told,) = done["too_old"]
    assert (told["class"], told["raw_days"], told["rows"]) == ("brief", 1, 1) and told["kept_from"] >= begin


async def test_a_rule_is_tried_on_what_was_recorded(station: SmallStation, api: Flows) -> None:
    await fill(station)
    rule = {
        "id": "too_high", "name": "High", "enabled": False,
        "conditions": [{"field": "power", "operator": ">", "value": 4, "source": A}],
        "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": "High"}}],
    }  # fmt: skip
    await api.ask("POST", "/rules", 201, json=rule)
    found = await api.post("/rules/too_high/backtest", {"from": T0, "to": T0 + 300_000})
    assert (found["samples"], found["rises"], found["falls"]) == (300, 30, 29)
    found = await api.post("/rules/too_high/backtest", {"from": T0, "to": T0 + 60_000})
    assert (found["samples"], found["rises"]) == (61, 6)


async def test_the_status_without_a_recorder_says_so(station: SmallStation, api: Flows) -> None:
    status = await api.get("/history/status")
    assert status["recorder"] is None and status["refused"] == []
    assert status["sink"]["kind"] == ("influxdb" if station.settings.influx.url else "embedded")


async def test_a_sink_that_is_away_is_503_and_its_status_still_answers(
    redis_7: servers.Server, key_prefix: str, tmp_path: Path
) -> None:
    closed = InfluxSettings(url=f"http://127.0.0.1:{servers.free_port()}")
    async with (
        small_station(redis_7.url, key_prefix, tmp_path, influx=closed) as station,
        ask(create_app(station)) as client,
    ):
        api = Flows(client)
        for path in ("/history", "/history/latest", "/history/statistics", "/history/export"):
            assert await api.error("GET", path, 503, params={"series": A}) == "sink_away", path
        assert await api.error("POST", "/history/import", 503, json={"rows": [[A, T0, 1.0]]}) == "sink_away"
        status = await api.get("/history/status")
        assert status["sink"]["stats"] is None and status["sink"]["error"]


async def test_a_sink_that_hangs_does_not_hold_the_status_up(
    redis_7: servers.Server, key_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "STATS_S", 0.2)
    hanging = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}"
    async with (
        hanging,
        small_station(redis_7.url, key_prefix, tmp_path, influx=InfluxSettings(url=url)) as station,
        ask(create_app(station)) as client,
    ):
        status = await Flows(client).get("/history/status")
        assert status["sink"]["stats"] is None and "did not answer" in status["sink"]["error"]
        routes = [*history.HistoryRoutes(station.history, 1).endpoints()]
        routes += files.HistoryFileRoutes(station.history, 1).endpoints()
        asking = [each for each in routes if not each.path.endswith(("/status", "/policy"))]
        assert asking and all(each.limit_s > QUERY_S for each in asking)  # else it would be 504 and not 503


async def test_too_many_exports_at_once_are_429(
    station: SmallStation, api: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_EXPORTS", 0)
    answer = await api.client.get("/api/v1/history/export", params={"series": A})
    assert answer.status_code == 429 and answer.headers["retry-after"] == "5"
    assert answer.json()["error"]["code"] == "too_many_exports"
