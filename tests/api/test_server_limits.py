"""Raw sockets against a station of its own process: no client takes its memory, its connections or its log."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis

from tests import servers
from tests.faults.station_process import RoleProcess, Site
from tests.process import accepts, wait_for
from tradewind.api.connection_limits import PAGE_BYTES

MB = 1_000_000
PREFIX = "limits:"
#: What a look at the memory of the process may differ by: fragments, caches, other requests.
SLACK = 40 * MB
MAX_CONNECTIONS = 120
HEAD_S = BODY_S = 1.5
SEND_S = 2.0
#: The most that a page may be asked for, with the longest descriptions: more than a page may hold by its bytes.
FLOWS = 1000
DESCRIPTION = "d" * 10_000


class Target:
    def __init__(self, process: RoleProcess, port: int) -> None:
        self.process, self.port = process, port

    def connect(self, *, receive_buffer: int = 0) -> socket.socket:
        tcp = socket.socket()
        if receive_buffer:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        tcp.settimeout(20)
        tcp.connect(("127.0.0.1", self.port))
        return tcp

    def head(self, method: str = "GET", path: str = "/api/v1/queues", *lines: str) -> bytes:
        return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *lines, "", ""]).encode()

    def ask(self, data: bytes) -> bytes:
        """All that comes back until the station closes."""
        with closing(self.connect()) as tcp:
            tcp.sendall(data)
            return read_all(tcp)

    def get(self, path: str) -> bytes:
        answer = self.ask(self.head("GET", path, "Connection: close"))
        assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
        return answer.partition(b"\r\n\r\n")[2]

    def figure(self, kind: str, reason: str) -> float:
        found = re.search(rf'tradewind_http_{kind}_total{{reason="{reason}"}} (\S+)', self.get("/metrics").decode())
        assert found is not None
        return float(found[1])

    @contextlib.contextmanager
    def counted(self, kind: str, reason: str, at_least: int = 1) -> Iterator[None]:
        before = self.figure(kind, reason)
        yield
        assert self.figure(kind, reason) >= before + at_least

    @property
    def memory(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    @contextlib.contextmanager
    def bounded(self, most: int = SLACK) -> Iterator[Callable[[], None]]:
        """The memory grows by no more than that; call what comes back to look in between."""
        before = self.memory

        def look() -> None:
            grown = self.memory - before
            assert grown <= most, f"{grown / MB:.0f} MB more"

        yield look
        look()


def read_all(tcp: socket.socket) -> bytes:
    found = bytearray()
    with suppress(ConnectionResetError):
        while part := tcp.recv(MB):
            found += part
    return bytes(found)


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


def code_of(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"])


def send_until_refused(tcp: socket.socket, part: bytes, most: int, look: Callable[[], None]) -> tuple[int, bytes]:
    """How much the station took, and what it said."""
    sent, answer = 0, b""
    with suppress(ConnectionResetError, BrokenPipeError):
        while sent < most and b"\r\n\r\n" not in answer:
            sent += tcp.send(part)
            if select.select([tcp], [], [], 0)[0]:
                answer += tcp.recv(MB)
            if sent % (10 * MB) < len(part):
                look()
    return sent, answer


@pytest.fixture(scope="module")
def target(redis_7: servers.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    site = Site(
        tmp_path_factory.mktemp("limits"),
        redis_7.url,
        key_prefix=PREFIX,
        api_max_connections=MAX_CONNECTIONS,
        api_head_timeout_s=HEAD_S,
        api_body_timeout_s=BODY_S,
        api_send_timeout_s=SEND_S,
        api_max_unread_bytes=40 * MB,
        log_format="json",
    )
    process = site.start("api")
    process.says("api listens")
    found = re.search(r"http://127\.0\.0\.1:(\d+)", process.output)
    assert found is not None
    target = Target(process, int(found[1]))
    wait_for(lambda: accepts(target.port), "the server")
    target.get("/api/v1/queues")
    yield target
    site.stop()


@pytest.fixture(autouse=True)
def nothing_is_told_as_an_error(target: Target) -> Iterator[None]:
    before = len(target.process.output)
    yield
    told = target.process.output[before:]
    assert "Traceback" not in told and '"level":"error"' not in told.replace(" ", ""), told[:3000]
    assert target.process.exit_code in (None, 0)


# heads


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (b"GET / HTTP/1.1\r\nX-Long: ", b"x" * 65_536),
        (b"GET / HTTP/1.1\r\nX", b"x" * 65_536),
        (b"GET / HTTP/1.1\r\n", b"X-Many: y\r\n" * 5000),
        (b"GET /", b"u" * 65_536),
        (b"", b"\r\n" * 30_000),
        (b"", b"G" * 65_536),
    ],
    ids=["one value", "one name", "many headers", "address", "blank lines", "method"],
)
def test_a_head_without_end_is_refused_with_bounded_memory(target: Target, start: bytes, part: bytes) -> None:
    with target.bounded() as look, closing(target.connect()) as tcp:
        tcp.sendall(start)
        sent, answer = send_until_refused(tcp, part, 300 * MB, look)
    assert sent < 30 * MB
    assert not answer or status_of(answer) in (400, 414, 431)


def test_each_bound_of_a_head_has_its_word(target: Target) -> None:
    def ask(*lines: str, path: str = "/api/v1/queues") -> tuple[int, str]:
        answer = target.ask(target.head("GET", path, *lines))
        return status_of(answer), code_of(answer)

    assert ask("X: " + "x" * 66_000) == (431, "head_too_large")
    assert ask(*(f"X{n}: {'x' * 800}" for n in range(90))) == (431, "head_too_large")
    assert ask(*(f"X{n}: y" for n in range(101))) == (431, "too_many_headers")
    assert ask(path="/" + "x" * 66_000) == (414, "url_too_long")
    assert ask("X: y", " folded") == (400, "malformed")
    assert target.figure("refused", "head_too_large") >= 2 and target.figure("refused", "url_too_long") >= 1


def test_a_head_below_the_bounds_is_answered_however_it_is_cut(target: Target) -> None:
    large = target.head("GET", "/health", *(f"X{n}: {'x' * 1270}" for n in range(50)), "Connection: close")
    assert len(large) > 63_000
    with closing(target.connect()) as tcp:
        for at in range(0, len(large), 7001):
            tcp.sendall(large[at : at + 7001])
            time.sleep(0.002)
        assert status_of(read_all(tcp)) == 200
    with closing(target.connect()) as tcp:
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in target.head("GET", "/health", "Connection: close"):
            tcp.sendall(bytes([byte]))
        assert status_of(read_all(tcp)) == 200


def test_heads_that_never_end_are_closed_and_keep_nobody_out(target: Target) -> None:
    with contextlib.ExitStack() as stack, target.counted("refused", "head_timeout", 20):
        slow = [stack.enter_context(closing(target.connect())) for _ in range(20)]
        silent = stack.enter_context(closing(target.connect()))
        end = time.monotonic() + HEAD_S + 5
        answers: list[bytes] = []
        for tcp in slow:
            tcp.sendall(b"GET / HTTP/1.1\r\nX: ")
        while len(answers) < len(slow) and time.monotonic() < end:  # a byte now and then is not enough
            for tcp in slow:
                with suppress(OSError):
                    tcp.send(b"y")
            readable = select.select([tcp for tcp in slow if tcp.fileno() >= 0], [], [], 0.2)[0]
            for tcp in readable:
                answers.append(read_all(tcp))
                tcp.close()
        assert [status_of(answer) for answer in answers] == [408] * len(slow)
        assert read_all(silent) == b""


# connections


def test_too_many_connections_are_told_so_and_idle_ones_make_room(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(closing(target.connect())) for _ in range(MAX_CONNECTIONS)]
        for tcp in streams:
            tcp.sendall(target.head("GET", "/api/v1/events"))
        for tcp in streams:
            assert tcp.recv(100).startswith(b"HTTP/1.1 200")
        answer = target.ask(target.head())
        assert (status_of(answer), code_of(answer)) == (503, "too_many_connections")
        assert b"retry-after: 1" in answer
    wait_for(lambda: status_of(target.ask(target.head("GET", "/health", "Connection: close"))) == 200, "room again", 10)
    assert target.figure("refused", "too_many_connections") >= 1
    with contextlib.ExitStack() as stack, target.counted("dropped", "idle_replaced"):
        for _ in range(MAX_CONNECTIONS):
            stack.enter_context(closing(target.connect()))
        time.sleep(1.1)  # what has just come is not idle
        assert status_of(target.ask(target.head("GET", "/health", "Connection: close"))) == 200


def test_thousands_of_pipelined_requests_are_answered_in_order_with_bounded_memory(target: Target) -> None:
    count = 4_000  # more than one read brings
    with target.bounded() as look, closing(target.connect()) as tcp:
        text = b"".join(
            target.head("GET", "/", f"X-Request-ID: n{n}", *(["Connection: close"] if n == count - 1 else []))
            for n in range(count)
        ).replace(b"127.0.0.1", b"elsewhere")  # is refused soonest
        tcp.setblocking(False)
        found = bytearray()
        sent = 0
        while True:
            readable, writable, _ = select.select([tcp], [tcp] if sent < len(text) else [], [], 20)
            assert readable or writable
            if writable:
                sent += tcp.send(text[sent : sent + 262_144])
            if readable:
                part = tcp.recv(MB)
                if not part:
                    break
                found += part
        look()
    assert re.findall(rb"x-request-id: n(\d+)", found) == [b"%d" % n for n in range(count)]


def test_pipelined_requests_behind_a_stream_are_not_kept(target: Target) -> None:
    with target.bounded() as look, contextlib.ExitStack() as stack:
        for _ in range(8):
            tcp = stack.enter_context(closing(target.connect()))
            tcp.sendall(target.head("GET", "/api/v1/events"))
            tcp.settimeout(0.2)
            with suppress(TimeoutError, ConnectionError):
                for _ in range(50):
                    tcp.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20_000)
        look()


# bodies


@pytest.mark.parametrize(
    "part",
    [b"x" * 65_536, b"1\r\nx\r\n" * 10_000],
    ids=["an extension", "tiny chunks"],
)
def test_chunks_that_are_mostly_framing_are_refused(target: Target, part: bytes) -> None:
    chunked = target.head("POST", "/api/v1/flows/validate", "Transfer-Encoding: chunked")
    with target.bounded() as look, closing(target.connect()) as tcp, target.counted("refused", "bad_chunks"):
        tcp.sendall(chunked + (b"1;" if part[:1] == b"x" else b""))
        sent, answer = send_until_refused(tcp, part, 300 * MB, look)
        assert sent < 30 * MB and (not answer or status_of(answer) == 400)


def test_trailers_without_end_are_refused_and_no_trailer_is_a_header(target: Target) -> None:
    chunked = target.head("POST", "/api/v1/flows/validate", "Transfer-Encoding: chunked", "Connection: close")
    for part in (b"T: x\r\n" * 10_000, b"x" * 65_536):
        with target.bounded() as look, closing(target.connect()) as tcp:
            tcp.sendall(chunked + b"2\r\n{}\r\n0\r\nX: ")
            sent, _ = send_until_refused(tcp, part, 300 * MB, look)
            assert sent < 30 * MB
    answer = target.ask(chunked + b"2\r\n{}\r\n0\r\nX-Request-ID: smuggled\r\n\r\n")
    assert status_of(answer) == 200 and b"smuggled" not in answer


def test_chunks_of_a_fair_size_are_read(target: Target) -> None:
    text = json.dumps({"id": "f1", "description": "d" * 300_000}).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(text[at : at + 8]), text[at : at + 8]) for at in range(0, len(text), 8))
    head = target.head("POST", "/api/v1/flows/validate", "Transfer-Encoding: chunked", "Connection: close")
    answer = target.ask(head + chunks + b"0\r\n\r\n")
    assert status_of(answer) == 200 and b'"valid":false' in answer


def test_a_body_that_stands_still_or_trickles_is_refused(target: Target) -> None:
    head = target.head("POST", "/api/v1/flows/validate", "Content-Length: 1000000")
    with closing(target.connect()) as still, closing(target.connect()) as trickle:
        still.sendall(head + b"{")
        trickle.sendall(head + b"{")
        end = time.monotonic() + BODY_S + 6
        while not select.select([trickle], [], [], 0.1)[0] and time.monotonic() < end:
            trickle.sendall(b" ")
        for tcp in (still, trickle):
            answer = read_all(tcp)
            assert (status_of(answer), code_of(answer)) == (408, "body_timeout")


def test_what_comes_after_a_refused_body_is_not_read_for_ever(target: Target) -> None:
    with closing(target.connect()) as tcp, target.bounded() as look:
        tcp.sendall(target.head("POST", "/api/v1/flows/validate", "Content-Length: 300000000"))
        sent, answer = send_until_refused(tcp, b"x" * 65_536, 300 * MB, look)
        assert status_of(answer) == 413
        with suppress(ConnectionError):
            while sent < 300 * MB:
                sent += tcp.send(b"x" * 65_536)
        assert sent < 60 * MB


# answers


@pytest.fixture(scope="module")
def flows(target: Target, redis_7: servers.Server) -> None:
    nodes = [{"id": "n", "type": "constant", "config": {"value": 1}}]
    flow = {"id": "flow-000", "description": DESCRIPTION, "nodes": nodes, "edges": [], "interval": 0}
    body = json.dumps(flow).encode()
    lines = [f"Content-Length: {len(body)}", "Connection: close"]
    answer = target.ask(target.head("POST", "/api/v1/flows", *lines) + body)
    assert status_of(answer) == 201, answer
    with redis.Redis(port=redis_7.port) as client:  # the others are like it: to register them all would take seconds
        fields = client.hgetall(f"{PREFIX}flow:flow-000")
        pipe = client.pipeline(transaction=False)
        for n in range(1, FLOWS):
            pipe.hset(f"{PREFIX}flow:flow-{n:03}", mapping={**fields, b"id": f"flow-{n:03}"})
            pipe.zadd(f"{PREFIX}flows", {f"flow-{n:03}": 0})
        pipe.execute()


def test_clients_that_never_read_the_largest_page_hold_no_memory(target: Target, flows: None) -> None:
    with (
        target.bounded(SLACK + 80 * MB) as look,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(60):
            tcp = stack.enter_context(closing(target.connect(receive_buffer=4096)))
            tcp.sendall(target.head("GET", "/api/v1/flows?limit=1000"))
            look()
        page = json.loads(target.get("/api/v1/flows?limit=1000"))  # others are served meanwhile
        assert PAGE_BYTES / 12_000 < len(page["items"]) < FLOWS and page["next_cursor"]
        wait_for(lambda: target.figure("dropped", "unread_answers") >= 20, "20 drops", 30)


def test_a_slow_client_gets_all_of_its_answer(target: Target, flows: None) -> None:
    with closing(target.connect(receive_buffer=16_384)) as tcp:
        tcp.sendall(target.head("GET", "/api/v1/flows?limit=100", "Connection: close"))
        found, began = bytearray(), time.monotonic()
        while part := tcp.recv(16_384):
            found += part
            time.sleep(0.04)
        page = json.loads(found.partition(b"\r\n\r\n")[2])
        assert len(page["items"]) == 100 and time.monotonic() - began > SEND_S


def test_a_stream_that_is_never_read_is_dropped(target: Target, flows: None) -> None:
    with contextlib.ExitStack() as stack, target.counted("dropped", "send_timeout"):
        for _ in range(5):
            tcp = stack.enter_context(closing(target.connect(receive_buffer=4096)))
            tcp.sendall(target.head("GET", "/api/v1/events"))
        before = target.figure("dropped", "send_timeout")
        wait_for(lambda: target.figure("dropped", "send_timeout") >= before + 5, "5 drops", 20)


# aborted clients


def reset(tcp: socket.socket) -> None:
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    tcp.close()


def test_clients_that_leave_in_the_middle_are_no_error(target: Target, flows: None) -> None:
    """At every point of a request, its answer or its stream; the log is looked at after every test."""
    post = target.head("POST", "/api/v1/flows/validate", "Content-Length: 1000")
    asks = [
        b"",
        b"GET / HT",
        target.head("GET", "/api/v1/events"),
        target.head("GET", "/api/v1/points/live?points=1:m:1"),
        target.head("GET", "/api/v1/alarms/live"),
        target.head("GET", "/api/v1/alarms/export"),
        target.head("GET", "/api/v1/flows/flow-001/logs/live"),
        target.head("GET", "/api/v1/flows?limit=1000"),
        target.head("GET", "/api/v1/history/export?series=1:m:1"),
        target.head("GET", "/api/v1/events") + target.head(),
        target.head() * 50,
        target.head("GET", "/") * 3,
        target.head("GET", "/metrics"),
        target.head("GET", "/api/v1/events", "Connection: Upgrade", "Upgrade: websocket"),
        post,
        post + b"{" * 100,
        post.replace(b"Content-Length: 1000", b"Transfer-Encoding: chunked") + b"5\r\nab",
        target.head("POST", "/api/v1/flows/validate", "Content-Length: 1000", "Expect: 100-continue"),
    ]
    for wait_s in (0.0, 0.003, 0.15):
        for ask in asks:
            for leave in (reset, socket.socket.close):
                tcp = target.connect(receive_buffer=4096)
                tcp.sendall(ask)
                time.sleep(wait_s)
                leave(tcp)
    wait_for(lambda: b"tradewind_http_unread_bytes 0.0" in target.get("/metrics"), "all answers gone", 10)
    gone = re.compile(rb"tradewind_http_connections (\d+)")
    wait_for(lambda: int(gone.search(target.get("/metrics"))[1]) <= 2, "all connections gone", 15)  # type: ignore[index]


def test_an_upgrade_that_nobody_serves_is_answered_as_http_and_not_logged(target: Target) -> None:
    before = len(target.process.output)
    answer = target.ask(target.head("GET", "/health", "Connection: Upgrade", "Upgrade: websocket"))
    assert status_of(answer) == 200
    assert "pgrade" not in target.process.output[before:]


def test_clients_that_do_not_read_cannot_hold_up_a_stop(target: Target, flows: None) -> None:
    """The last test of this station."""
    with contextlib.ExitStack() as stack:
        for path in ("/api/v1/flows?limit=1000", "/api/v1/events"):
            tcp = stack.enter_context(closing(target.connect(receive_buffer=4096)))
            tcp.sendall(target.head("GET", path))
        wait_for(lambda: b"tradewind_http_unread_bytes 0.0" not in target.get("/metrics"), "an unread answer", 5)
        target.process.terminate()
        assert target.process.wait(15) == 0
