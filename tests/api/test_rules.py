"""Rules and their groups over HTTP; the engine runs where edges matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.conftest import Eventually, SmallStation
from tests.api.flow_station import Flows
from tradewind.clock import now_ms
from tradewind.history.sample import Row

SOURCE = "comsrv:1001:m:10001"
#: The example of seed 3.4.2.
SEED: dict[str, Any] = {
    "id": "rule_temperature_monitor",
    "name": "温度监控规则",
    "description": "监控设备温度超过阈值",
    "group_id": "group_temperature",
    "enabled": True,
    "priority": 5,
    "conditions": [{"field": "temperature", "operator": ">", "value": "75.0", "source": SOURCE}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "Critical", "title": "温度告警"}}],
}
HOT: dict[str, Any] = {**SEED, "id": "hot", "group_id": ""}
YAML = """
name: warm   # a comment
conditions:
  - {field: t, operator: ">", value: 30, source: "comsrv:1001:m:10001"}
"""


@pytest.fixture
async def rulesrv(station: SmallStation) -> AsyncIterator[None]:
    """Judges the rules of the station."""
    stop = asyncio.Event()
    running = asyncio.create_task(station.rules.judge(stop))
    yield
    stop.set()
    await asyncio.wait_for(running, 20)


async def show(api: Flows, value: float) -> None:
    await api.post("/points", {"channels": {"1001": {"m": {"10001": value}}}, "ts": now_ms()})


async def test_the_rule_of_the_seed_is_stored_as_it_is_written(api: Flows) -> None:
    assert await api.error("POST", "/rules", 422, json=SEED) == "bad_rule"  # its group is not there
    await api.post("/rule-groups", {"id": "group_temperature", "name": "温度"}, 201)
    made = await api.post("/rules", SEED, 201)
    assert {name: made[name] for name in SEED} == SEED
    assert [(each["code"], each["path"]) for each in made.pop("warnings")] == [
        ("unknown_channel", "conditions[0].source")
    ]
    assert (made["version"], made["state"], made["problems"]) == (1, "waiting", [])
    assert made["figures"]["executions"] == 0 and made["figures"]["last_at"] is None
    assert await api.get("/rules/rule_temperature_monitor") == made


async def test_a_rule_is_created_replaced_listed_switched_and_removed(api: Flows) -> None:
    await api.post("/rules", HOT, 201)
    assert await api.error("POST", "/rules", 409, json=HOT) == "rule_exists"
    yaml = {"Content-Type": "application/yaml"}
    warm = await api.ask("PUT", "/rules/warm", 201, content=YAML, headers=yaml)
    assert (warm["id"], warm["name"], warm["priority"]) == ("warm", "warm", 0)
    shown = await api.get("/rules/hot")
    changed = await api.ask("PUT", "/rules/hot", 200, json={**shown, "priority": 9})  # what was read can be sent back
    assert (changed["priority"], changed["version"]) == (9, 2)
    assert await api.error("PUT", "/rules/hot", 409, json=shown) == "version_moved"
    assert await api.error("PUT", "/rules/warm", 422, json=HOT) == "id_mismatch"
    page = await api.get("/rules", limit=1)
    assert [item["id"] for item in page["items"]] == ["hot"] and page["next_cursor"] == "hot"
    last = await api.get("/rules", cursor="hot")
    assert [item["id"] for item in last["items"]] == ["warm"] and last["next_cursor"] is None
    off = await api.post("/rules/hot/disable")
    assert (off["enabled"], off["state"]) == (False, "disabled")
    assert (await api.post("/rules/hot/disable"))["version"] == off["version"]
    assert [item["id"] for item in (await api.get("/rules", enabled="false"))["items"]] == ["hot"]
    assert (await api.post("/rules/hot/enable"))["enabled"] is True
    assert [item["id"] for item in (await api.get("/rules", search="WARM"))["items"]] == ["warm"]
    assert len((await api.get("/rules", source=SOURCE))["items"]) == 2
    await api.ask("DELETE", "/rules/hot", 204)
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("POST", "/enable"), ("POST", "/disable"), ("POST", "/test"), ("GET", "/history"),
    ):  # fmt: skip
        assert await api.error(method, f"/rules/hot{path}", 404) == "unknown_rule"
    assert await api.error("GET", "/rules", 422, params={"cursor": "hot"}) == "bad_cursor"
    assert await api.error("GET", "/rules", 422, params={"enabled": "yes"}) == "unknown_enabled"


async def test_a_bad_rule_is_422_with_every_problem(api: Flows) -> None:
    bad = {**HOT, "conditions": [{**HOT["conditions"][0], "operator": "~"}], "for_ms": -1, "colour": "red"}
    error = (await api.ask("POST", "/rules", 422, json=bad))["error"]
    paths = {problem["path"] for problem in error["problems"]}
    assert {"conditions[0].operator", "for_ms", "colour"} <= paths
    assert await api.post("/rules/validate", bad) == {"valid": False, "problems": error["problems"], "warnings": []}
    await show(api, 1.0)
    assert await api.post("/rules/validate", HOT) == {"valid": True, "problems": [], "warnings": []}
    assert await api.error("POST", "/rules", 400, content="{") == "bad_json"
    assert (await api.get("/rules"))["items"] == []


async def test_many_are_put_and_removed_all_or_none(api: Flows) -> None:
    await api.post("/rules", {**HOT, "id": "old"}, 201)
    change = {"groups": [{"id": "g"}], "rules": [{**HOT, "group_id": "g"}, {**HOT, "id": "two"}], "remove": ["old"]}
    broken = {**change, "rules": [HOT, {**HOT, "id": "two", "logic": "most"}]}
    error = (await api.ask("PUT", "/rules", 422, json=broken))["error"]
    assert [problem["path"] for problem in error["problems"]] == ["rules[1].logic"]
    assert (await api.post("/rules/validate", broken))["valid"] is False
    assert (await api.post("/rules/validate", change))["valid"] is True
    assert [item["id"] for item in (await api.get("/rules"))["items"]] == ["old"]
    done = await api.ask("PUT", "/rules", json=change)
    assert [each["path"] for each in done.pop("warnings")] == [f"rules[{i}].conditions[0].source" for i in (0, 1)]
    assert done == {"rules": ["hot", "two"], "groups": ["g"], "removed": ["old"]}
    assert [item["id"] for item in (await api.get("/rules", group_id="g"))["items"]] == ["hot"]
    for body in ({}, [], {"rules": {}}, {"remove": ["old"]}, {"rules": [HOT], "remove": ["hot"]}):
        assert await api.error("PUT", "/rules", 422, json=body) == "bad_rule"


async def test_groups_have_rules_and_say_what_becomes_of_them(api: Flows) -> None:
    made = await api.post("/rule-groups", {"id": "g", "name": "Group"}, 201)
    assert (made["name"], made["rules"], made["version"]) == ("Group", [], 1)
    assert await api.error("POST", "/rule-groups", 409, json={"id": "g"}) == "group_exists"
    assert await api.error("POST", "/rule-groups", 422, json={"id": "no good", "size": 1}) == "bad_rule"
    await api.post("/rules", {**HOT, "group_id": "g"}, 201)
    shown = await api.get("/rule-groups/g")
    assert shown["rules"] == ["hot"]
    assert (await api.ask("PUT", "/rule-groups/g", json={**shown, "name": "Other"}))["name"] == "Other"
    assert (await api.ask("PUT", "/rule-groups/h", 201, json={}))["id"] == "h"
    assert [group["id"] for group in (await api.get("/rule-groups"))["items"]] == ["g", "h"]
    assert await api.error("DELETE", "/rule-groups/g", 409) == "group_has_rules"
    await api.ask("DELETE", "/rule-groups/g", 204, params={"rules": "ungroup"})
    assert (await api.get("/rules/hot"))["group_id"] == ""
    await api.ask("PUT", "/rules/hot", json={**HOT, "group_id": "h"})
    await api.ask("DELETE", "/rule-groups/h", 204, params={"rules": "cascade"})
    assert await api.error("GET", "/rules/hot", 404) == "unknown_rule"
    assert await api.error("GET", "/rule-groups/h", 404) == "unknown_group"


async def test_what_a_rule_names_and_is_not_there_is_told_when_it_is_stored(api: Flows, station: SmallStation) -> None:
    await show(api, 1.0)
    actions = [
        ("create_alarm", {"level": "High", "notify": ["boss"]}),
        ("send_notification", {"message": "x", "recipients": ["ops", "nobody"]}),
        ("send_control", {"channel_id": "7", "point_id": "1", "value": "=value"}),
        ("send_control", {"address": "comsrv:1001:a:1", "value": 2}),
        ("start_flow", {"flow_id": "cool"}),
        ("submit_task", {"type": "report.make"}),
        ("set_value", {"model": "oven", "field": "mode", "value": "eco"}),
    ]
    rule = {
        "id": "talkative",
        "inhibited_by": ["gone", "hot", "station"],
        "conditions": [
            HOT["conditions"][0],
            {"conditions": [{"not": {"type": "alarm", "rule_id": "never"}}, {"type": "schedule", "cron": "0 8 * * *"}]},
            {"type": "expression", "expression": "a > b", "inputs": {"a": SOURCE, "b": "modsrv:boiler:measurement:x"}},
            {"type": "alarm", "rule_id": "external"},
            {"type": "alarm", "rule_id": "talkative"},
        ],
        "actions": [{"type": kind, "parameters": parameters} for kind, parameters in actions],
    }
    told = {
        ("unknown_rule", "inhibited_by[0]"),
        ("unknown_rule", "conditions[1].conditions[0].not.rule_id"),
        ("unknown_model", "conditions[2].inputs.b"),
        ("unknown_target", "actions[0].parameters.notify[0]"),
        ("unknown_target", "actions[1].parameters.recipients[1]"),
        ("unknown_channel", "actions[2].parameters.channel_id"),
        ("unknown_flow", "actions[4].parameters.flow_id"),
        ("unknown_type", "actions[5].parameters.type"),
        ("unknown_model", "actions[6].parameters.model"),
    }
    await api.post("/rules", HOT, 201)
    policy = {"targets": {"ops": {"url": "json://example.com/x"}}}
    await api.ask("PUT", "/notifications/policy", json=policy)
    for answer in (
        await api.post("/rules/validate", rule),
        await api.post("/rules", rule, 201),
        await api.ask("PUT", "/rules/talkative", json=rule),
        await api.ask("PUT", "/rules", json=[rule]),
    ):
        assert {(each["code"], each["path"]) for each in answer["warnings"]} == told
    await station.plane.link.client.hset(station.plane.keys.flow("cool"), "id", "cool")
    await station.plane.link.client.sadd(station.plane.keys.worker_types(), "report.make")
    again = await api.ask(
        "PUT", "/rules/talkative", json={**again_of(await api.get("/rules/talkative")), "priority": 1}
    )
    gone = told - {(each["code"], each["path"]) for each in again["warnings"]}
    assert {code for code, _ in gone} == {"unknown_flow", "unknown_type"}


def again_of(rule: dict[str, Any]) -> dict[str, Any]:
    """What was read is sent back with all that is only shown."""
    return {**rule, "warnings": []}


async def test_sixty_rules_created_at_once_are_all_there(api: Flows) -> None:
    rules = [{**HOT, "id": f"r{i}"} for i in range(60)]
    answers = await asyncio.gather(*(api.client.post("/api/v1/rules", json=rule) for rule in rules))
    refused = [(rule, answer.text) for rule, answer in zip(rules, answers, strict=True) if answer.status_code != 201]
    assert not [text for _, text in refused if "rules_busy" in text], "they are in nobody's way"
    for rule, _ in refused:  # on a busy machine a server may not answer in time
        assert (await api.client.put(f"/api/v1/rules/{rule['id']}", json=rule)).status_code in (200, 201)
    edits = [{**HOT, "id": "r0", "priority": i} for i in range(101, 131)]
    answers = await asyncio.gather(*(api.client.put("/api/v1/rules/r0", json=rule) for rule in edits))
    assert sorted(answer.json()["version"] for answer in answers) == list(range(2, 32))
    assert len((await api.get("/rules"))["items"]) == 60


async def test_a_rule_takes_no_name_of_the_station(api: Flows) -> None:
    for name in ("station", "external"):
        error = (await api.ask("POST", "/rules", 422, json={**HOT, "id": name}))["error"]
        assert [problem["path"] for problem in error["problems"]] == ["id"]


async def test_a_version_never_brings_a_rule_back(api: Flows) -> None:
    await api.post("/rules", HOT, 201)
    shown = await api.get("/rules/hot")
    assert await api.error("PUT", "/rules/hot", 409, json={**HOT, "version": 0}) == "version_moved"
    await api.ask("DELETE", "/rules/hot", 204)
    assert await api.error("PUT", "/rules/hot", 409, json=shown) == "version_moved"
    assert await api.error("GET", "/rules/hot", 404) == "unknown_rule"
    assert (await api.ask("PUT", "/rules/hot", 201, json=HOT))["version"] == 1


async def test_a_group_is_switched_as_a_whole(api: Flows) -> None:
    await api.post("/rule-groups", {"id": "g"}, 201)
    rules = [{**HOT, "group_id": "g"}, {**HOT, "id": "cold", "group_id": "g", "enabled": False}, {**HOT, "id": "other"}]
    await api.ask("PUT", "/rules", json=rules)
    off = await api.post("/rule-groups/g/disable")
    assert off == {"id": "g", "enabled": False, "rules": ["cold", "hot"], "changed": ["hot"]}
    assert [item["id"] for item in (await api.get("/rules", enabled="true"))["items"]] == ["other"]
    assert (await api.post("/rule-groups/g/enable"))["changed"] == ["cold", "hot"]
    assert (await api.post("/rule-groups/g/enable"))["changed"] == []
    for word in ("enable", "disable"):
        assert await api.error("POST", f"/rule-groups/none/{word}", 404) == "unknown_group"


async def test_a_dry_run_tells_what_it_sees_and_would_do_and_does_nothing(api: Flows) -> None:
    await api.post("/rules", HOT, 201)
    assert (await api.post("/rules/hot/test"))["level"] is None
    await show(api, 80.0)
    found = await api.post("/rules/hot/test")
    assert (found["rule_id"], found["level"]) == ("hot", True)
    assert found["conditions"] == {"temperature": {"matched": True, "actual_value": 80.0}}
    assert found["sources"][SOURCE]["value"] == 80.0
    assert [action["type"] for action in found["actions"]] == ["create_alarm"]
    edited = {**HOT, "conditions": [{**HOT["conditions"][0], "value": 90}]}
    assert (await api.post("/rules/hot/test", {"rule": edited}))["level"] is False
    other = {**edited, "id": "other", "group_id": "not_yet"}
    assert (await api.post("/rules/other/test", {"rule": other}))["level"] is False
    assert await api.error("POST", "/rules/hot/test", 422, json={"rule": {"id": "hot"}}) == "bad_rule"
    assert (await api.get("/alarms"))["items"] == []
    assert (await api.get("/rules/hot/history"))["items"] == []


async def test_while_an_alarm_is_not_open(api: Flows, rulesrv: None, eventually: Eventually) -> None:
    """Live, in a dry run and in a back-test alike."""
    quiet = {"not": {"field": "hot", "type": "alarm", "rule_id": "hot"}}
    below = {"field": "t", "operator": "<", "value": 90, "source": SOURCE}
    calm = {"id": "calm", "conditions": [quiet, below]}
    await show(api, 20.0)
    await api.ask("PUT", "/rules", json=[HOT, calm])

    async def is_so(word: str, level: bool) -> bool:
        tried = await api.post("/rules/calm/test")
        assert tried["conditions"]["t"]["matched"] is True
        return (await api.get("/rules/calm"))["state"] == word and tried["level"] is level

    await eventually(lambda: is_so("active", True))
    await show(api, 80.0)
    await eventually(lambda: is_so("inactive", False))
    assert (await api.post("/rules/calm/test"))["conditions"]["hot"] == {"matched": True, "actual_value": 1.0}
    await show(api, 20.0)
    await eventually(lambda: is_so("active", True))
    samples = {SOURCE: [[T0, 1]], "alarm:hot": [[T0, 0], [T0 + 1000, 1], [T0 + 2000, 0]]}
    found = await api.post("/rules/calm/backtest", {"samples": samples})
    assert [event["edge"] for event in found["events"]] == ["rise", "fall", "rise"]


async def test_an_edge_raises_an_alarm_and_stands_in_the_history(
    api: Flows, rulesrv: None, eventually: Eventually
) -> None:
    await show(api, 20.0)
    await api.post("/rules", HOT, 201)

    async def state(word: str) -> bool:
        return bool((await api.get("/rules/hot"))["state"] == word)

    await eventually(lambda: state("inactive"))
    await show(api, 80.0)
    await eventually(lambda: state("active"))
    (alarm,) = (await api.get("/alarms", rule_id="hot", status="open"))["items"]
    assert (alarm["level"], alarm["title"], alarm["source_point"]) == ("Critical", "温度告警", SOURCE)
    await show(api, 20.0)
    await eventually(lambda: state("inactive"))
    found = (await api.get("/rules/hot/history"))["items"]
    assert [item["triggered"] for item in found] == [False, True]
    assert found[1]["conditions_result"] == {"temperature": {"matched": True, "actual_value": 80.0}}
    assert found[1]["actions_executed"] == ["create_alarm"] and found[1]["success"] is True
    page = await api.get("/rules/hot/history", limit=1)
    assert [item["id"] for item in page["items"]] == [found[0]["id"]] == [page["next_cursor"]]
    rest = await api.get("/rules/hot/history", cursor=page["next_cursor"])
    assert [item["id"] for item in rest["items"]] == [found[1]["id"]]
    assert len((await api.get("/rules/hot/history", to=found[1]["timestamp"]))["items"]) == 1
    assert await api.error("GET", "/rules/hot/history", 422, params={"from": "yesterday"}) == "bad_time"
    assert await api.error("GET", "/rules/hot/history", 422, params={"cursor": "exec_gone"}) == "bad_cursor"
    assert (await api.get("/rules/hot"))["figures"]["triggered"] == 1
    text = (await api.client.get("/metrics")).text
    assert "tradewind_rule_triggered_total 1.0" in text and 'tradewind_rules{state="enabled"} 1.0' in text


async def test_a_disabled_rule_marks_and_resolves_its_alarm(api: Flows, rulesrv: None, eventually: Eventually) -> None:
    await show(api, 80.0)
    await api.post("/rules", HOT, 201)

    async def is_raised() -> bool:
        return bool((await api.get("/alarms", status="open"))["items"])

    await eventually(is_raised)
    await api.post("/rules/hot/disable")
    (alarm,) = (await api.get("/alarms"))["items"]
    assert (alarm["status"], alarm["data"]["rule_state"]) == ("Resolved", "disabled")


T0 = 1_704_103_200_000
CSV = f"ts,address,value\n{T0},{SOURCE},70\n2024-01-01T10:00:01Z,{SOURCE},80\n{T0 + 2000},{SOURCE},60\n"


async def test_a_backtest_lists_when_the_rule_would_have_fired(api: Flows) -> None:
    await api.post("/rules", HOT, 201)
    found = await api.post("/rules/hot/backtest", {"csv": CSV})
    assert (found["samples"], found["rises"], found["falls"], found["alarms"]) == (3, 1, 1, 1)
    assert [(event["edge"], event["at"]) for event in found["events"]] == [
        ("rise", "2024-01-01T10:00:01.000Z"),
        ("fall", "2024-01-01T10:00:02.000Z"),
    ]
    samples = {SOURCE: [[T0, 70], [T0 + 1000, 80.0], [T0 + 2000, 60]]}
    assert await api.post("/rules/hot/backtest", {"samples": samples}) == found
    raw = await api.client.post("/api/v1/rules/hot/backtest", content=CSV, headers={"Content-Type": "text/csv"})
    assert raw.json() == found
    assert (await api.post("/rules/hot/backtest", {"csv": CSV, "max_events": 1}))["is_cut"] is True
    edited = {**HOT, "id": "other", "group_id": "not_yet", "conditions": [{**HOT["conditions"][0], "value": 65}]}
    other = await api.post("/rules/other/backtest", {"rule": edited, "csv": CSV})
    assert (other["rule_id"], other["events"][0]["cause"]) == ("other", "startup")
    assert (await api.get("/alarms"))["items"] == []


async def test_a_backtest_of_bad_samples_is_422_with_every_problem(api: Flows) -> None:
    await api.post("/rules", HOT, 201)
    bad = f"ts,address,value\nnever,{SOURCE},1\n{T0},{SOURCE},much\n"
    error = (await api.ask("POST", "/rules/hot/backtest", 422, json={"csv": bad}))["error"]
    assert [problem["path"] for problem in error["problems"]] == ["line 2", "line 3"]
    for body in (
        {}, {"csv": 1}, {"csv": CSV, "samples": {}}, {"to": T0}, {"samples": []}, {"csv": CSV, "max_events": -1},
        {"samples": {SOURCE: [[T0]]}}, {"samples": {SOURCE: [["x", 1]]}}, {"samples": {SOURCE: [[T0, True]]}},
    ):  # fmt: skip
        assert await api.error("POST", "/rules/hot/backtest", 422, json=body) == "bad_backtest"
    assert await api.error("POST", "/rules/hot/backtest", 422, json={"from": "x", "to": T0}) == "bad_time"
    assert await api.error("POST", "/rules/hot/backtest", 422, json={"from": T0, "to": T0 - 1}) == "bad_period"
    assert await api.error("POST", "/rules/none/backtest", 404, json={"csv": CSV}) == "unknown_rule"


LATER = [{**HOT["conditions"][0], "source": "comsrv:9:m:9"}]


async def test_a_backtest_reads_the_history(api: Flows, station: SmallStation) -> None:
    sink = station.history.sink()
    await sink.open()
    try:
        await sink.write([Row(SOURCE, T0 + at, value, 0) for at, value in ((0, 70.0), (1000, 80.0), (2000, 60.0))])
        await sink.write([Row("comsrv:9:m:9", now_ms() - ago_s * 1000, 1.0, 0) for ago_s in (7200, 1800, 300)])
    finally:
        await sink.close()
    await api.post("/rules", HOT, 201)
    found = await api.post("/rules/hot/backtest", {"from": T0, "to": T0 + 2000})
    assert (found["samples"], found["rises"], found["falls"]) == (3, 1, 1)
    found = await api.post("/rules/hot/backtest", {"from": "2024-01-01T10:00:00Z", "to": T0 + 1999})
    assert (found["samples"], found["is_active"], found["active_ms"]) == (2, True, 999)
    assert (await api.post("/rules/hot/backtest", {"from": 0, "to": 1}))["silent"] == [SOURCE]
    assert (await api.post("/rules/hot/backtest", {"from": T0}))["samples"] == 3, "until now"
    for since, samples in (("1h", 2), ("-1h", 2), ("10m", 1)):
        found = await api.post(
            "/rules/later/backtest", {"rule": {**HOT, "id": "later", "conditions": LATER}, "from": since}
        )
        assert found["samples"] == samples, since
    station.rules._sink = None
    assert await api.error("POST", "/rules/hot/backtest", 409, json={"from": 0, "to": 1}) == "no_history"


@pytest.mark.parametrize("text", ["{broken", '{"id": "odd", "conditions": 7, "actions": [1], "priority": "x"}'])
async def test_what_cannot_be_read_is_shown_as_faulty_with_every_field(
    api: Flows, station: SmallStation, text: str
) -> None:
    await api.post("/rules", HOT, 201)
    keys, redis = station.plane.keys, station.plane.link.client
    await redis.set(keys.rule("odd"), text)
    await redis.sadd(keys.rules(), "odd")
    await redis.incr(keys.rules_version())
    found = {each["id"]: each for each in (await api.get("/rules"))["items"]}
    assert (found["hot"]["state"], found["odd"]["state"]) == ("waiting", "faulty") and found["odd"]["problems"]
    shown = await api.get("/rules/odd")
    assert (shown["name"], shown["conditions"], shown["actions"], shown["priority"]) == ("", [], [], 0)
    assert set(found["hot"]) <= set(shown)
    await api.ask("DELETE", "/rules/odd", 204)
