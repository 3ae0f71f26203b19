"""Server-sent events; `GET /api/v1/events` sends one snapshot a second, and a slow client skips some of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tradewind.api.body import check_query
from tradewind.api.routing import Endpoint
from tradewind.api.snapshots import Snapshots

#: A comment in a silent stream keeps proxies from closing it.
HEARTBEAT_S = 10.0
#: A client that takes nothing for so long is dropped.
STUCK_S = 30.0


#: The text of the next event once there is one, None at the end. It may be cancelled and asked again.
NextText = Callable[[], Awaitable[bytes | None]]


class EventStream(Response):
    """Ends when the client leaves, is stuck, or the server stops. `watching` is entered as long as it lasts."""

    media_type = "text/event-stream"

    def __init__(self, watching: AbstractContextManager[NextText]) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._watching = watching

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._watching as next_text:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            writing = asyncio.create_task(_write(send, next_text), name="api-events-write")
            leaving = asyncio.create_task(_until_gone(receive), name="api-events-leave")
            tasks = (writing, leaving)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if (
                not writing.cancelled()
                and (error := writing.exception())
                and not isinstance(error, TimeoutError | OSError)
            ):
                raise error


async def _write(send: Send, next_text: NextText) -> None:
    while True:
        text: bytes | None = b": still here\n\n"
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_S):
                text = await next_text()
        if text is None:
            break
        async with asyncio.timeout(STUCK_S):
            await send({"type": "http.response.body", "body": text, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@contextmanager
def _watch(snapshots: Snapshots) -> Iterator[NextText]:
    number = 0

    async def next_text() -> bytes | None:
        nonlocal number
        newer = await snapshots.newer_than(number)
        if newer is None:
            return None
        number, text = newer
        return text

    with snapshots.watch():
        yield next_text


def events_endpoint(snapshots: Snapshots) -> Endpoint:
    async def run(request: Request) -> Response:
        check_query(request, frozenset())
        return EventStream(_watch(snapshots))

    return Endpoint(
        "GET",
        "/api/v1/events",
        run,
        "The live picture of the station",
        {200: ("Events named `snapshot`, one a second; their data is this JSON", "Snapshot")},
        tag="station",
        media_type="text/event-stream",
    )
