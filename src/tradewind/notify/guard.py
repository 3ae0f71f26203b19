"""Where notifications may go: by default only to the public internet.

Webhooks connect through `http_guard`. Other services open their own sockets inside apprise, so each connection that is
made on their behalf is looked at: wherever a name, a redirect or a service that looks hosts up itself leads.
"""

from __future__ import annotations

import ipaddress
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tradewind.http_guard import METADATA, NOT_PUBLIC, AddressRefused, Guard, guard_with
from tradewind.settings import NotifySettings

MAX_ANSWER = 1_000_000
_WATCHED = ("socket.connect", "socket.sendto")
# A context, not a thread: apprise hands work to threads of its own and takes the context along.
_watch: ContextVar[Watch | None] = ContextVar("notify_watch", default=None)
_is_installed = False
_installing = threading.Lock()


def guard_of(settings: NotifySettings) -> Guard:
    if settings.allow_private:
        return guard_with(settings.allow_hosts, METADATA, "where clouds keep credentials")
    return guard_with(settings.allow_hosts, NOT_PUBLIC, "not a public address")


class Watch:
    """What a delivery did; `refused` says why, once a connection was refused."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.refused = ""
        self.name = ""

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        """Raises AddressRefused for a connection that may not be made."""
        if event == "socket.getaddrinfo":
            self.name = _text(args[0])
        elif event in _WATCHED and self.guard.refused:
            try:
                self._check(args[1])
            except AddressRefused as error:
                self.refused = str(error)
                raise

    def _check(self, address: Any) -> None:
        if not isinstance(address, tuple):
            raise AddressRefused("it would have talked to a program of this machine")
        host = _text(address[0])
        if self.guard.allows(host):
            return
        try:
            ip = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            # The system would look it up after us, and might find another address than we did.
            raise AddressRefused(f"{host} is connected to by name; give its address or allow it") from None
        if self.guard.refuses(str(ip)) and not self.guard.allows(self.name):
            name = self.name or host
            raise AddressRefused(f"{name} is at {host}, {self.guard.words}; no request goes there")


@contextmanager
def guarded(guard: Guard) -> Iterator[Watch]:
    """Every connection made meanwhile in this context is looked at."""
    _install()
    watch = Watch(guard)
    before = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(before)


def _install() -> None:
    global _is_installed
    with _installing:
        if not _is_installed:
            sys.addaudithook(_hook)
            _bound_requests()
            _is_installed = True


def _bound_requests() -> None:
    """For deliveries, `requests` (which apprise uses) asks no proxy of the environment, which would hide where a call
    goes, and keeps no more of an answer than `MAX_ANSWER`, unpacked."""
    from requests import exceptions, models, utils

    bypasses, iterate = utils.should_bypass_proxies, models.Response.iter_content

    def should_bypass(url: Any, no_proxy: Any) -> bool:
        return _watch.get() is not None or bool(bypasses(url, no_proxy))

    def iter_content(self: models.Response, *args: Any, **kwargs: Any) -> Iterator[Any]:
        size = 0
        for part in iterate(self, *args, **kwargs):
            size += len(part)
            if size > MAX_ANSWER and _watch.get() is not None:
                raise exceptions.ConnectionError(f"the answer is larger than {MAX_ANSWER} bytes")
            yield part

    utils.should_bypass_proxies = should_bypass
    models.Response.iter_content = iter_content  # type: ignore[method-assign]


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event.startswith("socket."):
        watch = _watch.get()
        if watch is not None:
            watch.see(event, args)


def _text(host: Any) -> str:
    return host.decode(errors="replace") if isinstance(host, bytes) else str(host or "")
