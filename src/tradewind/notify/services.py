"""Services that apprise knows (mail, chat, push …): its addresses, and a delivery in a thread of its own.

apprise blocks, and its sockets are its own; see `guard` for where they may lead.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from itertools import count
from typing import Any

from tradewind.http_guard import AddressRefused, Guard, resolve
from tradewind.notify.failure import DeliveryFailed
from tradewind.notify.guard import guarded
from tradewind.notify.job import Parcel

#: They show something on the machine that we run on, or run its programs: no place to notify people.
LOCAL = frozenset({"dbus", "qt", "kde", "glib", "gio", "gnome", "macosx", "windows", "syslog", "blink1"})
_MAX_SAID = 300


def problem_of(url: str) -> str:
    """What is wrong with an address, `` if nothing. Takes a moment the first time: apprise is large."""
    scheme = url.partition("://")[0].lower()
    if scheme in LOCAL:
        return f"{scheme}:// shows things on this machine only"
    import apprise

    if scheme not in _schemas():
        return f"{scheme}:// is not known; http(s) for a webhook, or an address of apprise"
    with _Said() as said:
        service = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if service is None:
        return "apprise cannot read this address" + (f": {said.text}" if said.text else "")
    return ""


def hosts_of(service: Any) -> list[str]:
    """The hosts that are written in the address itself, for services that run at home."""
    is_hosted = any("{host}" in template for template in getattr(service, "templates", ()))
    named = (getattr(service, "host", None), getattr(service, "smtp_host", None))
    if getattr(service, "smtp_host", None):
        named = (None, named[1])  # the host of a mail address is its domain; this one is connected to
    return [host for host in named if isinstance(host, str) and host] if is_hosted else []


class Services:
    """Sends through apprise. A thread that hangs beyond its time cannot be ended; its target waits for it."""

    def __init__(self, guard: Guard, timeout_s: float) -> None:
        self._guard = guard
        self._timeout_s = timeout_s
        self._threads: dict[str, threading.Thread] = {}

    async def send(self, url: str, parcel: Parcel) -> None:
        """Raises DeliveryFailed."""
        before = self._threads.get(url)
        if before is not None and before.is_alive():
            raise DeliveryFailed("the attempt before still hangs")
        problem = await asyncio.to_thread(problem_of, url)
        if problem:
            raise DeliveryFailed(problem, is_final=True)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._check_hosts(url)
                await self._in_thread(url, parcel)
        except TimeoutError as error:
            raise DeliveryFailed(f"not done within {self._timeout_s:g} s") from error
        except AddressRefused as error:
            raise DeliveryFailed(str(error), is_final=True) from error

    async def _check_hosts(self, url: str) -> None:
        """Before anything is connected to, so that the reason is told plainly."""
        import apprise
        import httpcore2

        for host in hosts_of(apprise.Apprise.instantiate(url)):
            try:
                self._guard.check(host, await resolve(host, 0))
            except httpcore2.ConnectError:
                continue  # apprise says so in its own words, and it may pass

    async def _in_thread(self, url: str, parcel: Parcel) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[DeliveryFailed | None] = loop.create_future()

        def settle(outcome: DeliveryFailed | None) -> None:
            if not done.done():
                done.set_result(outcome)

        def work() -> None:
            outcome = _notify(url, parcel, self._guard)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome)

        thread = threading.Thread(target=work, name=f"notify-{parcel.id}", daemon=True)
        self._threads = {other: one for other, one in self._threads.items() if one.is_alive()} | {url: thread}
        thread.start()
        failure = await done
        self._threads.pop(url, None)  # it has done its work, though it may take another moment to end
        if failure is not None:
            raise failure


def _notify(url: str, parcel: Parcel, guard: Guard) -> DeliveryFailed | None:
    """In a thread of its own."""
    import apprise

    _key_mails()
    _mail_ids.set(f"tradewind.{parcel.id}.{number}" for number in count(1))  # the thread has its own context
    kinds = {"Critical": "failure", "High": "failure", "Medium": "warning", "Low": "warning"}
    kind = apprise.NotifyType("success" if parcel.is_good_news else kinds.get(parcel.level, "info"))
    with _Said() as said, guarded(guard) as watch:
        try:
            service = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False))
            service.add(url)
            body, form = parcel.text or parcel.title, apprise.NotifyFormat.TEXT
            if parcel.is_again:
                body += f"\n\n(This may have come before: delivery {parcel.id}.)"
            is_sent = bool(service.notify(body=body, title=parcel.title, notify_type=kind, body_format=form))
        except Exception as error:  # noqa: BLE001 - code of some hundred services
            is_sent, said.text = False, f"{type(error).__name__} {error}"
    if watch.refused:
        return DeliveryFailed(watch.refused, is_final=True)
    return None if is_sent else DeliveryFailed(said.text or "the service did not take it")


def _key_mails() -> None:
    """Mails get their Message-ID by delivery and recipient, so that one that comes twice is known as the same: many
    mail servers and programs then drop the second. apprise draws it by chance."""
    from apprise.plugins.email import base

    draw = getattr(base, "make_msgid", None)
    if draw is None or getattr(draw, "is_keyed", False):
        return

    def make(*args: Any, domain: str | None = None, **more: Any) -> str:
        ids = _mail_ids.get()
        if ids is None:
            return str(draw(*args, domain=domain, **more))
        return f"<{next(ids)}@{domain or 'localhost'}>"

    make.is_keyed = True  # type: ignore[attr-defined]
    base.make_msgid = make  # type: ignore[attr-defined]


def _schemas() -> set[str]:
    from apprise.manager_plugins import NotificationManager

    manager: Any = NotificationManager  # it has no types
    return set(manager().schemas())


class _Said(logging.Handler):
    """What apprise warns of in this context: it returns no reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if _listening.get() is self and len(self.text) < _MAX_SAID:
            self.text = " ".join(f"{self.text} {record.getMessage()}".split())[:_MAX_SAID]

    def __enter__(self) -> _Said:
        logging.getLogger("apprise").addHandler(self)
        self._before = _listening.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _listening.reset(self._before)
        logging.getLogger("apprise").removeHandler(self)


#: Of the mails of this thread, one a recipient, in the order of the address.
_mail_ids: ContextVar[Iterator[str] | None] = ContextVar("notify_mail_ids", default=None)
_listening: ContextVar[_Said | None] = ContextVar("notify_said", default=None)
