"""An HTTP transport that looks at the address it is about to connect to, after the name is resolved.

So neither a name nor a redirect nor an odd spelling (`http://2852039166/`) leads to an address that is refused, and a
name that changes its address between the look and the call gains nothing: the address that was seen is connected to.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import httpcore2
import httpx2 as httpx

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Where clouds serve the credentials of a machine to whoever asks from inside.
LINK_LOCAL: tuple[Network, ...] = (
    ipaddress.ip_network("169.254.0.0/16"),
    ipaddress.ip_network("fe80::/10"),
    ipaddress.ip_network("fd00:ec2::254/128"),
)

_NOT_PUBLIC = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
::/128 ::1/128 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 3fff::/20 5f00::/16 fc00::/7 fe80::/10
fec0::/10 ff00::/8
"""
#: Everything that is not the public internet.
NOT_PUBLIC: tuple[Network, ...] = tuple(ipaddress.ip_network(text) for text in _NOT_PUBLIC.split())


class AddressRefused(Exception):
    """A request would have gone to an address that is refused."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What is refused, and what it is called; `allowed` hosts (in lower case, names or addresses) may be anywhere."""

    refused: tuple[Network, ...] = LINK_LOCAL
    words: str = "a link-local address"
    allowed: frozenset[str] = frozenset()

    def allows(self, host: str) -> bool:
        return host.strip("[]").rstrip(".").lower() in self.allowed

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """Raises AddressRefused when one of the addresses of that host is refused."""
        if self.allows(host):
            return
        for address in addresses:
            if is_refused(address, self.refused):
                raise AddressRefused(f"{host} is at {address}, {self.words}; no request goes there")


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Connects directly (no proxy of the environment), never to an address that the guard refuses."""

    def __init__(self, guard: Guard | None = None) -> None:
        super().__init__(verify=_ssl_context())
        # The transport takes no backend of ours; its pool does.
        backend = _GuardedBackend(guard or Guard())
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=_ssl_context(), network_backend=backend)


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


def is_refused(address: str, refused: Sequence[Network] = LINK_LOCAL) -> bool:
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
