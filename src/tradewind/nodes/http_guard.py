"""An HTTP transport that looks at the address it is about to connect to, after the name is resolved.

So neither a name nor a redirect nor an odd spelling (`http://2852039166/`) leads to an address that is refused.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import ssl
from collections.abc import Iterable, Sequence

import httpcore2
import httpx2 as httpx

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Where clouds serve the credentials of a machine to whoever asks from inside.
LINK_LOCAL: tuple[Network, ...] = (
    ipaddress.ip_network("169.254.0.0/16"),
    ipaddress.ip_network("fe80::/10"),
    ipaddress.ip_network("fd00:ec2::254/128"),
)


class AddressRefused(Exception):
    """A request would have gone to an address that is refused."""


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Connects directly (no proxy of the environment), never to an address in `refused`."""

    def __init__(self, refused: Sequence[Network] = LINK_LOCAL) -> None:
        super().__init__(verify=_ssl_context())
        # The transport takes no backend of ours; its pool does.
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=_ssl_context(), network_backend=_GuardedBackend(refused))


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, refused: Sequence[Network]) -> None:
        self._inner = httpcore2.AnyIOBackend()
        self._refused = refused

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Tries the addresses of the host in turn. TLS still checks the name: it is passed on apart from this."""
        addresses = await _resolve(host, port)
        for address in addresses:
            if is_refused(address, self._refused):
                raise AddressRefused(f"{host} is at {address}, a link-local address; no request goes there")
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _resolve(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host} cannot be resolved: {error}") from error
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def is_refused(address: str, refused: Sequence[Network] = LINK_LOCAL) -> bool:
    """Also when an IPv4 address hides in an IPv6 one (`::ffff:169.254.169.254`, 6to4, NAT64)."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    candidates: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = [ip]
    if isinstance(ip, ipaddress.IPv6Address):
        candidates += [inner for inner in (ip.ipv4_mapped, ip.sixtofour) if inner is not None]
        if ip in _NAT64 or int(ip) >> 32 == 0:
            candidates.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return any(candidate in network for candidate in candidates for network in refused)


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
