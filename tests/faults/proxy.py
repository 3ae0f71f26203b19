"""A TCP proxy with faults: replies lost after the request was carried out, connections cut, everything stalled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

CHUNK = 65536


class FaultyProxy:
    """Forwards a free port of 127.0.0.1 to `port`. Faults begin when they are asked for."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._losing = 0
        self.port = 0
        self.lost = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def lose_replies(self, many: int) -> None:
        """The next replies that come are thrown away and their connections cut: the request was carried out."""
        self._losing += many

    def swallow(self) -> None:
        """Open connections go silent for good, and nobody is told: as when a cable is pulled. New ones work."""
        for client, server in self._pairs:
            for writer in (client, server):
                writer.transport.pause_reading()  # type: ignore[attr-defined]

    def cut(self) -> None:
        """Every connection is reset."""
        for client, server in self._pairs:
            client.transport.abort()
            server.transport.abort()

    async def stall(self, seconds: float) -> None:
        """Nothing gets through for so long, in either direction; then it all arrives."""
        self._flows.clear()
        await asyncio.sleep(seconds)
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, to_server)
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._forward(reader, to_server, replies=False), self._forward(from_server, writer, replies=True)
            )
        except OSError:
            pass  # cut, by us or by them
        finally:
            self._pairs.discard(pair)
            for end in pair:
                end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        while data := await reader.read(CHUNK):
            await self._flows.wait()
            if replies and self._losing:
                self._losing -= 1
                self.lost += 1
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one side has closed: so does the other


@contextlib.asynccontextmanager
async def faulty_proxy(port: int) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(port)
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
