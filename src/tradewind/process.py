"""A station as a process: user code imported, signals handled, the roles run until they are told to stop."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

import structlog

from tradewind.collector import tune
from tradewind.documents import open_file, short_name
from tradewind.errors import Invalid, TradewindError, Unavailable
from tradewind.logs import configure_logging
from tradewind.settings import Settings
from tradewind.station import open_station
from tradewind.tasks.executor import THREAD_NAME
from tradewind.tasks.guarded_loop import new_event_loop
from tradewind.watchdog import Watchdog

#: Of a module that --import names.
MAX_SOURCE_BYTES = 16_000_000
log = structlog.get_logger(__name__)


def run_station(settings: Settings, roles: frozenset[str]) -> int:
    """Run the roles in this process until SIGTERM or SIGINT; the exit code. Raises the first error of our kinds."""
    configure_logging(settings.log)
    import_modules(settings.imports)
    tune()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_run(settings, roles))
    except* TradewindError as group:
        raise _first_of(group) from None
    finally:
        _reopen_streams()
    _leave_threads_behind()
    return 0


def _reopen_streams() -> None:
    """A task may have closed them; whoever goes on from here flushes them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None or getattr(sys, name).closed:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 — for as long as the process lives


def _leave_threads_behind() -> None:
    """End the process now if functions still run in threads: their tasks went back, and Python would wait for them."""
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]
    if names:
        log.warning("functions still run in threads; the process ends without them", threads=len(names))
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


async def _run(settings: Settings, roles: frozenset[str]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    watchdog = Watchdog()
    watchdog.start()
    # The address first: a station that cannot listen shall not begin to work.
    listener = bind(settings.api.host, settings.api.port) if "api" in roles else None
    try:
        async with open_station(settings, roles) as station:
            if listener is None:
                await station.run(stop)
            else:
                from tradewind.api.server import serve  # heavy, and only this role needs it

                await station.run(stop, lambda stopped: serve(station, listener, stopped))
    finally:
        watchdog.stop()
        if listener is not None:
            listener.close()


def bind(host: str, port: int) -> socket.socket:
    """A bound socket. Raises Unavailable when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        message = f"cannot listen on {host}:{port}: {error.strerror}"
        raise Unavailable(message, code="port_in_use", hint="choose another one with --port") from error
    return listener


def import_modules(names: Sequence[str]) -> None:
    """Import user code, found from the working directory too. Raises Invalid."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    for name in names:
        try:
            if name not in sys.modules:
                _must_be_short(importlib.util.find_spec(name))
            importlib.import_module(name)
        except TradewindError:
            raise
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                message = f"there is no module {short_name(name)!r} (looked in {folder} and the installed packages)"
                hint = "start in the folder that holds it, or correct --import"
                raise Invalid(message, code="no_module", hint=hint) from None
            raise _broken_module(name, error) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # user code may raise anything while it is imported, SystemExit too
            raise _broken_module(name, error) from error


def _must_be_short(spec: ModuleSpec | None) -> None:
    """Raises Invalid for a source file that nobody wrote: Python would read all of it."""
    if spec is not None and spec.has_location and spec.origin and spec.origin.endswith(".py"):
        open_file(spec.origin, max_bytes=MAX_SOURCE_BYTES).close()


def _broken_module(name: str, error: BaseException) -> Invalid:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else name
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
    broken = Invalid(
        f"module {short_name(name)!r} cannot be imported: {type(error).__name__}: {short_name(str(error))}",
        code="bad_module",
        hint=f"`python -c 'import {short_name(name)}'` shows the whole traceback",
    )
    broken.add_note(place)
    return broken


def _first_of(group: BaseExceptionGroup[TradewindError]) -> TradewindError:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
