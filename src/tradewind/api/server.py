"""The HTTP server: uvicorn, with the streams ended before it waits for its connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import structlog
import uvicorn
from fastapi import FastAPI

from tradewind.api.app import ApiStation, create_app
from tradewind.settings import ApiSettings

log = structlog.get_logger(__name__)
#: After a stop, how long answers that are under way may take.
GRACE_S = 5


class ApiServer(uvicorn.Server):
    """Leaves signals alone: whoever runs it sets `should_exit`. `end_streams` must not wait for the lifespan, which
    uvicorn ends only after the last connection."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        end_streams(self.config.app)  # type: ignore[arg-type]
        await super().shutdown(sockets)


def make_server(app: FastAPI, settings: ApiSettings) -> ApiServer:
    """Run it with `await server.serve()`, stop it with `server.should_exit = True`; it is gone within GRACE_S."""
    return ApiServer(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
    )


async def serve(station: ApiStation, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serve the API on a bound socket until `stop` is set."""
    server = make_server(create_app(station), station.settings.api)
    host, port = listener.getsockname()[:2]
    log.info("api listens", url=f"http://{host}:{port}")
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listener]), name="api server")
        await stop.wait()
        server.should_exit = True
        await serving


def end_streams(app: FastAPI) -> None:
    """End every event stream and long poll, for good. May be called more than once."""
    app.state.end_streams()
