"""Lua scripts: complete headers, loaded everywhere, loaded again when forgotten, repeated after a cut connection."""

from __future__ import annotations

import asyncio
import re
import time
from importlib import resources
from pathlib import Path

import pytest
import redis
import redis.asyncio

from tests import servers
from tradewind.errors import Unavailable
from tradewind.redis.connection import Link, open_link
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Scripts, sha, source
from tradewind.settings import RedisSettings

PACKAGE = "tradewind.tasks"
ROOMS = ("tasks", "flows", "points", "models", "notify", "alarms", "rules")
FOLDERS = {room: Path(str(resources.files(f"tradewind.{room}") / "lua")) for room in ROOMS}
#: Included by others, no scripts by themselves.
PARTS = [f"tasks/{name}" for name in ("shared", "requeue", "cancel")]
PARTS += [f"flows/{name}" for name in ("cycle", "forget", "node_task_shared")]
PARTS += [f"points/{name}" for name in ("board", "command_shared")]
PARTS += ["alarms/alarm", "rules/rule_steps"]
FILES = sorted(file for folder in FOLDERS.values() for file in folder.glob("*.lua"))
NAMES = [name for name in (f"{file.parent.parent.name}/{file.stem}" for file in FILES) if name not in PARTS]


def path_of(name: str) -> Path:
    room, _, file = name.partition("/")
    return FOLDERS[room] / f"{file}.lua"


def script(name: str) -> tuple[str, str]:
    """The package and the name that `source` and `sha` take."""
    room, _, file = name.partition("/")
    return f"tradewind.{room}", file


def header(name: str) -> str:
    """The comment that a file begins with, without the lines that include others."""
    lines = []
    for line in path_of(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith(("--", "#!lua")):
            break
        if line.startswith("--") and not line.startswith("-- include:"):
            lines.append(line.removeprefix("--").strip())
    return " ".join(lines)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_says_what_it_does_takes_and_returns(name: str) -> None:
    text = header(name)
    purpose = text.partition("KEYS")[0]
    assert len(purpose) > 10, "no purpose"
    for word in ("KEYS", "ARGV", "Return"):
        assert word in text, f"no {word}"
    body = path_of(name).read_text(encoding="utf-8")
    listed = text.partition("KEYS")[2].partition("ARGV")[0]
    for number in sorted({int(n) for n in re.findall(r"KEYS\[(\d+)\]", body)}):
        assert re.search(rf"\b{number} [a-z]", listed), f"KEYS {number} is not described"
    assert path_of(name).read_text(encoding="utf-8").startswith("#!lua"), "no shebang: flags would be ignored"


@pytest.mark.parametrize("name", PARTS)
def test_a_part_says_who_shares_it_and_which_keys_it_builds(name: str) -> None:
    assert "Shared by" in header(name) and "Keys built" in header(name)


@pytest.mark.parametrize("name", NAMES)
def test_includes_are_put_in_place(name: str) -> None:
    text = source(*script(name))
    assert "-- include:" not in text
    assert text.count("#!lua") == 1


async def test_every_server_takes_every_script(link: Link) -> None:
    for name in NAMES:
        assert await link.client.script_load(source(*script(name))) == sha(*script(name))


def acquire(prefix: str, link: Link) -> tuple[str, list[str], list[str | int]]:
    keys = Keys(prefix, cluster=link.cluster)
    return "leader_acquire", [keys.leader(), keys.epoch()], ["me", 60_000]


@pytest.mark.parametrize("retries", [0, 3])
async def test_a_forgotten_script_is_loaded_again(link: Link, key_prefix: str, retries: int) -> None:
    scripts = Scripts(link, PACKAGE, retries)
    name, keys, args = acquire(key_prefix, link)
    await link.client.script_flush()
    assert await scripts.run(name, keys, args) == 1
    await link.client.script_flush()
    assert await scripts.run(name, keys, args) == 0, "somebody leads already"


async def test_a_forgotten_script_does_not_wait_twice(link: Link, key_prefix: str) -> None:
    """What the first command waited for has been taken; to wait for it again would be a pause of its whole time."""
    wake = Keys(key_prefix, cluster=link.cluster).wake()
    await link.client.lpush(wake, "1")
    await link.client.script_flush()
    began = time.monotonic()
    client = link.new_client(20)
    replies = await Scripts(link, PACKAGE).run_all(
        [acquire(key_prefix, link)], first=("BLPOP", wake, 20), client=client
    )
    await client.aclose()
    assert replies == [1]
    assert time.monotonic() - began < 10
    assert not await link.client.exists(wake)


async def test_many_scripts_answer_in_order_and_the_first_reply_is_dropped(link: Link, key_prefix: str) -> None:
    scripts = Scripts(link, PACKAGE)
    name, keys, args = acquire(key_prefix, link)
    release = ("leader_release", keys, ["me", 1])
    await scripts.load([(name, keys, args), release])  # a missing one would have all of them repeated
    assert await scripts.run_all([(name, keys, args), (name, keys, args), release]) == [1, 0, 1]
    assert await scripts.run_all([(name, keys, args)], first=("PING",)) == [2]


async def test_an_error_of_a_script_is_raised_and_the_connection_stays_usable(link: Link, key_prefix: str) -> None:
    scripts = Scripts(link, PACKAGE)
    name, keys, args = acquire(key_prefix, link)
    await link.client.set(keys[1], "not a number")
    with pytest.raises(redis.ResponseError, match="not an integer"):
        await scripts.run_all([(name, keys, args), ("leader_release", keys, ["me", 1])])
    await link.client.delete(*keys)
    assert await scripts.run(name, keys, args) == 1


async def test_a_cut_connection_is_made_good(key_prefix: str) -> None:
    with servers.redis_server() as server:
        link = await open_link(RedisSettings(url=server.url))
        scripts, client = Scripts(link, PACKAGE), link.new_client(30)
        call = acquire(key_prefix, link)
        waiting = asyncio.create_task(scripts.run_all([call], first=("BLPOP", f"{key_prefix}never", 30), client=client))
        with redis.Redis(port=server.port) as admin:
            while not admin.info("clients")["blocked_clients"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert await asyncio.wait_for(waiting, 10) == [1]
        await client.aclose()
        await link.close()


async def test_a_cancelled_call_leaves_no_reply_for_the_next_one(link: Link, key_prefix: str) -> None:
    scripts, client = Scripts(link, PACKAGE), link.new_client(30)
    never = f"{Keys(key_prefix, cluster=link.cluster).wake()}:never"
    name, keys, args = acquire(key_prefix, link)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await scripts.run_all([(name, keys, args)], first=("BLPOP", never, 30), client=client)
    assert await scripts.run_all([("leader_renew", keys, ["nobody", 1, 1000])], client=client) == [0]
    await client.aclose()


async def test_a_server_that_stays_away_is_unavailable_after_the_retries(key_prefix: str) -> None:
    link = await open_link(RedisSettings(url=f"redis://127.0.0.1:{servers.free_port()}"))
    began = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        await Scripts(link, PACKAGE, 2).run(*acquire(key_prefix, link))
    assert caught.value.code == "redis_unavailable"
    assert 0.2 < time.monotonic() - began < 5
    await link.close()
