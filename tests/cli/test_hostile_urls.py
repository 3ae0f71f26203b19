"""Addresses that are none, and servers that are no station: each command ends within bounds and says what is wrong."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.conftest import Cli, Ran
from tests.cli.test_hostile_paths import bounded
from tests.servers import free_port
from tradewind.cli import http
from tradewind.cli.main import app
from tradewind.redis.connection import Link

SECRET = "s3cret-word"
BAD_URLS = [
    "", " ", "x", "127.0.0.1:8400", "ftp://127.0.0.1", "file:///etc/passwd", "http://", "http:///x", "http://:80",
    "http://127.0.0.1:0", "http://127.0.0.1:99999", "http://127.0.0.1:-1", "http://127.0.0.1:x", "http://[::1",
    "http://[zz]", "http://a b", "http://a\0b", "http://a\nb", "http://a\x1b[2Jb", "http://a?x=1", "http://a#b",
    "http://" + "a" * 5000, "http://a/" + "b" * 100_000, "http://" + "a." * 200, "http://\udcff", "http://a..b",
    "http://xn--\u00df.example", "http://no-such-host.invalid", "http://999.999.999.999", "\u202ehttp://a",
    f"http://ann:{SECRET}@127.0.0.1:1", f"http://ann:{SECRET}@127.0.0.1:99999", f"http://ann:{SECRET}@[::1",
    f"http://ann:{SECRET}@a b", f"http://127.0.0.1:1/?token={SECRET}",
]  # fmt: skip
#: One of each way to ask: an answer, a long text, a stream of events.
WAYS = [["status"], ["alarm", "export"], ["alarm", "watch", "--seconds", "5"]]
#: They start stations of their own, or ask none.
ALONE = {"up", "run", "demo", "init", "doctor", "apply", "config show", "config init", "flow lint"}
ARGUMENTS = {
    "task submit": ["echo"],
    "flow run": ["a"],
    "rule backtest": ["a", "--from", "1h"],
    "rule test": ["a"],
    "history export": ["comsrv:1:m:1"],
    "restore": ["--from", "sql"],
}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_S", 0.3)
    monkeypatch.setattr(http, "CONNECT_S", 1.0)
    monkeypatch.setattr(http, "ANSWER_S", 1.0)
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 5_000_000)


def refused(ran: Ran) -> None:
    told = ran.out + ran.err
    assert ran.code in (1, 2, 4, 5, 6, 7), told
    assert "Traceback" not in told and SECRET not in told and "\x1b" not in told
    assert len(told) < 5000 and told.strip()


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_an_address_that_is_none_is_refused(cli: Cli, way: list[str]) -> None:
    for url in BAD_URLS:
        with bounded():
            ran = cli("--url", url, *way)
        refused(ran)
        if "127.0.0.1:1" not in url and ".invalid" not in url and "999.999" not in url and "a." * 200 not in url:
            assert "not the address of a station" in ran.err or "no station answers" in ran.err, (url, ran)


Behave = Callable[[socket.socket], None]


def _answer(body: bytes, head: str = "Content-Type: application/json", status: str = "200 OK") -> Behave:
    def behave(peer: socket.socket) -> None:
        peer.recv(65536)
        peer.sendall(f"HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    return behave


def _silent(peer: socket.socket) -> None:
    while peer.recv(65536):
        pass


def _drips(peer: socket.socket) -> None:
    peer.recv(65536)
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while True:
        peer.sendall(b" ")
        time.sleep(0.1)


def _endless(peer: socket.socket) -> None:
    peer.recv(65536)
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while True:
        peer.sendall(b"x" * 65536)


def _bomb(peer: socket.socket) -> None:
    _answer(gzip.compress(bytes(500_000_000), 1), "Content-Encoding: gzip")(peer)


STRANGERS: dict[str, Behave] = {
    "silent": _silent,
    "hangs up": lambda peer: None,
    "another protocol": lambda peer: peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "garbage": lambda peer: peer.sendall(bytes(range(256)) * 100),
    "a page": _answer(b"<html>hello</html>", "Content-Type: text/html"),
    "a page not found": _answer(b"<html>no</html>", "Content-Type: text/html", "404 Not Found"),
    "elsewhere": _answer(b"", "Location: http://example.com/", "302 Found"),
    "bad gzip": _answer(b"not packed", "Content-Encoding: gzip"),
    "cut off": lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"),
    "an error of nobody": _answer(b'{"detail": "x"}', status="500 Oops"),
    "a strange error": _answer(b'{"error": {"problems": 5, "message": {}, "hint": []}}', status="422 No"),
}
JSONS = [{}, [5], {"items": [{}]}]


@contextlib.contextmanager
def serving(behave: Behave) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_one(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            behave(peer)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                threading.Thread(target=serve_one, args=(peer,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def commands() -> dict[str, list[str]]:
    """Every command that asks a station, with what it needs at least."""
    found: dict[str, list[str]] = {}

    def walk(command: Any, names: list[str]) -> None:
        for name, below in getattr(command, "commands", {}).items():
            walk(below, [*names, name])
        name = " ".join(names)
        if hasattr(command, "commands") or name in ALONE:
            return
        needs_file = any("FILE" in (each.metavar or "") and each.required for each in command.params)
        if needs_file:
            return  # tests/cli/test_hostile_paths.py
        given = ["a" for each in command.params if each.required and not each.opts[0].startswith("-")]
        found[name] = [*names, *ARGUMENTS.get(name, given)]

    walk(typer.main.get_command(app), [])
    return found


@pytest.mark.parametrize("stranger", [*STRANGERS, "nobody"])
def test_who_is_no_station_is_called_so(cli: Cli, stranger: str) -> None:
    behave = STRANGERS.get(stranger)
    server = serving(behave) if behave is not None else contextlib.nullcontext(f"http://127.0.0.1:{free_port()}")
    with server as url:
        for way in WAYS:
            if way[0] == "alarm" and stranger == "a page":
                continue  # an export is whatever text it is; a stream without events has ended
            with bounded():
                refused(cli("--url", url, *way))


@pytest.mark.parametrize("behave", [_drips, _endless, _bomb])
def test_an_answer_is_bounded_in_time_and_size(cli: Cli, behave: Behave) -> None:
    with serving(behave) as url:
        for way in (["status"], ["task", "list"]):
            with bounded():
                refused(cli("--url", url, *way))
    if behave is _endless:
        with serving(behave) as url, bounded():
            refused(cli("--url", url, "alarm", "watch", "--seconds", "20"))


def test_no_command_stumbles_over_the_json_of_another_program(cli: Cli) -> None:
    """It may take `{}` for done; but it never ends in a traceback."""
    known = commands()
    assert len(known) > 60
    for body in JSONS:
        with serving(_answer(json.dumps(body).encode())) as url:
            for name, args in known.items():
                began = time.monotonic()
                ran = cli("--url", url, *args)
                assert "Traceback" not in ran.out + ran.err, (name, body)
                assert time.monotonic() - began < 20, (name, body)


def test_no_command_stumbles_over_a_page(cli: Cli) -> None:
    with serving(STRANGERS["a page not found"]) as url:
        for name, args in commands().items():
            ran = cli("--url", url, *args)
            assert ran.code not in (0, 130) and "Traceback" not in ran.out + ran.err, (name, ran)


SETTINGS = {
    "redis.url": ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster"),
    "sql.url": ("postgresql", "sqlite"),
    "amqp.url": ("amqp",),
    "influx.url": ("http",),
}
BAD_SETTINGS = [
    "{}://", "{}:x", "{}://:0", "{}://127.0.0.1:99999/x", "{}://127.0.0.1:x/x", "{}://[::1/x", "{}://a b/x",
    "{}://a\0b/x", "{}://a..b/x", "{}://" + "a" * 3000 + "/x", "{}://" + "a" * 9000, f"{{}}://u:{SECRET}@[::1/x",
    f"{{}}://u:{SECRET}@h:bad/x", f"{{}}://u:{SECRET}@127.0.0.1:1/x",
]  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_bad_address_in_the_settings_is_refused_or_told(
    cli: Cli, redis_7: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    wait_ready = Link.wait_ready
    monkeypatch.setattr(Link, "wait_ready", lambda link, timeout_s: wait_ready(link, min(timeout_s, 0.3)))
    monkeypatch.chdir(tmp_path)
    if name != "redis.url":
        monkeypatch.setenv("TRADEWIND_REDIS_URL", redis_7.url)
    for scheme in SETTINGS[name]:
        for form in BAD_SETTINGS:
            url = form.format(scheme)
            (tmp_path / "tradewind.toml").write_text(f"{name} = {json.dumps(url)}\nredis.dial_timeout_s = 0.2\n")
            with bounded():
                ran = cli("doctor")
            told = ran.out + ran.err
            assert ran.code in (1, 2, 6), (url, told)
            assert "Traceback" not in told and SECRET not in told, (url, told)
            if name in ("amqp.url", "influx.url") and "127.0.0.1:1/" not in url:
                assert ran.code == 2 and name in told, (url, told)
