"""A tiny HTTP server that notes what it is asked and answers what a test says: for answers that a real InfluxDB of the
version at hand does not give."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def lines(self) -> list[str]:
        body = gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body
        return body.decode().removesuffix("\n").split("\n")

    @property
    def question(self) -> str:
        return dict(parse_qsl(self.body.decode())).get("q", "")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 204
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Reset(Exception):
    """Raised by an answer: the connection ends with RST."""


class Silence(Exception):
    """Raised by an answer: nothing ever comes."""


class Drip(Exception):
    """Raised by an answer: it comes byte by byte, without an end."""


class FakeInflux:
    """`answer` says what each write gets; questions find nothing, unless `to_questions` says otherwise."""

    def __init__(self) -> None:
        self.answer: Callable[[Request], Reply] = lambda request: Reply()
        self.to_questions: Callable[[Request], Reply] = lambda request: Reply(200, b'{"results":[{"statement_id":0}]}')
        self.requests: list[Request] = []
        self.connections = 0
        #: Writes are noted at once, and answered when it is set.
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.url = ""

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.path.endswith("write")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while request := await _read(reader):
                self.requests.append(request)
                if request.path.endswith("/query"):
                    reply = self.to_questions(request)
                else:
                    await self.may_answer.wait()
                    reply = self.answer(request)
                headers = {"Content-Length": str(len(reply.body)), **reply.headers}
                head = f"HTTP/1.1 {reply.status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items())
                writer.write(head.encode() + b"\r\n" + reply.body)
                await writer.drain()
        except Reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        except Drip:
            writer.write(b"HTTP/1.1 204 X\r\nX-Slow: ")
            with contextlib.suppress(ConnectionError):
                while not writer.is_closing():
                    writer.write(b"z")
                    await writer.drain()
                    await asyncio.sleep(0.05)
        except Silence:
            with contextlib.suppress(ConnectionError):
                await reader.read()
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, body)


@contextlib.asynccontextmanager
async def fake_influx() -> AsyncIterator[FakeInflux]:
    fake = FakeInflux()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield fake
