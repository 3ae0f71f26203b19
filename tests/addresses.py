"""Finds addresses in text that may belong to somebody: an example must never send a reader, or a test, there."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

#: RFC 5737 and RFC 3849; loopback, and "any" where a program listens.
_FREE = [
    ipaddress.ip_network(text)
    for text in ("127.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "::1/128")
]
_ANY = {"0.0.0.0", "::"}
#: RFC 2606 and RFC 6761.
_FREE_NAME = re.compile(r"(.+\.)?(example(\.(com|org|net))?|localhost|test|invalid)")
#: A reader follows these: they are no examples.
LINKS = frozenset({"github.com", "keepachangelog.com", "semver.org", "www.conventionalcommits.org", "json-schema.org"})
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)(?!/\d)")  # not of networks: they name nobody
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){2,7}(?::|[0-9a-fA-F]{1,4})[0-9a-fA-F:]*(?![\w:.]|/\d)")
_URL = re.compile(r"(?<![\w+.])[a-z][a-z0-9+.]*://[^\s`\"'<>()\[\],;…|]+")
_MAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)")


def strange_addresses(text: str) -> Iterator[str]:
    """Those that are neither loopback nor kept free for documentation."""
    for found in (*_IPV4.finditer(text), *_IPV6.finditer(text)):
        if not _is_free_address(found[0]):
            yield found[0]
    for found in _URL.finditer(text):
        if not _is_free_name(_host(found[0])):
            yield found[0]
    for found in _MAIL.finditer(text):
        if not _is_free_name(found[1]):
            yield found[0]


def _is_free_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return True  # a version, a time
    return text in _ANY or any(address in network for network in _FREE if network.version == address.version)


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".:")
    except ValueError:
        return ""


def _is_free_name(host: str) -> bool:
    """A word without a dot is a placeholder, such as `host`; what is filled in later is none of an example."""
    if "." not in host or "{" in host or "*" in host:
        return True
    if re.fullmatch(r"[\d.]+", host):
        return _is_free_address(host)
    return host in LINKS or _FREE_NAME.fullmatch(host.lower()) is not None
