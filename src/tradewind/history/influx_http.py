"""InfluxDB over HTTP: 1.x with a database, 2.x and 3.x with a bucket; and what its answers mean.

What may pass (no connection, a time-out, 429, 5xx) and what a person has to mend (401, a missing bucket) is SinkAway;
what is wrong with the lines themselves is a Rejection.
"""

from __future__ import annotations

import asyncio
import gzip
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any

import httpx2 as httpx
import msgspec

from tradewind.clock import iso
from tradewind.errors import Invalid
from tradewind.history.influx_answer import NotFinite, Table, read_message, tables_of, tables_of_packed
from tradewind.history.sink import SinkAway
from tradewind.http_guard import BadAnswer, read_answer
from tradewind.masking import masked_url, secrets_of, struck_out
from tradewind.settings import InfluxSettings

CONNECT_S = 5.0
WRITE_S = 10.0
QUERY_S = 30.0
KEEP_ALIVE_S = 60.0
CHUNK_ROWS = 10_000
#: Bounds of what is kept of an answer: a message, and a piece of a result.
MAX_MESSAGE_BYTES = 1_000_000
MAX_PIECE_BYTES = 256_000_000
MAX_RETRY_AFTER_S = 3600.0
_WORDS = (
    ("field type conflict", "type_conflict"),
    ("beyond retention", "beyond_retention"),
    ("outside retention", "beyond_retention"),
    ("limit exceeded", "limit_exceeded"),
    ("unable to parse", "not_understood"),
    ("partial write", "partial_write"),
)
_DROPPED = re.compile(r"dropped=(\d+)")
_NO_RIGHT = "check influx.user and influx.password, or influx.token, and what they may do"
_NO_INFLUX = "is influx.url the address of InfluxDB itself?"


class Rejection(msgspec.Struct, frozen=True):
    """The lines, or some of them, are wrong. `reason`: a word for counters, `refused` when the message is not one that
    we know; `dropped`: how many lines the server says it left out, 0 when it does not say."""

    reason: str
    message: str
    dropped: int = 0


class Barred(SinkAway):
    """The server answers, but does not let us, or has not what we ask for: a person has to mend that."""

    code = "sink_barred"


class InfluxHttp:
    """One client with connections that stay open."""

    def __init__(self, settings: InfluxSettings, timeout_s: float = WRITE_S, query_s: float = QUERY_S) -> None:
        self.is_v2 = bool(settings.bucket)
        self.database = settings.database
        #: Whether lines travel compressed. On one machine that costs both sides more than it saves.
        self.is_gzip = settings.gzip == "always" or (settings.gzip == "auto" and not is_this_machine(settings.url))
        self._settings = settings
        self._name = masked_url(settings.url)
        self._secrets = {settings.password, settings.token, *secrets_of(settings.url)}
        self._timeout_s, self._query_s = timeout_s, query_s
        self._client: httpx.AsyncClient | None = None
        if self.is_v2:
            self._write_path = "/api/v2/write"
            self._write_params = {"bucket": settings.bucket, "org": settings.org, "precision": "ms"}
            # A bucket `db/rp` is what 2.x makes of a database and a policy of 1.x.
            database, _, policy = settings.bucket.partition("/")
            self._query_params = {"db": database, "epoch": "ms"} | ({"rp": policy} if policy else {})
        else:
            self._write_path = "/write"
            self._write_params = {"db": settings.database, "precision": "ms"}
            self._query_params = {"db": settings.database, "epoch": "ms"}

    def open(self) -> None:
        if self._client is not None:
            return
        settings = self._settings
        headers = {"User-Agent": "tradewind", "Accept-Encoding": "identity"}
        auth = None
        if settings.token:
            headers["Authorization"] = f"Token {settings.token}"
        elif settings.user:
            auth = httpx.BasicAuth(settings.user, settings.password)
        self._client = httpx.AsyncClient(
            base_url=settings.url,
            headers=headers,
            auth=auth,
            trust_env=False,
            timeout=httpx.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s)),
            limits=httpx.Limits(max_connections=16, keepalive_expiry=KEEP_ALIVE_S),
        )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def packed(self, text: bytes) -> bytes:
        """Lines as they travel: a body for `write`."""
        return gzip.compress(text, 1, mtime=0) if self.is_gzip else text

    async def write(self, body: bytes) -> Rejection | None:
        """None when all lines are stored. Raises SinkAway."""
        response, said = await self._write(body)
        if response.status_code == 404 and not self.is_v2 and b"database not found" in said:
            await self._create_database()
            response, said = await self._write(body)
        status = response.status_code
        if status == 204:  # any other one, a page of a proxy, say, does not mean that lines are stored
            return None
        message = self._struck(read_message(said, response.headers))
        if status == 413:
            return Rejection("too_large", message)
        if status in (400, 422):
            found = _DROPPED.search(message)
            reason = next((word for text, word in _WORDS if text in message), "refused")
            return Rejection(reason, message, int(found[1]) if found else 0)
        raise self._away(response, message)

    async def ask(self, text: str, each: Callable[[int, Table], None], *, timeout_s: float | None = None) -> None:
        """Put InfluxQL; `each` gets the number of the statement and a piece of its answer, in order.

        A database that is not there yet answers nothing. Raises SinkAway, and Invalid for a question that the
        server's limits forbid.
        """
        try:
            async with self._stream(text, "application/json", timeout_s) as response:
                rest = b""
                async for part in response.aiter_raw():
                    *lines, rest = (rest + part).split(b"\n")
                    if len(rest) > MAX_PIECE_BYTES:
                        raise self._not_influx(f"a piece of more than {MAX_PIECE_BYTES} bytes")
                    for line in lines:
                        _hand_on(tables_of(line), each)
                _hand_on(tables_of(rest), each)
        except msgspec.DecodeError as error:
            raise self._not_influx(self._struck(str(error))) from error

    async def ask_packed(self, text: str, each: Callable[[int, Table], None]) -> None:
        """The same as one piece of msgpack, which knows numbers that are not finite where JSON does not."""
        try:
            async with self._stream(text, "application/x-msgpack", None) as response:
                _hand_on(tables_of_packed(await read_answer(response, MAX_PIECE_BYTES)), each)
        except msgspec.DecodeError as error:
            raise self._not_influx(self._struck(str(error))) from error

    async def delete_v2(self, predicate: str, to_ms: int) -> None:
        """What the predicate says, of times before `to_ms`. Raises SinkAway."""
        # `stop` itself belongs to what is deleted.
        body = {"start": "1970-01-01T00:00:00Z", "stop": iso(to_ms - 1), "predicate": predicate}
        params = {"bucket": self._settings.bucket, "org": self._settings.org}
        async with self._guarded(self._query_s):
            request = self._open_client.build_request(
                "POST", "/api/v2/delete", params=params, json=body, timeout=self._query_s
            )
            response, said = await self._ask_small(request)
        if not 200 <= response.status_code < 300:
            raise self._away(response, read_message(said, response.headers))

    @property
    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            raise SinkAway("the connection to InfluxDB is not open", code="sink_closed")
        return self._client

    async def _ask_small(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        """An answer that is a message at most."""
        response = await self._open_client.send(request, stream=True)
        try:
            return response, await read_answer(response, MAX_MESSAGE_BYTES)
        finally:
            await response.aclose()

    async def _write(self, body: bytes) -> tuple[httpx.Response, bytes]:
        headers = {"Content-Type": "text/plain; charset=utf-8"} | ({"Content-Encoding": "gzip"} if self.is_gzip else {})
        async with self._guarded(self._timeout_s):
            return await self._ask_small(
                self._open_client.build_request(
                    "POST", self._write_path, params=self._write_params, content=body, headers=headers
                )
            )

    async def _create_database(self) -> None:
        name = self._settings.database.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        await self.ask(f'CREATE DATABASE "{name}"', lambda number, table: None)

    @asynccontextmanager
    async def _stream(self, text: str, accept: str, timeout_s: float | None) -> AsyncIterator[httpx.Response]:
        """An answer whose status is good."""
        limit_s = timeout_s or self._query_s
        params: dict[str, Any] = dict(self._query_params)
        if accept == "application/json":
            params |= {"chunked": "true", "chunk_size": str(CHUNK_ROWS)}
        async with self._guarded(limit_s):
            request = self._open_client.build_request(
                "POST", "/query", params=params, data={"q": text}, headers={"Accept": accept}, timeout=limit_s
            )
            response = await self._open_client.send(request, stream=True)
            try:
                if response.status_code != 200:
                    message = read_message(await read_answer(response, MAX_MESSAGE_BYTES), response.headers)
                    if response.status_code == 400:
                        raise _refused_question(message)
                    raise self._away(response, message)
                yield response
            finally:
                await response.aclose()

    @asynccontextmanager
    async def _guarded(self, limit_s: float) -> AsyncIterator[None]:
        """Not longer than that in all, and with our words for what HTTP says."""
        try:
            async with asyncio.timeout(limit_s):
                yield
        except (TimeoutError, httpx.TimeoutException) as error:
            message = f"InfluxDB at {self._name} did not answer within {limit_s:g} s"
            raise SinkAway(message, code="sink_timeout", hint="see what keeps the server busy") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise SinkAway(
                f"no request to {self._name} can be made: {self._struck(str(error))}", hint="correct influx.url"
            ) from error
        except BadAnswer as error:
            raise self._not_influx(self._struck(str(error))) from error
        except (httpx.HTTPError, OSError) as error:
            why = self._struck(f"{type(error).__name__} {error}".strip())
            hint = "start the server, or correct influx.url"
            raise SinkAway(f"InfluxDB at {self._name} cannot be reached: {why}", hint=hint) from error

    def _away(self, response: httpx.Response, message: str) -> SinkAway:
        status = response.status_code
        text = f"InfluxDB at {self._name} answered {status}: {self._struck(message)}".rstrip(": ")
        if status in (401, 403):
            return Barred(text, hint=_NO_RIGHT)
        if status == 404:
            what = f"bucket {self._settings.bucket!r}" if self.is_v2 else f"database {self._settings.database!r}"
            return Barred(text, hint=f"create the {what}, with a DBRP mapping in 2.x, or correct influx.*")
        if status == 429 or status >= 500:
            return SinkAway(text, hint="see the server's log", retry_after_s=retry_after(response.headers))
        return Barred(text, hint=_NO_INFLUX)

    def _struck(self, text: str) -> str:
        return struck_out(text, self._secrets)

    def _not_influx(self, why: str) -> SinkAway:
        return SinkAway(f"{self._name} answered with something that is no answer of InfluxDB: {why}", hint=_NO_INFLUX)


def is_this_machine(url: str) -> bool:
    host = httpx.URL(url).host if url else ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from a number or a date; None when there is neither."""
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if math.isfinite(seconds) else None


def _hand_on(answers: list[tuple[int, Table | str]], each: Callable[[int, Table], None]) -> None:
    for number, answer in answers:
        if not isinstance(answer, str):
            each(number, answer)
        elif "database not found" not in answer and answer != "not executed":  # said of the statements that follow
            raise _refused_question(answer)


def _refused_question(message: str) -> Exception:
    if "unsupported value" in message:
        return NotFinite(message)
    if "not authorized" in message:
        return Barred(f"InfluxDB refuses: {message}", hint=_NO_RIGHT)
    if "limit exceeded" in message or "too many points" in message:
        hint = "ask for a shorter time, wider buckets or fewer series"
        return Invalid(f"InfluxDB refuses: {message}", code="too_much", hint=hint)
    return Barred(f"InfluxDB does not answer: {message}", hint="see the server's log")
