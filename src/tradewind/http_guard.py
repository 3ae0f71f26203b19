"""HTTP calls that leave the station: guarded addresses, no proxies of the environment, bounded answers.

The transport looks at the address that it is about to connect to, after the name is resolved. So neither a name nor a
redirect nor an odd spelling (`http://2852039166/`) leads to an address that is refused, and a name that changes its
address between the look and the call gains nothing: the address that was seen is connected to.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpcore2
import httpx2 as httpx

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(part) for part in text.split())


#: Where clouds serve the credentials of a machine to whoever asks from inside: AWS, Azure, Google, Alibaba, Oracle.
METADATA = _networks(
    "169.254.0.0/16 fe80::/10 fd00:ec2::/32 fd20:ce::254/128 100.100.100.200/32 168.63.129.16/32 192.0.0.192/32"
)
#: The same by name, should somebody's resolver give them another address.
METADATA_HOSTS = frozenset({
    "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
    "metadata.azure.internal", "metadata.tencentyun.com", "metadata.packet.net",
})  # fmt: skip
#: This machine; `0.0.0.0` and `::` lead to it, too.
LOOPBACK = _networks("127.0.0.0/8 0.0.0.0/8 ::1/128 ::/128")

#: Everything that is not the public internet.
NOT_PUBLIC = _networks(
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
    "192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 "
    "::/128 ::1/128 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 3fff::/20 5f00::/16 fc00::/7 "
    "fe80::/10 fec0::/10 ff00::/8"
)


class AddressRefused(Exception):
    """A request would have gone to an address that is refused."""


class BadAnswer(Exception):
    """An answer is larger than its bound, or packed in a way that cannot be read."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What is refused, and what it is called. `allowed` hosts (in lower case, names or addresses) may be anywhere,
    and so may what is in the `networks`."""

    refused: tuple[Network, ...] = METADATA + LOOPBACK
    words: str = "an address of this machine, or one where clouds keep credentials"
    allowed: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def allows(self, host: str) -> bool:
        return plain_host(host) in self.allowed

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """Raises AddressRefused when the host, or one of its addresses, is refused."""
        if self.allows(host):
            return
        if self.refused and plain_host(host) in METADATA_HOSTS:
            raise AddressRefused(f"{host} is where clouds keep credentials; no request goes there")
        for address in addresses:
            if self.refuses(address):
                raise AddressRefused(f"{host} is at {address}, {self.words}; no request goes there")

    def refuses(self, address: str) -> bool:
        return is_refused(address, self.refused) and not (self.networks and is_refused(address, self.networks))


def guard_with(
    entries: Iterable[str],
    refused: tuple[Network, ...] = METADATA + LOOPBACK,
    words: str = "an address of this machine, or one where clouds keep credentials",
) -> Guard:
    """A guard that lets through what the entries of a setting name: hosts, addresses and networks (`10.0.0.0/8`).

    Raises ValueError for a network that is none.
    """
    hosts, networks = set(), []
    for entry in entries:
        if "/" in entry:
            networks.append(ipaddress.ip_network(entry, strict=False))
        else:
            hosts.add(plain_host(entry))
    return Guard(refused, words, frozenset(hosts), tuple(networks))


def plain_host(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


class GuardedTransport(httpx.AsyncBaseTransport):
    """Connects directly (no proxy of the environment), never to an address that the guard refuses."""

    def __init__(self, guard: Guard | None = None, max_connections: int = 100) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_ssl_context(),
            max_connections=max_connections,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_GuardedBackend(guard or Guard()),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _translated():
            answer = await self._pool.handle_async_request(asked)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Answer(answer), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Answer(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for part in self._answer.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


@contextmanager
def _translated() -> Iterator[None]:
    """The errors of the pool as those of the client, which have the same names."""
    try:
        yield
    except Exception as error:
        for kind in type(error).__mro__:
            if kind.__module__.startswith("httpcore2") and isinstance(
                found := getattr(httpx, kind.__name__, None), type
            ):
                raise found(str(error)) from error
        raise


def crossing(old: httpx.URL, request: httpx.Request) -> httpx.Request:
    """A request that a redirect makes: what the caller has added belongs to the origin that it was written for."""
    new = request.url
    is_upgrade = (old.scheme, new.scheme) == ("http", "https") and old.port is None and new.port is None
    is_same = is_upgrade or (old.scheme, old.port) == (new.scheme, new.port)
    if old.host == new.host and is_same:
        return request
    for name in list(request.headers):
        if name.lower() not in _OURS:
            del request.headers[name]
    return request


_OURS = frozenset({
    "host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length",
    "transfer-encoding",
})  # fmt: skip


async def read_answer(response: httpx.Response, most: int) -> bytes:
    """The body, unpacked, at most `most` bytes of it: a packed bomb grows no further. Raises BadAnswer."""
    packing = response.headers.get("content-encoding", "").strip().lower() or "identity"
    if packing not in ("identity", "gzip", "x-gzip", "deflate"):
        raise BadAnswer(f"the answer is packed as {packing[:40]}, which was not asked for")
    unpack = zlib.decompressobj(wbits=47) if packing != "identity" else None
    data, came = bytearray(), 0
    try:
        async for part in response.aiter_raw():
            came += len(part)
            data += part if unpack is None else unpack.decompress(part, most + 1 - len(data))
            if len(data) > most or came > most:
                raise BadAnswer(f"the answer is larger than {most} bytes")
    except zlib.error as error:
        raise BadAnswer(f"the answer cannot be unpacked: {error}") from error
    if unpack is not None and came and not unpack.eof:
        raise BadAnswer("the answer cannot be unpacked: it is cut off")
    return bytes(data)


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, guard: Guard) -> None:
        self._inner = httpcore2.AnyIOBackend()
        self._guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Tries the addresses of the host in turn. TLS still checks the name: it is passed on apart from this."""
        self._guard.check(host, ())
        addresses = await resolve(host, port)
        self._guard.check(host, addresses)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, odd spellings of numbers included. Raises ConnectError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host} cannot be resolved: {error}") from error
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def is_refused(address: str, refused: Sequence[Network] = METADATA) -> bool:
    """Also when an IPv4 address hides in an IPv6 one (`::ffff:169.254.169.254`, `::ffff:0:…`, 6to4, NAT64)."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    candidates: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = [ip]
    if isinstance(ip, ipaddress.IPv6Address):
        candidates += [inner for inner in (ip.ipv4_mapped, ip.sixtofour) if inner is not None]
        if ip in _NAT64 or ip in _TRANSLATED or int(ip) >> 32 == 0:
            candidates.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return any(candidate in network for candidate in candidates for network in refused)


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_TRANSLATED = ipaddress.ip_network("::ffff:0:0:0/96")
