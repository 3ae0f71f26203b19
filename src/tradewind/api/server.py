"""The HTTP server: uvicorn, with the streams ended before it waits for its connections."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from tradewind.settings import ApiSettings

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


def end_streams(app: FastAPI) -> None:
    """End every event stream and long poll, for good. May be called more than once."""
    app.state.end_streams()
