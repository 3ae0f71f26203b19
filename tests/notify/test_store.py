"""The policy in Redis, its secrets, and messages from programs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.nodes.web import Web
from tests.notify.notify_room import NotifyRoom
from tradewind.errors import Conflict, Invalid, NotFound, Overloaded, Unavailable
from tradewind.redis.connection import Link

SECRET = "https://ann:s3cret@example.com/t0ken"
POLICY: dict[str, Any] = {
    "targets": {"ops": {"url": SECRET, "headers": {"X-Token": "he4der"}}, "mail": {"url": "mailto://a:pw@example.com"}},
    "routes": [{"targets": ["ops"]}],
}


async def test_a_policy_is_stored_with_a_version_and_shown_without_secrets(room: NotifyRoom) -> None:
    assert await room.store.show() == {"version": 0, "targets": {}, "routes": [], "escalation": []}
    shown = await room.store.put(POLICY)
    assert shown["version"] == 1
    assert shown["targets"]["ops"] == {"url": "https://ann:***@example.com/***", "headers": {"X-Token": "***"}}
    assert shown["targets"]["mail"] == {"url": "mailto://a:***@example.com"}
    assert await room.store.show() == shown
    assert (await room.store.policy()).targets["ops"].url == SECRET


async def test_what_is_shown_can_be_put_back_and_keeps_the_secrets(room: NotifyRoom) -> None:
    shown = await room.store.put(POLICY)
    assert (await room.store.put(shown))["version"] == 1, "nothing has changed"
    shown["routes"].append({"targets": ["mail"], "min_level": "High"})
    shown["targets"]["mail"]["url"] = "***"
    assert (await room.store.put(shown))["version"] == 2
    policy = await room.store.policy()
    assert policy.targets["ops"].url == SECRET
    assert policy.targets["ops"].headers == {"X-Token": "he4der"}
    assert policy.targets["mail"].url == "mailto://a:pw@example.com"


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://ann:***@evil.example.com/***", "headers": {}},
        {"url": "http://ann:***@example.com/***", "headers": {}},
        {"url": "https://evil.example.com/", "headers": {"X-Token": "***"}},
        {"url": "https://ann:***@example.com/***", "headers": {"X-Other": "***"}},
    ],
)
async def test_a_secret_is_never_kept_for_another_address(room: NotifyRoom, change: dict[str, Any]) -> None:
    await room.store.put(POLICY)
    with pytest.raises(Invalid) as caught:
        await room.store.put({"targets": {"ops": change}})
    assert {problem.code for problem in caught.value.problems} == {"masked_secret"}
    assert "s3cret" not in str(caught.value.problems)


async def test_an_old_version_is_refused(room: NotifyRoom) -> None:
    shown = await room.store.put(POLICY)
    await room.store.put({"targets": {}})
    for version, document in ((None, shown), (1, POLICY)):
        with pytest.raises(Conflict) as caught:
            await room.store.put(document, version=version)
        assert caught.value.code == "version_conflict"


async def test_many_at_once_lose_no_change(room: NotifyRoom) -> None:
    async def put(n: int) -> bool:
        try:
            await room.store.put({"targets": {f"t{n}": {"url": "https://example.com"}}})
        except Unavailable:
            return False
        return True

    stored = await asyncio.gather(*(put(n) for n in range(5)))
    assert any(stored)
    assert (await room.store.policy()).version == sum(stored)


async def test_a_bad_policy_is_refused_and_nothing_is_stored(room: NotifyRoom) -> None:
    bad = {"targets": {"a": {"url": "nonsense://x"}, "b": {"url": "slack://x"}, "c": {"url": "syslog://"}}}
    for call in (room.store.put, room.store.validate):
        with pytest.raises(Invalid) as caught:
            await call(bad)
        assert {problem.path for problem in caught.value.problems} == {f"targets.{name}.url" for name in "abc"}
    assert (await room.store.policy()).version == 0
    assert (await room.store.validate(POLICY))["targets"]["ops"]["url"] == "https://ann:***@example.com/***"


async def test_a_stored_text_that_is_no_policy_stops_nobody_from_storing_one(room: NotifyRoom) -> None:
    await room.redis.set(room.keys.notify_policy(), "{rubbish")
    with pytest.raises(Unavailable):
        await room.store.policy()
    await room.store.put(POLICY)
    assert (await room.store.policy()).targets["ops"].url == SECRET


async def test_a_message_is_told_once_for_a_key(room: NotifyRoom) -> None:
    assert await room.store.tell("hello\nthere", "text", level="major", targets=["ops"], key="exec_1:0")
    assert not await room.store.tell("hello", key="exec_1:0")
    assert await room.store.tell("another") and await room.store.tell("another")
    entries = await room.redis.xrange(room.keys.notify_outbox())
    assert len(entries) == 3
    fields = {name.decode(): value.decode() for name, value in entries[0][1].items()}
    assert fields == {
        "kind": "rule", "event": "message", "rule_id": "", "source": "", "category": "", "level": "High",
        "title": "hello there", "text": "text", "targets": '["ops"]', "flood": "0", "key": "exec_1:0",
        "at": str(room.clock.now_ms()),
    }  # fmt: skip
    room.advance(86_401)
    assert await room.store.tell("hello", key="exec_1:0")
    assert await room.redis.zcard(room.keys.notify_keys()) == 1, "old keys go"


async def test_a_bad_message_is_refused_with_all_problems(room: NotifyRoom) -> None:
    with pytest.raises(Invalid) as caught:
        await room.store.tell(" \n", level="awful", key="no blanks")
    assert {problem.path for problem in caught.value.problems} == {"title", "level", "key"}


async def test_a_full_outbox_says_so(link: Link, key_prefix: str) -> None:
    room = NotifyRoom(link, key_prefix, outbox_max=2)
    await room.store.tell("1", key="k")
    await room.store.tell("2")
    assert not await room.store.tell("1", key="k"), "a repeat is not refused"
    with pytest.raises(Overloaded):
        await room.store.tell("3")


async def test_a_target_is_tried_out(room: NotifyRoom, web: Web) -> None:
    web.text("/good", "")
    web.text("/bad/t0ken", "go away", 403)
    targets = {"good": {"url": web.address + "/good"}, "bad": {"url": web.address + "/bad/t0ken", "enabled": False}}
    await room.store.put({"targets": targets})
    good = await room.store.test_target("good")
    assert (good.ok, good.error) == (True, "")
    bad = await room.store.test_target("bad")
    assert (bad.ok, bad.error) == (False, "answered 403: go away")
    with pytest.raises(NotFound):
        await room.store.test_target("other")
    assert not await room.redis.hlen(room.keys.notify_jobs())
