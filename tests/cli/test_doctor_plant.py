"""What doctor says of channels, models, rules, alarms, notifications and history, on a real Redis."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis

from tests.cli.conftest import Cli
from tests.servers import Server
from tradewind.alarms.record import NewAlarm
from tradewind.alarms.store import AlarmStore
from tradewind.models.store import ModelStore
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.store import NotifyStore
from tradewind.points.batch import Batch
from tradewind.points.board import Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.plane import PointPlane
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.points.substitutions import SubstituteRequest, Substitutions
from tradewind.redis.connection import open_link
from tradewind.redis.keys import Keys
from tradewind.rules.store import RuleStore
from tradewind.settings import RedisSettings, Settings

Checks = dict[str, dict[str, str]]
RULE: dict[str, Any] = {
    "id": "hot",
    "conditions": [{"field": "t", "source": "comsrv:1001:m:1", "operator": ">", "value": "80"}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": "hot"}}],
}


class Store:
    """A store that something is wrong with, and what doctor finds there."""

    def __init__(self, cli: Cli, url: str, prefix: str) -> None:
        self._cli = cli
        self._url = url
        self.settings = Settings(key_prefix=prefix, redis=RedisSettings(url=url))
        self.keys = Keys(prefix)
        self.client = redis.Redis.from_url(url)

    def do(self, job: Callable[[PointPlane], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            link = await open_link(self.settings.redis)
            try:
                return await job(PointPlane(link, self.settings))
            finally:
                await link.close()

        return asyncio.run(run())

    def put_channels(self, *ids: str, enabled: bool = True) -> None:
        self.do(lambda p: ChannelStore(p.link, p.keys).put([ChannelSpec(i, enabled=enabled) for i in ids]))

    def put_rules(self, *rules: dict[str, Any]) -> None:
        self.do(lambda p: RuleStore(p.link, p.keys, p.all_settings).apply(list(rules)))

    def poll(self, channel: str, **status: Any) -> None:
        """As if a process polled the channel."""
        ends = int(time.time() * 1000) + 60_000
        self.client.hset(self.keys.channel_owners(), channel, f"comsrv-1:{ends}")
        self.client.hset(self.keys.channel_status(channel), mapping={"online": 1, **status})

    def checks(self) -> Checks:
        """The last of each name; every finding that is not ok says what to do."""
        found = self._cli("doctor", "--json").json["checks"]
        assert all(check["hint"] for check in found if check["status"] != "ok")
        return {check["name"]: check for check in found}


@pytest.fixture
def store(cli: Cli, redis_7: Server, key_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TRADEWIND_REDIS_URL", redis_7.url)
    monkeypatch.setenv("TRADEWIND_KEY_PREFIX", key_prefix)
    return Store(cli, redis_7.url, key_prefix)


def says(check: dict[str, str]) -> tuple[str, str]:
    return check["status"], check["detail"]


def test_an_empty_store_lacks_nobody(store: Store) -> None:
    checks = store.checks()
    names = (
        "channels",
        "modsrv",
        "rulesrv",
        "alarmsrv",
        "alarm journal",
        "notifications",
        "notification outbox",
        "hissrv",
    )
    assert {name: checks[name]["status"] for name in names} == dict.fromkeys(names, "ok")


def test_channels_that_nobody_polls(store: Store) -> None:
    store.put_channels("1001", "1002")
    store.put_channels("1003", enabled=False)
    checks = store.checks()
    assert says(checks["comsrv"]) == ("fail", "2 unattended: 1001, 1002")
    assert "tradewind run comsrv" in checks["comsrv"]["hint"]
    assert says(checks["channels"]) == ("ok", "2 unattended, 1 disabled")


def test_channels_that_are_offline_or_past_their_age(store: Store) -> None:
    now = int(time.time() * 1000)
    store.put_channels("1", "2", "3")
    store.poll("1", last_ms=now)
    store.poll("2", online=0, error="no route to host")
    store.poll("3", heard_ms=now - 125_000)
    checks = store.checks()
    assert says(checks["channel offline"]) == ("warn", "2 is offline: no route to host")
    assert "tradewind channel show 2" in checks["channel offline"]["hint"]
    assert checks["channel age"]["status"] == "warn" and "3 (heard 2m" in checks["channel age"]["detail"]
    assert "1 online" in checks["channels"]["detail"]
    assert "comsrv" not in checks


def test_many_channels_that_are_offline_are_counted(store: Store) -> None:
    names = [str(n) for n in range(1, 9)]
    store.put_channels(*names)
    for name in names:
        store.poll(name, online=0)
    assert says(store.checks()["channel offline"]) == ("warn", "and 3 more")


def test_readers_that_missed_a_part_of_the_feed(store: Store) -> None:
    store.client.hset(store.keys.feed_missed(), mapping={"rulesrv": 7, "hissrv": 0})
    assert says(store.checks()["feed"]) == ("warn", "rulesrv has missed 7 entries")


@pytest.mark.parametrize("role", ["modsrv", "rulesrv", "alarmsrv", "hissrv"])
def test_a_role_with_work_that_nobody_has(store: Store, role: str) -> None:
    leaders = {
        "modsrv": store.keys.models_leader(),
        "rulesrv": store.keys.rules_leader(),
        "alarmsrv": store.keys.alarms_leader(),
        "hissrv": store.keys.history_leader(),
    }
    if role == "modsrv":
        parts = {"calculations": [{"id": "two", "expression": "1 + 1"}], "outputs": [{"field": "x", "source": "two"}]}
        store.do(lambda p: ModelStore(p.link, p.keys).put({"name": "m", **parts}))
    elif role == "rulesrv":
        store.put_rules({**RULE, "enabled": False})
        assert store.checks()[role]["status"] == "ok", "none is to be judged"
        store.put_rules(RULE)
    elif role == "alarmsrv":
        store.do(lambda p: AlarmStore(p).raise_(NewAlarm(rule_id="r", source="s", title="t")))
    else:
        store.put_channels("1001")
    found = store.checks()[role]
    assert found["status"] == "fail" and f"tradewind run {role}" in found["hint"]
    store.client.set(leaders[role], f"{role}-1")
    if role == "hissrv":
        found = store.checks()[role]
        assert found["status"] == "fail" and "it has not said that it records yet" in found["detail"]
        store.client.hset(store.keys.history_status(), mapping={"at_ms": int(time.time() * 1000), "sink": "ok"})
    found = store.checks()[role]
    assert found["status"] == "ok" and f"{role}-1" in found["detail"]


def test_rules_that_are_left_out_stopped_or_failing(store: Store) -> None:
    store.put_rules(RULE, {**RULE, "id": "loop"}, {**RULE, "id": "sad"}, {**RULE, "id": "glad"})
    broken = {**RULE, "id": "broken", "conditions": [{**RULE["conditions"][0], "operator": "~"}]}
    store.client.sadd(store.keys.rules(), "broken")
    store.client.set(store.keys.rule("broken"), json.dumps(broken))
    store.client.incr(store.keys.rules_version())
    figures = {"loop:stopped_ms": 5, "sad:executions": 2, "sad:failed": 1, "glad:executions": 2, "glad:failed": 1}
    store.client.hset(store.keys.rule_figures(), mapping=figures)
    execution = {
        "id": "exec_1", "rule_id": "sad", "timestamp": int(time.time() * 1000), "triggered": True,
        "conditions_result": {}, "actions_executed": [], "success": False, "duration_ms": 1,
        "error_message": "the interlock says no", "context": {"source_data": "s", "trigger_value": 1},
    }  # fmt: skip
    store.client.lpush(store.keys.rule_history("sad"), json.dumps(execution))
    good = json.dumps({**execution, "rule_id": "glad", "success": True, "error_message": None})
    store.client.lpush(store.keys.rule_history("glad"), good)
    checks = store.checks()
    assert checks["rule left out"]["status"] == "warn"
    assert checks["rule left out"]["detail"].startswith("broken is not judged: conditions")
    assert says(checks["rule stopped"]) == ("warn", "1 by the loop guard: loop")
    assert says(checks["rule errors"]) == (
        "warn", "the last execution of 1 failed: sad; sad: the interlock says no",
    )  # fmt: skip
    assert "tradewind rule history sad" in checks["rule errors"]["hint"]


def test_a_rule_that_cannot_be_judged_now(store: Store) -> None:
    ratio = {"type": "expression", "expression": "1 / x > 0", "inputs": {"x": "comsrv:1001:m:1"}}
    store.put_rules({**RULE, "conditions": [ratio]})
    batch = Batch("comsrv:1001:m", {"1": 0.0})
    store.do(lambda p: Board(p).write([batch]))
    found = store.checks()["rule judged"]
    assert found["status"] == "warn" and found["detail"].startswith("1 cannot be judged now: hot; hot: ")
    assert "tradewind rule test hot" in found["hint"]


def test_rules_that_lead_nowhere(store: Store) -> None:
    store.do(lambda p: Board(p).write([Batch("comsrv:1001:m", {"1": 0.0})]))
    store.put_rules(RULE)
    checks = store.checks()
    assert "rule references" not in checks and "rule sources" not in checks
    mute = [{**RULE["conditions"][0], "source": "comsrv:1001:m:2"}]
    flow = {"type": "start_flow", "parameters": {"flow_id": "cool"}}
    store.put_rules(
        {**RULE, "id": "mute", "conditions": mute},
        {**RULE, "id": "sender", "actions": [flow]},
        {**RULE, "id": "lost", "inhibited_by": ["gone"]},
        {**RULE, "id": "off", "inhibited_by": ["gone"], "conditions": mute, "enabled": False},
    )
    checks = store.checks()
    found = checks["rule references"]
    assert says(found) == ("warn", "2 name what is not there: lost, sender; lost: inhibited_by[0]")
    assert "there is no rule 'gone'" in found["hint"]
    found = checks["rule sources"]
    assert says(found) == ("warn", "1 read what has no value: mute; mute: comsrv:1001:m:2")
    assert "tradewind rule test mute" in found["hint"]


def test_a_journal_that_grows_and_what_was_dropped_from_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_ALARMS_JOURNAL_MAX", "40")
    for n in range(5):
        store.do(lambda p, n=n: AlarmStore(p).raise_(NewAlarm(rule_id="r", source=f"s{n}", title="t")))  # type: ignore[misc]
    assert says(store.checks()["alarm journal"]) == ("warn", "5 of 40")
    assert "alarm journal drops" not in store.checks()
    store.client.hset(store.keys.alarm_figures(), mapping={"journal_dropped:sql": 12, "journal_dropped:sql:told": 12})
    found = store.checks()["alarm journal drops"]
    assert says(found) == ("warn", "12 transitions were dropped before SQL had them")
    assert "alarms.journal_max" in found["hint"]


def test_resolved_alarms_that_nobody_acknowledged(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def live(plane: PointPlane) -> None:
        alarms = AlarmStore(plane)
        found = [await alarms.raise_(NewAlarm(rule_id="r", source=f"s{n}", title="t")) for n in range(4)]
        for each in found[:3]:
            await alarms.resolve(each.id, "li")
        await alarms.acknowledge(found[0].id, "li")

    store.do(live)
    found = store.checks()["alarms unacknowledged"]
    assert says(found) == ("ok", "2 resolved alarms stay: nobody has acknowledged them")
    monkeypatch.setattr("tradewind.cli.examine_rules.UNSEEN", 2)
    found = store.checks()["alarms unacknowledged"]
    assert found["status"] == "warn" and "tradewind alarm ack" in found["hint"]


def test_an_outbox_that_nobody_reads_and_what_was_dropped_from_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_NOTIFY_OUTBOX_MAX", "2")
    for n in range(2):
        store.do(lambda p, n=n: NotifyStore(NotifyPlane(p.link, p.all_settings)).tell(f"m{n}"))  # type: ignore[misc]
    checks = store.checks()
    assert says(checks["notifications"]) == ("fail", "nobody sends them: 2 messages and 0 deliveries wait")
    assert says(checks["notification outbox"]) == ("fail", "2 of 2")
    store.client.set(store.keys.notify_leader(), "notify-1")
    store.client.hset(store.keys.notify_figures(), "dropped", 3)
    checks = store.checks()
    assert checks["notifications"]["status"] == "ok"
    assert says(checks["notification drops"]) == ("warn", "3 messages were dropped before anybody was told")


def test_targets_that_keep_failing(store: Store) -> None:
    jobs = {
        "j1": b'{"id":"j1","target":"ops","due_ms":1,"begun":true,"attempts":4,"error":"403"}',
        "j2": b'{"id":"j2","target":"new","due_ms":1,"begun":true,"attempts":1,"error":"503"}',
    }
    store.client.hset(store.keys.notify_jobs(), mapping=jobs)
    assert says(store.checks()["notification target"]) == ("warn", "ops keeps failing: tried 4 times: 403")
    store.client.delete(store.keys.notify_jobs())
    store.client.hset(store.keys.notify_targets(), mapping={"mail:failing": 1, "mail:last": 5, "ops:last": 5})
    found = store.checks()["notification target"]
    assert says(found) == ("warn", "mail keeps failing: given up") and "tradewind notify test mail" in found["hint"]


def test_a_history_that_does_not_keep_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.client.set(store.keys.history_leader(), "hissrv-1")
    well = {"sink": "ok", "at_ms": int(time.time() * 1000), "written": 5, "lag_ms": 100, "spool_bytes": 0}
    store.client.hset(store.keys.history_status(), mapping=well)
    assert not [name for name, check in store.checks().items() if name.startswith("hist") and check["status"] != "ok"]
    ill = {
        "sink": "away", "sink_error": "connection refused", "lag_ms": 61_000, "behind": 9, "spool_bytes": 200_000_000,
        "dropped": 6, "dropped_bytes": 1, "dropped_age": 2, "dropped_corrupt": 3, "missed": 4,
        "policy_error": "include[0] is no pattern",
    }  # fmt: skip
    store.client.hset(store.keys.history_status(), mapping=ill)
    checks = store.checks()
    assert checks["history sink"]["status"] == "fail" and "connection refused" in checks["history sink"]["detail"]
    assert says(checks["history spool"]) == ("warn", "200000000 of 1000000000")
    assert says(checks["history lag"]) == ("warn", "1m 1s behind, 9 entries of the feed")
    assert says(checks["history drops"]) == (
        "warn", "6 samples dropped from the spool (1 for bytes, 2 for age, 3 for corrupt)",
    )  # fmt: skip
    assert says(checks["history missed"]) == ("warn", "4 entries of the feed were never read")
    assert says(checks["history policy"]) == ("warn", "include[0] is no pattern")
    monkeypatch.setenv("TRADEWIND_HISTORY_ENABLED", "false")
    assert says(store.checks()["hissrv"]) == ("ok", "history is off (history.enabled)")


def test_substituted_points_are_named(store: Store) -> None:
    async def substitute(plane: PointPlane) -> None:
        channels = ChannelStore(plane.link, plane.keys)
        await channels.put([ChannelSpec("1001", points=(PointSpec(Kind.SIGNAL, "2"),))])
        request = SubstituteRequest("comsrv:1001:s:2", 1, "door switch is broken", "ada")
        await Substitutions(Board(plane), channels).substitute(request)

    assert "substituted points" not in store.checks()
    store.do(substitute)
    found = store.checks()["substituted points"]
    assert found["status"] == "warn" and "comsrv:1001:s:2 = 1 (door switch is broken; ada)" in found["detail"]
