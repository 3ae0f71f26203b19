"""One HTTP connection: uvicorn's, with a bound on every size and time that a client decides.

uvicorn reads heads of any size for any time, keeps every pipelined request, and writes answers into the memory of the
transport at once. What this class relies on in there is listed in tests/api/test_connection.py.
"""

from __future__ import annotations

import asyncio
import math
import socket
from http import HTTPStatus
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tradewind.api.connection_limits import ConnectionLimits
from tradewind.api.errors import envelope
from tradewind.ids import short_random

#: Requests that wait on a connection for the answers to earlier ones; those after them are not read yet.
MAX_PIPELINED = 16
#: What is parsed with one call: a head up to its end, and this much where nobody knows the end beforehand.
HEAD_PIECE = 4096
CHUNK_PIECE = 1024
#: Long answers are handed to the transport in pieces of this size, as their client takes them.
SEND_PIECE = 65_536
#: What the kernel may hold of an answer beyond what is on its way.
UNSENT_IN_KERNEL = 131_072
#: Bytes a second that a body must come with at least, once `api.body_timeout_s` is over.
MIN_PACE = 1000
#: What is read and thrown away after a refusal, so that the client gets to see it.
LINGER_BYTES = 16_000_000
LINGER_S = 5.0
#: Connections above the bound that are told so; further ones are cut at once.
SPARE = 100
#: A connection without a request that has been quiet for so long makes room for a new one.
QUIET_S = 1.0

_FAULTS = {
    "malformed": (400, "this is not HTTP/1.1", "send a well-formed request"),
    "bad_chunks": (400, "the chunks of the body hold more framing than data", "send larger chunks, or Content-Length"),
    "head_too_large": (431, "the head of the request is too large", "send less, or raise api.max_head_bytes"),
    "too_many_headers": (431, "the request has too many headers", "send fewer, or raise api.max_headers"),
    "url_too_long": (414, "the address of the request is too long", "send less, or raise api.max_head_bytes"),
    "head_timeout": (408, "the head of the request did not come in time", "send it at once"),
    "body_timeout": (
        408,
        "the body of the request did not come in time",
        "send it at once, or raise api.body_timeout_s",
    ),
    "too_many_connections": (503, "the station has too many connections", "try again later, or close some"),
}


class _Flow(FlowControl):
    """While requests are held back, a route that waits for its own body must not bring in more of them."""

    _is_held = False

    def hold(self) -> None:
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        self._is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_held:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits, self._settings = limits, limits.settings
        self._now = self.loop.time
        #: When the client last took some of an answer, and when it last sent something or got all of an answer.
        self.moved_at = self.heard_at = self._checked_at = self._now()
        self._active: RequestResponseCycle | None = None
        self._held = b""
        self._is_deaf = self._is_dropped = False
        self._linger_until = math.inf
        self._discarded = 0
        # The head that is being read.
        self._is_in_head = True
        self._head_since: float | None = None
        self._fault = ""
        self._calls = 0
        self._head_bytes = self._unnamed_bytes = 0
        # The body that is being read.
        self._body_left: int | None = 0
        self._body_bytes = self._framing_bytes = self._body_seen = 0
        self._body_s = self._still_s = 0.0
        # The answer that is being sent.
        self._written = self._taken = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._flow = _Flow(transport)
        self._set_kernel_bound()
        over = len(self.connections) - self._settings.max_connections
        if over <= 0 or self._replace_quiet():
            return
        if over > SPARE:
            self._limits.refused["too_many_connections"] += 1
            transport.abort()
        else:
            self._refuse("too_many_connections")

    def _set_kernel_bound(self) -> None:
        raw = self.transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)

    def _replace_quiet(self) -> bool:
        """Cut the connection that has been without a request for longest."""
        quiet = [each for each in self.connections if isinstance(each, Connection) and each.is_quiet]
        if not quiet:
            return False
        min(quiet, key=lambda each: each.heard_at).drop("idle_replaced")
        return True

    @property
    def is_quiet(self) -> bool:
        """Without a request; it may be in the middle of a head."""
        is_open = not self._is_deaf and not self.transport.is_closing()
        return is_open and not self._is_busy and self._now() - self.heard_at >= QUIET_S

    @property
    def _is_busy(self) -> bool:
        return self._active is not None and not self._active.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        gone = [self._active, *(cycle for cycle, _ in self.pipeline)]
        self.pipeline.clear()
        self._held = b""
        self._is_deaf = True
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for cycle in gone:  # uvicorn tells the last one only
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    # reading

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self.heard_at = self._now()
        if self._is_deaf:
            self._discard(len(data))
        elif self._held:
            self._hold(self._held + data)
        else:
            self._read(data)

    def _hold(self, data: bytes) -> None:
        self._held = data
        self._flow.hold()

    def _release(self) -> bytes:
        held, self._held = self._held, b""
        self._flow.release()
        return held

    def _read(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._is_deaf:
            if self._is_in_head:
                if len(self.pipeline) >= MAX_PIPELINED:
                    self._hold(data[at:])
                    return
                if self._head_since is None:
                    self._head_since = self._now()
            end = self._end_of_piece(data, at)
            self._parse(data if end - at == len(data) else data[at:end])
            at = end

    def _end_of_piece(self, data: bytes, at: int) -> int:
        """So that no more than one request comes of one call to the parser, where this can be known."""
        if self._is_in_head:
            blank = data.find(b"\r\n\r\n", at, at + HEAD_PIECE)
            return blank + 4 if blank >= 0 else min(at + HEAD_PIECE, len(data))
        if self._body_left is not None:
            return min(at + max(1, self._body_left), len(data))
        return min(at + CHUNK_PIECE, len(data))

    def _parse(self, piece: bytes) -> None:
        calls, body_bytes, began_in_head = self._calls, self._body_bytes, self._is_in_head
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._answer_and_close()  # as HTTP: there is nothing to switch to
            return
        except httptools.HttpParserError:
            self._fault = self._fault or "malformed"
        if not self._fault:
            if began_in_head and self._calls == calls:
                # All of the piece belongs to one header, which the parser gathers until it ends.
                self._unnamed_bytes += len(piece)
                if self._head_bytes + self._unnamed_bytes > self._settings.max_head_bytes:
                    self._fault = "head_too_large"
            elif not began_in_head and not self._is_in_head:
                self._note_body(len(piece), self._body_bytes - body_bytes)
        if self._fault:
            self._refuse(self._fault)

    def _note_body(self, size: int, data: int) -> None:
        self._framing_bytes += size - data
        if self._framing_bytes > self._settings.max_head_bytes + self._body_bytes:
            self._fault = "bad_chunks"
        elif self.cycle.response_complete:
            self._discard(size)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._note_head(0)

    def on_url(self, url: bytes) -> None:
        self._note_head(len(url), "url_too_long")
        if not self._fault:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._calls += 1
        if not self._is_in_head:
            return  # a trailer: nothing here wants one, and it must not pass for a header
        self._note_head(len(name) + len(value) + 4)
        if len(self.headers) >= self._settings.max_headers:
            self._fault = self._fault or "too_many_headers"
        if not self._fault:
            super().on_header(name, value)

    def _note_head(self, size: int, fault: str = "head_too_large") -> None:
        self._calls += 1
        self._unnamed_bytes = 0
        self._head_bytes += size
        if self._head_bytes > self._settings.max_head_bytes:
            self._fault = self._fault or fault

    def on_headers_complete(self) -> None:
        self._calls += 1
        if self._fault:
            return
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        is_chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        self._body_left = None if is_chunked else int(length)
        self._body_bytes = self._framing_bytes = self._body_seen = 0
        self._body_s = self._still_s = 0.0
        super().on_headers_complete()
        self._is_in_head, self._head_since = False, None

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_left is not None:
            self._body_left -= len(body)
        if not self._fault:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._fault:
            return
        super().on_message_complete()
        self._is_in_head = True
        self._linger_until = math.inf

    # refusing

    def _refuse(self, reason: str) -> None:
        """Answer with an error and close; where an earlier answer is under way, close after that one."""
        self._limits.refused[reason] += 1
        if self.transport.is_closing():
            return
        active = self._active
        if active is not None and self._is_busy:
            if self._is_in_head or self.cycle is not active:
                self._answer_and_close()
                return
            active.disconnected = True  # whatever the route still says
            active.message_event.set()
        self._stop_reading()
        if active is not None and not active.response_complete and active.response_started:
            self.transport.close()
            return
        status, message, hint = _FAULTS[reason]
        body = envelope(reason, message, hint)
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
            b"cache-control: no-store\r\nx-request-id: %s\r\n%s\r\n"
            % (
                status, HTTPStatus(status).phrase.encode(), len(body), short_random().encode(),
                b"retry-after: 1\r\n" if status == 503 else b"",
            )
            + body
        )  # fmt: skip
        self._linger()

    def _answer_and_close(self) -> None:
        """The request under way is the last of this connection; those behind it were not begun and may be repeated."""
        self._stop_reading()
        self.pipeline.clear()
        if self._active is not None:
            self._active.keep_alive = False

    def _stop_reading(self) -> None:
        self._is_deaf = True
        self._release()

    def _linger(self) -> None:
        """A connection that is closed with unread data resets the client, which then may not see the answer."""
        self._linger_until = self._now() + LINGER_S
        self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > LINGER_BYTES:
            self.drop("body_not_wanted")

    def drop(self, reason: str) -> None:
        if not self._is_dropped:
            self._limits.dropped[reason] += 1
        self._is_dropped = True
        self._linger_until = math.inf
        self.transport.abort()

    # sending

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        self.moved_at = self._now()
        super()._start_asgi_task(cycle, self._paced(cycle, app))

    def _paced(self, cycle: RequestResponseCycle, app: ASGIApp) -> Any:
        async def run(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_on(message: Message) -> None:
                body = message.get("body", b"")
                if len(body) <= SEND_PIECE:
                    await send(message)
                    self._written += len(body)
                else:
                    await self._send_long(cycle, send, message)

            await app(scope, receive, send_on)

        return run

    async def _send_long(self, cycle: RequestResponseCycle, send: Send, message: Message) -> None:
        body, is_more = memoryview(message["body"]), message.get("more_body", False)
        self.moved_at = self._now()  # what came before, such as the wait for memory, is not the client's time
        with self._limits.holding(self, message["body"]):
            for at in range(0, len(body), SEND_PIECE):
                if cycle.disconnected:
                    return
                piece = bytes(body[at : at + SEND_PIECE])  # a view would keep all of it in the transport
                is_last = at + SEND_PIECE >= len(body)
                await send({**message, "body": piece, "more_body": is_more or not is_last})
                self._written += len(piece)
                self.moved_at = self._now()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        now = self.heard_at = self._now()
        if not self._is_busy:
            if not self._is_in_head:  # a body that nobody wants
                self._discarded = 0
                self._linger_until = now + LINGER_S
            elif self._head_since is not None:
                self._head_since = now
        if self._held and not self.pipeline:
            self._read(self._release())

    # time

    def check(self, now: float) -> None:
        passed, self._checked_at = now - self._checked_at, now
        unsent = self.transport.get_write_buffer_size()
        taken, self._taken = self._taken, self._written - unsent
        if not unsent or self._taken > taken:
            self.moved_at = now
        elif now - self.moved_at >= self._settings.send_timeout_s:
            self.drop("send_timeout")
        if now >= self._linger_until:
            self._linger_until = math.inf
            self.transport.abort()
        elif self._is_deaf or self.transport.is_closing():
            pass
        elif self._is_busy:
            self._check_body(passed)
        elif self._head_since is not None:
            if now - self._head_since >= self._settings.head_timeout_s:
                self._refuse("head_timeout")
        elif self.cycle is None and now - self.heard_at >= self._settings.head_timeout_s:
            self.transport.close()  # a connection made in advance, as browsers do

    def _check_body(self, passed: float) -> None:
        """Counts the time in which nothing but the client holds up its body."""
        if (
            self._is_in_head
            or self.cycle is not self._active
            or self.cycle.waiting_for_100_continue
            or self.flow.read_paused
        ):
            return
        self._body_s += passed
        self._still_s = self._still_s + passed if self._body_bytes == self._body_seen else 0.0
        self._body_seen = self._body_bytes
        limit = self._settings.body_timeout_s
        if self._still_s >= limit or self._body_s >= limit + self._body_bytes / MIN_PACE:
            self._refuse("body_timeout")
