"""The HTTP server: uvicorn, with bounded connections, and the streams ended before it waits for its connections."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from functools import partial

import structlog
import uvicorn
from fastapi import FastAPI

from tradewind.api.app import ApiStation, create_app
from tradewind.api.connection import Connection
from tradewind.settings import ApiSettings

log = structlog.get_logger(__name__)
#: After a stop, how long answers that are under way may take.
GRACE_S = 5
#: uvicorn's ticks of 0.1 s from one look at all connections to the next.
CHECK_TICKS = 10
#: Files that the rest of the station may have open beside the connections.
OTHER_FILES = 1000


class ApiServer(uvicorn.Server):
    """Leaves signals alone: whoever runs it sets `should_exit`. `end_streams` must not wait for the lifespan, which
    uvicorn ends only after the last connection."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % CHECK_TICKS == 0:
            self._app.state.connection_limits.check(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        end_streams(self._app)
        cutting = asyncio.get_running_loop().call_later(GRACE_S - 1, self._cut)
        await super().shutdown(sockets)
        cutting.cancel()

    def _cut(self) -> None:
        """Whoever does not take its answer cannot hold up the stop."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @property
    def _app(self) -> FastAPI:
        app = self.config.app
        assert isinstance(app, FastAPI)
        return app


def make_server(app: FastAPI, settings: ApiSettings) -> ApiServer:
    """Run it with `await server.serve()`, stop it with `server.should_exit = True`; it is gone within GRACE_S."""
    return ApiServer(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=partial(Connection, limits=app.state.connection_limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]
        )
    )


async def serve(station: ApiStation, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serve the API on a bound socket until `stop` is set."""
    server = make_server(create_app(station), station.settings.api)
    host, port = listener.getsockname()[:2]
    log.info("api listens", url=f"http://{host}:{port}")
    allow_files(station.settings.api.max_connections + OTHER_FILES)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listener]), name="api server")
        await stop.wait()
        server.should_exit = True
        await serving


def end_streams(app: FastAPI) -> None:
    """End every event stream and long poll, for good. May be called more than once."""
    app.state.end_streams()


def allow_files(wanted: int) -> None:
    """Raise the soft limit of open files; a connection that no file is left for could not even be refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        log.warning(
            "few_files_allowed", limit=most, wanted=wanted, hint="raise the limit, or lower api.max_connections"
        )
