"""Secrets of targets: never shown, kept when a masked address comes back unchanged, struck out of errors. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from tradewind.notify.policy import Target

MASK = "***"
#: Schemes whose address begins with a host; with others even that may be a token.
_HOSTED = re.compile(r"(http|mailto|json|xml|form|mqtt|ntfy|gotify|mmost|matrix|hassio|apprise)s?")
_SHORTEST = 4
_LONG = 8


def masked(url: str) -> str:
    """Scheme, user and host where they are no secret; everything else is `***`."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return MASK
    if not _HOSTED.fullmatch(scheme.lower()):
        return f"{scheme}://{MASK}"
    place, tail = _split(rest)
    user, at, host = place.rpartition("@")
    name, colon, _ = user.partition(":")
    if at and not colon:
        name = MASK  # a user without a password is a token
    shown = f"{name}:{MASK}@" if colon else f"{name}{at}"
    return f"{scheme}://{shown}{host}{tail if tail in ('', '/') else '/' + MASK}"


def masked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(headers, MASK)


def is_masked(text: str) -> bool:
    return MASK in text


def struck_out(text: str, target: Target) -> str:
    """The text without anything of the target that could be a secret."""
    scheme, _, rest = target.url.partition("://")
    place, tail = _split(rest)
    hosts = _host(place.rpartition("@")[2]) if _HOSTED.fullmatch(scheme.lower()) else set()
    words = [target.url, rest, tail, *target.headers.values()]
    words += re.split(r"[/?&=@:#,]", rest)
    words += [unquote(word) for word in words]
    for word in sorted({word for word in words if len(word) >= _SHORTEST and word not in hosts}, key=len, reverse=True):
        # A short one only by itself: `hang` would make `still ***s` of a plain sentence.
        pattern = re.escape(word) if len(word) >= _LONG else rf"(?<!\w){re.escape(word)}(?!\w)"
        text = re.sub(pattern, MASK, text)
    return text


def _host(place: str) -> set[str]:
    """A host, and the groups of an address of IPv6: no secrets."""
    if place.startswith("["):
        return set(place.strip("[]").partition("]")[0].split(":"))
    return {place.partition(":")[0]}


def _split(rest: str) -> tuple[str, str]:
    """User, host and port; and what follows them."""
    at = re.search(r"[/?#]|$", rest)
    end = at.start() if at else len(rest)
    return rest[:end], rest[end:]
