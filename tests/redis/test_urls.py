from __future__ import annotations

import pytest

from tradewind.errors import Invalid
from tradewind.redis.urls import Mode, Target, parse_url, target_of
from tradewind.settings import ClusterSettings, RedisSettings, SentinelSettings

GOOD = {
    "redis://h": Target(Mode.STANDALONE, (("h", 6379),)),
    "redis://h/": Target(Mode.STANDALONE, (("h", 6379),)),
    "redis://127.0.0.1:7000/3": Target(Mode.STANDALONE, (("127.0.0.1", 7000),), db=3),
    "REDIS://h?db=4": Target(Mode.STANDALONE, (("h", 6379),), db=4),
    "redis://[::1]:7000": Target(Mode.STANDALONE, (("::1", 7000),)),
    "redis://[::1]": Target(Mode.STANDALONE, (("::1", 6379),)),
    "redis://:pw@h": Target(Mode.STANDALONE, (("h", 6379),), password="pw"),
    "redis://me:p%40w%2F@h": Target(Mode.STANDALONE, (("h", 6379),), username="me", password="p@w/"),
    "redis://me:p@w@h": Target(Mode.STANDALONE, (("h", 6379),), username="me", password="p@w"),
    "rediss://h:6380/1": Target(Mode.STANDALONE, (("h", 6380),), db=1, tls=True),
    "unix:///run/redis.sock": Target(Mode.UNIX, path="/run/redis.sock"),
    "unix:///run/a%20b.sock?db=2": Target(Mode.UNIX, path="/run/a b.sock", db=2),
    "redis+sentinel://a,b:7/mymaster": Target(Mode.SENTINEL, (("a", 26379), ("b", 7)), master="mymaster"),
    "redis+sentinel://u:p@a/m/2": Target(Mode.SENTINEL, (("a", 26379),), master="m", username="u", password="p", db=2),
    "redis+cluster://a:7000,b:7001": Target(Mode.CLUSTER, (("a", 7000), ("b", 7001))),
    "redis+cluster://:p@a/0": Target(Mode.CLUSTER, (("a", 6379),), password="p"),
    "rediss+cluster://a": Target(Mode.CLUSTER, (("a", 6379),), tls=True),
}
BAD = [
    "",
    "h:6379",
    "http://h",
    "redis:/h",
    "redis://",
    "redis:///0",
    "redis://h:port",
    "redis://h:0",
    "redis://h:65536",
    "redis://h:٣",
    "redis://h/x",
    "redis://h/-1",
    "redis://h/1/2",
    "redis://h/1?db=1",
    "redis://h?timeout=3",
    "redis://h?db=",
    "redis://a,b",
    "redis://::1",
    "redis://[::1",
    "redis://[::1]7000",
    "redis://h#x",
    "redis+other://h",
    "unix+cluster:///x",
    "unix://x.sock",
    "unix:///",
    "unix://:pw@/x.sock",
    "redis+sentinel://h",
    "redis+sentinel://h/",
    "redis+sentinel://h//0",
    "redis+sentinel:///m",
    "redis+cluster://a,,b",
    "redis+cluster://a/1",
]


@pytest.mark.parametrize("url", GOOD)
def test_good_urls_mean_what_they_say(url: str) -> None:
    assert parse_url(url) == GOOD[url]


@pytest.mark.parametrize("url", GOOD)
def test_the_shown_form_is_a_url_to_the_same_place(url: str) -> None:
    target = GOOD[url]
    again = parse_url(str(target).replace(" ", "%20"))
    assert (again.mode, again.nodes, again.path, again.master, again.tls) == (
        target.mode,
        target.nodes,
        target.path,
        target.master,
        target.tls,
    )


@pytest.mark.parametrize("url", BAD)
def test_bad_urls_are_refused_with_a_hint(url: str) -> None:
    with pytest.raises(Invalid) as error:
        parse_url(url)
    assert error.value.code == "bad_redis_url" and error.value.hint


@pytest.mark.parametrize("url", ["redis://me:s3cr3t@h/x", "redis://:s3cr3t@h:99999", "http://me:s3cr3t@h"])
def test_a_refusal_does_not_repeat_the_password(url: str) -> None:
    with pytest.raises(Invalid) as error:
        parse_url(url)
    assert "s3cr3t" not in error.value.message + error.value.hint


def test_a_password_is_not_shown() -> None:
    target = parse_url("redis://me:s3cr3t@h")
    assert "s3cr3t" not in str(target) + repr(target)


def test_settings_without_an_address_mean_the_embedded_server() -> None:
    assert target_of(RedisSettings()) is None


def test_sentinel_and_cluster_groups_mean_the_same_as_their_urls() -> None:
    sentinel = RedisSettings(sentinel=SentinelSettings(master="m", nodes=["a", "b:7"]), password="p", db=2)
    assert target_of(sentinel) == parse_url("redis+sentinel://:p@a,b:7/m/2")
    cluster = RedisSettings(cluster=ClusterSettings(nodes=["a:7000", "b:7001"]))
    assert target_of(cluster) == parse_url("redis+cluster://a:7000,b:7001")


def test_the_url_wins_over_password_and_db() -> None:
    assert target_of(RedisSettings(url="redis://:a@h/1", password="b", db=2)) == parse_url("redis://:a@h/1")
    assert target_of(RedisSettings(url="redis://h", password="b", db=2)) == parse_url("redis://:b@h/2")


@pytest.mark.parametrize(
    "settings",
    [
        RedisSettings(url="redis://h", cluster=ClusterSettings(nodes=["a"])),
        RedisSettings(sentinel=SentinelSettings(master="m", nodes=["a"]), cluster=ClusterSettings(nodes=["a"])),
        RedisSettings(sentinel=SentinelSettings(master="m")),
        RedisSettings(sentinel=SentinelSettings(nodes=["a"])),
        RedisSettings(cluster=ClusterSettings(nodes=["a:b"])),
        RedisSettings(cluster=ClusterSettings(nodes=["a"]), db=1),
    ],
)
def test_contradicting_or_half_settings_are_refused(settings: RedisSettings) -> None:
    with pytest.raises(Invalid):
        target_of(settings)
