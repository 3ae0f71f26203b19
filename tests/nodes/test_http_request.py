"""`http_request` against a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.nodes.host import new_call, once, outputs, payloads, problems
from tests.nodes.web import Web, serve
from tradewind.flows.node_errors import NodeException, NodeResourceException, NodeTimeoutException
from tradewind.http_guard import is_refused
from tradewind.nodes import http_request
from tradewind.nodes.http_request import HttpRefused
from tradewind.tasks.running import Abort, Retry


@pytest.fixture
def web() -> Iterator[Web]:
    http_request.allow(["127.0.0.1"])
    try:
        with serve() as web:
            yield web
    finally:
        http_request.allow([])


async def call(config: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    return await outputs("http_request", config, inputs or {})


async def failure(config: dict[str, Any], inputs: dict[str, Any] | None = None) -> Exception:
    with pytest.raises((NodeException, Retry)) as caught:
        await call(config, inputs)
    return caught.value


async def test_an_answer_in_json_is_read(web: Web) -> None:
    web.json("/price/BTC", {"close": 1.5}, **{"X-Left": "9", "Set-Cookie": "session=secret"})
    sent = await call({"url": web.address + "/price/{symbol}"}, {"symbol": "BTC"})
    assert sent["body"] == {"close": 1.5}
    assert sent["response"]["status"] == 200
    assert sent["response"]["json"] == {"close": 1.5}
    assert sent["response"]["headers"]["x-left"] == "9"
    assert "set-cookie" not in sent["response"]["headers"]
    assert "text" not in sent["response"]


async def test_another_answer_is_text(web: Web) -> None:
    web.text("/", "grün")
    web.answers["/broken"] = (200, {"Content-Type": "application/json"}, b"{no")
    web.answers["/latin"] = (200, {"Content-Type": "text/plain; charset=latin-1"}, "grün".encode("latin-1"))
    web.answers["/odd"] = (200, {"Content-Type": "text/plain; charset=nonsense"}, b"x")
    web.answers["/none"] = (204, {}, b"")
    for path, text in {"/": "grün", "/broken": "{no", "/latin": "grün", "/odd": "x", "/none": ""}.items():
        sent = await call({"url": web.address + path})
        assert sent["body"] == sent["response"]["text"] == text


async def test_a_body_and_headers_are_filled_from_inputs(web: Web) -> None:
    web.json("/orders", {"ok": True}, status=201)
    order = {"symbol": "BTC", "amounts": [1, 2.5]}
    config = {
        "method": "POST", "url": web.address + "/orders", "headers": {"X-Token": "t-{token}"},
        "json": {"order": "{order}", "note": "for {token}", "fixed": 1},
    }  # fmt: skip
    await call(config, {"order": order, "token": "7"})
    method, _, headers, body = web.asked[0]
    assert method == "POST"
    assert headers["x-token"] == "t-7"
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {"order": order, "note": "for 7", "fixed": 1}
    del config["json"]
    await call({**config, "body": "plain {token}"}, {"order": 0, "token": "7"})
    assert web.asked[1][3] == b"plain 7"


async def test_a_value_stays_one_part_of_the_url(web: Web) -> None:
    web.text("/a/..%2Fb%3Fc%3D1%23d%20%2540?q=x%26y%3D1", "reached")
    sent = await call({"url": web.address + "/a/{part}?q={query}"}, {"part": "../b?c=1#d %40", "query": "x&y=1"})
    assert sent["body"] == "reached"


async def test_a_value_cannot_name_another_host(web: Web) -> None:
    error = await failure({"url": "http://{host}/x"}, {"host": web.address.removeprefix("http://") + "/y?"})
    assert isinstance(error, HttpRefused | NodeResourceException)
    assert not web.asked


async def test_a_header_takes_no_line_break(web: Web) -> None:
    error = await failure({"url": web.address, "headers": {"X-A": "{a}"}}, {"a": "1\r\nX-Evil: 1"})
    assert isinstance(error, HttpRefused) and "line break" in str(error)
    assert not web.asked


@pytest.mark.parametrize("status", [500, 502, 503, 408, 429])
async def test_a_passing_failure_may_be_retried(web: Web, status: int) -> None:
    web.text("/", "busy", status)
    error = await failure({"url": web.address + "/"})
    assert isinstance(error, NodeResourceException)
    assert error.is_retryable
    assert f"answered {status}: busy" in str(error)


async def test_the_service_says_when_to_come_back(web: Web) -> None:
    web.text("/", "busy", 429, **{"Retry-After": "7"})
    error = await failure({"url": web.address + "/"})
    assert isinstance(error, Retry)
    assert error.delay == 7


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_a_refusal_is_final(web: Web, status: int) -> None:
    web.text("/", "no", status)
    error = await failure({"url": web.address + "/"})
    assert isinstance(error, HttpRefused)
    assert isinstance(error, Abort)


async def test_what_is_expected_is_success(web: Web) -> None:
    web.text("/", "no", 404)
    for expected in (404, [200, 404]):
        assert (await call({"url": web.address + "/", "expect_status": expected}))["response"]["status"] == 404
    web.text("/", "yes", 200)
    assert isinstance(await failure({"url": web.address + "/", "expect_status": 404}), HttpRefused)


async def test_a_slow_service_is_given_up(web: Web) -> None:
    began = time.monotonic()
    error = await failure({"url": web.address + "/hang", "timeout": 0.3})
    assert time.monotonic() - began < 5
    assert isinstance(error, NodeTimeoutException)
    assert error.is_retryable
    assert "within 0.3 s" in str(error)


async def test_nobody_there_may_be_retried(web: Web) -> None:
    with serve() as gone:
        pass
    assert isinstance(await failure({"url": gone.address}), NodeResourceException)
    assert isinstance(await failure({"url": "http://no-such-host.invalid/"}), NodeResourceException)


async def test_an_answer_has_a_bound_also_when_it_is_packed(web: Web) -> None:
    web.answers["/big"] = (200, {}, b"x" * 1_000_001)
    web.answers["/fits"] = (200, {}, b"x" * 900_000)
    web.packed("/bomb", b"x" * 50_000_000)
    web.packed("/small", b'{"a": 1}')
    for path in ("/big", "/bomb"):
        error = await failure({"url": web.address + path})
        assert isinstance(error, HttpRefused) and "larger than 1000000" in str(error)
    assert len((await call({"url": web.address + "/fits"}))["body"]) == 900_000
    assert (await call({"url": web.address + "/small"}))["body"] == '{"a": 1}'


async def test_redirects_are_followed_within_bounds(web: Web) -> None:
    web.text("/a", "", 302, Location="/b")
    web.text("/b", "", 307, Location=web.address + "/c")
    web.text("/c", "here")
    web.text("/loop", "", 302, Location="/loop")
    assert (await call({"url": web.address + "/a"}))["body"] == "here"
    assert "answered 302" in str(await failure({"url": web.address + "/a", "redirects": 0}))
    web.asked.clear()
    assert isinstance(await failure({"url": web.address + "/loop", "redirects": 3}), HttpRefused)
    assert len(web.asked) == 4


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:70/", "javascript:1"])
async def test_a_redirect_keeps_to_http(web: Web, place: str) -> None:
    web.text("/", "", 302, Location=place)
    assert isinstance(await failure({"url": web.address + "/"}), HttpRefused | NodeResourceException)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.77.77", "2852015437", "0xa9fe4d4d", "[::ffff:169.254.77.77]", "[fe80::1]", "0251.0376.19789",
        "100.100.100.200", "[fd00:ec2::254]", "168.63.129.16", "192.0.0.192", "metadata.google.internal",
        "METADATA.goog.", "127.0.0.2", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.2]", "localhost", "2130706434",
    ],
)  # fmt: skip
async def test_metadata_and_this_machine_are_never_called(web: Web, host: str) -> None:
    error = await failure({"url": f"http://{host}/", "timeout": 5})
    assert isinstance(error, HttpRefused) and "no request goes there" in str(error)
    web.text("/", "", 302, Location=f"http://{host}/")
    error = await failure({"url": web.address + "/", "timeout": 5})
    assert isinstance(error, HttpRefused) and "no request goes there" in str(error)


async def test_a_network_that_the_setting_names_is_called(web: Web) -> None:
    http_request.allow(["127.0.0.0/8"])
    web.text("/a", "here")
    assert (await call({"url": web.address + "/a"}))["body"] == "here"
    http_request.allow([])
    assert isinstance(await failure({"url": web.address + "/a"}), HttpRefused)
    assert len(web.asked) == 1


async def test_a_redirect_to_another_origin_takes_no_headers_along(web: Web) -> None:
    headers = {"X-Api-Key": "secret", "Authorization": "Bearer secret", "Cookie": "a=secret", "Content-Type": "text/x"}
    with serve() as other:
        web.text("/same", "", 307, Location="/end")
        web.text("/away", "", 307, Location=other.address + "/end")
        web.text("/end", "here")
        other.text("/end", "there")
        config = {"method": "POST", "headers": headers, "body": "b"}
        assert (await call({"url": web.address + "/same", **config}))["body"] == "here"
        assert web.asked[-1][2]["x-api-key"] == "secret"
        assert (await call({"url": web.address + "/away", **config}))["body"] == "there"
        got = other.asked[-1][2]
        assert "secret" not in str(got) and got["content-type"] == "text/x"


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("169.254.0.1", True), ("169.253.0.1", False), ("127.0.0.1", False), ("10.0.0.1", False),
        ("::ffff:169.254.1.1", True), ("::169.254.1.1", True), ("2002:a9fe:a9fe::1", True),
        ("64:ff9b::a9fe:a9fe", True), ("fe80::1%eth0", True), ("fd00:ec2::254", True), ("100.100.100.200", True),
        ("fd20:ce::254", True), ("168.63.129.16", True), ("192.0.0.192", True), ("100.100.100.201", False),
        ("::1", False), ("2606:4700::1", False),
    ],
)  # fmt: skip
def test_which_addresses_are_refused(address: str, refused: bool) -> None:
    assert is_refused(address) is refused


async def test_an_error_shows_no_secrets(web: Web) -> None:
    web.text("/x?key=secret", "no", 403)
    error = await failure({"url": web.address.replace("//", "//user:secret@") + "/x?key=secret"})
    assert "secret" not in str(error)
    assert "/x" in str(error)
    assert "authorization" in web.asked[0][2]


async def test_the_environment_is_not_asked_for_proxies(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    web.text("/", "direct")
    assert (await call({"url": web.address + "/"}))["body"] == "direct"


async def test_a_missing_input_is_named() -> None:
    error = await failure({"url": "http://127.0.0.1/{symbol}"})
    assert isinstance(error, HttpRefused) and "{symbol}" in str(error)


def test_a_bad_config_is_found_at_registration() -> None:
    config = {"url": "file:///etc/passwd", "json": {"a": "{x}"}, "body": "{y}", "headers": {"A": "{z}"}}
    found = problems("http_request", config, ["x"])
    assert {(p.code, p.path) for p in found} == {
        ("bad_url", "url"), ("two_bodies", "body"), ("unknown_name", "body"), ("unknown_name", "headers"),
    }  # fmt: skip
    assert not problems("http_request", {"url": "https://api.example.com/{x}"}, ["x"])


async def test_the_result_is_a_signal_for_each_handle(web: Web) -> None:
    web.json("/", [1])
    result = await once(new_call("http_request", {"url": web.address + "/"}))
    assert set(payloads(result)) == {"response", "body"}
