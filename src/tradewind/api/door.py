"""What every request passes first: request id, refusal of foreign hosts and sites, headers, figures, the last fence."""

from __future__ import annotations

import ipaddress
import re
import time
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tradewind.api.errors import Refused, error_response, internal_response
from tradewind.api.metrics import HttpFigures
from tradewind.api.routing import ROUTE_KEY
from tradewind.ids import short_random
from tradewind.settings import ApiSettings

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_ANY = frozenset({"0.0.0.0", "[::]", "*"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}

logger = structlog.get_logger("tradewind.api")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def served_hosts(settings: ApiSettings) -> frozenset[str]:
    """Names and addresses under which the station answers: loopback, its own address, and those of the setting."""
    host = settings.host.lower()
    own = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return _LOOPBACK | frozenset(settings.allowed_hosts) | (frozenset() if own in _ANY else {own})


class Door:
    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], figures: HttpFigures) -> None:
        self._app = app
        self._figures = figures
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["type"] == "websocket":
            await self._connect(scope, headers, receive, send)
            return
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else short_random()
        began, has_started = time.perf_counter(), False

        async def send_on(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                out = MutableHeaders(scope=message)
                out["X-Request-ID"] = request_id
                for name, value in _HEADERS.items():
                    out.setdefault(name, value)
                self._figures.note(scope, scope.get(ROUTE_KEY), message["status"], time.perf_counter() - began)
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                self._check(scope["method"], headers)
                await self._app(scope, receive, send_on)
            except Refused as refused:
                await error_response(refused)(scope, receive, send_on)
            except ClientDisconnect:
                pass  # the caller left in the middle of its own body
            except Exception:
                error_id = short_random()
                logger.exception("request failed", error_id=error_id, method=scope["method"], path=scope["path"])
                if not has_started:
                    await internal_response(error_id)(scope, receive, send_on)

    async def _connect(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """A WebSocket may write, so it must come from a page of ours, whatever its method says."""
        try:
            self._check("POST", headers)
        except Refused:
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(scope, receive, send)

    def _check(self, method: str, headers: Headers) -> None:
        """A page of another site must neither read us under a name of its own (DNS rebinding) nor write to us."""
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        match = _HOST.fullmatch(host)
        if match is None or match[1].lower() not in self._hosts:
            raise Refused(
                421,
                f"this station does not answer for the host {host[:100]!r}",
                code="wrong_host",
                hint=f"use one of {', '.join(sorted(self._hosts))}, or add the name to api.allowed_hosts",
            )
        if method in _SAFE_METHODS:
            return
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_foreign = site not in ("same-origin", "none") if site else origin and urlsplit(origin).netloc != host
        if is_foreign:
            raise Refused(
                403,
                f"a page of {(origin or 'another site')[:100]!r} tried to change this station",
                code="cross_site",
                hint="send it from the station's own page, or from a program",
            )
