"""The checks against a real Redis that something is wrong with."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.cli.conftest import Cli
from tests.servers import Server
from tradewind.cli.examine import kind_of
from tradewind.redis.keys import Keys


def test_without_a_station_it_says_so(cli: Cli, tmp_path: Path) -> None:
    ran = cli("doctor", "--data-dir", str(tmp_path / "none"), "--json")
    assert ran.code == 1
    assert ran.json["checks"][0]["status"] == "fail"
    assert "tradewind up" in ran.json["checks"][0]["hint"]


def test_it_tells_what_is_wrong_and_what_to_do(
    cli: Cli, redis_7: Server, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = redis.Redis.from_url(redis_7.url)
    keys = Keys(key_prefix)
    client.set(keys.idempotency("k"), "x")
    client.set(keys.cache("abc"), "{}", ex=60)
    client.hset(keys.task("ended"), mapping={"type": "echo", "status": "SUCCESS"})
    client.hset(keys.task("archiving"), mapping={"type": "echo", "status": "SUCCESS"})
    client.hset(keys.task("waiting"), mapping={"type": "echo", "status": "QUEUED"})
    client.xadd(keys.outbox(), {"ids": "archiving"})
    client.zadd(keys.workers(), {"w-late": 1000})
    client.sadd(keys.paused(), "normal")
    client.set(keys.outbox_count(), 1_000_000)
    monkeypatch.setenv("TRADEWIND_REDIS_URL", redis_7.url)
    monkeypatch.setenv("TRADEWIND_KEY_PREFIX", key_prefix)
    ran = cli("doctor", "--json")
    shown = cli("doctor")
    assert ran.code == shown.code == 1
    checks = {check["name"]: check for check in ran.json["checks"]}
    states = {name: check["status"] for name, check in checks.items()}
    assert states["leader"] == states["outbox"] == "fail"
    assert states["workers"] == states["paused"] == states["append-only file"] == states["expiry"] == "warn"
    assert "w-late" in checks["workers"]["detail"]
    assert "1 task:idem" in checks["expiry"]["detail"]
    assert "1 task" in checks["expiry"]["detail"].replace("1 task:idem", "")
    assert all(check["hint"] for check in checks.values() if check["status"] != "ok")
    assert "tradewind queue resume" in shown.out


def test_only_keys_that_must_expire_are_suspects() -> None:
    keys = Keys("p:")
    expiring = [keys.idempotency("k"), keys.cancel("t"), keys.cache("t"), keys.status("t"), keys.lock("n")]
    expiring += [keys.leader(), keys.worker("w"), keys.rate_second("echo"), keys.rate_window("echo", 5), keys.task("t")]
    lasting = [
        keys.queue("high"),
        keys.delayed(),
        keys.parked(),
        keys.paused(),
        keys.dead(),
        keys.body("t"),
        keys.token(),
    ]
    lasting += [keys.types(), keys.outbox(), keys.outbox_count(), keys.worker_queue("w"), keys.worker_inflight("w")]
    lasting += [keys.worker_type("echo"), keys.worker_types(), keys.workers(), keys.epoch(), keys.wake()]
    lasting += [keys.schedules(), keys.rate_config(), keys.metric_queue_length(), keys.metric_task_count("success")]
    assert [key for key in expiring if kind_of(key, keys) is None] == []
    assert [key for key in lasting if kind_of(key, keys) is not None] == []
