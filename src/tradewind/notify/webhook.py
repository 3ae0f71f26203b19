"""A webhook: one POST of JSON with an idempotency key, only to addresses that the guard lets pass."""

from __future__ import annotations

import asyncio
from urllib.parse import urljoin, urlsplit

import httpx2 as httpx

from tradewind import codec
from tradewind.http_guard import AddressRefused, Guard, GuardedTransport
from tradewind.notify.failure import DeliveryFailed
from tradewind.notify.job import Parcel
from tradewind.notify.policy import Target

MAX_REDIRECTS = 3
MAX_ANSWER = 65_536
MAX_RETRY_AFTER_S = 3600
_PASSING = frozenset({408, 425, 429})
_SAME_METHOD = frozenset({307, 308})


async def post(target: Target, parcel: Parcel, guard: Guard, timeout_s: float) -> None:
    """Raises DeliveryFailed unless the other side took it (200 to 299)."""
    try:
        async with asyncio.timeout(timeout_s):
            await _post(target, parcel, guard, timeout_s)
    except (TimeoutError, httpx.TimeoutException) as error:
        raise DeliveryFailed(f"no answer within {timeout_s:g} s") from error
    except AddressRefused as error:
        raise DeliveryFailed(str(error), is_final=True) from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, ValueError) as error:
        raise DeliveryFailed(f"the request cannot be made: {error}", is_final=True) from error
    except (httpx.HTTPError, OSError) as error:
        raise DeliveryFailed(f"{type(error).__name__} {error}".strip()) from error


async def _post(target: Target, parcel: Parcel, guard: Guard, timeout_s: float) -> None:
    body = codec.encode(parcel.document)
    headers = {"Content-Type": "application/json", "Idempotency-Key": parcel.id, "User-Agent": "tradewind"}
    url = target.url
    transport = GuardedTransport(guard)
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=timeout_s) as client:
        for _ in range(MAX_REDIRECTS + 1):
            # Headers and password belong to the place that they were written for.
            own = target.headers if _origin(url) == _origin(target.url) else {}
            request = client.build_request("POST", url, headers={**headers, **own}, content=body)
            response = await client.send(request, stream=True, follow_redirects=False)
            try:
                place = response.headers.get("location", "")
                if response.status_code not in _SAME_METHOD or not place:
                    await _judge(response)
                    return
            finally:
                await response.aclose()
            url = _redirected(url, place)
    raise DeliveryFailed(f"more than {MAX_REDIRECTS} redirects", is_final=True)


async def _judge(response: httpx.Response) -> None:
    status = response.status_code
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        hint = "give the address that it points to" if status != 304 else "that is no answer to a POST"
        raise DeliveryFailed(f"answered {status}; {hint}", is_final=True)
    text = (await _start(response)).decode(errors="replace")[:200]
    is_passing = status >= 500 or status in _PASSING
    message = f"answered {status}: {text}".rstrip(": ")
    raise DeliveryFailed(message, is_final=not is_passing, retry_after_s=_retry_after(response) if is_passing else 0)


async def _start(response: httpx.Response) -> bytes:
    """The beginning of an answer, as it came: whoever sends more sends it in vain."""
    data = bytearray()
    async for part in response.aiter_raw():
        data += part
        if len(data) > MAX_ANSWER:
            break
    return bytes(data)


def _redirected(old: str, place: str) -> str:
    new = urljoin(old, place)
    scheme, before = urlsplit(new).scheme, urlsplit(old).scheme
    if scheme not in ("http", "https") or (before == "https" and scheme == "http"):
        raise DeliveryFailed(f"it redirects from {before} to {scheme[:20]}", is_final=True)
    return new


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(min(int(text), MAX_RETRY_AFTER_S)) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0
