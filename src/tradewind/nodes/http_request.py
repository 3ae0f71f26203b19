"""`http_request`: one call of an HTTP service, with bounds on time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlsplit

import httpx2 as httpx
from msgspec import Meta, field

from tradewind import codec
from tradewind.errors import Invalid, Problem
from tradewind.flows.node import Node, Output, node
from tradewind.flows.node_errors import NodeExecutionException, NodeResourceException, NodeTimeoutException
from tradewind.http_guard import AddressRefused, BadAnswer, Guard, GuardedTransport, crossing, guard_with, read_answer
from tradewind.nodes import template
from tradewind.tasks.running import Abort

MAX_BYTES = 1_000_000
MAX_RETRY_AFTER_S = 3600
_PASSING = frozenset({408, 425, 429})
Status = Annotated[int, Meta(ge=100, le=599)]


_guard = Guard()


def allow(entries: Sequence[str]) -> None:
    """What else may be called from this process: the setting `flows.http_allow`, told by the station."""
    global _guard
    _guard = guard_with(entries)


class HttpRefused(NodeExecutionException, Abort):
    """The request cannot be made, or its answer says that it is wrong: another attempt would not help."""

    code = "http_refused"
    is_retryable = False


@node("http_request", category="io", open_inputs=True)
class HttpRequest(Node):
    """Calls an HTTP service and sends its answer.

    Server errors (5xx, 408, 425, 429), timeouts and lost connections use the attempts that are left; other answers that
    are not expected fail at once. Connects directly, never to this machine or to where clouds keep credentials, unless
    `flows.http_allow` names the address. A redirect to another origin takes no headers along. At most 1 MB is taken.
    """

    url: Annotated[
        str,
        Meta(
            max_length=4000,
            description="http:// or https://; `{name}` stands for an input, quoted so that it stays one part.",
        ),
    ]
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"], Meta(description="The verb.")
    ] = "GET"
    headers: Annotated[dict[str, str], Meta(description="Values may hold `{name}`.")] = field(default_factory=dict)
    json: Annotated[
        Any, Meta(description='A body as JSON; a text that is only "{name}" becomes the value of that input.')
    ] = None
    body: Annotated[str, Meta(max_length=MAX_BYTES, description="A body as text, with `{name}`.")] = ""
    timeout: Annotated[float, Meta(gt=0, le=600, description="For the whole call, in seconds.")] = 30.0
    expect_status: Annotated[
        tuple[Status, ...] | Status, Meta(description="What counts as success; by default 200 to 299.")
    ] = ()
    redirects: Annotated[
        int, Meta(ge=0, le=10, description="How many redirects to follow; never from https to http.")
    ] = 5
    response: Output[dict[str, Any]] = Output(description="{status, headers, json or text}")
    content: Output[Any] = Output(name="body", description="The JSON of the answer, or its text.")

    async def execute(self) -> None:
        try:
            async with asyncio.timeout(self.timeout):
                status, headers, data = await self._fetch()
        except (TimeoutError, httpx.TimeoutException) as error:
            raise NodeTimeoutException(
                f"{self._shown()} did not answer within {self.timeout:g} s", self.timeout, self.node_id
            ) from error
        self._judge(status, headers, data)
        read = _read(headers, data)
        shown = {name: value for name, value in headers.items() if name != "set-cookie"}  # signals are kept on record
        await self.response.send({"status": status, "headers": shown, **read})
        await self.content.send(read.get("json", read.get("text")))

    async def _fetch(self) -> tuple[int, httpx.Headers, bytes]:
        # One client per call: a pool would have to live as long as the loop, and nobody here sees its end.
        async with httpx.AsyncClient(
            transport=GuardedTransport(_guard), trust_env=False, timeout=self.timeout
        ) as client:
            try:
                request: httpx.Request | None = self._request(client)
                for left in range(self.redirects, -1, -1):
                    assert request is not None
                    response = await client.send(request, stream=True, follow_redirects=False)
                    request = response.next_request
                    if request is None or not left:
                        return response.status_code, response.headers, await read_answer(response, MAX_BYTES)
                    self._check_redirect(response.url, request.url)
                    request = crossing(response.url, request)
                    await response.aclose()
                raise AssertionError
            except (
                AddressRefused,
                BadAnswer,
                httpx.InvalidURL,
                httpx.UnsupportedProtocol,
                httpx.LocalProtocolError,
            ) as error:
                raise self._refused(str(error)) from error
            except httpx.TimeoutException:
                raise
            except httpx.HTTPError as error:
                message = f"{self._shown()}: {type(error).__name__} {error}".rstrip()
                raise NodeResourceException(message, "http", self.node_id) from error

    def _request(self, client: httpx.AsyncClient) -> httpx.Request:
        values = self.inputs
        try:
            url = template.fill(self.url, values, lambda text: quote(text, safe=""))
            headers = {name: template.fill(text, values) for name, text in self.headers.items()}
            body = template.fill(self.body, values).encode() if self.body else None
            if self.json is not None:
                body = codec.encode(template.fill_data(self.json, values))
                headers = {"Content-Type": "application/json", **headers}
        except Invalid as error:
            raise self._refused(f"{error.message} ({error.hint})") from error
        if not url.startswith(("http://", "https://")):
            raise self._refused("only http:// and https:// are called")
        if any(character in "".join(headers.values()) for character in "\r\n\0"):
            raise self._refused("a header would hold a line break")
        try:
            return client.build_request(
                self.method, url, headers={"Accept-Encoding": "identity", **headers}, content=body
            )
        except UnicodeError as error:
            raise self._refused("a header is not ASCII") from error

    def _check_redirect(self, old: httpx.URL, new: httpx.URL) -> None:
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme == "http"):
            raise self._refused(f"it redirects from {old.scheme} to {new.scheme}")

    def _judge(self, status: int, headers: httpx.Headers, data: bytes) -> None:
        expected = self.expect_status if isinstance(self.expect_status, tuple) else (self.expect_status,)
        if status in expected or (not expected and 200 <= status < 300):
            return
        message = f"{self._shown()} answered {status}: {data[:200].decode(errors='replace')}".rstrip(": ")
        if status >= 500 or status in _PASSING:
            raise NodeResourceException(message, "http", self.node_id, retry_after_s=_retry_after(headers))
        raise HttpRefused(message, self.node_id)

    def _refused(self, why: str) -> HttpRefused:
        return HttpRefused(f"{self._shown()}: {why}", self.node_id)

    def _shown(self) -> str:
        """The call without what may be secret: user and query."""
        parts = urlsplit(self.url)
        return f"{self.method} {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        problems = []
        url = config.get("url")
        if isinstance(url, str) and not url.startswith(("http://", "https://")):
            problems.append(Problem("bad_url", "url", "start with http:// or https://"))
        if config.get("json") is not None and config.get("body"):
            problems.append(Problem("two_bodies", "body", "give either `json` or `body`"))
        for part in ("url", "headers", "json", "body"):
            problems += template.check(config.get(part), inputs, part)
        return problems


def _read(headers: httpx.Headers, data: bytes) -> dict[str, Any]:
    kind = headers.get("content-type", "")
    if "json" in kind.lower() and data:
        try:
            return {"json": codec.decode(data)}
        except Invalid:
            pass  # it says JSON, but is none
    charset = kind.lower().partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        return {"text": data.decode(charset, errors="replace")}
    except LookupError:
        return {"text": data.decode(errors="replace")}


def _retry_after(headers: httpx.Headers) -> float | None:
    text = headers.get("retry-after", "")
    return float(min(int(text), MAX_RETRY_AFTER_S)) if text.isascii() and text.isdigit() and len(text) < 10 else None
