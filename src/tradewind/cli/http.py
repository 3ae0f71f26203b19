"""The station as the commands reach it: over HTTP, with its error envelope turned back into our five kinds."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from tradewind.documents import short_name
from tradewind.errors import (
    Conflict,
    Invalid,
    NotFound,
    Overloaded,
    Problem,
    TimedOut,
    TradewindError,
    Unavailable,
    error_text,
)
from tradewind.masking import masked_url, secrets_of, struck_out

if TYPE_CHECKING:
    import httpx2

DEFAULT_URL = "http://127.0.0.1:8400"
API = "/api/v1"
CONNECT_S = 5.0
READ_S = 30.0
#: For an answer as a whole, beyond the time that the station may hold it back; a slow one may take so long.
ANSWER_S = 120.0
MAX_ANSWER_BYTES = 256_000_000
MAX_URL = 2000
MAX_HOST = 253


class Http:
    def __init__(self, url: str) -> None:
        import httpx2

        host = check_url(url)
        self._address = url.rstrip("/")
        self.url = masked_url(self._address)
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
            trust_env=not is_loopback(host),  # a proxy of the environment cannot reach our loopback
        )

    def get(self, path: str, params: dict[str, Any] | None = None, *, wait_s: float = 0) -> Any:
        """`path` is below /api/v1. `wait_s` is how long the station may hold the answer back."""
        return self._call("GET", API + path, params=params, wait_s=wait_s)

    def post(self, path: str, body: Any = None, *, wait_s: float = 0) -> Any:
        return self._call("POST", API + path, body=body, wait_s=wait_s)

    def put(self, path: str, body: Any, *, wait_s: float = 0) -> Any:
        return self._call("PUT", API + path, body=body, wait_s=wait_s)

    def delete(self, path: str, *, wait_s: float = 0) -> Any:
        return self._call("DELETE", API + path, wait_s=wait_s)

    def health(self) -> dict[str, Any]:
        """Also when the station says that it is down."""
        found = self._call("GET", "/health", accept=503)
        if not isinstance(found, dict) or not isinstance(found.get("parts"), dict):
            raise _stranger(self.url)
        return found

    def pages(self, path: str, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """One page after the other, until there is no next cursor."""
        while True:
            page = self.get(path, params)
            yield page
            if not page.get("next_cursor"):
                return
            params = {**params, "cursor": page["next_cursor"]}

    def snapshots(self) -> Iterator[dict[str, Any]]:
        """The station's live feed, about one a second. Raises Unavailable when it breaks off."""
        return self.events("/events")

    def events(
        self, path: str, params: dict[str, Any] | None = None, *, until: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """What a stream of events brings, until that monotonic time. Raises Unavailable when it breaks off."""
        import time

        import httpx2

        given = {name: value for name, value in (params or {}).items() if value is not None}
        wait_s = READ_S if until is None else max(0.1, min(READ_S, until - time.monotonic()))
        timeout = httpx2.Timeout(wait_s, connect=CONNECT_S)
        try:
            with self._client.stream(
                "GET", self._address + API + path, params=given or None, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    raise _refusal(response, self._read(response, 0), self.url)
                for line in _lines(response.iter_bytes(), self.url):
                    if line.startswith(b"data:"):
                        yield _decoded(line[5:], self.url)
                    if until is not None and time.monotonic() >= until:
                        return
        except httpx2.ReadTimeout as error:
            if until is None or time.monotonic() < until:
                raise self._unreachable(error) from error
        except (httpx2.RequestError, httpx2.InvalidURL) as error:  # also of what it packs wrongly
            raise self._unreachable(error) from error

    def text(self, path: str, params: dict[str, Any] | None = None) -> Iterator[str]:
        """A long answer that is no JSON, piece by piece. Raises Unavailable when it breaks off."""
        import codecs

        return codecs.iterdecode(self.data(path, params), "utf-8")

    def data(self, path: str, params: dict[str, Any] | None = None) -> Iterator[bytes]:
        """The same as bytes."""
        import httpx2

        timeout = httpx2.Timeout(READ_S, connect=CONNECT_S)
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            with self._client.stream(
                "GET", self._address + API + path, params=given or None, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    raise _refusal(response, self._read(response, 0), self.url)
                yield from response.iter_bytes()
        except (httpx2.RequestError, httpx2.InvalidURL) as error:  # also of what it packs wrongly
            raise self._unreachable(error) from error

    def close(self) -> None:
        self._client.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        body: Any = None,
        wait_s: float = 0,
        accept: int = 200,
    ) -> Any:
        import httpx2

        from tradewind import codec

        content = None if body is None else codec.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            with self._client.stream(
                method,
                self._address + path,
                params=given or None,
                content=content,
                headers=headers,
                timeout=httpx2.Timeout(READ_S + wait_s, connect=CONNECT_S),
            ) as response:
                data = self._read(response, wait_s)
        except httpx2.ReadTimeout as error:
            late = TimedOut(f"the station at {self.url} does not answer within {READ_S + wait_s:g} s", hint="try again")
            late.add_note(f"{method} {path}")
            raise late from error
        except (httpx2.RequestError, httpx2.InvalidURL) as error:  # also of what it packs wrongly
            raise self._unreachable(error) from error
        if response.is_success or response.status_code == accept:
            return _decoded(data, self.url) if data else None
        refused = _refusal(response, data, self.url)
        refused.add_note(f"{method} {self.url}{path}")
        raise refused

    def _read(self, response: httpx2.Response, wait_s: float) -> bytes:
        """The whole answer within its bounds. Raises Unavailable, TimedOut."""
        import time

        end = time.monotonic() + ANSWER_S + wait_s
        data = bytearray()
        for piece in response.iter_bytes():
            data += piece
            if len(data) > MAX_ANSWER_BYTES:
                raise _stranger(self.url, f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > end:
                late = f"the station at {self.url} has not ended its answer within {ANSWER_S + wait_s:g} s"
                raise TimedOut(late, hint="try again")
        return bytes(data)

    def _unreachable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"no station answers at {self.url}: {struck_out(error_text(error), secrets_of(self._address))}",
            code="station_unreachable",
            hint="start one with `tradewind up`, or name another with --url or TRADEWIND_URL",
        )


def segment(text: str) -> str:
    """One part of a path; also one with slashes or dots stays one part."""
    return quote(text, safe="") if text not in (".", "..") else text.replace(".", "%2E")


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_url(url: str) -> str:
    """The host of the address of a station. Raises Invalid."""
    import httpx2

    reason = ""
    try:
        parts = urlsplit(url)
        if len(url) > MAX_URL:
            reason = f"it is longer than {MAX_URL} characters"
        elif any(sign.isspace() or not sign.isprintable() for sign in url):
            reason = "it has spaces or control characters"
        elif parts.scheme not in ("http", "https"):
            reason = "it does not begin with http:// or https://"
        elif not parts.hostname:
            reason = "it names no host"
        elif parts.query or parts.fragment:
            reason = "it has a ? or a #"
        elif len(parts.hostname.encode("idna")) > MAX_HOST:
            reason = f"its host is longer than {MAX_HOST} characters"
        elif parts.port == 0 or not httpx2.URL(url).host:
            reason = "it names no port" if parts.port == 0 else "it names no host"
    except (ValueError, httpx2.InvalidURL) as error:  # a port that is none, brackets that do not close
        reason = struck_out(str(error), secrets_of(url))
    if reason:
        shown = short_name(masked_url(url))
        message = f"not the address of a station: {shown}: {reason}"
        raise Invalid(message, code="bad_url", hint=f"give --url or TRADEWIND_URL as {DEFAULT_URL}")
    return parts.hostname or ""


def _lines(pieces: Iterator[bytes], url: str) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > MAX_ANSWER_BYTES:
            raise _stranger(url, f"a line is longer than {MAX_ANSWER_BYTES} bytes")


def _decoded(data: bytes, url: str) -> Any:
    from tradewind import codec

    try:
        return codec.decode(data)
    except Invalid:
        raise _stranger(url) from None


def _stranger(url: str, why: str = "") -> Unavailable:
    return Unavailable(
        f"what answers at {url} is not a Tradewind station{': ' if why else ''}{why}",
        code="not_a_station",
        hint="check --url or TRADEWIND_URL, or another program on that port",
    )


def _refusal(response: httpx2.Response, data: bytes, url: str) -> TradewindError:
    """The error that the envelope carries. Anything without an envelope did not come from a station."""
    found = _decoded(data, url) if data else None
    inner = found.get("error") if isinstance(found, dict) else None
    if not isinstance(inner, dict):
        return _stranger(url, f"it says {response.status_code} to {response.url.path}")
    message, code = str(inner.get("message", "refused")), str(inner.get("code", "error"))
    hint, status = str(inner.get("hint") or ""), response.status_code
    if status == 429:
        return Overloaded(message, code=code, hint=hint, retry_after_s=_seconds(response.headers.get("retry-after")))
    kinds: dict[int, type[TradewindError]] = {404: NotFound, 409: Conflict, 503: Unavailable, 504: TimedOut}
    if status in kinds:
        return kinds[status](message, code=code, hint=hint)
    if status >= 500:
        return TradewindError(message, code=code, hint=hint)
    problems = [
        Problem(str(p.get("code", "")), str(p.get("path", "")), str(p.get("hint", "")))
        for p in inner.get("problems") or []
        if isinstance(p, dict)
    ]
    return Invalid(message, code=code, hint=hint, problems=problems)


def _seconds(text: str | None) -> float:
    try:
        return min(60.0, max(0.1, float(text or 1)))
    except ValueError:
        return 1.0
