"""Values over HTTP: bulk ingest, reading, the live stream."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests import servers
from tests.api.conftest import Eventually, SmallStation, ask, small_station
from tests.api.flow_station import Flows
from tests.api.test_events import leave, serving, snapshot
from tests.soak import repeats
from tradewind.api import create_app
from tradewind.api.point_feed import PointFeed
from tradewind.api.point_request import Wanted
from tradewind.points.address import Address
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.settings import PointSettings

EXAMPLE = {"channels": {"1001": {"m": {"10001": 25.1}, "s": {"20001": 1}}}}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def stored(station: SmallStation, key: str) -> dict[str, str]:
    found: dict[bytes, bytes] = await station.plane.link.client.hgetall(f"{station.plane.keys.p}{key}")  # type: ignore[misc]
    return {name.decode(): value.decode() for name, value in found.items()}


async def test_values_are_taken_in_as_the_seed_stores_them_and_read_back(station: SmallStation, api: Flows) -> None:
    ts = now_ms() - 50
    assert await api.post("/points", {**EXAMPLE, "ts": ts}) == {"accepted": 2}
    assert await stored(station, "comsrv:1001:m") == {"10001": "25.100000"}
    assert await stored(station, "comsrv:1001:s") == {"20001": "1"}
    (point,) = (await api.get("/points", address="comsrv:1001:m:10001"))["items"]
    age = point.pop("age_ms")
    assert point == {
        "address": "comsrv:1001:m:10001", "value": 25.1, "ts": ts, "quality": "good", "unit": "", "state": "pushed",
    }  # fmt: skip
    assert 50 <= age < 30_000
    assert (await api.get("/points", address="comsrv:1001:m:7"))["items"][0] == {
        "address": "comsrv:1001:m:7", "value": None, "ts": None, "quality": "bad", "age_ms": None, "unit": "",
        "state": "undeclared",
    }  # fmt: skip


async def test_without_a_time_values_are_of_now_and_a_list_is_of_several_times(api: Flows) -> None:
    assert await api.post("/points", EXAMPLE) == {"accepted": 2}
    (point,) = (await api.get("/points", address="comsrv:1001:s:20001"))["items"]
    assert abs(point["ts"] - now_ms()) < 5000
    ts = now_ms() + 100
    several = [{"channels": {"1": {"m": {"1": at}}}, "ts": ts + at} for at in range(3)]
    assert await api.post("/points", several) == {"accepted": 3}
    assert (await api.get("/points", address="comsrv:1:m:1"))["items"][0]["value"] == 2
    late = {"channels": {"1": {"m": {"1": 99}}}, "ts": ts - 60_000}
    assert await api.post("/points", late) == {"accepted": 1}, "it goes to the history"
    assert (await api.get("/points", address="comsrv:1:m:1"))["items"][0]["value"] == 2
    assert await api.post("/points", []) == {"accepted": 0}
    assert await api.post("/points", {"channels": {}}) == {"accepted": 0}


BAD: list[tuple[str, list[tuple[str, str]]]] = [
    ('{"channels":{"1":{"m":{"1":1,"2":NaN,"3":"x","4":true,"5":null}}}}', [
        ("channels.1.m.2", "not_finite"), ("channels.1.m.3", "not_a_number"), ("channels.1.m.4", "not_a_number"),
        ("channels.1.m.5", "not_a_number"),
    ]),
    ('{"channels":{"1":{"m":{"1":-Infinity,"2":1e999}}}}', [
        ("channels.1.m.1", "not_finite"), ("channels.1.m.2", "not_finite"),
    ]),
    ('{"channels":{"1001":{"s":{"1":2},"c":{"2":0.5},"m":{"3":0.5}}}}', [
        ("channels.1001.s.1", "not_a_switch"), ("channels.1001.c.2", "not_a_switch"),
    ]),
    ('{"channels":{"x":{"m":{"1":1}},"1":{"z":{"1":1},"m":{"a:b":1,"":1}}}}', [
        ("channels.x", "bad_channel"), ("channels.1.z", "unknown_kind"), ("channels.1.m.a:b", "bad_id"),
        ("channels.1.m.", "bad_id"),
    ]),
    ('{"channels":{"1":{"m":{"1":1}}},"ts":5}', [("ts", "bad_timestamp")]),
    ('{"channels":{"1":{"m":{"1":1}}},"ts":"now"}', [("ts", "bad_timestamp")]),
    ('{"channels":{"1":{"m":{"1":1}}},"when":5}', [("when", "unknown_field")]),
    ('{}', [("channels", "missing_field")]),
    ('5', [("$", "not_an_object")]),
    ('{"channels":[]}', [("channels", "not_an_object")]),
    ('{"channels":{"1":7,"2":{"m":[1]}}}', [("channels.1", "not_an_object"), ("channels.2.m", "not_an_object")]),
    ('[{"channels":{"1":{"m":{"1":1}}}},{"channels":{"1":{"m":{"1":"x"}}}},3]', [
        ("[1].channels.1.m.1", "not_a_number"), ("[2]", "not_an_object"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "wanted"), BAD, ids=[body[:60] for body, _ in BAD])
async def test_one_bad_value_refuses_all_and_each_is_named(
    station: SmallStation, api: Flows, body: str, wanted: list[tuple[str, str]]
) -> None:
    error = (await api.ask("POST", "/points", 422, content=body, headers={"Content-Type": "application/json"}))["error"]
    assert [(problem["path"], problem["code"]) for problem in error["problems"]] == wanted
    assert error["code"] == "bad_points" and "nothing was written" in error["message"]
    assert await station.stored_keys() == set()


async def test_what_is_no_json_is_400_and_says_where(api: Flows) -> None:
    for body, word in (('{"channels":', "end"), ("{'a': 1}", "byte 1"), ("[" * 5000, "levels"), ("", "end")):
        error = (await api.ask("POST", "/points", 400, content=body))["error"]
        assert error["code"] == "bad_json" and word in error["hint"], error
    for body in (
        '{"channels":{"1":{"m":{"1":1,"1":2}}}}',
        '{"channels":{"1":{"m":{"1":1}},"1":{"m":{"1":2}}}}',
        '{"channels":{"1":{"m":{"1":1}}},"ts":1700000000000,"ts":1700000000001}',
    ):
        error = (await api.ask("POST", "/points", 400, content=body))["error"]
        assert "twice" in error["message"]
    assert await api.error("POST", "/points", 400, content=b'{"channels":{"1":{"m":{"\xff":1}}}}') == "bad_json"
    assert await api.error("POST", "/points", 415, content="{}", headers={"Content-Type": "text/csv"})
    assert await api.error("POST", "/points", 413, content="[" + " " * 2_000_000 + "]") == "body_too_large"


async def test_thousands_of_problems_are_counted_but_not_all_listed(api: Flows) -> None:
    body = {"channels": {"1": {"s": {str(at): 7 for at in range(3000)}}}}
    error = (await api.ask("POST", "/points", 422, json=body))["error"]
    assert (len(error["problems"]), error["more_problems"]) == (100, 2900) and error["message"].startswith(
        "3000 values"
    )


@settings(max_examples=repeats(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    some.recursive(
        some.none() | some.booleans() | some.floats() | some.integers() | some.sampled_from(["x", "1"]),
        lambda inner: (
            some.lists(inner, max_size=3)
            | some.dictionaries(some.sampled_from(["channels", "ts", "1", "m", "s", "c", "x:y"]), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
async def test_no_body_whatever_is_an_internal_error(api: Flows, body: Any) -> None:
    answer = await api.client.post(
        "/api/v1/points", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (200, 400, 422), answer.text
    if answer.status_code == 422:
        assert answer.json()["error"]["problems"]


async def test_undeclared_points_are_refused_when_the_station_is_strict(
    redis_7: servers.Server, key_prefix: str, tmp_path: Path
) -> None:
    async with (
        small_station(redis_7.url, key_prefix, tmp_path, points=PointSettings(strict=True)) as station,
        ask(create_app(station)) as client,
    ):
        api = Flows(client)
        error = (await api.ask("POST", "/points", 422, json=EXAMPLE))["error"]
        assert [(p["code"], p["path"]) for p in error["problems"]] == [("unknown_channel", "channels.1001")]
        declared = ChannelSpec("1001", protocol="http", points=(PointSpec(Kind.MEASUREMENT, "10001"),))
        await station.points.channels.put([declared])
        error = (await api.ask("POST", "/points", 422, json=EXAMPLE))["error"]
        assert [(p["code"], p["path"]) for p in error["problems"]] == [("unknown_point", "channels.1001.s.20001")]
        assert await api.post("/points", {"channels": {"1001": {"m": {"10001": 1}}}}) == {"accepted": 1}
        assert "1001" not in {view["id"] for view in (await api.get("/channels", state="pushed"))["items"]}


async def test_what_a_device_is_told_is_no_value_that_can_be_pushed(
    station: SmallStation, api: Flows, eventually: Eventually
) -> None:
    body = {"channels": {"7": {"a": {"1": 5}, "m": {"1": 5}}}}
    assert await api.post("/points", body) == {"accepted": 2}
    await station.points.channels.put([ChannelSpec("7", protocol="http")])
    assert await api.post("/points", body) == {"accepted": 2}
    await station.points.channels.put([ChannelSpec("7", protocol="virtual")])

    async def is_refused() -> bool:
        return (await api.client.post("/api/v1/points", json=body)).status_code == 422

    await eventually(is_refused)  # what is known may be some seconds old
    error = (await api.ask("POST", "/points", 422, json=body))["error"]
    assert [(p["code"], p["path"]) for p in error["problems"]] == [
        ("needs_a_command", "channels.7.a"),
        ("belongs_to_driver", "channels.7.m"),
    ]


async def test_points_are_read_by_channel_kind_and_model(
    station: SmallStation, api: Flows, eventually: Eventually
) -> None:
    await api.post(
        "/points", {"channels": {"1": {"m": {"2": 2, "10": 3, "1": 1}, "s": {"1": 1}}, "2": {"m": {"1": 4}}}}
    )
    items = (await api.ask("GET", "/points?channel=1&channel=2"))["items"]
    assert [(item["address"], item["value"]) for item in items] == [
        ("comsrv:1:m:1", 1), ("comsrv:1:m:2", 2), ("comsrv:1:m:10", 3), ("comsrv:1:s:1", 1), ("comsrv:2:m:1", 4),
    ]  # fmt: skip
    assert [item["address"] for item in (await api.get("/points", channel="1", kind="s"))["items"]] == ["comsrv:1:s:1"]
    both = await api.ask("GET", "/points?address=comsrv:2:m:1&address=comsrv:1:m:2")
    assert [item["value"] for item in both["items"]] == [4, 2]
    channel = ChannelSpec("1", protocol="http", points=(PointSpec(Kind.MEASUREMENT, "1", unit="kW"),))
    await station.points.channels.put([channel])

    async def has_unit() -> bool:
        return bool((await api.get("/points", address="comsrv:1:m:1"))["items"][0]["unit"] == "kW")

    await eventually(has_unit)
    assert (await api.get("/points", channel="77"))["items"] == []
    assert (await api.get("/points", model="nothing"))["items"] == []


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "nothing_asked"),
        ("?address=x", "bad_address"),
        ("?channel=x", "bad_id"),
        ("?channel=1&kind=z", "unknown_kind"),
        ("?address=comsrv:1:m:1&kind=m", "missing_channel"),
        ("?model=a%20b", "bad_id"),
        ("?adress=comsrv:1:m:1", "unknown_parameter"),
        ("?channel=" + ",".join(map(str, range(101))), "too_many"),
    ],
)
async def test_a_bad_query_is_refused(api: Flows, query: str, code: str) -> None:
    for path in ("/points", "/points/live"):
        error = (await api.ask("GET", path + query, 422))["error"]
        assert code in [problem["code"] for problem in error["problems"]]


async def test_the_stream_sends_all_values_then_what_changes(station: SmallStation, eventually: Eventually) -> None:
    async with serving(station) as live, ask(live.app) as client:
        api = Flows(client)
        await api.post("/points", {"channels": {"1": {"m": {"1": 1, "2": 2}}, "2": {"m": {"1": 5}}}})
        query = "channel=1&address=comsrv:2:m:1&address=comsrv:3:m:1"
        reader, writer = await live.get(f"/api/v1/points/live?{query}")
        first = await snapshot(reader)
        shown = {item["address"]: item["value"] for item in first["items"]}
        assert shown == {"comsrv:1:m:1": 1, "comsrv:1:m:2": 2, "comsrv:2:m:1": 5, "comsrv:3:m:1": None}
        await api.post("/points", {"channels": {"1": {"m": {"2": 7}, "s": {"9": 1}}, "4": {"m": {"1": 1}}}})
        found: dict[str, Any] = {}
        while len(found) < 2:
            found |= {item["address"]: item["value"] for item in (await snapshot(reader))["items"]}
        assert found == {"comsrv:1:m:2": 7, "comsrv:1:s:9": 1}
        assert live.app.state.point_feed.is_open
        await leave(writer)
        await eventually(lambda: not live.app.state.point_feed.is_open)


async def test_a_stop_of_the_server_ends_the_stream(station: SmallStation) -> None:
    async with serving(station) as live:
        reader, writer = await live.get("/api/v1/points/live?channel=1")
        assert (await snapshot(reader))["items"] == []
        live.server.should_exit = True
        async with asyncio.timeout(3):
            while await reader.readline():
                pass
        await leave(writer)


async def test_a_slow_watcher_gets_the_newest_value_only(station: SmallStation) -> None:
    feed = PointFeed(station.points)
    address = Address.parse("comsrv:1:m:1")
    async with ask(create_app(station)) as client:
        api = Flows(client)
        with feed.watch(Wanted((address,), (), (), ())) as watcher:
            for value in range(5):
                await api.post("/points", {"channels": {"1": {"m": {"1": value}}}})
                await feed._look()
            points = await watcher.next()
            assert points is not None and [point.value for point in points] == [4]
            feed.close()
            assert await watcher.next() is None


async def test_points_are_found_by_a_part_of_their_address_or_name(station: SmallStation, api: Flows) -> None:
    specs = [
        ChannelSpec(
            "12",
            protocol="http",
            points=tuple(PointSpec(Kind.MEASUREMENT, str(n), f"Zelle {n}", "V") for n in range(1, 301)),
        ),
        ChannelSpec(
            "2", protocol="http", points=(PointSpec(Kind.ADJUSTMENT, "9", "Größe"), PointSpec(Kind.SIGNAL, "9"))
        ),
    ]
    await station.points.channels.put(specs)
    await station.points.models.put(
        {
            "name": "calc",
            "inputs": [{"name": "x", "source": "comsrv:12:m:1"}],
            "outputs": [{"field": "Zellen", "source": "x", "unit": "V"}],
        }
    )
    await api.post("/points", {"channels": {"12": {"m": {"7": 3.5}}, "700": {"s": {"9": 1}}}})
    found = await api.get("/points", search="zelle 30")
    assert [(p["address"], p["name"], p["unit"], p["value"]) for p in found["items"]] == [
        ("comsrv:12:m:30", "Zelle 30", "V", None), ("comsrv:12:m:300", "Zelle 300", "V", None),
    ]  # fmt: skip
    assert (await api.get("/points", search="Zelle 7"))["items"][0]["value"] == 3.5
    many = await api.get("/points", search="ZELLE", limit=3)
    assert ([p["address"] for p in many["items"]], many["total"]) == ([f"comsrv:12:m:{n}" for n in (1, 2, 3)], 301)
    by_address = await api.get("/points", search=":9")
    assert [p["address"] for p in by_address["items"][:3]] == ["comsrv:2:s:9", "comsrv:2:a:9", "comsrv:12:m:9"]
    assert by_address["items"][-1]["address"] == "comsrv:700:s:9", "pushed ones, too"
    assert (await api.get("/points", search="GRÖSSE"))["total"] == 0
    assert (await api.get("/points", search="größe"))["items"][0]["address"] == "comsrv:2:a:9"
    assert (await api.get("/points", search="calc"))["items"][0]["unit"] == "V"
    for query, path in (
        ({"search": " "}, "search"), ({"search": "x" * 201}, "search"), ({"limit": 5}, "search"),
        ({"search": "x", "limit": 5000}, "limit"), ({"search": "x", "channel": "2"}, "channel"),
    ):  # fmt: skip
        error = (await api.ask("GET", "/points", 422, params=query))["error"]
        assert [p["path"] for p in error["problems"]] == [path] and error["hint"], error
    assert await api.error("GET", "/points/live?search=x", 422) == "invalid"


async def test_a_wrong_type_at_a_point_key_is_a_conflict_that_names_it(api: Flows, station: SmallStation) -> None:
    plane = station.points.plane
    key = plane.keys.points("77", "m")
    await plane.redis.set(key, "text")
    for method, path, body in (
        ("GET", "/points?address=comsrv:77:m:1", None),
        ("GET", "/points?channel=77", None),
        ("GET", "/channels/77/points", None),
        ("POST", "/points", {"channels": {"77": {"m": {"1": 2.5}}}}),
    ):
        error = (await api.ask(method, path, 409, json=body))["error"]
        assert error["code"] == "wrong_type" and key in error["message"] and error["hint"]


async def test_a_channel_that_gets_a_device_meanwhile_is_not_written_to(station: SmallStation, api: Flows) -> None:
    """What this process knows of the definitions is older: the script that writes looks at them itself."""
    body = {"channels": {"9": {"m": {"1": 5}}}}
    assert await api.post("/points", body) == {"accepted": 1}
    await station.points.channels.put([ChannelSpec("9", protocol="virtual")])
    error = (await api.ask("POST", "/points", 422, json={"channels": {"9": {"m": {"1": 6}}}}))["error"]
    assert [(p["code"], p["path"]) for p in error["problems"]] == [("belongs_to_driver", "channels.9.m")]
    assert await stored(station, "comsrv:9:m") == {"1": "5.000000"}
    await station.points.channels.put([ChannelSpec("9", protocol="http")])
    assert await api.post("/points", body) == {"accepted": 1}


async def test_a_definition_that_cannot_be_read_counts_as_a_device(station: SmallStation, api: Flows) -> None:
    link, keys = station.plane.link, station.plane.keys
    await station.points.channels.put([ChannelSpec("8", protocol="virtual")])
    await link.client.hset(keys.channels(), "8", "{")  # type: ignore[misc]
    error = (await api.ask("POST", "/points", 422, json={"channels": {"8": {"m": {"1": 6}}}}))["error"]
    assert [p["code"] for p in error["problems"]] == ["belongs_to_driver"]


async def test_a_point_is_substituted_listed_and_released(station: SmallStation, api: Flows) -> None:
    await station.points.channels.put([ChannelSpec("6", points=(PointSpec(Kind.MEASUREMENT, "1"),))])
    wanted = {"address": "comsrv:6:m:1", "value": 5.5, "reason": "sensor is broken", "who": "ada", "for_s": 60}
    made = await api.post("/points/substitutions", wanted)
    device = {"value": None, "ts": None, "quality": "bad", "held": 0}
    assert (made["value"], made["reason"], made["device"]) == (5.5, "sensor is broken", device)
    assert (await api.get("/points/substitutions"))["items"] == [made]
    [point] = (await api.get("/points", address="comsrv:6:m:1"))["items"]
    assert (point["value"], point["quality"], point["state"]) == (5.5, "substituted", "substituted")
    assert point["substitution"] == made
    refused = await api.ask("POST", "/points/substitutions", 422, json={"address": 7, "value": "x", "for_s": "y"})
    assert {problem["path"] for problem in refused["error"]["problems"]} == {"address", "value", "for_s"}
    assert (await api.post("/points/substitutions/release", {"address": "comsrv:6:m:1"})) == {"released": True}
    assert (await api.post("/points/substitutions/release", {"address": "comsrv:6:m:1"})) == {"released": False}
    await api.ask("POST", "/points/substitutions/release", 422, json={"address": "modsrv:a:measurement:b"})


async def test_a_kind_that_is_asked_for_again_and_again_is_read_once(api: Flows) -> None:
    await api.post("/points", {"channels": {"7": {"m": {"1": 1}}}})
    found = await api.get("/points", channel="7", kind=",".join("ms" * 2000))
    assert [item["address"] for item in found["items"]] == ["comsrv:7:m:1"]
